//! `apply`: the only function that changes a namespace.

mod create;
mod links;
mod lists;
mod names;
mod times;

use journal::{Event, InodeSnapshot, Loss};
use types::{EntryName, FileType, Ino, Seq, Timestamp, name_hash};
use types::{acl, quota};

use crate::inode::{HashedName, Inode};
use crate::page::Target;
use crate::replay::ReplayState;
use crate::tree::InodeTree;
use crate::{Displaced, Extra, Namespace};

use names::Adoption;

/// Under which circumstances an event is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It was just planned here: new directories are known to be empty.
    Live,
    /// It comes from another journal that may have been merged before.
    Merge,
    /// A create of another journal that was merged, among further ones at the same position, before
    /// a restart. [`Namespace::lose_again`] repeats its effect on replaced entries.
    Remerge,
    /// It comes from this rank's own journal after a restart: parts of its effect may already be
    /// in the metadata store, even together with those of later events.
    Replay,
}

/// The side effects of applying an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// Nothing.
    Done,
    /// Another inode lost a name to it: the merging client wins name by name.
    Replaced(Ino),
    /// It was not carried out: it would have removed a directory that has entries, changed an
    /// inode that does not exist, or given or taken a name in a directory that does not.
    Rejected,
}

/// The circumstances of one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct When {
    pub(crate) seq: Seq,
    pub(crate) mode: Mode,
    pub(crate) time: Timestamp,
}

impl When {
    /// Whether an inode of this version already has the effect of the event.
    #[inline]
    pub(crate) fn is_in(self, version: Seq) -> bool {
        match self.mode {
            Mode::Live | Mode::Merge => false,
            Mode::Remerge => version > self.seq,
            Mode::Replay => version >= self.seq,
        }
    }

    /// Whether an inode of this version is of a later time than the event.
    #[inline]
    pub(crate) fn is_before(self, version: Seq) -> bool {
        self.repeats() && version > self.seq
    }

    /// Whether the event was applied before a restart: the namespace may be ahead of it.
    #[inline]
    pub(crate) fn repeats(self) -> bool {
        matches!(self.mode, Mode::Remerge | Mode::Replay)
    }

    /// Whether the event comes from a journal that is merged now.
    #[inline]
    pub(crate) fn merges(self) -> bool {
        self.mode == Mode::Merge
    }
}

/// One event that is applied: all that it may change, and its circumstances.
#[derive(Debug)]
pub(crate) struct Apply<'n> {
    tree: &'n mut InodeTree,
    displaced: &'n mut Displaced,
    replay: &'n mut ReplayState,
    when: When,
}

impl Namespace {
    /// Applies an event. Total: it cannot fail, for any event and namespace; it returns the
    /// displaced entry, and collects inodes that lost their last name for
    /// [`Namespace::take_freed`].
    ///
    /// `seq` is the position of the event in this rank's journal, or for events that are not
    /// journalled the position of the newest event that is.
    ///
    /// In [`Mode::Replay`] the namespace may be ahead of the event, here more and there less.
    /// Names are set as the event says, because every later event follows and sets them again;
    /// inodes know by their version whether they are ahead.
    pub fn apply(&mut self, seq: Seq, mode: Mode, event: &Event<'_>) -> ApplyOutcome {
        let is_create = matches!(event, Event::Create(_));
        if mode == Mode::Merge && !is_create && self.needs().lacks_place(event) {
            return ApplyOutcome::Rejected;
        }
        self.tree.charge(mode, event);
        let mut apply = self.applying(When { seq, mode, time: Timestamp::default() });
        match *event {
            Event::Create(ref create) => {
                apply.at(create.time).create_hashed(create, name_hash(create.name))
            }
            Event::Link { parent, name, ino, home, inode, time } => {
                let inode = InodeSnapshot { attr: types::Attr { ino, ..inode.attr }, ..inode };
                apply.at(time).link(EntryName::new(parent, name), home, &inode)
            }
            Event::Unlink { parent, name, ino, time } => {
                apply.at(time).unlink(EntryName::new(parent, name), ino)
            }
            Event::Rmdir { parent, name, ino, time } => {
                apply.at(time).rmdir(EntryName::new(parent, name), ino)
            }
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                moved,
                exchanged,
                replaced,
                time,
            } => {
                let from = EntryName::new(parent, name);
                let to = EntryName::new(new_parent, new_name);
                match exchanged {
                    None => apply.at(time).rename(from, to, replaced, &moved),
                    Some(back) => apply.at(time).exchange(from, to, [&moved, &back]),
                }
            }
            Event::SetAttr { ino, change, time, .. } => {
                apply.at(time).change_inode(ino, |inode, _| inode.change(&change, time))
            }
            Event::SetXattr { ino, name, value, time, .. } => {
                apply.at(time).set_xattr(ino, name, value)
            }
            Event::SetData { ino, data, size, time, .. } => {
                apply.at(time).change_inode(ino, |inode, extra| {
                    extra.data = data.to_vec();
                    inode.size = size;
                    (inode.mtime, inode.ctime) = (time, time);
                })
            }
            Event::SetPolicy { ino, policy, time, .. } => {
                let outcome = apply.at(time).change_inode(ino, |inode, extra| {
                    extra.set_policy(policy);
                    inode.ctime = time;
                });
                apply.tree.note_policy(ino);
                outcome
            }
            Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => {
                ApplyOutcome::Done
            }
        }
    }

    /// Repeats the effect of a merge's creates on replaced entries after a restart, if it is not
    /// stored. The objects must be in memory: see [`Needs::to_lose`](crate::Needs::to_lose). If the
    /// winner is stored in its later state, replace it and [`Namespace::drop_loser`] instead: the
    /// stored loser may be from before it lost names.
    pub fn lose_again(&mut self, seq: Seq, loss: &Loss) {
        let Loss { winner, loser, names, time } = *loss;
        // A forged journal may say that a directory replaced itself: nothing was lost.
        if winner == loser {
            return;
        }
        if loss.create().is_some() || loss.removed().is_some() {
            return;
        }
        let mut apply = self.applying(When { seq, mode: Mode::Replay, time });
        if winner.0 == 0 {
            return apply.lose_links(loser, names);
        }
        apply.adopt(Adoption { loser, winner });
        self.drop_loser(loser);
    }

    /// Drops a directory that lost its place, in a replay. Its names stay: those that the winner
    /// did not take over may be later ones, and then will be found in another place.
    pub fn drop_loser(&mut self, loser: Ino) {
        self.tree.dirs.remove(loser);
        self.tree.forget_inode(loser);
    }

    /// Forgets an inode that a merge removed, and with a directory everything below it, at the end
    /// of a replay. The inode may still be in memory, in a directory that the merge removed, too.
    pub fn forget_removed(&mut self, ino: Ino) {
        let before = self.displaced.freed.len();
        self.applying(When { seq: Seq(0), mode: Mode::Replay, time: Timestamp::default() })
            .free(ino);
        self.displaced.freed.truncate(before);
    }

    #[inline]
    pub(crate) fn applying(&mut self, when: When) -> Apply<'_> {
        let Self { tree, displaced, replay } = self;
        Apply { tree, displaced, replay, when }
    }
}

impl Apply<'_> {
    /// The event is of this time.
    #[inline]
    fn at(&mut self, time: Timestamp) -> &mut Self {
        self.when.time = time;
        self
    }

    fn link(
        &mut self,
        entry: EntryName<'_>,
        home: Ino,
        snapshot: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        let ino = snapshot.attr.ino;
        let known = self.tree.inodes.get(ino).map(|known| (known.file_type(), known.home));
        let file_type = known.map_or(snapshot.attr.file_type(), |(file_type, _)| file_type);
        if file_type == FileType::Directory {
            return ApplyOutcome::Rejected;
        }
        match known {
            None => self.insert_linked(snapshot),
            Some((_, Ino::LINKS)) => {
                self.tree.inodes.refresh(self.when, snapshot);
                if home != Ino::LINKS {
                    // The store was ahead; the old name was made remote when it was fetched.
                    self.tree.dirs.note_dirty(self.when.seq, home);
                }
            }
            Some((_, old)) => {
                self.tree.make_remote(ino);
                self.tree.dirs.note_dirty(self.when.seq, old);
                self.tree.inodes.refresh(self.when, snapshot);
                self.tree.keep_in_links(self.when.seq, ino, file_type);
            }
        }
        self.tree.mark_inode(self.when.seq, ino);
        let target = Target { ino, file_type, remote: true };
        let EntryName { dir: parent, name } = entry;
        let hash = name_hash(name);
        let before = self.tree.dirs.make(parent).set(hash, name, target);
        self.touch(parent);
        if before.is_none_or(|before| before.ino != ino) {
            self.tree.inodes.count_name(self.when, ino, 1);
        }
        match before {
            None => ApplyOutcome::Done,
            Some(before) => self.displace(HashedName { dir: parent, hash }, before, target),
        }
    }

    fn unlink(&mut self, entry: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        // In a replay the name may be that of something later, which will get it back.
        if let Some(dentry) = self.tree.dirs.make(entry.dir).find(entry.name)
            && dentry.file_type() == FileType::Directory
            && !self.when.repeats()
        {
            return ApplyOutcome::Rejected;
        }
        self.remove_name(entry, ino)
    }

    fn rmdir(&mut self, entry: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        if let Some(dentry) = self.tree.dirs.make(entry.dir).find(entry.name) {
            let has_entries = self.tree.dirs.get(dentry.ino).is_some_and(|dir| dir.entries > 0);
            let is_dir = dentry.file_type() == FileType::Directory;
            if (!is_dir || has_entries) && !self.when.repeats() {
                return ApplyOutcome::Rejected;
            }
        }
        if self.when.mode == Mode::Replay {
            self.tree.bury(ino);
        }
        self.remove_name(entry, ino)
    }

    fn remove_name(&mut self, entry: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        let EntryName { dir, name } = entry;
        let hash = name_hash(name);
        let before = self.tree.dirs.make(dir).unset(hash, name);
        self.touch(dir);
        if let Some(before) = before {
            self.release(HashedName { dir, hash }, before);
        }
        if before.is_none_or(|before| before.ino != ino) {
            self.release_unseen(ino);
        }
        ApplyOutcome::Done
    }

    fn rename(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        replaced: Ino,
        moved: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        let ino = moved.attr.ino;
        if to.dir.is_mount_stub() && !moved.attr.is_dir() {
            return self.depart(from, ino);
        }
        if to.dir == Ino::LINKS && !moved.attr.is_dir() {
            return self.arrive_linked(moved);
        }
        if self.when.merges() && moved.attr.is_dir() && self.tree.is_within(to.dir, ino) {
            // Another client moved the destination below the directory that is to be moved there.
            return ApplyOutcome::Rejected;
        }
        let source = self.tree.dirs.make(from.dir).find(from.name);
        if source.is_none_or(|source| source.ino == ino) {
            self.touch(from.dir);
        }
        if self.when.mode == Mode::Replay {
            self.replay.bury_later(replaced);
        }
        let goes = self.take_name(from, ino);
        let outcome = self.move_to(goes, to, moved);
        if outcome != ApplyOutcome::Replaced(replaced) {
            self.release_unseen(replaced);
        }
        outcome
    }

    fn exchange(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        [moved, back]: [&InodeSnapshot<'_>; 2],
    ) -> ApplyOutcome {
        if self.when.merges() {
            let below = |dir, inode: &InodeSnapshot<'_>| {
                inode.attr.is_dir() && self.tree.is_within(dir, inode.attr.ino)
            };
            if [from.dir, to.dir].iter().any(|dir| below(*dir, moved) || below(*dir, back)) {
                return ApplyOutcome::Rejected;
            }
        }
        let goes = self.take_name(from, moved.attr.ino);
        let comes = self.take_name(to, back.attr.ino);
        let first = self.move_to(goes, to, moved);
        let second = self.move_to(comes, from, back);
        if first == ApplyOutcome::Done { second } else { first }
    }

    /// Puts an inode under a name. In a merge the inode stays in its place if it is not under the
    /// journal's old name: another client moved it since, or the journal was merged before.
    fn move_to(
        &mut self,
        goes: bool,
        to: EntryName<'_>,
        inode: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        if goes {
            return self.place(to, inode);
        }
        self.tree.inodes.refresh(self.when, inode);
        self.tree.mark_inode(self.when.seq, inode.attr.ino);
        self.touch(to.dir);
        ApplyOutcome::Done
    }

    fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> ApplyOutcome {
        let time = self.when.time;
        let outcome = self.change_inode(ino, |inode, extra| {
            if acl::is_list(name) {
                lists::set(inode, extra, name, value);
            } else {
                extra.set_xattr(name, value);
            }
            inode.ctime = time;
        });
        if name == quota::LIMITS {
            self.tree.note_quota(ino);
        }
        outcome
    }

    fn change_inode(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut Inode, &mut Extra),
    ) -> ApplyOutcome {
        self.resolve_replayed_touch(ino, self.when.seq);
        match self.tree.inodes.change(self.when, ino, change) {
            None => return ApplyOutcome::Rejected,
            Some(false) => return ApplyOutcome::Done,
            Some(true) => {}
        }
        self.tree.mark_inode(self.when.seq, ino);
        ApplyOutcome::Done
    }
}
