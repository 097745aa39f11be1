//! Inodes with several names, which are at home in [`Ino::LINKS`].

use journal::{InodeSnapshot, Loss};
use types::{Ino, Timestamp};

use super::{Apply, ApplyOutcome, Mode};
use crate::inode::HashedName;
use crate::{link_hash, link_name};

impl Apply<'_> {
    /// Stores an inode that has, or had, several names.
    pub(super) fn insert_linked(&mut self, snapshot: &InodeSnapshot<'_>) {
        let ino = snapshot.attr.ino;
        let nlink = if self.when.mode == Mode::Replay { snapshot.attr.nlink } else { 0 };
        let home = HashedName { dir: Ino::LINKS, hash: link_hash(ino) };
        self.tree.inodes.put_snapshot(self.when, home, snapshot, nlink);
        self.tree.keep_in_links(self.when.seq, ino, snapshot.attr.file_type());
    }

    /// As [`Apply::release`] in a replay, for a name that has left the store: an inode with
    /// further names still counts this one.
    pub(super) fn release_unseen(&mut self, ino: Ino) {
        if self.when.mode == Mode::Replay && self.tree.inodes.home_of(ino) == Some(Ino::LINKS) {
            self.lose_link(ino);
        }
    }

    /// An inode with several names came from another rank, with all of them.
    #[cold]
    pub(super) fn arrive_linked(&mut self, moved: &InodeSnapshot<'_>) -> ApplyOutcome {
        if self.when.merges() {
            return ApplyOutcome::Rejected;
        }
        let ino = moved.attr.ino;
        match self.tree.inodes.get(ino).map(|known| (known.home, known.file_type())) {
            None => self.insert_linked(moved),
            Some((Ino::LINKS, _)) => self.tree.inodes.refresh(self.when, moved),
            Some((home, file_type)) => {
                self.tree.make_remote(ino);
                self.tree.dirs.note_dirty(self.when.seq, home);
                self.tree.inodes.refresh(self.when, moved);
                self.tree.keep_in_links(self.when.seq, ino, file_type);
            }
        }
        self.tree.mark_inode(self.when.seq, ino);
        ApplyOutcome::Done
    }

    fn note_lost_name(&mut self, ino: Ino, time: Timestamp) {
        let known = |loss: &&mut Loss| (loss.winner, loss.loser) == (Ino(0), ino);
        match self.displaced.losses.iter_mut().find(known) {
            Some(loss) => (loss.names, loss.time) = (loss.names + 1, time),
            None => self.displaced.losses.push(Loss { winner: Ino(0), loser: ino, names: 1, time }),
        }
    }

    /// An inode with several names lost one of them.
    pub(super) fn lose_link(&mut self, ino: Ino) {
        self.lose_links(ino, 1);
    }

    pub(super) fn lose_links(&mut self, ino: Ino, names: u32) {
        if self.when.merges() && self.tree.inodes.knows(ino) {
            self.note_lost_name(ino, self.when.time);
        }
        let Some(inode) = self.tree.inodes.get_mut(ino) else { return };
        if self.when.mode == Mode::Remerge || self.when.is_in(inode.version) {
            return;
        }
        inode.nlink = inode.nlink.saturating_sub(names);
        inode.ctime = self.when.time;
        inode.stamp(self.when);
        debug_assert!(!inode.is_dir(), "{ino}: a directory has one name");
        if inode.nlink == 0 {
            self.tree.dirs.make(Ino::LINKS).unset(link_hash(ino), &link_name(ino));
            self.tree.dirs.note_dirty(self.when.seq, Ino::LINKS);
            self.free(ino);
        } else {
            self.tree.mark_inode(self.when.seq, ino);
        }
    }
}
