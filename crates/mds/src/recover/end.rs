//! The end of a recovery: the whole journal is applied.

use metastore::request::StoreOp;
use types::{Ino, Seq};

use super::Step;
use crate::fetch::Waiter;
use crate::{Mds, MdsEffects};

impl Mds {
    pub(super) fn replayed(&mut self, effects: &mut MdsEffects) {
        self.forget_departed(Seq(u64::MAX));
        if let Some(root) = self.lacking_root() {
            self.recovery.step = Step::FetchAbove(root);
            return self.fetching().wait_for_whole(
                Ino::mount_stub(root),
                Waiter::Recovery,
                effects,
            );
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
        if !garbage.is_empty() {
            self.checkpoint.forget(&mut self.store, StoreOp::Delete { objects: garbage }, effects);
        }
        self.purging().recover_removed(freed, last);
        let unclear = !segments.is_empty();
        self.log.resume(self.tables.epoch(), segments, (next_index, last));
        if unclear {
            self.authority.journal_is_unclear(self.log.last());
        }
        self.list_changed(effects);
        self.wait_for_clients(effects);
    }
}
