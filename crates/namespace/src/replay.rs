//! The replay of a rank's journal after a restart, as far as it differs from other changes.
//!
//! The journal begins at the oldest change that the store does not have. The server does not write
//! a removed directory, so the journal may begin between a change of the directory and its removal.
//! Then the store has *stale rows* of the directory: they name inodes that moved to other
//! directories, and the journal does not have the events of these moves. A replay fetches the stale
//! rows if the journal has events between its begin and the removal.
//!
//! Invariant: a stale row does not outlive the replay. Until its end the row has a lower version
//! than the row in the inode's present directory, because a replay changes no inode that it has
//! from a stale row only.

use types::Ino;

use crate::Namespace;

/// The state of a replay, until its end.
#[derive(Debug, Default)]
pub(crate) struct ReplayState {
    /// A journal is being replayed.
    pub(crate) active: bool,
    /// Inodes that lost their names to other ones in the journal that is replayed.
    replaced: Vec<Ino>,
    /// Directories of the replayed journal that the store's version of their parent does not name:
    /// a merge that no journal has replaced them. If no event names them again, they are forgotten.
    overtaken: Vec<Ino>,
}

impl ReplayState {
    /// Buries an inode that another replaced at the end of the replay. If a merge replaced a
    /// directory, a later record of the journal hands the names of the directory to the winner.
    pub(crate) fn bury_later(&mut self, replaced: Ino) {
        if self.active && replaced.0 != 0 {
            self.replaced.push(replaced);
        }
    }

    /// The store's version of a directory does not name one of its directories.
    pub(crate) fn overtake(&mut self, dir: Ino) {
        if self.active {
            self.overtaken.push(dir);
        }
    }
}

impl Namespace {
    /// A journal is replayed from now on, until [`Namespace::replay_ended`].
    pub fn replay_begins(&mut self) {
        self.replay.active = true;
    }

    /// The whole journal is here.
    pub fn replay_ended(&mut self) {
        self.replay.active = false;
        for dir in std::mem::take(&mut self.replay.replaced) {
            self.tree.bury(dir);
        }
        for dir in std::mem::take(&mut self.replay.overtaken) {
            if !self.tree.inodes.knows(dir) {
                self.tree.bury(dir);
            }
        }
        self.tree.resolve_replayed();
    }
}
