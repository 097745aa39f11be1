//! Needs: the wanted parts of directories, and when they are fetched.
//!
//! Either a part of a directory is being fetched, or the directory is being written, or it can be
//! fetched: the store's rows of a directory that is being written are older than those that memory
//! has dropped. A directory that is read all the time is held back for a moment, so that it can be
//! written.

use metastore::Manifest;
use metastore::request::StoreOp;
use types::{Ino, Moment, Seq, Span, check_name};
use wire::{Op, ReadOp};

use super::{FetchCx, Fetches};
use crate::MdsEffects;
use crate::op::touched;
use crate::store::Waiting;

/// How long lookups of a directory are held back, so that it can be written.
const HELD_MAX: Span = Span::from_millis(200);

/// The part of a directory that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// These names; or, if there are none, how many it has.
    Names(Vec<Vec<u8>>),
    /// Everything.
    Whole,
}

/// The parts of a directory that all waiting requests need.
#[derive(Debug, Default)]
pub(super) struct Needed {
    pub(super) names: Vec<Vec<u8>>,
    pub(super) whole: bool,
}

impl Fetches {
    /// Whether a part of a directory is being fetched.
    pub(crate) fn is_under_way(&self, dir: Ino) -> bool {
        self.under_way.contains(&dir)
    }

    /// A directory is to be written: nothing more of it is fetched before.
    pub(crate) fn hold(&mut self, dir: Ino, now: Moment, target: Option<Seq>) {
        if !self.is_held(dir) {
            self.held.push((dir, now, target));
        }
    }

    fn is_held(&self, dir: Ino) -> bool {
        self.held.iter().any(|(held, ..)| *held == dir)
    }
}

impl FetchCx<'_> {
    /// Fetches the needed parts of a directory, unless that has to wait. A directory that is being
    /// written must not be read: it is fetched when the write ends.
    pub(super) fn start_fetch(&mut self, dir: Ino, effects: &mut MdsEffects) {
        let must_wait = self.fetches.is_held(dir) || self.namespace.dirs().is_flushing(dir);
        let Some(needed) = self.fetches.needed.get(&dir) else { return };
        if must_wait || !self.fetches.under_way.insert(dir) {
            return;
        }
        let op = if needed.whole {
            self.counters.fetches += 1;
            StoreOp::LoadDir { ino: dir }
        } else {
            self.counters.cold_lookups += 1;
            StoreOp::LookUp { ino: dir, names: needed.names.clone() }
        };
        self.store.begin(Waiting::Fetch(dir), op, effects);
    }

    /// The part of a directory that a request needs and memory lacks.
    pub(super) fn need_of(&self, op: &Op<'_>, dir: Ino) -> Need {
        let mut names: Vec<Vec<u8>> = if let Op::Read(ReadOp::Walk { base, path }) = *op {
            self.next_name(base, path, dir).into_iter().collect()
        } else {
            let of_dir = touched(op).names().filter(|at| at.dir == dir);
            of_dir.map(|at| at.name.to_vec()).collect()
        };
        names.retain(|name| {
            !self.namespace.dirs().knows_name(dir, name) && check_name(name).is_ok()
        });
        if names.is_empty() && !self.namespace.dirs().may_be_counted(dir) {
            return Need::Whole;
        }
        Need::Names(names)
    }

    /// The name that a path looks for in a directory.
    fn next_name(&self, base: Ino, path: &[u8], dir: Ino) -> Option<Vec<u8>> {
        let path = types::Path::parse(path).ok()?;
        let mut at = base;
        for name in path.components() {
            if at == dir {
                return Some(name.to_vec());
            }
            at = self.namespace.peek(at, name).ok()??;
        }
        None
    }

    /// Fetches the directories that were held back and are not written soon.
    pub(super) fn release_held(&mut self, effects: &mut MdsEffects) {
        let now = self.now;
        // They may be gone.
        let namespace = &self.namespace;
        let late = self.fetches.held.extract_if(.., |(dir, since, _)| {
            now.since(*since) >= HELD_MAX && !namespace.dirs().is_flushing(*dir)
        });
        let late: Vec<Ino> = late.map(|(dir, ..)| dir).collect();
        for dir in late {
            self.start_fetch(dir, effects);
        }
    }

    /// Whether a directory has so many names that a number that is about right will do.
    pub(super) fn is_large(&self, manifest: &Manifest) -> bool {
        let bytes = manifest.runs.iter().map(|run| run.bytes);
        bytes.fold(0, u64::saturating_add) > self.settings.about_bytes
    }
}

/// How many names a stored directory has and how many are directories, by its manifest; whether
/// exactly.
pub(super) fn counts_of(manifest: &Manifest) -> (u64, u64, bool) {
    if manifest.counts_exact {
        return (manifest.entries, manifest.subdirs, true);
    }
    let runs = manifest.runs.iter();
    let (live, removed) = runs.fold((0u64, 0u64), |(live, removed), run| {
        let own = run.rows.saturating_sub(run.removed);
        (live.saturating_add(own), removed.saturating_add(run.removed))
    });
    (live.saturating_sub(removed), manifest.subdirs, false)
}
