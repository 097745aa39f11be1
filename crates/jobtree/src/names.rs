//! Names: looking them up, making and removing them.
//!
//! A name is an entry in one bucket of the table, by directory and name, and at one position of the
//! list of its directory. It exists from the store of [`LIVE`] until the store of [`DEAD`]; links
//! of buckets and lists are set before and cleared after that.

use std::sync::atomic::Ordering;

use crate::alloc::{class_bytes, class_of};
use crate::inode::{
    CONTENT, CTIME, ENTRY, INODE_CLASS, Inode, JobStat, Kind, MTIME, PARENT, SIZE, SUBDIRS,
};
use crate::region::{
    BUCKET_BYTES, BUCKETS_AT, Denied, EEXIST, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM,
    HEAD_BUCKETS, Host, JobRegion,
};
use crate::slots::Visit;

/// The record of a name, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameEntry(pub u64);

/// The next entry in its bucket.
pub(crate) const NEXT: u64 = 0;
pub(crate) const DIR: u64 = 8;
pub(crate) const INODE: u64 = 16;
pub(crate) const STATE: u64 = 24;
pub(crate) const POSITION: u64 = 32;
pub(crate) const ENTRY_STAMP: u64 = 40;
/// Bytes of the name, as a half word, after the hash.
pub(crate) const NAME_LEN: u64 = 48;
const HASH: u64 = 52;
pub(crate) const NAME: u64 = 56;

pub(crate) const PENDING: u64 = 0;
pub(crate) const LIVE: u64 = 1;
pub(crate) const DEAD: u64 = 2;
/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// A new inode.
#[derive(Clone, Copy, Debug)]
pub struct InodeParts<'a> {
    /// Type and permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time, in nanoseconds since 1970.
    pub now: i64,
    /// The target of a symbolic link.
    pub target: &'a [u8],
    /// Whether it is open at once ([`Visit::open_inode`]).
    pub open: bool,
}

/// A hash of a name in a directory.
#[inline]
pub(crate) fn hash(dir: Inode, name: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (dir.0 ^ name.len() as u64).wrapping_mul(K);
    let mut words = name.chunks_exact(8);
    for word in &mut words {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        hash = (hash.rotate_left(23) ^ u64::from_le_bytes(bytes)).wrapping_mul(K);
    }
    let mut bytes = [0; 8];
    let rest = words.remainder();
    bytes[..rest.len()].copy_from_slice(rest);
    hash = (hash.rotate_left(23) ^ u64::from_le_bytes(bytes)).wrapping_mul(K);
    hash ^ hash >> 29
}

impl JobRegion {
    #[inline]
    fn bucket(&self, hash: u64) -> u64 {
        let buckets = self.word(HEAD_BUCKETS).load(Ordering::Relaxed);
        BUCKETS_AT + (hash >> 20 & buckets.wrapping_sub(1)) * BUCKET_BYTES
    }

    #[inline]
    pub(crate) fn of_entry(&self, entry: NameEntry, field: u64) -> u64 {
        self.word(entry.0 + field).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_entry(&self, entry: NameEntry, field: u64, value: u64) {
        self.word(entry.0 + field).store(value, Ordering::Release);
    }

    /// The inode that an entry names.
    #[inline]
    #[must_use]
    pub fn inode_of(&self, entry: NameEntry) -> Inode {
        Inode(self.of_entry(entry, INODE))
    }

    /// The name of an entry.
    #[must_use]
    pub fn name_of<'b>(&self, entry: NameEntry, buffer: &'b mut [u8; NAME_BYTES_MAX]) -> &'b [u8] {
        let len = self.half(entry.0 + NAME_LEN).load(Ordering::Relaxed) as usize;
        let name = &mut buffer[..len.min(NAME_BYTES_MAX)];
        self.copy_out(entry.0 + NAME, name);
        name
    }

    #[inline]
    fn has_name(&self, entry: NameEntry, name: &[u8]) -> bool {
        if self.half(entry.0 + NAME_LEN).load(Ordering::Relaxed) as usize != name.len() {
            return false;
        }
        match self.pointer(entry.0 + NAME, name.len() as u64) {
            // SAFETY: in the region; the name of an entry that an epoch keeps does not change.
            Some(at) => unsafe { std::slice::from_raw_parts(at, name.len()) == name },
            None => false,
        }
    }

    /// The entry of a name, for a thread that is inside.
    #[inline]
    #[must_use]
    pub fn lookup(&self, dir: Inode, name: &[u8]) -> Option<NameEntry> {
        let hash = hash(dir, name);
        self.find(self.bucket(hash), hash, dir, name)
    }

    #[inline]
    fn find(&self, bucket: u64, hash: u64, dir: Inode, name: &[u8]) -> Option<NameEntry> {
        let mut at = self.word(bucket).load(Ordering::Acquire);
        // A damaged chain may have no end.
        let mut steps = 0_u32;
        while at != 0 && steps < 1 << 20 {
            let entry = NameEntry(at);
            if self.half(at + HASH).load(Ordering::Relaxed) == hash as u32
                && self.of_entry(entry, DIR) == dir.0
                && self.of_entry(entry, STATE) == LIVE
                && self.has_name(entry, name)
            {
                return Some(entry);
            }
            at = self.of_entry(entry, NEXT);
            steps += 1;
        }
        None
    }
}

impl<'a, H: Host> Visit<'a, H> {
    /// Makes a file, a directory or a symbolic link.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` in a removed directory, `ENAMETOOLONG`; [`Denied::Unable`] without room.
    #[inline]
    pub fn create(&self, dir: Inode, name: &[u8], new: &InodeParts<'_>) -> Result<Inode, Denied> {
        self.check(dir, name)?;
        let inode = self.new_inode(dir, new)?;
        let is_dir = self.region.kind(inode) == Kind::Directory;
        match self.add_entry(dir, name, inode) {
            Ok(entry) => {
                if is_dir {
                    self.region.set_field(inode, ENTRY, entry.0);
                }
            }
            Err(denied) => {
                self.forget_new(inode);
                return Err(denied);
            }
        }
        if is_dir {
            self.region.add_dir(inode);
            self.region.word(dir.0 + SUBDIRS).fetch_add(1, Ordering::Relaxed);
        }
        self.touch_dir(dir, 1, new.now);
        Ok(inode)
    }

    /// A directory changed by so many names.
    #[inline]
    pub(crate) fn touch_dir(&self, dir: Inode, names: u64, now: i64) {
        self.region.word(dir.0 + SIZE).fetch_add(names, Ordering::Relaxed);
        self.region.set_field(dir, MTIME, now as u64);
        self.region.set_field(dir, CTIME, now as u64);
    }

    #[inline]
    pub(crate) fn check(&self, dir: Inode, name: &[u8]) -> Result<(), Denied> {
        if name.len() > NAME_BYTES_MAX {
            return Err(ENAMETOOLONG.into());
        }
        if self.region.kind(dir) != Kind::Directory {
            return Err(ENOTDIR.into());
        }
        if !self.region.is_linked(dir) {
            return Err(ENOENT.into());
        }
        Ok(())
    }

    fn new_inode(&self, dir: Inode, new: &InodeParts<'_>) -> Result<Inode, Denied> {
        let region = self.region;
        let ino = self.number().ok_or(Denied::Numbers)?;
        let inode = Inode(self.take(INODE_CLASS).ok_or(Denied::Unable)?);
        let InodeParts { mode, uid, gid, now, target, open } = *new;
        let (atime, mtime, ctime) = (now, now, now);
        let stat = JobStat { ino, mode, uid, gid, atime, mtime, ctime, ..JobStat::default() };
        region.fill_inode(inode, &stat);
        match Kind::of_mode(mode) {
            Kind::Directory => region.set_field(inode, PARENT, dir.0),
            Kind::Symlink => {
                let class = Self::content_class(target.len() as u64);
                let content = self.take(class).ok_or(Denied::Unable)?;
                region.copy_in(content, target);
                region.set_field(inode, CONTENT, content | u64::from(class));
                region.set_field(inode, SIZE, target.len() as u64);
            }
            Kind::File => {}
        }
        if open {
            self.open_inode(inode)?;
        }
        Ok(inode)
    }

    fn forget_new(&self, inode: Inode) {
        let content = self.region.field(inode, CONTENT);
        if content != 0 {
            self.give(content & !63, (content & 63) as u32);
        }
        self.give(inode.0, INODE_CLASS);
    }

    /// Makes an entry, if the name is free.
    fn add_entry(&self, dir: Inode, name: &[u8], inode: Inode) -> Result<NameEntry, Denied> {
        self.add_entry_as(LIVE, dir, name, inode)
    }

    /// Makes an entry that is [`LIVE`] or, for a rename that will make it so, [`PENDING`].
    pub(crate) fn add_entry_as(
        &self,
        state: u64,
        dir: Inode,
        name: &[u8],
        inode: Inode,
    ) -> Result<NameEntry, Denied> {
        let region = self.region;
        let hash = hash(dir, name);
        let bucket = region.bucket(hash);
        if region.find(bucket, hash, dir, name).is_some() {
            return Err(EEXIST.into());
        }
        let class = class_of(NAME + name.len() as u64);
        let entry = NameEntry(self.take(class).ok_or(Denied::Unable)?);
        self.fill_entry(entry, dir, name, inode);
        region.half(entry.0 + HASH).store(hash as u32, Ordering::Relaxed);
        let lock = self.lock(region.word(bucket + 8));
        let free = lock.is_ok() && region.find(bucket, hash, dir, name).is_none();
        if !free {
            self.give(entry.0, class);
            return Err(lock.map_or(Denied::Unable, |_| EEXIST.into()));
        }
        if !self.list_entry(dir, entry) {
            drop(lock);
            self.give(entry.0, class);
            return Err(Denied::Unable);
        }
        let first = region.word(bucket);
        region.set_entry(entry, NEXT, first.load(Ordering::Relaxed));
        first.store(entry.0, Ordering::Release);
        region.set_entry(entry, STATE, state);
        drop(lock);
        Ok(entry)
    }

    fn fill_entry(&self, entry: NameEntry, dir: Inode, name: &[u8], inode: Inode) {
        let region = self.region;
        region.set_entry(entry, STATE, PENDING);
        region.set_entry(entry, DIR, dir.0);
        region.set_entry(entry, INODE, inode.0);
        region.set_entry(entry, ENTRY_STAMP, self.stamp());
        region.half(entry.0 + NAME_LEN).store(name.len() as u32, Ordering::Relaxed);
        region.copy_in(entry.0 + NAME, name);
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub fn unlink(
        &self,
        dir: Inode,
        name: &[u8],
        now: i64,
        allowed: impl FnOnce(Inode) -> bool,
    ) -> Result<(), Denied> {
        let region = self.region;
        let hash = hash(dir, name);
        let bucket = region.bucket(hash);
        let lock = self.lock(region.word(bucket + 8))?;
        let entry = region.find(bucket, hash, dir, name).ok_or(ENOENT)?;
        let inode = region.inode_of(entry);
        if region.kind(inode) == Kind::Directory {
            return Err(EISDIR.into());
        }
        if !allowed(inode) {
            return Err(EPERM.into());
        }
        self.bury_entry(bucket, entry);
        drop(lock);
        region.set_field(inode, CTIME, now as u64);
        self.drop_name(inode);
        self.touch_dir(dir, 1_u64.wrapping_neg(), now);
        Ok(())
    }

    /// Ends an entry. The caller has locked its bucket, or is the only thread in the region.
    pub(crate) fn bury_entry(&self, bucket: u64, entry: NameEntry) {
        let region = self.region;
        region.set_entry(entry, STATE, DEAD);
        let mut link = bucket;
        let mut steps = 0_u32;
        loop {
            let at = region.word(link).load(Ordering::Acquire);
            if at == entry.0 {
                // A thread that reads the chain at this entry continues from it: the link stays.
                let next = region.of_entry(entry, NEXT);
                region.word(link).store(next, Ordering::Release);
                break;
            }
            if at == 0 || steps > 1 << 20 {
                break;
            }
            link = at + NEXT;
            steps += 1;
        }
        self.unlist_entry(Inode(region.of_entry(entry, DIR)), entry);
        let len = u64::from(region.half(entry.0 + NAME_LEN).load(Ordering::Relaxed));
        let class = class_of(NAME + len.min(NAME_BYTES_MAX as u64));
        debug_assert!(class_bytes(class) >= NAME + len, "the record has the name");
        self.retire(entry.0, class);
    }

    /// The bucket of an entry.
    pub(crate) fn bucket_of(&self, dir: Inode, name: &[u8]) -> u64 {
        self.region.bucket(hash(dir, name))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `ENOENT`.
    pub fn link(&self, inode: Inode, dir: Inode, name: &[u8], now: i64) -> Result<(), Denied> {
        self.check(dir, name)?;
        if self.region.kind(inode) == Kind::Directory {
            return Err(EPERM.into());
        }
        self.add_name(inode)?;
        if let Err(denied) = self.add_entry(dir, name, inode) {
            self.drop_name(inode);
            return Err(denied);
        }
        self.region.set_field(inode, CTIME, now as u64);
        self.touch_dir(dir, 1, now);
        Ok(())
    }
}
