//! `apply`: the only function that changes a namespace.

use std::sync::Arc;

use journal::{Create, Event, InodeSnapshot, Loss};
use types::{EntryName, FileType, Ino, Seq, Timestamp, name_hash};

use crate::dir::Dir;
use crate::inode::{HAS_EXTRA, HashedName, Inode};
use crate::page::{Dentry, Target};
use crate::{Extra, Namespace};

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
        let at = |time| When { seq, mode, time };
        match *event {
            Event::Create(ref create) => self.apply_create(seq, mode, create),
            _ if mode == Mode::Merge && self.lacks_place(event) => ApplyOutcome::Rejected,
            Event::Link { parent, name, ino, home, inode, time } => {
                let inode = InodeSnapshot { attr: types::Attr { ino, ..inode.attr }, ..inode };
                self.apply_link(at(time), EntryName::new(parent, name), home, &inode)
            }
            Event::Unlink { parent, name, ino, time } => {
                self.apply_unlink(at(time), EntryName::new(parent, name), ino)
            }
            Event::Rmdir { parent, name, ino, time } => {
                self.apply_rmdir(at(time), EntryName::new(parent, name), ino)
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
                    None => self.apply_rename(at(time), from, to, replaced, &moved),
                    Some(back) => self.apply_exchange(at(time), from, to, [&moved, &back]),
                }
            }
            Event::SetAttr { ino, change, time, .. } => {
                self.change_inode(at(time), ino, |inode, _| inode.change(&change, time))
            }
            Event::SetXattr { ino, name, value, time, .. } => {
                self.change_inode(at(time), ino, |inode, extra| {
                    extra.set_xattr(name, value);
                    inode.ctime = time;
                })
            }
            Event::SetData { ino, data, size, time, .. } => {
                self.change_inode(at(time), ino, |inode, extra| {
                    extra.data = data.to_vec();
                    inode.size = size;
                    (inode.mtime, inode.ctime) = (time, time);
                })
            }
            Event::SetPolicy { ino, policy, time, .. } => {
                let outcome = self.change_inode(at(time), ino, |inode, extra| {
                    extra.set_policy(policy);
                    inode.ctime = time;
                });
                self.note_policy(ino);
                outcome
            }
            Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => {
                ApplyOutcome::Done
            }
        }
    }

    /// The directory, created as one of which nothing is known if it is not in memory.
    #[inline]
    pub(crate) fn dir_mut(&mut self, ino: Ino) -> &mut Dir {
        self.dirs.entry(ino).or_insert_with(|| Box::new(Dir::new(false)))
    }

    #[inline]
    fn apply_create(&mut self, seq: Seq, mode: Mode, create: &Create<'_>) -> ApplyOutcome {
        self.create_hashed(seq, mode, create, name_hash(create.name))
    }

    /// Applies a create whose name has this hash.
    ///
    /// Merges spend their time here, so the common case (a new name of an inode that is no
    /// directory) looks every structure up once; the rest is in [`Namespace::created`].
    #[inline]
    pub(crate) fn create_hashed(
        &mut self,
        seq: Seq,
        mode: Mode,
        create: &Create<'_>,
        hash: u32,
    ) -> ApplyOutcome {
        let Create { parent, name, ino, time, .. } = *create;
        let when = When { seq, mode, time };
        if mode != Mode::Live && self.knows(ino) {
            return self.create_again(when, hash, create);
        }
        if !self.touch_inode(when, parent) && mode == Mode::Merge {
            return self.refuse_create(create);
        }
        let file_type = create.file_type();
        let dir = self.dirs.entry(parent).or_insert_with(|| Box::new(Dir::new(false)));
        let target = Target { ino, file_type, remote: false };
        let before = dir.set(hash, name, target);
        self.dirty.note(dir, seq, parent);
        self.insert_created(when, hash, create);
        if before.is_some() || file_type == FileType::Directory {
            return self.created(when, HashedName { dir: parent, hash }, target, before);
        }
        ApplyOutcome::Done
    }

    /// The remaining work after a create that made a directory, or replaced `before`.
    fn created(
        &mut self,
        when: When,
        place: HashedName,
        made: Target,
        before: Option<Dentry>,
    ) -> ApplyOutcome {
        if made.file_type == FileType::Directory {
            let complete = when.mode == Mode::Live;
            self.dirs.entry(made.ino).or_insert_with(|| Box::new(Dir::new(complete)));
        }
        before.map_or(ApplyOutcome::Done, |before| self.displace(when, place, before, made))
    }

    /// The inode exists. Either this journal was merged before: then later changes of the inode
    /// stay. Or the store knew it: then only its name may be missing.
    #[cold]
    fn create_again(&mut self, when: When, hash: u32, create: &Create<'_>) -> ApplyOutcome {
        let Create { parent, name, ino, .. } = *create;
        if when.merges() && !self.knows(parent) {
            return self.refuse_create(create);
        }
        self.touch(when, parent);
        let Some(known) = self.inodes.get(ino) else { return ApplyOutcome::Done };
        let remote = known.home == Ino::LINKS;
        let place = HashedName { dir: parent, hash };
        let here = remote || known.home_name() == place;
        if !when.repeats() {
            return ApplyOutcome::Done;
        }
        let target = Target { ino, file_type: known.file_type(), remote };
        // The inode may have moved by now. Still it took the name from the earlier entry.
        let dir = self.dir_mut(parent);
        let before = if here {
            dir.set(hash, name, target)
        } else {
            let taken = dir.find_any(hash, name).is_none_or(|dentry| dentry.ino != ino);
            if taken { dir.unset(hash, name) } else { None }
        };
        if let Some(before) = before {
            self.displace(when, place, before, target);
        }
        ApplyOutcome::Done
    }

    /// Its directory is gone. Recovery must know: by then the directory may look different.
    #[cold]
    fn refuse_create(&mut self, create: &Create<'_>) -> ApplyOutcome {
        self.losses.push(Loss::of_create(create.ino, create.time));
        ApplyOutcome::Rejected
    }

    #[inline]
    fn insert_created(&mut self, when: When, home_hash: u32, create: &Create<'_>) {
        let extra = !create.data.is_empty();
        let mut inode = Inode {
            mode: create.mode,
            uid: create.uid,
            gid: create.gid,
            nlink: 1,
            rdev: create.rdev,
            stripe: create.stripe,
            home_hash,
            home: create.parent,
            size: create.size,
            atime: create.atime,
            mtime: create.mtime,
            ctime: create.time,
            btime: create.time,
            version: when.seq,
            flags: if extra { HAS_EXTRA } else { 0 },
        };
        inode.stamp(when);
        self.inodes.insert(create.ino, inode);
        if extra {
            self.extras.insert(create.ino, Arc::new(Extra::from_parts(create.data, &[])));
        }
    }

    fn apply_link(
        &mut self,
        when: When,
        entry: EntryName<'_>,
        home: Ino,
        snapshot: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        let ino = snapshot.attr.ino;
        let known = self.inodes.get(ino).map(|known| (known.file_type(), known.home));
        let file_type = known.map_or(snapshot.attr.file_type(), |(file_type, _)| file_type);
        if file_type == FileType::Directory {
            return ApplyOutcome::Rejected;
        }
        match known {
            None => self.insert_linked(when, snapshot),
            Some((_, Ino::LINKS)) => {
                self.refresh(when, snapshot);
                if home != Ino::LINKS {
                    // The store was ahead; the old name was made remote when it was fetched.
                    self.note_dirty(when.seq, home);
                }
            }
            Some((_, old)) => {
                self.make_remote(ino);
                self.note_dirty(when.seq, old);
                self.refresh(when, snapshot);
                self.keep_in_links(when.seq, ino, file_type);
            }
        }
        self.mark_inode(when.seq, ino);
        let target = Target { ino, file_type, remote: true };
        let EntryName { dir: parent, name } = entry;
        let hash = name_hash(name);
        let before = self.dir_mut(parent).set(hash, name, target);
        self.touch(when, parent);
        if before.is_none_or(|before| before.ino != ino) {
            self.count_name(when, ino, 1);
        }
        match before {
            None => ApplyOutcome::Done,
            Some(before) => self.displace(when, HashedName { dir: parent, hash }, before, target),
        }
    }

    fn apply_unlink(&mut self, when: When, entry: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        // In a replay the name may be that of something later, which will get it back.
        if let Some(dentry) = self.dir_mut(entry.dir).find(entry.name)
            && dentry.file_type() == FileType::Directory
            && !when.repeats()
        {
            return ApplyOutcome::Rejected;
        }
        self.remove_name(when, entry, ino)
    }

    fn apply_rmdir(&mut self, when: When, entry: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        if let Some(dentry) = self.dir_mut(entry.dir).find(entry.name) {
            let has_entries = self.dirs.get(&dentry.ino).is_some_and(|dir| dir.entries > 0);
            let is_dir = dentry.file_type() == FileType::Directory;
            if (!is_dir || has_entries) && !when.repeats() {
                return ApplyOutcome::Rejected;
            }
        }
        if when.mode == Mode::Replay {
            self.bury(ino);
        }
        self.remove_name(when, entry, ino)
    }

    fn remove_name(&mut self, when: When, entry: EntryName<'_>, ino: Ino) -> ApplyOutcome {
        let EntryName { dir, name } = entry;
        let hash = name_hash(name);
        let before = self.dir_mut(dir).unset(hash, name);
        self.touch(when, dir);
        if let Some(before) = before {
            self.release(when, HashedName { dir, hash }, before);
        }
        if before.is_none_or(|before| before.ino != ino) {
            self.release_unseen(when, ino);
        }
        ApplyOutcome::Done
    }

    fn apply_rename(
        &mut self,
        when: When,
        from: EntryName<'_>,
        to: EntryName<'_>,
        replaced: Ino,
        moved: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        let ino = moved.attr.ino;
        if to.dir.is_mount_stub() && !moved.attr.is_dir() {
            return self.apply_departure(when, from, ino);
        }
        if to.dir == Ino::LINKS && !moved.attr.is_dir() {
            return self.apply_linked(when, moved);
        }
        if when.merges() && moved.attr.is_dir() && self.is_within(to.dir, ino) {
            // Another client moved the destination below the directory that is to be moved there.
            return ApplyOutcome::Rejected;
        }
        let source = self.dir_mut(from.dir).find(from.name);
        if source.is_none_or(|source| source.ino == ino) {
            self.touch(when, from.dir);
        }
        if when.mode == Mode::Replay {
            self.bury_later(replaced);
        }
        let goes = self.take_name(when, from, ino);
        let outcome = self.move_to(when, goes, to, moved);
        if outcome != ApplyOutcome::Replaced(replaced) {
            self.release_unseen(when, replaced);
        }
        outcome
    }

    fn apply_exchange(
        &mut self,
        when: When,
        from: EntryName<'_>,
        to: EntryName<'_>,
        [moved, back]: [&InodeSnapshot<'_>; 2],
    ) -> ApplyOutcome {
        if when.merges() {
            let below = |dir, inode: &InodeSnapshot<'_>| {
                inode.attr.is_dir() && self.is_within(dir, inode.attr.ino)
            };
            if [from.dir, to.dir].iter().any(|dir| below(*dir, moved) || below(*dir, back)) {
                return ApplyOutcome::Rejected;
            }
        }
        let goes = self.take_name(when, from, moved.attr.ino);
        let comes = self.take_name(when, to, back.attr.ino);
        let first = self.move_to(when, goes, to, moved);
        let second = self.move_to(when, comes, from, back);
        if first == ApplyOutcome::Done { second } else { first }
    }

    /// Puts an inode under a name. In a merge the inode stays in its place if it is not under the
    /// journal's old name: another client moved it since, or the journal was merged before.
    fn move_to(
        &mut self,
        when: When,
        goes: bool,
        to: EntryName<'_>,
        inode: &InodeSnapshot<'_>,
    ) -> ApplyOutcome {
        if goes {
            return self.place(when, to, inode);
        }
        self.refresh(when, inode);
        self.mark_inode(when.seq, inode.attr.ino);
        self.touch(when, to.dir);
        ApplyOutcome::Done
    }

    fn change_inode(
        &mut self,
        when: When,
        ino: Ino,
        change: impl FnOnce(&mut Inode, &mut Extra),
    ) -> ApplyOutcome {
        self.resolve_replayed_touch(ino, when.seq);
        let Some(inode) = self.inodes.get_mut(ino) else { return ApplyOutcome::Rejected };
        if when.is_in(inode.version) {
            return ApplyOutcome::Done;
        }
        let mut extra = if inode.flags & HAS_EXTRA == 0 {
            Arc::default()
        } else {
            self.extras.remove(&ino).unwrap_or_default()
        };
        change(inode, Arc::make_mut(&mut extra));
        inode.stamp(when);
        if extra.is_empty() {
            inode.flags &= !HAS_EXTRA;
        } else {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, extra);
        }
        self.mark_inode(when.seq, ino);
        ApplyOutcome::Done
    }

    /// The inode must be stored again with its dentry.
    pub(crate) fn mark_inode(&mut self, seq: Seq, ino: Ino) {
        let Some(inode) = self.inodes.get(ino) else { return };
        let (home, hash) = (inode.home, inode.home_hash);
        if let Some(dir) = self.dirs.get_mut(&home) {
            dir.mark_dirty(hash, ino);
            self.note_dirty(seq, home);
        }
    }

    /// Queues a directory for the next checkpoint.
    #[inline]
    pub(crate) fn note_dirty(&mut self, seq: Seq, ino: Ino) {
        let dir = self.dirs.entry(ino).or_insert_with(|| Box::new(Dir::new(false)));
        self.dirty.note(dir, seq, ino);
    }
}
