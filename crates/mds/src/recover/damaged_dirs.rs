//! Recovery without a damaged directory. Its events are applied to an empty directory, because
//! the same events change intact directories, too.

use metastore::request::{StoreFailure, StoreOp};
use types::{Error, Ino, Seq};

use super::Step;
use crate::damage::is_damage;
use crate::{Mds, MdsEffects};

/// Whether the rest can be served without a directory. Without the inode of a subtree's root, the
/// server cannot serve the subtree.
fn is_dispensable(dir: Ino) -> bool {
    dir != Ino::ANCHOR && !dir.is_mount_stub()
}

impl Mds {
    /// Continues the replay without a damaged directory. Returns whether that is possible.
    pub(crate) fn recover_without(
        &mut self,
        dir: Ino,
        error: &Error,
        effects: &mut MdsEffects,
    ) -> bool {
        let replays = matches!(self.recovery.step, Step::Replay | Step::ReadStored);
        if !replays || !is_damage(error.errno) || !is_dispensable(dir) {
            return false;
        }
        // Events before this one did not need the directory, or made it dirty.
        self.damage.withhold(
            &mut self.namespace,
            dir,
            Seq(self.recovery.applied.0.saturating_add(1)),
            error,
        );
        self.namespace.take_as_empty(dir);
        self.replay_on(effects);
        true
    }

    /// The position of a directory in the store is unknown. Returns whether the replay continues.
    pub(super) fn recover_without_stored(
        &mut self,
        failure: &StoreFailure,
        effects: &mut MdsEffects,
    ) -> bool {
        let (Step::ReadStored, StoreOp::LoadDir { ino }) = (&self.recovery.step, &failure.op)
        else {
            return false;
        };
        self.recovery.stored = Some(None);
        self.recover_without(*ino, &failure.error, effects)
    }

    /// After the replay, names that are missing in memory may still be in the store.
    pub(super) fn doubt_damaged(&mut self) {
        let dirs: Vec<Ino> = self.damage.all_withheld().map(|(dir, _)| dir).collect();
        for dir in dirs {
            if dir == Ino::LINKS {
                // The replay did not know all names of these inodes, so it counted wrong.
                self.namespace.forget_dirs(&[dir]);
                self.namespace.withhold(dir);
            }
            self.namespace.doubt(dir);
        }
    }
}
