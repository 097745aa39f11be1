//! The invariants of checkpoints.

use namespace::Namespace;
use types::{Ino, Set};

use super::Checkpoint;
use super::flush::Then;
use crate::Phase;
use crate::op::Change;

/// The operations of checkpoints that the store executes.
#[derive(Debug, Default)]
pub(crate) struct CheckpointOps {
    pub(crate) writing: Vec<Ino>,
    pub(crate) forgetting: usize,
    pub(crate) trimming: usize,
}

impl Checkpoint {
    /// Checks the invariants of checkpoints; the store executes `ops`.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(
        &self,
        ops: &CheckpointOps,
        namespace: &Namespace,
        changes: &[Change],
        phase: Phase,
    ) {
        let capturing = self.capturing.iter().map(|(capture, ..)| capture.dir);
        let captured = self.captured.iter().map(|(_, dir, _)| *dir);
        let failed = self.failed.iter().map(|(dir, ..)| *dir);
        let mut writing = Set::default();
        for dir in capturing.chain(captured).chain(failed).chain(ops.writing.iter().copied()) {
            assert!(writing.insert(dir), "{dir}: one write of a directory at a time");
            let known = self.committing.iter().any(|(known, _)| *known == dir);
            assert!(known, "{dir}: the write is known to be under way");
        }
        for (dir, _) in &self.committing {
            assert!(writing.contains(dir), "{dir}: a known write is under way");
        }
        assert!(writing.len() == self.committing.len(), "each write is known once");
        assert!(self.forgetting == ops.forgetting, "{} deletions are counted", self.forgetting);
        let trims = ops.trimming + usize::from(self.untrimmed.is_some());
        assert!(trims == usize::from(self.trimming), "one trim of the journal at a time");
        let order = self.captured.iter().zip(self.captured.iter().skip(1));
        for ((before, ..), (after, ..)) in order {
            assert!(before <= after, "captured directories wait in the order of their events");
        }
        for dir in namespace.dirs().unstored_directories() {
            let writing = self.committing.iter().any(|(known, _)| *known == dir);
            let flushing = namespace.dirs().is_flushing(dir);
            // A recovery writes the root directory itself.
            let known = writing || !flushing || phase == Phase::Recovering;
            assert!(known, "{dir}: a directory that is being written is known");
        }
        for change in changes {
            let waits = &self.flushes.waiting;
            let waits = waits.iter().any(|it| it.then == Then::GoOn && it.at == change.at());
            assert!(waits, "a change of policy waits for a subtree to be stored");
        }
    }
}
