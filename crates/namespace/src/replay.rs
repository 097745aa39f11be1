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

use types::{FileType, Ino};

use crate::Namespace;
use crate::dir::Dir;
use crate::load::is_hidden;
use crate::page::Dentry;

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
        self.settle_replayed();
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

    /// The directories in memory that have no inode in memory. Most have a name in a directory of
    /// the store. The others have changes in the journal, and lost their names to a merge that no
    /// journal has, or have never had one: a crash undid the merge that made them.
    #[must_use]
    pub fn unnamed_dirs(&self) -> Vec<Ino> {
        let unnamed = |(ino, dir): &(&Ino, &Box<Dir>)| {
            !dir.withheld && !is_hidden(**ino) && !self.knows(**ino)
        };
        let mut all: Vec<Ino> = self.dirs.iter().filter(unnamed).map(|(ino, _)| *ino).collect();
        all.sort_unstable();
        all
    }

    /// Forgets a directory to which no name leads. Returns its directories, to which no name leads
    /// either. The content of its files is not freed: another directory of the store may have them.
    pub fn forget_unnamed(&mut self, dir: Ino) -> Vec<Ino> {
        let Some(content) = self.dirs.get(&dir) else { return Vec::new() };
        let is_inner = |dentry: &Dentry| {
            let is_dir = dentry.file_type() == FileType::Directory && !dentry.is_remote();
            is_dir && self.home_of(dentry.ino) == Some(dir)
        };
        let inner = content.list(None).map(|(_, dentry)| dentry).filter(is_inner);
        let inner = inner.map(|dentry| dentry.ino).collect();
        self.bury(dir);
        inner
    }

    /// The same at the end of the replay, for an inode that another replaced. If a merge replaced a
    /// directory, a later record of the journal hands the names of the directory to the winner.
    pub(crate) fn bury_later(&mut self, replaced: Ino) {
        if self.replays && replaced.0 != 0 {
            self.replaced.push(replaced);
        }
    }
}
