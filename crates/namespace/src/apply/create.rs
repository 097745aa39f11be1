//! Creates: most events are one.

use std::sync::Arc;

use journal::{Create, Loss};
use types::{FileType, Ino};

use super::{Apply, ApplyOutcome, Mode, When};
use crate::Extra;
use crate::inode::{HashedName, Inode};
use crate::page::{Dentry, Target};

impl Apply<'_> {
    /// Applies a create, given the hash of its name.
    ///
    /// Merges spend their time here, so the common case (a new name of an inode that is no
    /// directory) looks every structure up once; the rest is in [`Apply::created`].
    #[inline]
    pub(crate) fn create_hashed(&mut self, create: &Create<'_>, hash: u32) -> ApplyOutcome {
        let Create { parent, name, ino, .. } = *create;
        let When { seq, mode, .. } = self.when;
        if mode != Mode::Live && self.tree.inodes.knows(ino) {
            return self.create_again(hash, create);
        }
        if !self.touch_inode(parent) && mode == Mode::Merge {
            return self.refuse_create(create);
        }
        let file_type = create.file_type();
        let target = Target { ino, file_type, remote: false };
        let place = HashedName { dir: parent, hash };
        let before = self.tree.dirs.set_noted(seq, place, name, target);
        self.insert_created(hash, create);
        if before.is_some() || file_type == FileType::Directory {
            return self.created(place, target, before);
        }
        ApplyOutcome::Done
    }

    /// The remaining work after a create that made a directory, or replaced `before`.
    fn created(&mut self, place: HashedName, made: Target, before: Option<Dentry>) -> ApplyOutcome {
        if made.file_type == FileType::Directory {
            let complete = self.when.mode == Mode::Live;
            self.tree.dirs.make_as(made.ino, complete);
        }
        before.map_or(ApplyOutcome::Done, |before| self.displace(place, before, made))
    }

    /// The inode exists. Either this journal was merged before: then later changes of the inode
    /// stay. Or the store knew it: then only its name may be missing.
    #[cold]
    fn create_again(&mut self, hash: u32, create: &Create<'_>) -> ApplyOutcome {
        let Create { parent, name, ino, .. } = *create;
        if self.when.merges() && !self.tree.inodes.knows(parent) {
            return self.refuse_create(create);
        }
        self.touch(parent);
        let Some(known) = self.tree.inodes.get(ino) else { return ApplyOutcome::Done };
        let remote = known.home == Ino::LINKS;
        let place = HashedName { dir: parent, hash };
        let here = remote || known.home_name() == place;
        if !self.when.repeats() {
            return ApplyOutcome::Done;
        }
        let target = Target { ino, file_type: known.file_type(), remote };
        // The inode may have moved by now. Still it took the name from the earlier entry.
        let dir = self.tree.dirs.make(parent);
        let before = if here {
            dir.set(hash, name, target)
        } else {
            let taken = dir.find_any(hash, name).is_none_or(|dentry| dentry.ino != ino);
            if taken { dir.unset(hash, name) } else { None }
        };
        if let Some(before) = before {
            self.displace(place, before, target);
        }
        ApplyOutcome::Done
    }

    /// Its directory is gone. Recovery must know: by then the directory may look different.
    #[cold]
    fn refuse_create(&mut self, create: &Create<'_>) -> ApplyOutcome {
        self.displaced.losses.push(Loss::of_create(create.ino, create.time));
        ApplyOutcome::Rejected
    }

    #[inline]
    fn insert_created(&mut self, home_hash: u32, create: &Create<'_>) {
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
            version: self.when.seq,
            flags: 0,
        };
        inode.stamp(self.when);
        if create.data.is_empty() && create.extra.is_empty() {
            self.tree.inodes.insert(create.ino, inode);
        } else {
            let extra = Arc::new(Extra::from_parts(create.data, create.extra));
            self.tree.inodes.insert_with(create.ino, inode, extra);
        }
    }
}
