//! How often each directory fragment was used lately.
//!
//! A hit counts for the fragment and for every directory above it, and fades by half in every
//! half-life, so a number says how hot a subtree is now. Time is handed in.
//!
//! Invariant: all numbers are finite and not negative; faded counts are dropped, so the table holds
//! the warm directories and not all directories.

use types::{DirFragId, Map, Moment, Span};

/// The kind of a hit in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HitKind {
    /// An inode was read (`IRD`).
    InodeRead,
    /// An inode was written, made or removed (`IWR`).
    InodeWrite,
    /// The directory was listed (`READDIR`).
    ReadDir,
    /// The directory was fetched from the object store (`FETCH`).
    Fetch,
    /// The directory was written to the object store (`STORE`).
    Store,
}

/// One number for each [`HitKind`]: hits, faded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// `IRD`.
    pub inode_reads: f64,
    /// `IWR`.
    pub inode_writes: f64,
    /// `READDIR`.
    pub readdirs: f64,
    /// `FETCH`.
    pub fetches: f64,
    /// `STORE`.
    pub stores: f64,
}

impl Counts {
    /// The five numbers with the names that policies give them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("IRD", self.inode_reads),
            ("IWR", self.inode_writes),
            ("READDIR", self.readdirs),
            ("FETCH", self.fetches),
            ("STORE", self.stores),
        ]
    }

    /// Adds `hits` of one kind. Numbers that are not positive count nothing.
    pub fn add(&mut self, kind: HitKind, hits: f64) {
        let hits = if hits.is_finite() { hits.max(0.0) } else { 0.0 };
        match kind {
            HitKind::InodeRead => self.inode_reads += hits,
            HitKind::InodeWrite => self.inode_writes += hits,
            HitKind::ReadDir => self.readdirs += hits,
            HitKind::Fetch => self.fetches += hits,
            HitKind::Store => self.stores += hits,
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Counts) -> Counts {
        Counts {
            inode_reads: self.inode_reads + other.inode_reads,
            inode_writes: self.inode_writes + other.inode_writes,
            readdirs: self.readdirs + other.readdirs,
            fetches: self.fetches + other.fetches,
            stores: self.stores + other.stores,
        }
    }

    /// Each number times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Counts {
        Counts {
            inode_reads: self.inode_reads * factor,
            inode_writes: self.inode_writes * factor,
            readdirs: self.readdirs * factor,
            fetches: self.fetches * factor,
            stores: self.stores * factor,
        }
    }

    /// All hits of all kinds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.named().iter().map(|(_, value)| value).sum()
    }
}

/// Counts that fade.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DecayingCounts {
    counts: Counts,
    at: Moment,
}

impl DecayingCounts {
    /// The counts at `now`, if they halve in each `half_life`. A moment before the last hit sees
    /// the counts right after the last hit.
    #[must_use]
    pub fn at(&self, now: Moment, half_life: Span) -> Counts {
        self.counts.times(share_left(now.since(self.at), half_life))
    }

    /// Counts `hits` at `now`.
    pub fn hit(&mut self, kind: HitKind, hits: f64, now: Moment, half_life: Span) {
        self.counts = self.at(now, half_life);
        self.at = self.at.max(now);
        self.counts.add(kind, hits);
    }
}

/// The share of a count that is left after `passed`: 1/2 after a half-life. A half-life of zero
/// remembers nothing.
#[must_use]
pub fn share_left(passed: Span, half_life: Span) -> f64 {
    match (passed.0, half_life.0) {
        (0, _) => 1.0,
        (_, 0) => 0.0,
        (passed, half_life) => (-(nanos(passed) / nanos(half_life))).exp2(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a span in 52 bits of nanoseconds is 52 days")]
fn nanos(span: u64) -> f64 {
    span as f64
}

/// A directory with fewer remaining hits is dropped.
const FORGOTTEN_BELOW: f64 = 0.01;

/// The counters of one rank: per fragment the hits in it, and the hits in it and below.
#[derive(Clone, Debug)]
pub struct LoadTable {
    half_life: Span,
    own: Map<DirFragId, DecayingCounts>,
    nested: Map<DirFragId, DecayingCounts>,
}

impl LoadTable {
    /// The default half-life of every count: 5 seconds.
    pub const HALF_LIFE: Span = Span::from_millis(5_000);

    /// An empty table.
    #[must_use]
    pub fn new(half_life: Span) -> Self {
        Self { half_life, own: Map::default(), nested: Map::default() }
    }

    /// Counts `hits` in the first fragment of `path`, and below each of the remaining ones, which
    /// lead to it, the nearest first. An empty path counts nothing.
    pub fn hit(&mut self, path: &[DirFragId], kind: HitKind, hits: f64, now: Moment) {
        if let Some(first) = path.first() {
            self.own.entry(*first).or_default().hit(kind, hits, now, self.half_life);
        }
        for fragment in path {
            self.nested.entry(*fragment).or_default().hit(kind, hits, now, self.half_life);
        }
    }

    /// The hits in a fragment itself.
    #[must_use]
    pub fn own(&self, id: DirFragId, now: Moment) -> Counts {
        self.own.get(&id).map_or_else(Counts::default, |own| own.at(now, self.half_life))
    }

    /// The hits in a fragment and everywhere below it.
    #[must_use]
    pub fn nested(&self, id: DirFragId, now: Moment) -> Counts {
        self.nested.get(&id).map_or_else(Counts::default, |all| all.at(now, self.half_life))
    }

    /// A directory was split into parts inside it: each gets an equal share of the hits in the
    /// directory itself.
    pub fn split(&mut self, id: DirFragId, parts: &[DirFragId]) {
        let Some(old) = self.own.remove(&id) else { return };
        let share = 1.0 / f64::from(u32::try_from(parts.len()).unwrap_or(u32::MAX)).max(1.0);
        for part in parts {
            let counts = old.counts.times(share);
            for table in [&mut self.own, &mut self.nested] {
                table.insert(*part, DecayingCounts { counts, at: old.at });
            }
        }
    }

    /// The reverse: the hits in the parts of a directory become hits in the directory.
    pub fn join(&mut self, parts: &[DirFragId], id: DirFragId, now: Moment) {
        let mut sum = self.own(id, now);
        for part in parts {
            sum = sum.plus(&self.own(*part, now));
            self.own.remove(part);
            self.nested.remove(part);
        }
        self.own.insert(id, DecayingCounts { counts: sum, at: now });
    }

    /// A subtree left: its fragment is dropped here, and its hits are subtracted from `above`, the
    /// fragments that lead to it.
    pub fn left(&mut self, id: DirFragId, above: &[DirFragId], now: Moment) {
        let gone = self.nested(id, now);
        self.own.remove(&id);
        self.nested.remove(&id);
        for fragment in above {
            let Some(counts) = self.nested.get_mut(fragment) else { continue };
            let rest = counts.at(now, self.half_life).plus(&gone.times(-1.0));
            *counts = DecayingCounts { counts: positive(&rest), at: now };
        }
    }

    /// Drops faded counts. To be called regularly, such as at every heartbeat.
    pub fn forget(&mut self, now: Moment) {
        let half_life = self.half_life;
        let warm = |_: &DirFragId, counts: &mut DecayingCounts| {
            counts.at(now, half_life).sum() >= FORGOTTEN_BELOW
        };
        self.own.retain(warm);
        self.nested.retain(warm);
    }

    /// Whether something of a fragment is remembered.
    #[must_use]
    pub fn knows(&self, id: DirFragId) -> bool {
        self.nested.contains_key(&id)
    }

    /// All fragments of the table, in no particular order, each with the hits in it and below.
    pub fn all(&self, now: Moment) -> impl Iterator<Item = (DirFragId, Counts)> {
        self.nested.iter().map(move |(id, all)| (*id, all.at(now, self.half_life)))
    }

    /// How many fragments are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nested.len()
    }

    /// Whether nothing is warm.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nested.is_empty()
    }
}

/// Subtracting a rounded number may end a hair below zero.
fn positive(counts: &Counts) -> Counts {
    Counts {
        inode_reads: counts.inode_reads.max(0.0),
        inode_writes: counts.inode_writes.max(0.0),
        readdirs: counts.readdirs.max(0.0),
        fetches: counts.fetches.max(0.0),
        stores: counts.stores.max(0.0),
    }
}

#[cfg(test)]
mod tests;
