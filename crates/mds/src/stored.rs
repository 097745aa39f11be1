//! Ended store operations: the result goes to the part of the server that waits for it.

use metastore::request::{StoreFailure, StoreResult, Token};

use crate::log::Written;
use crate::recover::RecoveryInput;
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
            Waiting::Tables => self.storing_tables().stored(result, effects),
            Waiting::Fetch(dir) => self.fetched(dir, result, effects),
            Waiting::Checkpoint(dir) => self.checkpointing().committed(dir, result, effects),
            Waiting::Compact(dir) => self.checkpointing().compacted(dir, result, effects),
            Waiting::MergeObject(id) => self.merging().object_read(id, result, effects),
            Waiting::Attach(id) => self.merges.attach_stored(id, result, effects),
            Waiting::Trim => self.checkpointing().trimmed(result, effects),
            Waiting::Forget => self.checkpoint.forgotten(result, self.clock.now),
            Waiting::Purge(task) => self.checkpointing().purge_stored(task, result, effects),
            Waiting::Share(ino) => self.files().share_stored(ino, result, effects),
            Waiting::Subtrees => self.list_stored(result, effects),
            Waiting::Snapshot(id) => self.snapshots.taken(id, result),
            Waiting::Balance(what) => {
                self.balancing().stored(what, result);
                self.begin_moves(effects);
            }
            Waiting::Adopt(adopting) => self.adopt_read(*adopting, result, effects),
        }
        self.purging().step(effects);
    }

    fn journal_stored(
        &mut self,
        token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let Some(written) = self.logging().stored(token, result, effects) else { return };
        if written == Written::Safe {
            self.checkpointing().commit_captured(effects);
        }
        self.finish_merges(effects);
    }
}
