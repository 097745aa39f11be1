//! Merging runs of directories, one directory after the other, while everything else goes on.
//!
//! A commit says when a directory has runs that should be merged. That is done by whoever carries out
//! store operations, at a place where nothing waits behind it, and changes nothing that the namespace
//! knows. If it fails the directory stays as it is; the next commit asks again.
//!
//! Invariant: a directory's runs are merged only by the rank that serves it. So nothing is begun while a
//! subtree is on its way to another rank, and the subtree does not go before what was begun is done.

use std::collections::VecDeque;

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use types::{Ino, Set};

use crate::{Effects, Mds, Phase, Waiting};

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

    /// Directories that wait may be another rank's by now. Those that are not are asked for again.
    pub(crate) fn forget(&mut self) {
        self.queue.clear();
        self.queued.clear();
    }

    fn want(&mut self, dir: Ino) {
        if self.queued.insert(dir) {
            self.queue.push_back(dir);
        }
    }
}

impl Mds {
    /// Whether the server is about to end: what may be left undone should be.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping | Phase::Stopped)
    }

    /// A directory was written.
    pub(crate) fn note_written(&mut self, dir: Ino, result: &StoreResult, effects: &mut Effects) {
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
        effects: &mut Effects,
    ) {
        self.compaction.running = None;
        if let Ok(result) = result {
            self.counters.compactions += 1;
            self.note_written(dir, &result, effects);
        }
        self.compact_next(effects);
    }

    /// Begins with the directory that waits longest.
    pub(crate) fn compact_next(&mut self, effects: &mut Effects) {
        if self.compaction.is_busy() || self.phase != Phase::Active || self.authority.is_exporting()
        {
            return;
        }
        let Some(ino) = self.compaction.queue.pop_front() else { return };
        self.compaction.queued.remove(&ino);
        self.compaction.running = Some(ino);
        self.store(Waiting::Compact(ino), StoreOp::CompactDir { ino }, effects);
    }
}
