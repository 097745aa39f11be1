//! Ownership of names: giving names to inodes, taking them away, and the consequences for an inode
//! that loses one.
//!
//! Not here: the meaning of an event (module `apply`) and the storage of names in a directory
//! (`dir`).
//!
//! Invariants: an inode outside [`Ino::LINKS`] has at most one name, and its `home` says which;
//! in any mode but [`Mode::Replay`], `nlink` is the number of its names.

use journal::{InodeSnapshot, Loss};
use types::{EntryName, FileType, Ino, Seq, name_hash};

use super::{Apply, ApplyOutcome, Mode};
use crate::FreedInode;
use crate::dir::Dir;
use crate::inode::{HashedName, Inode};
use crate::page::{Dentry, Target};

/// A directory takes over the names of another of the same name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adoption {
    pub(super) loser: Ino,
    pub(super) winner: Ino,
}

impl Apply<'_> {
    /// Puts an existing inode under a name, and replaces an earlier entry.
    pub(super) fn place(
        &mut self,
        entry: EntryName<'_>,
        snapshot: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        let ino = snapshot.attr.ino;
        let EntryName { dir: parent, name } = entry;
        let hash = name_hash(name);
        let place = HashedName { dir: parent, hash };
        let remote = self.resolve_home(place, snapshot);
        let known = self.tree.inodes.get(ino).map(Inode::file_type);
        let file_type = known.unwrap_or(snapshot.attr.file_type());
        let target = Target { ino, file_type, remote };
        let before = self.tree.dirs.make(parent).set(hash, name, target);
        if remote {
            if before.is_none_or(|before| before.ino != ino) {
                self.tree.inodes.count_name(self.when, ino, 1);
            }
            self.tree.mark_inode(self.when.seq, ino);
        }
        if file_type == FileType::Directory {
            self.tree.dirs.make(ino);
            self.tree.note_policy(ino);
            self.tree.note_quota(ino);
            self.tree.policies.changed();
        }
        self.touch(parent);
        match before {
            None => ApplyOutcome::Done,
            Some(before) => self.displace(place, before, target),
        }
    }

    /// Decides where an inode lives that is about to get a name, and stores it there. Returns
    /// whether that is [`Ino::LINKS`].
    fn resolve_home(&mut self, home: HashedName, snapshot: &InodeSnapshot<'_>) -> bool {
        let ino = snapshot.attr.ino;
        match self.tree.inodes.get(ino).map(|known| known.home) {
            Some(Ino::LINKS) => {
                self.tree.inodes.refresh(self.when, snapshot);
                true
            }
            Some(_) => {
                self.forget_home(self.when.seq, ino, home);
                if let Some(known) = self.tree.inodes.get_mut(ino) {
                    (known.home, known.home_hash) = (home.dir, home.hash);
                }
                self.tree.inodes.refresh(self.when, snapshot);
                false
            }
            // In a merge, an inode that is not here has no other name left.
            None if self.when.mode == Mode::Replay
                && snapshot.attr.nlink > 1
                && !snapshot.attr.is_dir() =>
            {
                self.insert_linked(snapshot);
                true
            }
            None => {
                let nlink = if self.when.mode == Mode::Replay { snapshot.attr.nlink } else { 1 };
                self.tree.inodes.put_snapshot(self.when, home, snapshot, nlink);
                false
            }
        }
    }

    /// Takes the one name of an inode away, unless it is `keep`.
    fn forget_home(&mut self, seq: Seq, ino: Ino, keep: HashedName) {
        let Some(inode) = self.tree.inodes.get(ino) else { return };
        let home = inode.home_name();
        if home != keep && self.tree.hide_home(ino) {
            self.tree.dirs.note_dirty(seq, home.dir);
        }
    }

    /// Takes a name away from an inode that gets another one in the same event. Returns whether
    /// it is to get it: in a merge, an inode that exists but not under this name stays.
    pub(super) fn take_name(&mut self, entry: EntryName<'_>, ino: Ino) -> bool {
        let EntryName { dir, name } = entry;
        let found = self.tree.dirs.make(dir).find(name);
        let here = found.is_some_and(|dentry| dentry.ino == ino);
        if here || found.is_none() {
            self.tree.dirs.make(dir).unset(name_hash(name), name);
        }
        if here && found.is_some_and(Dentry::is_remote) {
            self.tree.inodes.count_name(self.when, ino, -1);
        }
        here || !self.when.merges() || !self.tree.inodes.knows(ino)
    }

    /// A file goes to a directory of another rank, with its content: nothing of it stays here. It
    /// may have come back since, which a replay knows only if its directory is in memory.
    #[cold]
    pub(super) fn depart(&mut self, from: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        if self.when.merges() {
            return ApplyOutcome::Rejected;
        }
        let home = self.tree.inodes.get(ino).map(Inode::home_name);
        self.take_name(from, ino);
        self.touch(from.dir);
        if home == Some(HashedName { dir: from.dir, hash: name_hash(from.name) }) {
            self.tree.inodes.remove(ino);
        }
        ApplyOutcome::Done
    }

    /// Another inode took a name.
    pub(super) fn displace(
        &mut self,
        place: HashedName,
        before: Dentry,
        winner: Target,
    ) -> ApplyOutcome {
        if before.ino == winner.ino {
            return ApplyOutcome::Done;
        }
        let both_dirs =
            before.file_type() == FileType::Directory && winner.file_type == FileType::Directory;
        if both_dirs && self.when.merges() {
            self.adopt_all(before.ino, winner.ino);
        } else if both_dirs && self.when.repeats() {
            // The names of a directory that lost in a merge follow it to the winner, which may own
            // later names only. Without a merge it is empty.
            let has_names = self.tree.dirs.get(before.ino).is_none_or(|dir| dir.entries > 0);
            if has_names || self.when.mode == Mode::Remerge {
                return ApplyOutcome::Replaced(before.ino);
            }
        }
        self.release(place, before);
        if both_dirs && self.when.repeats() && !self.tree.inodes.knows(before.ino) {
            // Should it be said that it lost names, the store may know too much about it.
            self.tree.dirs.insert(before.ino, Box::new(Dir::new(true)));
        }
        ApplyOutcome::Replaced(before.ino)
    }

    /// A name of an inode is gone; with the last one the inode goes.
    pub(super) fn release(&mut self, place: HashedName, dentry: Dentry) {
        let ino = dentry.ino;
        let Some(inode) = self.tree.inodes.get_mut(ino) else { return };
        if !dentry.is_remote() {
            // In a replay, the inode may not have come to this name yet, or may have left it.
            if inode.home_name() == place && !self.when.is_before(inode.version) {
                self.free(ino);
            }
            return;
        }
        // The same goes for a second name that came when the inode still had one.
        if inode.home == Ino::LINKS {
            self.lose_link(ino);
        }
    }

    /// Forgets an inode, and with a directory everything below it.
    pub(super) fn free(&mut self, ino: Ino) {
        let mut gone = vec![ino];
        let mut linked = Vec::new();
        while let Some(ino) = gone.pop() {
            if let Some(dir) = self.tree.dirs.remove(ino) {
                for (name, dentry) in dir.list(None) {
                    if dentry.is_remote() {
                        linked.push((HashedName { dir: ino, hash: name_hash(name) }, dentry));
                    } else if self.tree.inodes.home_of(dentry.ino) == Some(ino) {
                        gone.push(dentry.ino);
                    }
                }
                self.tree.policies.forget(ino);
                self.tree.quotas.forget(ino);
            }
            let (inode, extra) = self.tree.inodes.remove(ino);
            let Some(inode) = inode else { continue };
            // Small files keep no data outside their inode.
            let small = extra.is_some_and(|extra| !extra.data.is_empty());
            let (is_dir, is_file) = (inode.is_dir(), inode.file_type() == FileType::Regular);
            let is_stored = is_dir || (is_file && inode.size > 0 && !small);
            if is_dir || is_file {
                let Inode { size, stripe, .. } = inode;
                self.displaced.freed.push(FreedInode { ino, is_dir, size, stripe, is_stored });
            }
        }
        if self.when.mode == Mode::Replay {
            // The directory may have changed by then, or be gone. The names that inodes lost with
            // it were listed: only a merge removes a directory that has names.
            return;
        }
        for (place, dentry) in linked {
            self.release(place, dentry);
        }
    }

    /// A directory takes over the names of a directory that it replaces: two clients made the same
    /// directory, and the interferer's further names stay. A name in both remains the
    /// winner's, and two directories of one name are joined in the same way one level down.
    fn adopt_all(&mut self, loser: Ino, winner: Ino) {
        assert!(loser != winner, "{loser}: a directory does not replace itself");
        let mut pairs = vec![Adoption { loser, winner }];
        while let Some(pair) = pairs.pop() {
            pairs.extend(self.adopt(pair));
            let Adoption { loser, winner } = pair;
            self.displaced.losses.push(Loss { winner, loser, names: 1, time: self.when.time });
        }
    }

    /// A directory takes over the names of another that it does not have. Returns the directories
    /// of both that have the same name.
    pub(super) fn adopt(&mut self, pair: Adoption) -> Vec<Adoption> {
        let Adoption { loser, winner } = pair;
        let mut pairs = Vec::new();
        let Some(dir) = self.tree.dirs.get(loser) else { return pairs };
        // The winner must store the loser's unstored changes.
        let since = dir.unstored_since().map_or(self.when.seq, |since| since.min(self.when.seq));
        let names: Vec<_> = dir.list(None).map(|(name, dentry)| (name.to_vec(), dentry)).collect();
        for (name, dentry) in names {
            match self.tree.dirs.make(winner).find(&name) {
                None => self.hand_over(pair, &name, dentry),
                // A replay finds names that the winner took over before. In a merge it is one inode
                // with a name in each of them, and loses one of the two with the loser.
                Some(own) if own.ino == dentry.ino && !self.when.merges() => {
                    self.tree.dirs.make(loser).unset(name_hash(&name), &name);
                }
                Some(own) => {
                    let is_dir = |dentry: Dentry| dentry.file_type() == FileType::Directory;
                    if is_dir(dentry) && is_dir(own) {
                        pairs.push(Adoption { loser: dentry.ino, winner: own.ino });
                    }
                }
            }
        }
        self.tree.dirs.note_dirty(since, winner);
        self.tree.policies.changed();
        pairs
    }

    fn hand_over(&mut self, pair: Adoption, name: &[u8], dentry: Dentry) {
        let Adoption { loser, winner } = pair;
        let Dentry { ino, .. } = dentry;
        let (file_type, remote) = (dentry.file_type(), dentry.is_remote());
        let hash = name_hash(name);
        self.tree.dirs.make(loser).unset(hash, name);
        self.tree.dirs.make(winner).set(hash, name, Target { ino, file_type, remote });
        self.resolve_replayed_touch(ino, self.when.seq);
        if !remote && let Some(inode) = self.tree.inodes.get_mut(ino) {
            inode.home = winner;
            inode.stamp(self.when);
        }
    }
}
