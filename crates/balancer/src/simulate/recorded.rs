//! A recorded load: the warmth of directories that the ranks of a cluster recorded at their ticks
//! ([`TickRecord`]), as requests for each directory in each second.
//!
//! A record has fading counters, of a directory with everything below it. Two of them give the
//! requests between two ticks, and the counters of a directory and of its children give the
//! directory's own. Not recorded: directories beyond the warmest 64 of a rank count as their
//! parents; the clients and the order of requests. Clients are therefore alike, and together send
//! as many requests as were recorded, as far as the ranks allow.
//!
//! Invariant: sizes are bounded for any records.

use std::collections::{BTreeMap, BTreeSet};

use types::{Ino, Rank, Span, Timestamp};

use super::workload::{Activity, Workload};
use super::{SECONDS_MAX, Setup, count};
use crate::{Counts, DecisionRecord, RecordedEvent, TickRecord, share_left};

/// The most directories that are told apart: the busiest.
const DIRS_MAX: usize = 1024;
/// After so many ticks without a word of a directory it is seen as for the first time.
const TICKS_MISSED_MAX: f64 = 3.0;
/// A client that has nothing to do asks again after this.
const IDLE_SECONDS: f64 = 1e6;
/// Requests that walk along a path which the client has not cached: not recorded, and assumed as in
/// the synthetic load that is most like it.
const TRAVERSES: f64 = 0.02;

/// Where a load comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load<'a> {
    Made(Workload),
    /// So many times a recorded one.
    Recorded(&'a Recording, f64),
}

/// A directory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecordedDir {
    pub(super) parent: Option<usize>,
    /// Names in it.
    pub(super) entries: f64,
    pub(super) pin: Option<Rank>,
}

/// Reads, writes and listings of a directory in a second.
type Kinds = [f64; 3];

/// See the module documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Parents come before their children; the first is the root.
    dirs: Vec<RecordedDir>,
    /// Second by second, the requests of each directory that had any.
    seconds: Vec<Vec<(usize, Kinds)>>,
    /// CPU of a request as the ranks measured it; none if they did not.
    request_seconds: Option<f64>,
}

/// The records' facts about a directory.
#[derive(Debug, Default)]
struct RecordedLoads {
    parent: Option<Ino>,
    entries: u64,
    pin: Option<Rank>,
    requests: f64,
    seconds: BTreeMap<usize, Kinds>,
}

/// A reading of the counters of a directory.
#[derive(Clone, Copy, Debug)]
struct CounterReading {
    /// Seconds since the begin of the recording.
    at: f64,
    counts: Kinds,
}

impl Recording {
    /// The load of these records, whose counters fade by half in `half_life`. None if they have no
    /// tick.
    #[must_use]
    pub fn of(records: &[DecisionRecord], half_life: Span) -> Option<Self> {
        let mut ticks: Vec<(Timestamp, Rank, &TickRecord)> = records
            .iter()
            .filter_map(|record| match &record.what {
                RecordedEvent::Tick(tick) => Some((record.time, record.rank, tick)),
                RecordedEvent::Move(_) => None,
            })
            .collect();
        ticks.sort_by_key(|(time, rank, _)| (*time, *rank));
        let (first, last) = (ticks.first()?, ticks.last()?);
        let lead = first.2.tick_seconds.clamp(0.0, f64::from(SECONDS_MAX));
        let at = |time: Timestamp| lead + seconds_between(first.0, time);
        let mut known = BTreeMap::from([(Ino::ROOT, RecordedLoads::default())]);
        let mut before: BTreeMap<(Rank, Ino), CounterReading> = BTreeMap::new();
        let (mut requests, mut busy) = (0.0, 0.0);
        for (time, rank, tick) in &ticks {
            let now = at(*time);
            if let Some(own) = tick.ranks.get(usize::from(rank.0)) {
                // A tick with few requests is a poor measure of the cost of one.
                requests += own.requests_per_second;
                busy += own.requests_per_second * own.request_seconds;
            }
            for (ino, counts) in learn(tick, &mut known) {
                let reading = CounterReading { at: now, counts };
                let last = before.insert((*rank, ino), reading);
                let (from, rates) = rates(last, reading, tick.tick_seconds, half_life);
                if let Some(known) = known.get_mut(&ino) {
                    known.spread(from, now, rates);
                }
            }
        }
        let length = whole(at(last.0).ceil()).clamp(1, SECONDS_MAX as usize);
        let request_seconds = Some(busy / requests).filter(|cost| cost.is_finite() && *cost > 0.0);
        Some(Self::laid_out(known, length, request_seconds))
    }

    /// How long it is.
    #[must_use]
    pub fn seconds(&self) -> u32 {
        u32::try_from(self.seconds.len()).unwrap_or(SECONDS_MAX)
    }

    /// Directories that it tells apart, the root among them.
    #[must_use]
    pub fn directories(&self) -> usize {
        self.dirs.len()
    }

    /// Requests in a second, on average.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let all = self.seconds.iter().flatten().map(|(_, kinds)| sum(kinds));
        all.sum::<f64>() / count(self.seconds.len())
    }

    pub(super) fn dirs(&self) -> &[RecordedDir] {
        &self.dirs
    }

    /// The work of each client in a second, if all load is `times` as much as recorded.
    pub(super) fn activity(&self, setup: &Setup, second: u32, times: f64) -> Activity {
        let work = self.seconds.get(second as usize).map_or(&[][..], Vec::as_slice);
        let all: f64 = work.iter().map(|(_, kinds)| sum(kinds)).sum();
        let model = &setup.model;
        let weight = self.request_seconds.map_or(1.0, |cost| cost / model.request_seconds);
        // Each client sends one request per such interval; a rank's work for it is a part of that.
        let every = f64::from(setup.clients) / (all * times).max(1e-9);
        let think_seconds = (every - weight * model.request_seconds).clamp(0.0, IDLE_SECONDS);
        let idle = [(0, [1.0, 0.0, 0.0])];
        let (work, all) = if all > 0.0 { (work, all) } else { (&idle[..], 1.0) };
        let share = |(dir, kinds): &(usize, Kinds)| (*dir, sum(kinds) / all);
        let each = |(_, kinds): &(usize, Kinds)| kinds.map(|kind| kind / sum(kinds));
        Activity {
            dirs: work.iter().map(share).collect(),
            kinds: [0.0; 3],
            each: work.iter().map(each).collect(),
            traverses: TRAVERSES,
            think_seconds,
            weight,
        }
    }

    /// Numbers the busiest directories, parents first, and adds the rest to their parents.
    fn laid_out(
        mut known: BTreeMap<Ino, RecordedLoads>,
        length: usize,
        request_seconds: Option<f64>,
    ) -> Self {
        let mut busiest: Vec<(f64, Ino)> =
            known.iter().map(|(ino, known)| (known.requests, *ino)).collect();
        busiest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut kept: BTreeSet<Ino> = busiest.iter().take(DIRS_MAX).map(|(_, ino)| *ino).collect();
        kept.insert(Ino::ROOT);
        let above: BTreeMap<Ino, Ino> =
            known.keys().map(|ino| (*ino, stands_in(*ino, &known, &kept))).collect();
        // Each round numbers the children of numbered directories; a directory that is its own
        // parent comes last.
        let mut numbers = BTreeMap::from([(Ino::ROOT, 0)]);
        let mut order = vec![Ino::ROOT];
        let mut at = 0;
        while let Some(dir) = order.get(at).copied() {
            at += 1;
            let below = kept.iter().filter(|ino| above.get(ino) == Some(&dir));
            for ino in below {
                if !numbers.contains_key(ino) {
                    numbers.insert(*ino, order.len());
                    order.push(*ino);
                }
            }
        }
        let number = |ino: &Ino| numbers.get(ino).copied().unwrap_or(0);
        let dirs = order.iter().map(|ino| {
            let known = known.get(ino);
            RecordedDir {
                parent: (*ino != Ino::ROOT).then(|| above.get(ino).map_or(0, number)),
                entries: known.map_or(0.0, |known| entries(known.entries)),
                pin: known.and_then(|known| known.pin),
            }
        });
        let dirs = dirs.collect();
        let mut seconds = vec![BTreeMap::<usize, Kinds>::new(); length];
        for (ino, known) in &mut known {
            let dir =
                if kept.contains(ino) { number(ino) } else { above.get(ino).map_or(0, number) };
            for (second, kinds) in std::mem::take(&mut known.seconds) {
                if let Some(all) = seconds.get_mut(second) {
                    add(all.entry(dir).or_default(), kinds);
                }
            }
        }
        let seconds = seconds
            .into_iter()
            .map(|all| all.into_iter().filter(|(_, kinds)| sum(kinds) > 0.0).collect());
        Self { dirs, seconds: seconds.collect(), request_seconds }
    }
}

impl RecordedLoads {
    /// Requests of so many seconds, at these rates.
    fn spread(&mut self, from: f64, to: f64, rates: Kinds) {
        self.requests += sum(&rates) * (to - from);
        let limit = f64::from(SECONDS_MAX);
        for second in whole(from.clamp(0.0, limit))..whole(to.clamp(0.0, limit).ceil()) {
            let (begin, end) = (count(second), count(second) + 1.0);
            let share = (to.min(end) - from.max(begin)).max(0.0);
            add(self.seconds.entry(second).or_default(), rates.map(|rate| rate * share));
        }
    }
}

/// Takes in the counters of a tick, and returns each directory's own, without those below.
fn learn(tick: &TickRecord, known: &mut BTreeMap<Ino, RecordedLoads>) -> BTreeMap<Ino, Kinds> {
    let mut own: Vec<Kinds> = tick.units.iter().map(|warm| kinds(&warm.unit.counts)).collect();
    let mut entries: Vec<u64> = tick.units.iter().map(|warm| warm.unit.inodes).collect();
    for (at, warm) in tick.units.iter().enumerate() {
        // Each comes after the one it stands in.
        if let Some(parent) = warm.unit.parent.filter(|parent| *parent < at) {
            let counts = kinds(&warm.unit.counts);
            add(&mut own[parent], counts.map(|kind| -kind));
            entries[parent] = entries[parent].saturating_sub(warm.unit.inodes);
        }
    }
    let mut all = BTreeMap::<Ino, Kinds>::new();
    for (at, warm) in tick.units.iter().enumerate() {
        let ino = warm.unit.id.ino;
        let above = warm.unit.parent.and_then(|parent| tick.units.get(parent));
        let above = above.map(|above| above.unit.id.ino).filter(|above| *above != ino);
        let known = known.entry(ino).or_default();
        known.parent = above.or(known.parent);
        known.entries = known.entries.max(entries[at]);
        known.pin = warm.unit.pin.or(known.pin);
        add(all.entry(ino).or_default(), own[at].map(|kind| kind.max(0.0)));
    }
    all
}

/// The start and the rates that explain a counter.
fn rates(
    last: Option<CounterReading>,
    CounterReading { at: now, counts }: CounterReading,
    tick_seconds: f64,
    half_life: Span,
) -> (f64, Kinds) {
    let fading = std::f64::consts::LN_2 / (nanos(half_life) / 1e9).max(1e-9);
    if let Some(CounterReading { at: since, counts: before }) = last
        && now > since
        && now - since <= tick_seconds * TICKS_MISSED_MAX
    {
        let left = share_left(span(now - since), half_life);
        let rate = |at: usize| {
            ((counts[at] - before[at] * left) * fading / (1.0 - left).max(1e-9)).max(0.0)
        };
        return (since, [rate(0), rate(1), rate(2)]);
    }
    // As if it had always been so.
    ((now - tick_seconds).max(0.0), counts.map(|count| count * fading))
}

/// The nearest kept directory above one; the root for a directory that is its own parent.
fn stands_in(ino: Ino, known: &BTreeMap<Ino, RecordedLoads>, kept: &BTreeSet<Ino>) -> Ino {
    let mut seen = BTreeSet::from([ino]);
    let mut at = ino;
    while let Some(above) = known.get(&at).and_then(|known| known.parent) {
        if !seen.insert(above) {
            return Ino::ROOT;
        }
        if kept.contains(&above) {
            // A parent must not be below its child.
            return if leads_to(above, ino, known) { Ino::ROOT } else { above };
        }
        at = above;
    }
    Ino::ROOT
}

/// Whether the way up from a directory comes to another one.
fn leads_to(from: Ino, to: Ino, known: &BTreeMap<Ino, RecordedLoads>) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut at = from;
    while let Some(above) = known.get(&at).and_then(|known| known.parent) {
        if above == to {
            return true;
        }
        if !seen.insert(above) {
            return false;
        }
        at = above;
    }
    false
}

fn kinds(counts: &Counts) -> Kinds {
    [counts.inode_reads, counts.inode_writes, counts.readdirs]
        .map(|kind| if kind.is_finite() { kind.max(0.0) } else { 0.0 })
}

fn add(to: &mut Kinds, kinds: Kinds) {
    to.iter_mut().zip(kinds).for_each(|(to, kind)| *to += kind);
}

fn sum(kinds: &Kinds) -> f64 {
    kinds.iter().sum()
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    nanos(Span(u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0))) / 1e9
}

#[allow(clippy::cast_precision_loss, reason = "a span in 52 bits of nanoseconds is 52 days")]
fn nanos(span: Span) -> f64 {
    span.0 as f64
}

#[allow(clippy::cast_precision_loss, reason = "more entries than 2^52 are none")]
fn entries(entries: u64) -> f64 {
    entries as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bounded span that is not negative; the cast saturates"
)]
fn span(seconds: f64) -> Span {
    Span((seconds * 1e9) as u64)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded and not negative; the cast saturates"
)]
fn whole(seconds: f64) -> usize {
    seconds as usize
}

#[cfg(test)]
mod tests;
