//! Compaction: merging runs of directories, one directory after the other, beside everything else.
//!
//! A commit reports when a directory has runs that should be merged. The driver of the store
//! operations merges them at a place where no other operation waits behind it, and the namespace
//! does not change. If that fails the directory stays unmerged; the next commit asks again.
//!
//! Invariant: a directory's runs are merged only by the rank that serves it. So no compaction
//! begins while a subtree moves to another rank, and the subtree does not leave before a running
//! one ends.

use std::collections::VecDeque;

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use types::{Ino, Set};

use crate::checkpoint::CheckpointCx;
use crate::store::Waiting;
use crate::{MdsEffects, Phase};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Compaction {
    queue: VecDeque<Ino>,
    queued: Set<Ino>,
    /// The directory whose runs are being merged.
    running: Option<Ino>,
}

impl Compaction {
    /// Whether runs are being merged.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// The directory whose runs are being merged.
    pub(crate) fn running(&self) -> Option<Ino> {
        self.running
    }

    /// How many directories wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Queued directories may be another rank's by now. The next commit asks again for those of
    /// this rank.
    pub(crate) fn forget(&mut self) {
        self.queue.clear();
        self.queued.clear();
    }

    /// Checks that each directory waits once; the store merges the runs of `merging`.
    ///
    /// # Panics
    /// If that does not hold.
    pub(crate) fn validate(&self, merging: &[Ino]) {
        assert!(self.queue.len() == self.queued.len(), "each directory waits once for compaction");
        let unknown = self.queue.iter().find(|dir| !self.queued.contains(*dir));
        assert!(unknown.is_none(), "{unknown:?} waits for compaction, and is not known to");
        let running = self.running.as_slice();
        assert!(merging == running, "the store merges the runs of {merging:?}, not {running:?}");
    }

    fn want(&mut self, dir: Ino) {
        if self.queued.insert(dir) {
            self.queue.push_back(dir);
        }
    }
}

impl CheckpointCx<'_> {
    /// A directory was written.
    pub(crate) fn note_written(
        &mut self,
        dir: Ino,
        result: &StoreResult,
        effects: &mut MdsEffects,
    ) {
        if let StoreResult::Written { compact, bytes } = *result {
            self.counters.run_bytes += bytes.0;
            self.counters.rewritten_bytes += bytes.1;
            if compact {
                self.compaction.want(dir);
            }
        }
        self.compact_next(effects);
    }

    pub(crate) fn compacted(
        &mut self,
        dir: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        assert!(self.compaction.running == Some(dir), "{dir}: the runs were being merged");
        self.compaction.running = None;
        if let Ok(result) = result {
            self.counters.compactions += 1;
            self.note_written(dir, &result, effects);
        }
        self.compact_next(effects);
    }

    /// Begins with the directory that waits longest.
    pub(crate) fn compact_next(&mut self, effects: &mut MdsEffects) {
        if self.compaction.is_busy() || self.phase != Phase::Active || self.authority.is_exporting()
        {
            return;
        }
        let Some(ino) = self.compaction.queue.pop_front() else { return };
        let queued = self.compaction.queued.remove(&ino);
        assert!(queued, "{ino}: a directory in the queue is known to be");
        self.compaction.running = Some(ino);
        self.store.begin(Waiting::Compact(ino), StoreOp::CompactDir { ino }, effects);
    }
}
