//! The end of a recovery: the whole journal is applied.

use types::{Ino, Seq};

use super::{RecoveryCx, RecoveryNeed, Step};
use crate::MdsEffects;

impl RecoveryCx<'_> {
    /// Hands the journal and what it left to the parts that continue with them, unless the root of
    /// a served subtree is missing.
    pub(super) fn replayed(&mut self, effects: &mut MdsEffects) -> RecoveryNeed {
        self.forget_departed(Seq(u64::MAX));
        if let Some(root) = self.authority.lacking_root(self.namespace) {
            self.recovery.step = Step::FetchAbove(root);
            return RecoveryNeed::Directory(Ino::mount_stub(root));
        }
        assert!(self.recovery.batch.is_empty(), "each create of the journal is applied");
        assert!(self.recovery.segment.is_none(), "each segment is applied");
        self.recovery.step = Step::Idle;
        self.doubt_damaged();
        self.namespace.replay_ended();
        self.merges.leave(std::mem::take(&mut self.recovery.unfinished));
        let freed = self.namespace.take_freed();
        let chain = std::mem::take(&mut self.recovery.chain);
        let (next_index, last) = (chain.next_index(), chain.last());
        let (segments, garbage) = chain.into_parts();
        let unclear = !segments.is_empty();
        self.log.resume(self.tables.epoch(), segments, next_index, last);
        // Before the segments that count: without these, the next recovery would take the events
        // of a segment that this one gave up for the start of the journal.
        let first = self.log.first_replayed();
        self.checkpoint.delete_segments(self.store, garbage, first, effects);
        if unclear {
            self.authority.journal_is_unclear(self.log.last());
        }
        RecoveryNeed::Clients { freed, last }
    }
}
