//! Ownership of names: giving names to inodes, taking them away, and the consequences for an inode
//! that loses one.
//!
//! Not here: the meaning of an event (module `apply`) and the storage of names in a directory
//! (`dir`).
//!
//! Invariants: an inode outside [`Ino::LINKS`] has at most one name, and its `home` says which;
//! in any mode but [`Mode::Replay`], `nlink` is the number of its names.

use std::sync::Arc;

use journal::{InodeSnapshot, Loss};
use types::{EntryName, FileType, Ino, Seq, Timestamp, name_hash};

use crate::apply::When;
use crate::dir::Dir;
use crate::inode::{HAS_EXTRA, HashedName, Inode};
use crate::page::{Dentry, Target};
use crate::{ApplyOutcome, Extra, FreedInode, Mode, Namespace, link_hash, link_name};

/// A directory takes over the names of another of the same name.
#[derive(Clone, Copy, Debug)]
struct Adoption {
    loser: Ino,
    winner: Ino,
}

impl Namespace {
    /// Whether an inode is in memory with a name. A replay leaves inodes without a name in memory:
    /// the inodes of a directory that another directory replaced.
    #[must_use]
    pub fn has_name(&self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get(ino) else { return false };
        let home = self.dirs.get(&inode.home);
        home.is_some_and(|dir| dir.name_by_hash(inode.home_hash, ino).is_some())
    }

    /// Puts an existing inode under a name, and replaces an earlier entry.
    pub(crate) fn place(
        &mut self,
        when: When,
        entry: EntryName<'_>,
        snapshot: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        let ino = snapshot.attr.ino;
        let EntryName { dir: parent, name } = entry;
        let hash = name_hash(name);
        let place = HashedName { dir: parent, hash };
        let remote = self.resolve_home(when, place, snapshot);
        let known = self.inodes.get(ino).map(Inode::file_type);
        let file_type = known.unwrap_or(snapshot.attr.file_type());
        let target = Target { ino, file_type, remote };
        let before = self.dir_mut(parent).set(hash, name, target);
        if remote {
            if before.is_none_or(|before| before.ino != ino) {
                self.count_name(when, ino, 1);
            }
            self.mark_inode(when.seq, ino);
        }
        if file_type == FileType::Directory {
            self.dir_mut(ino);
            self.note_policy(ino);
            self.policy_generation += 1;
        }
        self.touch(when, parent);
        match before {
            None => ApplyOutcome::Done,
            Some(before) => self.displace(when, place, before, target),
        }
    }

    /// Decides where an inode lives that is about to get a name, and stores it there. Returns
    /// whether that is [`Ino::LINKS`].
    fn resolve_home(&mut self, when: When, home: HashedName, snapshot: &InodeSnapshot<'_>) -> bool {
        let ino = snapshot.attr.ino;
        match self.inodes.get(ino).map(|known| known.home) {
            Some(Ino::LINKS) => {
                self.refresh(when, snapshot);
                true
            }
            Some(_) => {
                self.forget_home(when.seq, ino, home);
                if let Some(known) = self.inodes.get_mut(ino) {
                    (known.home, known.home_hash) = (home.dir, home.hash);
                }
                self.refresh(when, snapshot);
                false
            }
            // In a merge, an inode that is not here has no other name left.
            None if when.mode == Mode::Replay
                && snapshot.attr.nlink > 1
                && !snapshot.attr.is_dir() =>
            {
                self.insert_linked(when, snapshot);
                true
            }
            None => {
                let nlink = if when.mode == Mode::Replay { snapshot.attr.nlink } else { 1 };
                self.insert_snapshot(when, home, snapshot, nlink);
                false
            }
        }
    }

    /// An inode that is in memory changes with an event that carries it. In a merge it keeps its
    /// attributes, because the journal knows less about it than the namespace does.
    pub(crate) fn refresh(&mut self, when: When, snapshot: &InodeSnapshot<'_>) {
        let ino = snapshot.attr.ino;
        let Some(known) = self.inodes.get_mut(ino) else { return };
        if when.is_in(known.version) {
            return;
        }
        if when.mode != Mode::Replay {
            known.ctime = when.time;
            known.stamp(when);
        } else {
            let home = known.home_name();
            self.insert_snapshot(when, home, snapshot, snapshot.attr.nlink);
        }
    }

    fn insert_snapshot(
        &mut self,
        when: When,
        home: HashedName,
        snapshot: &InodeSnapshot<'_>,
        nlink: u32,
    ) {
        let ino = snapshot.attr.ino;
        debug_assert!(ino.0 != 0, "an inode has a number");
        let mut inode = Inode { home: home.dir, home_hash: home.hash, ..Inode::default() };
        inode.stamp(when);
        inode.set_attr(&snapshot.attr);
        inode.nlink = nlink;
        self.put_inode(ino, inode, Extra::from_parts(snapshot.data, snapshot.extra));
    }

    /// Stores an inode together with its rare data.
    pub(crate) fn put_inode(&mut self, ino: Ino, mut inode: Inode, extra: Extra) {
        if extra.is_empty() {
            self.extras.remove(&ino);
        } else {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, Arc::new(extra));
        }
        self.inodes.insert(ino, inode);
    }

    /// Stores an inode that has, or had, several names.
    pub(crate) fn insert_linked(&mut self, when: When, snapshot: &InodeSnapshot<'_>) {
        let ino = snapshot.attr.ino;
        let nlink = if when.mode == Mode::Replay { snapshot.attr.nlink } else { 0 };
        let home = HashedName { dir: Ino::LINKS, hash: link_hash(ino) };
        self.insert_snapshot(when, home, snapshot, nlink);
        self.keep_in_links(when.seq, ino, snapshot.attr.file_type());
    }

    /// Makes [`Ino::LINKS`] the home of an inode.
    pub(crate) fn keep_in_links(&mut self, seq: Seq, ino: Ino, file_type: FileType) {
        debug_assert!(file_type != FileType::Directory, "{ino}: a directory has one name");
        let hash = link_hash(ino);
        if let Some(inode) = self.inodes.get_mut(ino) {
            (inode.home, inode.home_hash) = (Ino::LINKS, hash);
        }
        let target = Target { ino, file_type, remote: false };
        self.dir_mut(Ino::LINKS).set(hash, &link_name(ino), target);
        self.note_dirty(seq, Ino::LINKS);
    }

    /// The one name of an inode becomes one of several.
    pub(crate) fn make_remote(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(ino) else { return };
        let (hash, file_type) = (inode.home_hash, inode.file_type());
        let Some(dir) = self.dirs.get_mut(&inode.home) else { return };
        if let Some(name) = dir.name_by_hash(hash, ino) {
            dir.set(hash, &name, Target { ino, file_type, remote: true });
        }
    }

    /// Takes the one name of an inode away, unless it is `keep`.
    fn forget_home(&mut self, seq: Seq, ino: Ino, keep: HashedName) {
        let Some(inode) = self.inodes.get(ino) else { return };
        let home = inode.home_name();
        if home != keep && self.hide_home(ino) {
            self.note_dirty(seq, home.dir);
        }
    }

    /// Takes the one name of an inode away. Returns whether it existed.
    pub(crate) fn hide_home(&mut self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get(ino) else { return false };
        let hash = inode.home_hash;
        let Some(dir) = self.dirs.get_mut(&inode.home) else { return false };
        let Some(name) = dir.name_by_hash(hash, ino) else { return false };
        dir.unset(hash, &name).is_some()
    }

    /// Takes a name away from an inode that gets another one in the same event. Returns whether
    /// it is to get it: in a merge, an inode that exists but not under this name stays.
    pub(crate) fn take_name(&mut self, when: When, entry: EntryName<'_>, ino: Ino) -> bool {
        let EntryName { dir, name } = entry;
        let found = self.dir_mut(dir).find(name);
        let here = found.is_some_and(|dentry| dentry.ino == ino);
        if here || found.is_none() {
            self.dir_mut(dir).unset(name_hash(name), name);
        }
        if here && found.is_some_and(Dentry::is_remote) {
            self.count_name(when, ino, -1);
        }
        here || !when.merges() || !self.knows(ino)
    }

    /// A file goes to a directory of another rank, with its content: nothing of it stays here. It
    /// may have come back since, which a replay knows only if its directory is in memory.
    #[cold]
    pub(crate) fn apply_departure(
        &mut self,
        when: When,
        from: EntryName<'_>,
        ino: Ino,
    ) -> ApplyOutcome {
        if when.merges() {
            return ApplyOutcome::Rejected;
        }
        let home = self.inodes.get(ino).map(Inode::home_name);
        self.take_name(when, from, ino);
        self.touch(when, from.dir);
        if home == Some(HashedName { dir: from.dir, hash: name_hash(from.name) }) {
            self.inodes.remove(ino);
            self.extras.remove(&ino);
        }
        ApplyOutcome::Done
    }

    /// An inode with several names has one more or less. In a replay the events say how many.
    pub(crate) fn count_name(&mut self, when: When, ino: Ino, change: i32) {
        if when.mode != Mode::Replay
            && let Some(inode) = self.inodes.get_mut(ino)
            && !when.is_in(inode.version)
        {
            inode.nlink = inode.nlink.saturating_add_signed(change);
        }
    }

    /// Another inode took a name.
    pub(crate) fn displace(
        &mut self,
        when: When,
        place: HashedName,
        before: Dentry,
        winner: Target,
    ) -> ApplyOutcome {
        if before.ino == winner.ino {
            return ApplyOutcome::Done;
        }
        let both_dirs =
            before.file_type() == FileType::Directory && winner.file_type == FileType::Directory;
        if both_dirs && when.merges() {
            self.adopt_all(when, before.ino, winner.ino);
        } else if both_dirs && when.repeats() {
            // The names of a directory that lost in a merge follow it to the winner, which may own
            // later names only. Without a merge it is empty.
            let has_names = self.dirs.get(&before.ino).is_none_or(|dir| dir.entries > 0);
            if has_names || when.mode == Mode::Remerge {
                return ApplyOutcome::Replaced(before.ino);
            }
        }
        self.release(when, place, before);
        if both_dirs && when.repeats() && !self.knows(before.ino) {
            // Should it be said that it lost names, the store may know too much about it.
            self.dirs.insert(before.ino, Box::new(Dir::new(true)));
        }
        ApplyOutcome::Replaced(before.ino)
    }

    /// A name of an inode is gone; with the last one the inode goes.
    pub(crate) fn release(&mut self, when: When, place: HashedName, dentry: Dentry) {
        let ino = dentry.ino;
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        if !dentry.is_remote() {
            // In a replay, the inode may not have come to this name yet, or may have left it.
            if inode.home_name() == place && !when.is_before(inode.version) {
                self.free(when, ino);
            }
            return;
        }
        // The same goes for a second name that came when the inode still had one.
        if inode.home == Ino::LINKS {
            self.lose_link(when, ino);
        }
    }

    /// As [`Namespace::release`] in a replay, for a name that has left the store: an inode with
    /// further names still counts this one.
    pub(crate) fn release_unseen(&mut self, when: When, ino: Ino) {
        if when.mode == Mode::Replay && self.home_of(ino) == Some(Ino::LINKS) {
            self.lose_link(when, ino);
        }
    }

    fn note_lost_name(&mut self, ino: Ino, time: Timestamp) {
        let known = |loss: &&mut Loss| (loss.winner, loss.loser) == (Ino(0), ino);
        match self.losses.iter_mut().find(known) {
            Some(loss) => (loss.names, loss.time) = (loss.names + 1, time),
            None => self.losses.push(Loss { winner: Ino(0), loser: ino, names: 1, time }),
        }
    }

    /// An inode with several names lost one of them.
    fn lose_link(&mut self, when: When, ino: Ino) {
        self.lose_links(when, ino, 1);
    }

    fn lose_links(&mut self, when: When, ino: Ino, names: u32) {
        if when.merges() && self.knows(ino) {
            self.note_lost_name(ino, when.time);
        }
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        if when.mode == Mode::Remerge || when.is_in(inode.version) {
            return;
        }
        inode.nlink = inode.nlink.saturating_sub(names);
        inode.ctime = when.time;
        inode.stamp(when);
        debug_assert!(!inode.is_dir(), "{ino}: a directory has one name");
        if inode.nlink == 0 {
            self.dir_mut(Ino::LINKS).unset(link_hash(ino), &link_name(ino));
            self.note_dirty(when.seq, Ino::LINKS);
            self.free(when, ino);
        } else {
            self.mark_inode(when.seq, ino);
        }
    }

    /// Forgets an inode, and with a directory everything below it.
    fn free(&mut self, when: When, ino: Ino) {
        let mut gone = vec![ino];
        let mut linked = Vec::new();
        while let Some(ino) = gone.pop() {
            if let Some(dir) = self.dirs.remove(&ino) {
                for (name, dentry) in dir.list(None) {
                    if dentry.is_remote() {
                        linked.push((HashedName { dir: ino, hash: name_hash(name) }, dentry));
                    } else if self.home_of(dentry.ino) == Some(ino) {
                        gone.push(dentry.ino);
                    }
                }
                if self.policies.remove(&ino).is_some() {
                    self.policy_generation += 1;
                }
            }
            // Small files keep no data outside their inode.
            let small = self.extras.remove(&ino).is_some_and(|extra| !extra.data.is_empty());
            let Some(inode) = self.inodes.remove(ino) else { continue };
            let (is_dir, is_file) = (inode.is_dir(), inode.file_type() == FileType::Regular);
            let is_stored = is_dir || (is_file && inode.size > 0 && !small);
            if is_dir || is_file {
                let Inode { size, stripe, .. } = inode;
                self.freed.push(FreedInode { ino, is_dir, size, stripe, is_stored });
            }
        }
        if when.mode == Mode::Replay {
            // The directory may have changed by then, or be gone. The names that inodes lost with
            // it were listed: only a merge removes a directory that has names.
            return;
        }
        for (place, dentry) in linked {
            self.release(when, place, dentry);
        }
    }

    /// Forgets an inode, and nothing of its names if it is a directory.
    pub(crate) fn forget_inode(&mut self, ino: Ino) {
        self.inodes.remove(ino);
        self.extras.remove(&ino);
        if self.policies.remove(&ino).is_some() {
            self.policy_generation += 1;
        }
    }

    /// Repeats the effect of a merge's creates on replaced entries after a restart, if it is not
    /// stored. The objects must be in memory: see [`Namespace::needs_to_lose`]. If the winner is
    /// stored in its later state, [`Namespace::replace`] it and [`Namespace::drop_loser`] instead:
    /// the stored loser may be from before it lost names.
    pub fn lose_again(&mut self, seq: Seq, loss: &Loss) {
        let Loss { winner, loser, names, time } = *loss;
        // A forged journal may say that a directory replaced itself: nothing was lost.
        if winner == loser {
            return;
        }
        if loss.create().is_some() || loss.removed().is_some() {
            return;
        }
        let when = When { seq, mode: Mode::Replay, time };
        if winner.0 == 0 {
            return self.lose_links(when, loser, names);
        }
        self.adopt(when, Adoption { loser, winner });
        self.drop_loser(loser);
    }

    /// Drops a directory that lost its place, in a replay. Its names stay: those that the winner
    /// did not take over may be later ones, and then will be found in another place.
    pub fn drop_loser(&mut self, loser: Ino) {
        self.dirs.remove(&loser);
        self.forget_inode(loser);
    }

    /// A directory takes over the names of a directory that it replaces: two clients made the same
    /// directory, and the interferer's further names stay. A name in both remains the
    /// winner's, and two directories of one name are joined in the same way one level down.
    fn adopt_all(&mut self, when: When, loser: Ino, winner: Ino) {
        assert!(loser != winner, "{loser}: a directory does not replace itself");
        let mut pairs = vec![Adoption { loser, winner }];
        while let Some(pair) = pairs.pop() {
            pairs.extend(self.adopt(when, pair));
            let Adoption { loser, winner } = pair;
            self.losses.push(Loss { winner, loser, names: 1, time: when.time });
        }
    }

    /// A directory takes over the names of another that it does not have. Returns the directories
    /// of both that have the same name.
    fn adopt(&mut self, when: When, pair: Adoption) -> Vec<Adoption> {
        let Adoption { loser, winner } = pair;
        let mut pairs = Vec::new();
        let Some(dir) = self.dirs.get(&loser) else { return pairs };
        // The winner must store the loser's unstored changes.
        let since = dir.unstored_since().map_or(when.seq, |since| since.min(when.seq));
        let names: Vec<_> = dir.list(None).map(|(name, dentry)| (name.to_vec(), dentry)).collect();
        for (name, dentry) in names {
            match self.dir_mut(winner).find(&name) {
                None => self.hand_over(when, pair, &name, dentry),
                // A replay finds names that the winner took over before. In a merge it is one inode
                // with a name in each of them, and loses one of the two with the loser.
                Some(own) if own.ino == dentry.ino && !when.merges() => {
                    self.dir_mut(loser).unset(name_hash(&name), &name);
                }
                Some(own) => {
                    let is_dir = |dentry: Dentry| dentry.file_type() == FileType::Directory;
                    if is_dir(dentry) && is_dir(own) {
                        pairs.push(Adoption { loser: dentry.ino, winner: own.ino });
                    }
                }
            }
        }
        self.note_dirty(since, winner);
        self.policy_generation += 1;
        pairs
    }

    fn hand_over(&mut self, when: When, pair: Adoption, name: &[u8], dentry: Dentry) {
        let Adoption { loser, winner } = pair;
        let Dentry { ino, .. } = dentry;
        let (file_type, remote) = (dentry.file_type(), dentry.is_remote());
        let hash = name_hash(name);
        self.dir_mut(loser).unset(hash, name);
        self.dir_mut(winner).set(hash, name, Target { ino, file_type, remote });
        self.resolve_replayed_touch(ino, when.seq);
        if !remote && let Some(inode) = self.inodes.get_mut(ino) {
            inode.home = winner;
            inode.stamp(when);
        }
    }
}
