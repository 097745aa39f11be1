//! Calls that change several names at once: no other thread is inside during one.

use std::sync::atomic::Ordering;

use crate::inode::{CTIME, ENTRY, Inode, Kind, PARENT, REFS, SUBDIRS};
use crate::names::{DIR, INODE, LIVE, NAME_BYTES_MAX, NameEntry, PENDING, STATE};
use crate::region::{
    Denied, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, HEAD_INTENT, Host,
};
use crate::slots::Visit;

/// The words of an intent: set and committed before a rename, completed by the next holder of the
/// gate if the one that set it dies.
const COMMITTED: u64 = HEAD_INTENT;
const FROM: u64 = HEAD_INTENT + 8;
const TO: u64 = HEAD_INTENT + 16;
const MOVED: u64 = HEAD_INTENT + 24;
const REPLACED: u64 = HEAD_INTENT + 32;

const RENAME: u64 = 1;
const EXCHANGE: u64 = 2;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'n> {
    pub(crate) dir: Inode,
    pub(crate) name: &'n [u8],
}

impl<H: Host> Visit<'_, H> {
    /// Removes an empty directory. The calling thread is outside; the directory above is open, or
    /// was found in this very call.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EPERM`.
    pub fn rmdir(
        &self,
        dir: Inode,
        name: &[u8],
        now: i64,
        allowed: impl FnOnce(Inode) -> bool,
    ) -> Result<(), Denied> {
        let _alone = self.exclude()?;
        let region = self.region;
        let entry = region.lookup(dir, name).ok_or(ENOENT)?;
        let inode = region.inode_of(entry);
        if region.kind(inode) != Kind::Directory {
            return Err(ENOTDIR.into());
        }
        if !allowed(inode) {
            return Err(EPERM.into());
        }
        if !region.is_empty_dir(inode) {
            return Err(ENOTEMPTY.into());
        }
        self.bury_entry(self.bucket_of(dir, name), entry);
        self.unlink_dir(inode, now);
        region.word(dir.0 + SUBDIRS).fetch_sub(1, Ordering::Relaxed);
        self.touch_dir(dir, 1_u64.wrapping_neg(), now);
        Ok(())
    }

    fn unlink_dir(&self, dir: Inode, now: i64) {
        let names = self.region.word(dir.0 + REFS);
        if names.load(Ordering::Relaxed) & 0xffff_ffff != 0 {
            names.fetch_sub(1, Ordering::AcqRel);
        }
        self.region.set_field(dir, CTIME, now as u64);
    }

    /// Moves a name. The calling thread is outside.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        no_replace: bool,
        now: i64,
        allowed: impl Fn(Inode, Inode) -> bool,
    ) -> Result<(), Denied> {
        let (from, to) = (At { dir: from.0, name: from.1 }, At { dir: to.0, name: to.1 });
        let _alone = self.exclude()?;
        let region = self.region;
        self.check(to.dir, to.name)?;
        let old = region.lookup(from.dir, from.name).ok_or(ENOENT)?;
        let moved = region.inode_of(old);
        let target = region.lookup(to.dir, to.name);
        if target.is_some() && no_replace {
            return Err(EEXIST.into());
        }
        let replaced = target.map(|target| region.inode_of(target));
        let may = allowed(from.dir, moved) && replaced.is_none_or(|it| allowed(to.dir, it));
        if !may {
            return Err(EPERM.into());
        }
        if replaced == Some(moved) {
            return Ok(());
        }
        self.check_move(moved, replaced, to.dir)?;
        let fresh = match target {
            Some(target) => target,
            None => self.add_entry_as(PENDING, to.dir, to.name, moved)?,
        };
        self.intend(RENAME, old, fresh, moved, replaced);
        self.complete_intent();
        if region.kind(moved) == Kind::Directory && from.dir != to.dir {
            region.word(from.dir.0 + SUBDIRS).fetch_sub(1, Ordering::Relaxed);
            region.word(to.dir.0 + SUBDIRS).fetch_add(1, Ordering::Relaxed);
        }
        if let Some(replaced) = replaced {
            self.drop_replaced(replaced, to.dir, now);
        }
        region.set_field(moved, CTIME, now as u64);
        self.touch_dir(from.dir, 1_u64.wrapping_neg(), now);
        self.touch_dir(to.dir, u64::from(replaced.is_none()), now);
        Ok(())
    }

    fn check_move(&self, moved: Inode, replaced: Option<Inode>, into: Inode) -> Result<(), Denied> {
        let region = self.region;
        let is_dir = region.kind(moved) == Kind::Directory;
        if is_dir && self.is_within(into, moved) {
            return Err(EINVAL.into());
        }
        let Some(replaced) = replaced else { return Ok(()) };
        match (is_dir, region.kind(replaced) == Kind::Directory) {
            (true, false) => Err(ENOTDIR.into()),
            (false, true) => Err(EISDIR.into()),
            (true, true) if !region.is_empty_dir(replaced) => Err(ENOTEMPTY.into()),
            (true, true) | (false, false) => Ok(()),
        }
    }

    /// Whether a directory is another one, or below it.
    fn is_within(&self, mut dir: Inode, above: Inode) -> bool {
        for _ in 0..1 << 16 {
            if dir == above {
                return true;
            }
            let parent = self.region.parent(dir);
            if parent == dir || parent.0 == 0 {
                return false;
            }
            dir = parent;
        }
        true
    }

    fn drop_replaced(&self, replaced: Inode, dir: Inode, now: i64) {
        if self.region.kind(replaced) == Kind::Directory {
            self.unlink_dir(replaced, now);
            self.region.word(dir.0 + SUBDIRS).fetch_sub(1, Ordering::Relaxed);
        } else {
            self.region.set_field(replaced, CTIME, now as u64);
            self.drop_name(replaced);
        }
    }

    /// Swaps two names. The calling thread is outside.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn exchange(
        &self,
        one: (Inode, &[u8]),
        other: (Inode, &[u8]),
        now: i64,
        allowed: impl Fn(Inode, Inode) -> bool,
    ) -> Result<(), Denied> {
        let _alone = self.exclude()?;
        let region = self.region;
        let first = region.lookup(one.0, one.1).ok_or(ENOENT)?;
        let second = region.lookup(other.0, other.1).ok_or(ENOENT)?;
        let (moved, swapped) = (region.inode_of(first), region.inode_of(second));
        if !allowed(one.0, moved) || !allowed(other.0, swapped) {
            return Err(EPERM.into());
        }
        if moved == swapped {
            return Ok(());
        }
        for (inode, into) in [(moved, other.0), (swapped, one.0)] {
            if region.kind(inode) == Kind::Directory && self.is_within(into, inode) {
                return Err(EINVAL.into());
            }
        }
        self.intend(EXCHANGE, first, second, moved, Some(swapped));
        self.complete_intent();
        for (inode, from, to) in [(moved, one.0, other.0), (swapped, other.0, one.0)] {
            if region.kind(inode) == Kind::Directory {
                region.word(from.0 + SUBDIRS).fetch_sub(1, Ordering::Relaxed);
                region.word(to.0 + SUBDIRS).fetch_add(1, Ordering::Relaxed);
            }
            region.set_field(inode, CTIME, now as u64);
            self.touch_dir(to, 0, now);
        }
        Ok(())
    }

    fn intend(
        &self,
        kind: u64,
        from: NameEntry,
        to: NameEntry,
        moved: Inode,
        replaced: Option<Inode>,
    ) {
        let store = |word, value| self.region.word(word).store(value, Ordering::Release);
        store(FROM, from.0);
        store(TO, to.0);
        store(MOVED, moved.0);
        store(REPLACED, replaced.map_or(0, |inode| inode.0));
        self.region.word(COMMITTED).store(kind, Ordering::SeqCst);
    }

    /// Executes a committed rename, perhaps a second time. No other thread is inside.
    pub(crate) fn complete_intent(&self) {
        let region = self.region;
        let load = |word| region.word(word).load(Ordering::Acquire);
        let kind = region.word(COMMITTED).load(Ordering::SeqCst);
        if kind == 0 {
            return;
        }
        let (from, to) = (NameEntry(load(FROM)), NameEntry(load(TO)));
        let (moved, replaced) = (Inode(load(MOVED)), Inode(load(REPLACED)));
        region.set_entry(to, INODE, moved.0);
        region.set_entry(to, STATE, LIVE);
        self.moved_to(moved, to);
        if kind == EXCHANGE {
            region.set_entry(from, INODE, replaced.0);
            self.moved_to(replaced, from);
        } else if region.of_entry(from, STATE) == LIVE {
            let mut buffer = [0; NAME_BYTES_MAX];
            let name = region.name_of(from, &mut buffer);
            let bucket = self.bucket_of(Inode(region.of_entry(from, DIR)), name);
            self.bury_entry(bucket, from);
        }
        region.word(COMMITTED).store(0, Ordering::SeqCst);
    }

    /// A directory has this name now.
    fn moved_to(&self, inode: Inode, entry: NameEntry) {
        let region = self.region;
        if region.kind(inode) == Kind::Directory {
            region.set_field(inode, PARENT, region.of_entry(entry, DIR));
            region.set_field(inode, ENTRY, entry.0);
        }
    }
}
