//! `apply`: the only function that changes a namespace.

use std::collections::VecDeque;
use std::sync::Arc;

use journal::{Create, Event, Snapshot};
use types::{AttrChange, FileType, Ino, MODE_PERMISSIONS, Seq, Timestamp, name_hash};

use crate::dir::Dir;
use crate::inode::{ATTR_DIRTY, HAS_EXTRA, Inode};
use crate::page::{Dentry, Target};
use crate::{Extra, Freed, Namespace, link_hash, link_name};

/// Under which circumstances an event is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It was just planned here: new directories are known to be empty.
    Live,
    /// It comes from another journal that may have been merged before.
    Merge,
    /// It comes from this rank's own journal after a restart: parts of its effect may already be
    /// in the metadata store, even together with those of later events.
    Replay,
}

/// What applying an event did beyond what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    Done,
    /// Another inode lost a name to it: the merging client wins name by name.
    Replaced(Ino),
    /// It was not carried out: it would have removed a directory that has entries, or changed an
    /// inode that does not exist.
    Rejected,
}

impl Namespace {
    /// Carries out an event. Total: it cannot fail, whatever the event and the namespace; what it
    /// displaced is returned, and inodes that lost their last name are collected for
    /// [`Namespace::take_freed`].
    ///
    /// `seq` is the position of the event in this rank's journal, or for events that are not
    /// journalled the position of the newest event that is.
    pub fn apply(&mut self, seq: Seq, mode: Mode, event: &Event<'_>) -> Outcome {
        match *event {
            Event::Create(ref create) => self.apply_create(seq, mode, create),
            Event::Link { parent, name, ino, home: _, inode, time } => {
                self.apply_link(seq, mode, (parent, name), &Snapshot { attr: types::Attr { ino, ..inode.attr }, ..inode }, time)
            }
            Event::Unlink { parent, name, time } => self.apply_unlink(seq, mode, parent, name, time),
            Event::Rmdir { parent, name, time } => self.apply_rmdir(seq, mode, parent, name, time),
            Event::Rename { parent, name, new_parent, new_name, ref moved, ref exchanged, time } => {
                let from = (parent, name);
                let to = (new_parent, new_name);
                match exchanged {
                    None => self.apply_rename(seq, mode, from, to, moved, time),
                    Some(back) => {
                        self.place(seq, mode, to, moved, time);
                        self.place(seq, mode, from, back, time);
                        self.policy_generation += 1;
                        Outcome::Done
                    }
                }
            }
            Event::SetAttr { ino, change, time, .. } => {
                self.change_inode(seq, mode, ino, |inode, _| set_attr(inode, &change, time))
            }
            Event::SetXattr { ino, name, value, time, .. } => {
                self.change_inode(seq, mode, ino, |inode, extra| {
                    extra.set_xattr(name, value);
                    inode.ctime = time;
                })
            }
            Event::SetData { ino, data, size, time, .. } => {
                self.change_inode(seq, mode, ino, |inode, extra| {
                    extra.data = data.to_vec();
                    inode.size = size;
                    (inode.mtime, inode.ctime) = (time, time);
                })
            }
            Event::SetPolicy { ino, policy, time, .. } => {
                let outcome = self.change_inode(seq, mode, ino, |inode, extra| {
                    extra.set_policy(policy);
                    inode.ctime = time;
                });
                self.note_policy(ino);
                outcome
            }
            Event::Session { .. } | Event::Merged { .. } => Outcome::Done,
        }
    }

    /// The directory, created as one of which nothing is known if it is not in memory.
    #[inline]
    pub(crate) fn dir_mut(&mut self, ino: Ino) -> &mut Dir {
        self.dirs.entry(ino).or_insert_with(|| Box::new(Dir::new(false)))
    }

    #[inline]
    fn apply_create(&mut self, seq: Seq, mode: Mode, create: &Create<'_>) -> Outcome {
        self.create_hashed(seq, mode, create, name_hash(create.name))
    }

    /// Carries out a create whose name has this hash.
    ///
    /// This is what merges spend their time in, so the common case (the name is new, and names no
    /// directory) looks every structure up once; the rest is in [`Namespace::created`].
    #[inline]
    pub(crate) fn create_hashed(
        &mut self,
        seq: Seq,
        mode: Mode,
        create: &Create<'_>,
        hash: u32,
    ) -> Outcome {
        let Create { parent, name, ino, time, .. } = *create;
        if mode != Mode::Live && self.lives_elsewhere(ino, parent, hash) {
            return Outcome::Done;
        }
        let file_type = create.file_type();
        let dir = self.dirs.entry(parent).or_insert_with(|| Box::new(Dir::new(false)));
        let before = dir.set(hash, name, Target { ino, file_type, remote: false });
        if before.is_some() || file_type == FileType::Directory || mode == Mode::Replay {
            return self.created(seq, mode, create, hash, before);
        }
        queue_dirty(&mut self.dirty_dirs, dir, seq, parent);
        self.insert_created(seq, hash, create);
        self.touch_inode(seq, parent, time);
        Outcome::Done
    }

    /// What is left to do after a create's name was put in place of `before`.
    fn created(
        &mut self,
        seq: Seq,
        mode: Mode,
        create: &Create<'_>,
        hash: u32,
        before: Option<Dentry>,
    ) -> Outcome {
        let Create { parent, ino, time, .. } = *create;
        let file_type = create.file_type();
        let outcome = match before {
            None => Outcome::Done,
            Some(before) if before.ino == ino => Outcome::Done,
            Some(before) => {
                if before.file_type() == FileType::Directory && file_type == FileType::Directory {
                    self.adopt(before.ino, ino, seq);
                }
                self.release(seq, mode, before, time);
                Outcome::Replaced(before.ino)
            }
        };
        if mode != Mode::Replay || self.inodes.get(ino).is_none_or(|known| known.version < seq) {
            self.insert_created(seq, hash, create);
        }
        if file_type == FileType::Directory {
            let complete = mode == Mode::Live;
            self.dirs.entry(ino).or_insert_with(|| Box::new(Dir::new(complete)));
        }
        self.touch(seq, parent, time);
        outcome
    }

    #[inline]
    fn insert_created(&mut self, seq: Seq, home_hash: u32, create: &Create<'_>) {
        let extra = !create.data.is_empty();
        let inode = Inode {
            mode: create.mode,
            uid: create.uid,
            gid: create.gid,
            nlink: 1,
            rdev: create.rdev,
            home_hash,
            home: create.parent,
            size: create.size,
            atime: create.atime,
            mtime: create.mtime,
            ctime: create.time,
            btime: create.time,
            version: seq,
            flags: if extra { HAS_EXTRA } else { 0 },
        };
        self.inodes.insert(create.ino, inode);
        if extra {
            self.extras.insert(create.ino, Arc::new(Extra::from_parts(create.data, &[])));
        }
    }

    /// Whether an inode that is about to be created is already there under another name: then
    /// this is the second merge of a journal, and somebody moved the inode in between.
    fn lives_elsewhere(&self, ino: Ino, parent: Ino, hash: u32) -> bool {
        self.inodes.get(ino).is_some_and(|inode| (inode.home, inode.home_hash) != (parent, hash))
    }

    fn apply_link(
        &mut self,
        seq: Seq,
        mode: Mode,
        (parent, name): (Ino, &[u8]),
        inode: &Snapshot<'_>,
        time: Timestamp,
    ) -> Outcome {
        let ino = inode.attr.ino;
        let file_type = inode.attr.file_type();
        if let Some(known) = self.inodes.get(ino)
            && known.home != Ino::LINKS
        {
            let (home, home_hash) = (known.home, known.home_hash);
            let dir = self.dir_mut(home);
            if let Some(old) = dir.name_by_hash(home_hash, ino) {
                dir.set(home_hash, &old, Target { ino, file_type, remote: true });
                self.note_dirty(seq, home);
            }
        }
        self.put_inode(seq, mode, Ino::LINKS, link_hash(ino), inode);
        let primary = Target { ino, file_type, remote: false };
        self.dir_mut(Ino::LINKS).set(link_hash(ino), &link_name(ino), primary);
        self.note_dirty(seq, Ino::LINKS);
        let remote = Target { ino, file_type, remote: true };
        let before = self.dir_mut(parent).set(name_hash(name), name, remote);
        self.touch(seq, parent, time);
        self.displace(seq, mode, before, ino, time)
    }

    fn apply_unlink(
        &mut self,
        seq: Seq,
        mode: Mode,
        parent: Ino,
        name: &[u8],
        time: Timestamp,
    ) -> Outcome {
        if let Some(dentry) = self.dir_mut(parent).find(name)
            && dentry.file_type() == FileType::Directory
        {
            return Outcome::Rejected;
        }
        let before = self.dir_mut(parent).unset(name_hash(name), name);
        self.touch(seq, parent, time);
        if let Some(before) = before {
            self.release(seq, mode, before, time);
        }
        Outcome::Done
    }

    fn apply_rmdir(
        &mut self,
        seq: Seq,
        mode: Mode,
        parent: Ino,
        name: &[u8],
        time: Timestamp,
    ) -> Outcome {
        if let Some(dentry) = self.dir_mut(parent).find(name) {
            let has_entries = self.dirs.get(&dentry.ino).is_some_and(|dir| dir.entries > 0);
            let is_dir = dentry.file_type() == FileType::Directory;
            if !is_dir || (has_entries && mode != Mode::Replay) {
                return Outcome::Rejected;
            }
        }
        let before = self.dir_mut(parent).unset(name_hash(name), name);
        self.touch(seq, parent, time);
        if let Some(before) = before {
            self.release(seq, mode, before, time);
        }
        Outcome::Done
    }

    fn apply_rename(
        &mut self,
        seq: Seq,
        mode: Mode,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        moved: &Snapshot<'_>,
        time: Timestamp,
    ) -> Outcome {
        let source = self.dir_mut(from.0).find(from.1);
        if source.is_none_or(|source| source.ino == moved.attr.ino) {
            self.dir_mut(from.0).unset(name_hash(from.1), from.1);
            self.touch(seq, from.0, time);
        }
        let before = self.place(seq, mode, to, moved, time);
        if moved.attr.is_dir() {
            self.policy_generation += 1;
        }
        self.displace(seq, mode, before, moved.attr.ino, time)
    }

    /// Puts an existing inode under a name. Returns the dentry that had the name.
    fn place(
        &mut self,
        seq: Seq,
        mode: Mode,
        (parent, name): (Ino, &[u8]),
        inode: &Snapshot<'_>,
        time: Timestamp,
    ) -> Option<Dentry> {
        let ino = inode.attr.ino;
        let hash = name_hash(name);
        let file_type = inode.attr.file_type();
        let linked = self.inodes.get(ino).map(|known| known.home == Ino::LINKS);
        let remote = linked.unwrap_or(inode.attr.nlink > 1 && !inode.attr.is_dir());
        let before = self.dir_mut(parent).set(hash, name, Target { ino, file_type, remote });
        if remote {
            self.change_inode(seq, mode, ino, |inode, _| inode.ctime = time);
        } else {
            self.put_inode(seq, mode, parent, hash, inode);
        }
        if inode.attr.is_dir() {
            self.dir_mut(ino);
            self.note_policy(ino);
        }
        self.touch(seq, parent, time);
        before
    }

    /// Stores an inode as a snapshot has it; an inode that is in memory keeps its attributes and
    /// only moves, because blind merges know less about it than the namespace does.
    fn put_inode(
        &mut self,
        seq: Seq,
        mode: Mode,
        home: Ino,
        home_hash: u32,
        snapshot: &Snapshot<'_>,
    ) {
        let ino = snapshot.attr.ino;
        if let Some(known) = self.inodes.get_mut(ino) {
            (known.home, known.home_hash) = (home, home_hash);
            if mode != Mode::Replay || known.version < seq {
                known.nlink = snapshot.attr.nlink;
                known.ctime = snapshot.attr.ctime;
                known.version = seq;
            }
            return;
        }
        let mut inode = Inode { home, home_hash, version: seq, ..Inode::default() };
        inode.set_attr(&snapshot.attr);
        let extra = Extra::from_parts(snapshot.data, snapshot.extra);
        if !extra.is_empty() {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, Arc::new(extra));
        }
        self.inodes.insert(ino, inode);
    }

    fn displace(
        &mut self,
        seq: Seq,
        mode: Mode,
        before: Option<Dentry>,
        winner: Ino,
        time: Timestamp,
    ) -> Outcome {
        match before {
            Some(before) if before.ino != winner => {
                self.release(seq, mode, before, time);
                Outcome::Replaced(before.ino)
            }
            Some(_) | None => Outcome::Done,
        }
    }

    /// A name of an inode is gone; with the last one the inode goes.
    fn release(&mut self, seq: Seq, mode: Mode, dentry: Dentry, time: Timestamp) {
        let ino = dentry.ino;
        if !dentry.is_remote() {
            self.free(ino);
            return;
        }
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        if mode == Mode::Replay && inode.version >= seq {
            return;
        }
        inode.nlink = inode.nlink.saturating_sub(1);
        inode.ctime = time;
        inode.version = seq;
        if inode.nlink == 0 {
            self.dir_mut(Ino::LINKS).unset(link_hash(ino), &link_name(ino));
            self.note_dirty(seq, Ino::LINKS);
            self.free(ino);
        } else {
            self.mark_inode(seq, ino);
        }
    }

    /// Forgets an inode, and with a directory everything below it.
    fn free(&mut self, ino: Ino) {
        let mut gone = vec![ino];
        while let Some(ino) = gone.pop() {
            if let Some(dir) = self.dirs.remove(&ino) {
                let primary = |(_, dentry): (&[u8], Dentry)| (!dentry.is_remote()).then_some(dentry.ino);
                gone.extend(dir.list(None).filter_map(primary));
                if self.policies.remove(&ino).is_some() {
                    self.policy_generation += 1;
                }
            }
            self.extras.remove(&ino);
            let Some(inode) = self.inodes.remove(ino) else { continue };
            // Small files keep no data outside their inode.
            let stored = inode.is_dir()
                || (inode.file_type() == FileType::Regular
                    && inode.size > 0
                    && inode.flags & HAS_EXTRA == 0);
            if stored {
                self.freed.push(Freed { ino, is_dir: inode.is_dir() });
            }
        }
    }

    /// Two clients made the same directory: the winner takes over the loser's names (the
    /// interferer's other names stay, A-07).
    fn adopt(&mut self, loser: Ino, winner: Ino, seq: Seq) {
        let Some(loser_dir) = self.dirs.remove(&loser) else { return };
        let mut names = Vec::new();
        for (name, dentry) in loser_dir.list(None) {
            names.push((name.to_vec(), dentry));
        }
        for (name, dentry) in names {
            let hash = name_hash(&name);
            if self.dir_mut(winner).find_any(hash, &name).is_some() {
                self.release(seq, Mode::Merge, dentry, Timestamp::default());
                continue;
            }
            let target = Target {
                ino: dentry.ino,
                file_type: dentry.file_type(),
                remote: dentry.is_remote(),
            };
            self.dir_mut(winner).set(hash, &name, target);
            if let Some(inode) = self.inodes.get_mut(dentry.ino)
                && !dentry.is_remote()
            {
                inode.home = winner;
            }
        }
        self.policy_generation += 1;
        self.note_dirty(seq, winner);
    }

    fn change_inode(
        &mut self,
        seq: Seq,
        mode: Mode,
        ino: Ino,
        change: impl FnOnce(&mut Inode, &mut Extra),
    ) -> Outcome {
        let Some(inode) = self.inodes.get_mut(ino) else { return Outcome::Rejected };
        if mode == Mode::Replay && inode.version >= seq {
            return Outcome::Done;
        }
        let mut extra = if inode.flags & HAS_EXTRA == 0 {
            Arc::default()
        } else {
            self.extras.remove(&ino).unwrap_or_default()
        };
        change(inode, Arc::make_mut(&mut extra));
        inode.version = seq;
        if extra.is_empty() {
            inode.flags &= !HAS_EXTRA;
        } else {
            inode.flags |= HAS_EXTRA;
            self.extras.insert(ino, extra);
        }
        self.mark_inode(seq, ino);
        Outcome::Done
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

    /// A directory's content changed: its times, and that it must be stored.
    #[inline]
    fn touch(&mut self, seq: Seq, dir: Ino, time: Timestamp) {
        self.note_dirty(seq, dir);
        self.touch_inode(seq, dir, time);
    }

    /// As [`Namespace::touch`], for a directory that is queued already.
    #[inline]
    fn touch_inode(&mut self, seq: Seq, dir: Ino, time: Timestamp) {
        let Some(inode) = self.inodes.get_mut(dir) else {
            self.dir_mut(dir).touched = Some((time, seq));
            return;
        };
        (inode.mtime, inode.ctime) = (time, time);
        inode.version = inode.version.max(seq);
        if inode.flags & ATTR_DIRTY == 0 {
            inode.flags |= ATTR_DIRTY;
            self.mark_inode(seq, dir);
        }
    }

    /// Queues a directory for the next checkpoint.
    #[inline]
    pub(crate) fn note_dirty(&mut self, seq: Seq, ino: Ino) {
        let dir = self.dirs.entry(ino).or_insert_with(|| Box::new(Dir::new(false)));
        queue_dirty(&mut self.dirty_dirs, dir, seq, ino);
    }
}

#[inline]
fn queue_dirty(queue: &mut VecDeque<(Seq, Ino)>, dir: &mut Dir, seq: Seq, ino: Ino) {
    if dir.dirty_since.is_none() {
        dir.dirty_since = Some(seq);
        queue.push_back((seq, ino));
    }
}

fn set_attr(inode: &mut Inode, change: &AttrChange, time: Timestamp) {
    let AttrChange { mode, uid, gid, size, atime, mtime } = *change;
    if let Some(mode) = mode {
        inode.mode = (inode.mode & !MODE_PERMISSIONS) | (mode & MODE_PERMISSIONS);
    }
    inode.uid = uid.unwrap_or(inode.uid);
    inode.gid = gid.unwrap_or(inode.gid);
    if let Some(size) = size {
        inode.size = size;
        inode.mtime = time;
    }
    inode.atime = atime.unwrap_or(inode.atime);
    inode.mtime = mtime.unwrap_or(inode.mtime);
    inode.ctime = time;
}
