//! Ended store operations: the result goes to the part of the server that waits for it.

use metastore::request::{StoreFailure, StoreResult, Token};

use crate::balance::BalanceCx;
use crate::checkpoint::CheckpointCx;
use crate::files::FilesCx;
use crate::log::{LogCx, Written};
use crate::merge::MergeCx;
use crate::purge::PurgeCx;
use crate::recover::RecoveryInput;
use crate::tables::TablesCx;
use crate::{Mds, MdsEffects, Waiting};

impl Mds {
    pub(crate) fn stored(
        &mut self,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let Some(waiting) = self.store.end(token) else { return };
        self.counters.store_failures += u64::from(result.is_err());
        self.noticed.store.note(self.clock.now, &result);
        match waiting {
            Waiting::Recovery => self.recover(RecoveryInput::Stored(result), effects),
            Waiting::Log => self.journal_stored(token, result, effects),
            Waiting::Tables => TablesCx::of(self).stored(result, effects),
            Waiting::Fetch(dir) => self.fetched(dir, result, effects),
            Waiting::Checkpoint(dir) => CheckpointCx::of(self).committed(dir, result, effects),
            Waiting::Compact(dir) => CheckpointCx::of(self).compacted(dir, result, effects),
            Waiting::MergeObject(id) => MergeCx::of(self).object_read(id, result, effects),
            Waiting::Attach(id) => self.merges.attach_stored(id, result, effects),
            Waiting::Trim => CheckpointCx::of(self).trimmed(result, effects),
            Waiting::Forget => self.checkpoint.forgotten(result, self.clock.now),
            Waiting::Purge(task) => CheckpointCx::of(self).purge_stored(task, result, effects),
            Waiting::Share(ino) => FilesCx::of(self).share_stored(ino, result, effects),
            Waiting::Subtrees => self.list_stored(result, effects),
            Waiting::CrossRename(id) => self.cross_rename_stored(id, &result, effects),
            Waiting::Snapshot(id) => self.snapshots.taken(id, result),
            Waiting::Balance(what) => {
                BalanceCx::of(self).stored(what, result);
                self.begin_moves(effects);
            }
            Waiting::Adopt(adopting) => self.adopt_read(*adopting, result, effects),
        }
        PurgeCx::of(self).step(effects);
    }

    fn journal_stored(
        &mut self,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let Some(written) = LogCx::of(self).stored(token, result, effects) else { return };
        if written == Written::Safe {
            CheckpointCx::of(self).commit_captured(effects);
        }
        self.finish_merges(effects);
    }
}
