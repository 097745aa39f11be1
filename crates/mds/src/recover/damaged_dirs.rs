//! Recovery without a damaged directory. Its events are applied to an empty directory, because
//! the same events change intact directories, too.

use metastore::request::{StoreFailure, StoreOp};
use types::{Error, Ino, Result, Seq};

use super::{RecoveryCx, RecoveryNeed, Step};
use crate::MdsEffects;
use crate::damage::is_damage;

/// Whether the rest can be served without a directory. Without the inode of a subtree's root, the
/// server cannot serve the subtree.
fn is_dispensable(dir: Ino) -> bool {
    dir != Ino::ANCHOR && !dir.is_mount_stub()
}

impl RecoveryCx<'_> {
    /// Continues the replay without a damaged directory.
    ///
    /// # Errors
    /// The given one, if the server cannot serve without the directory.
    pub(super) fn continue_without(
        &mut self,
        dir: Ino,
        error: Error,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        let replays = matches!(self.recovery.step, Step::Replay | Step::ReadStored);
        if !replays || !is_damage(error.errno) || !is_dispensable(dir) {
            return Err(error);
        }
        // Events before this one did not need the directory, or made it dirty.
        let since = Seq(self.recovery.applied.0.saturating_add(1));
        self.damage.withhold(self.namespace, dir, since, &error);
        self.namespace.handover().take_as_empty(dir);
        self.replay_on(effects)
    }

    /// The store failed. If it cannot tell at which position it has a directory, the replay
    /// continues without the directory.
    pub(super) fn continue_without_stored(
        &mut self,
        StoreFailure { op, error }: StoreFailure,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        let (Step::ReadStored, StoreOp::LoadDir { ino }) = (&self.recovery.step, op) else {
            return Err(error);
        };
        self.recovery.stored = Some(None);
        self.continue_without(ino, error, effects)
    }

    /// After the replay, names that are missing in memory may still be in the store.
    pub(super) fn doubt_damaged(&mut self) {
        let dirs: Vec<Ino> = self.damage.all_withheld().map(|(dir, _)| dir).collect();
        for dir in dirs {
            if dir == Ino::LINKS {
                // The replay did not know all names of these inodes, so it counted wrong.
                self.namespace.handover().forget_dirs(&[dir]);
                self.namespace.handover().withhold(dir);
            }
            self.namespace.handover().doubt(dir);
        }
    }
}
