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

impl Namespace {
    /// A journal is replayed from now on, until [`Namespace::replay_ended`].
    pub fn replay_begins(&mut self) {
        self.replays = true;
    }

    /// The whole journal is here.
    pub fn replay_ended(&mut self) {
        self.replays = false;
        for dir in std::mem::take(&mut self.replaced) {
            self.bury(dir);
        }
        for dir in std::mem::take(&mut self.overtaken) {
            if !self.knows(dir) {
                self.bury(dir);
            }
        }
        self.resolve_replayed();
    }

    /// The directory of an inode at the time of an event. It must be fetched before the event
    /// changes the inode, if the row of the inode in memory is one of another directory and may be
    /// stale.
    pub(crate) fn moved_home_needed(&self, ino: Ino, home: Ino) -> Option<Ino> {
        let is_other = |known: Ino| known != home && known != Ino::LINKS;
        let moved = self.replays && self.home_of(ino).is_some_and(is_other);
        (moved && !self.is_complete(home)).then_some(home)
    }

    /// Forgets a directory that an event removed, and the inodes of its stale rows. The directory
    /// was empty at that time, so all rows that it has left are stale. The content of a directory
    /// among these inodes stays: the journal may have changes of it.
    pub(crate) fn bury(&mut self, dir: Ino) {
        let Some(content) = self.dirs.remove(&dir) else { return };
        if self.policies.remove(&dir).is_some() {
            self.policy_generation += 1;
        }
        for (_, dentry) in content.list(None).filter(|(_, dentry)| !dentry.is_remote()) {
            if self.home_of(dentry.ino) == Some(dir) {
                self.forget_inode(dentry.ino);
            }
        }
    }

    /// The same at the end of the replay, for an inode that another replaced. If a merge replaced a
    /// directory, a later record of the journal hands the names of the directory to the winner.
    pub(crate) fn bury_later(&mut self, replaced: Ino) {
        if self.replays && replaced.0 != 0 {
            self.replaced.push(replaced);
        }
    }
}
