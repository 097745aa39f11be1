//! Inodes.

use std::sync::atomic::Ordering;

use crate::alloc::class_of;
use crate::region::{DIRS_AT, DIRS_BUCKETS, Denied, ENOENT, Host, JobRegion};
use crate::slots::Visit;

/// The record of an inode, by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode(pub u64);

pub(crate) const INO: u64 = 0;
/// Names in the low half, open descriptions in the high half: the record is freed when both are 0.
pub(crate) const REFS: u64 = 8;
pub(crate) const MODE: u64 = 16;
pub(crate) const UID: u64 = 24;
pub(crate) const GID: u64 = 28;
/// Of a file or a symbolic link: its content, offset and class in one word. Of a directory: the
/// table of the pieces of its list.
pub(crate) const CONTENT: u64 = 32;
pub(crate) const LOCK: u64 = 40;
/// Of a directory: the directory above it. Of a file: the number of its stand-in ([`JobRegion`]
/// notes) and 1, or 0.
pub(crate) const PARENT: u64 = 48;
/// The next directory in its bucket of the table by number.
const NEXT_DIR: u64 = 56;
pub(crate) const SIZE: u64 = 64;
pub(crate) const MTIME: u64 = 72;
pub(crate) const CTIME: u64 = 80;
pub(crate) const ATIME: u64 = 88;
/// Of a directory: positions of its list that were given.
pub(crate) const POSITIONS: u64 = 96;
/// Of a directory: directories in it.
pub(crate) const SUBDIRS: u64 = 104;
/// Of a directory: the entry that names it.
pub(crate) const ENTRY: u64 = 112;
pub(crate) const INODE_CLASS: u32 = 1;

const ONE_OPEN: u64 = 1 << 32;
const NAMES_MASK: u64 = ONE_OPEN - 1;
/// The type in a mode.
pub(crate) const MODE_TYPE: u32 = 0o170_000;

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl Kind {
    /// The type in a mode.
    #[must_use]
    pub fn of_mode(mode: u32) -> Self {
        match mode & MODE_TYPE {
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            _ => Self::File,
        }
    }
}

/// The attributes of an inode. Times are nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobStat {
    /// Its number.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Its names; of a directory 2 and the directories in it.
    pub nlink: u64,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes; of a directory the number of its names.
    pub size: u64,
    /// The last access.
    pub atime: i64,
    /// The last change of the content.
    pub mtime: i64,
    /// The last change of the inode.
    pub ctime: i64,
}

/// New times of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewTimes {
    /// The last access, if it changes.
    pub atime: Option<i64>,
    /// The last change of the content, if it changes.
    pub mtime: Option<i64>,
}

impl JobRegion {
    pub(crate) fn fill_inode(&self, inode: Inode, stat: &JobStat) {
        let word = |field: u64, value: u64| {
            self.word(inode.0 + field).store(value, Ordering::Relaxed);
        };
        word(INO, stat.ino);
        word(REFS, 1);
        word(MODE, stat.mode.into());
        self.half(inode.0 + UID).store(stat.uid, Ordering::Relaxed);
        self.half(inode.0 + GID).store(stat.gid, Ordering::Relaxed);
        for field in [CONTENT, LOCK, PARENT, NEXT_DIR, SIZE, POSITIONS, SUBDIRS, ENTRY] {
            word(field, 0);
        }
        word(MTIME, stat.mtime as u64);
        word(CTIME, stat.ctime as u64);
        word(ATIME, stat.atime as u64);
    }

    #[inline]
    pub(crate) fn field(&self, inode: Inode, field: u64) -> u64 {
        self.word(inode.0 + field).load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn set_field(&self, inode: Inode, field: u64, value: u64) {
        self.word(inode.0 + field).store(value, Ordering::Release);
    }

    /// The mode of an inode.
    #[inline]
    #[must_use]
    pub fn mode(&self, inode: Inode) -> u32 {
        self.field(inode, MODE) as u32
    }

    /// The type of an inode.
    #[inline]
    #[must_use]
    pub fn kind(&self, inode: Inode) -> Kind {
        Kind::of_mode(self.mode(inode))
    }

    /// The number of an inode.
    #[inline]
    #[must_use]
    pub fn ino(&self, inode: Inode) -> u64 {
        self.field(inode, INO)
    }

    /// Owner and group of an inode.
    #[inline]
    #[must_use]
    pub fn owner(&self, inode: Inode) -> (u32, u32) {
        let half = |field| self.half(inode.0 + field).load(Ordering::Relaxed);
        (half(UID), half(GID))
    }

    /// The directory above a directory.
    #[must_use]
    pub fn parent(&self, dir: Inode) -> Inode {
        Inode(self.field(dir, PARENT))
    }

    /// The entry that names a directory; `None` for the root.
    #[must_use]
    pub fn entry_of(&self, dir: Inode) -> Option<crate::NameEntry> {
        let entry = self.field(dir, ENTRY);
        (entry != 0).then_some(crate::NameEntry(entry))
    }

    /// Whether a directory still has its name.
    #[must_use]
    pub fn is_linked(&self, inode: Inode) -> bool {
        self.field(inode, REFS) & NAMES_MASK != 0
    }

    /// Whether an open file description has the inode.
    #[must_use]
    pub fn is_open(&self, inode: Inode) -> bool {
        self.field(inode, REFS) >= ONE_OPEN
    }

    /// The number of the file that stands in for the content of an inode: the keeper holds it.
    #[inline]
    #[must_use]
    pub fn stand_in(&self, inode: Inode) -> Option<u32> {
        (self.kind(inode) == Kind::File)
            .then(|| self.field(inode, PARENT))
            .and_then(|number| number.checked_sub(1))
            .map(|number| number as u32)
    }

    /// A directory by its number.
    #[must_use]
    pub fn dir_numbered(&self, ino: u64) -> Option<Inode> {
        let mut at = self.word(DIRS_AT + (ino % DIRS_BUCKETS) * 8).load(Ordering::Acquire);
        let mut steps = 0_u64;
        while at != 0 && steps < self.len() / 64 {
            if self.field(Inode(at), INO) == ino {
                return Some(Inode(at));
            }
            at = self.field(Inode(at), NEXT_DIR);
            steps += 1;
        }
        None
    }

    /// Notes a new directory in the table by number, for good: its record is not used again.
    pub(crate) fn add_dir(&self, dir: Inode) {
        let bucket = self.word(DIRS_AT + (self.ino(dir) % DIRS_BUCKETS) * 8);
        let mut first = bucket.load(Ordering::Relaxed);
        loop {
            self.set_field(dir, NEXT_DIR, first);
            match bucket.compare_exchange(first, dir.0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// The attributes of an inode.
    #[inline]
    #[must_use]
    pub fn stat(&self, inode: Inode) -> JobStat {
        let refs = self.field(inode, REFS);
        let mode = self.mode(inode);
        let names = refs & NAMES_MASK;
        let nlink = match Kind::of_mode(mode) {
            Kind::Directory if names > 0 => 2 + self.field(inode, SUBDIRS),
            Kind::Directory | Kind::File | Kind::Symlink => names,
        };
        let (uid, gid) = self.owner(inode);
        JobStat {
            ino: self.ino(inode),
            mode,
            nlink,
            uid,
            gid,
            size: self.field(inode, SIZE),
            atime: self.field(inode, ATIME) as i64,
            mtime: self.field(inode, MTIME) as i64,
            ctime: self.field(inode, CTIME) as i64,
        }
    }
}

impl<H: Host> Visit<'_, H> {
    /// Opens an inode: its record outlives its names until [`Visit::close_inode`].
    ///
    /// # Errors
    /// `ENOENT` if it has lost its last name.
    #[inline]
    pub fn open_inode(&self, inode: Inode) -> Result<(), Denied> {
        let word = self.region.word(inode.0 + REFS);
        let mut refs = word.load(Ordering::Relaxed);
        loop {
            if refs & NAMES_MASK == 0 {
                return Err(ENOENT.into());
            }
            let more = refs + ONE_OPEN;
            match word.compare_exchange(refs, more, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => refs = now,
            }
        }
    }

    /// An open description of an inode is gone.
    #[inline]
    pub fn close_inode(&self, inode: Inode) {
        self.drop_refs(inode, ONE_OPEN);
    }

    /// One more name, unless the last one is gone.
    pub(crate) fn add_name(&self, inode: Inode) -> Result<(), Denied> {
        let word = self.region.word(inode.0 + REFS);
        let mut refs = word.load(Ordering::Relaxed);
        loop {
            if refs & NAMES_MASK == 0 {
                return Err(ENOENT.into());
            }
            match word.compare_exchange(refs, refs + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => refs = now,
            }
        }
    }

    #[inline]
    pub(crate) fn drop_name(&self, inode: Inode) {
        self.drop_refs(inode, 1);
    }

    fn drop_refs(&self, inode: Inode, count: u64) {
        let before = self.region.word(inode.0 + REFS).fetch_sub(count, Ordering::AcqRel);
        // A directory stays known by its number, and a file with a stand-in may be asked for by it.
        if before == count
            && self.region.kind(inode) != Kind::Directory
            && self.region.stand_in(inode).is_none()
        {
            let content = self.region.field(inode, CONTENT);
            if content != 0 {
                self.retire(content & !63, (content & 63) as u32);
            }
            self.retire(inode.0, INODE_CLASS);
        }
    }

    /// Changes the permissions.
    pub fn set_mode(&self, inode: Inode, permissions: u32, now: i64) {
        let word = self.region.word(inode.0 + MODE);
        let kind = word.load(Ordering::Relaxed) as u32 & MODE_TYPE;
        word.store((kind | permissions & 0o7777).into(), Ordering::Release);
        self.region.set_field(inode, CTIME, now as u64);
    }

    /// Changes owner and group.
    pub fn set_owner(&self, inode: Inode, uid: Option<u32>, gid: Option<u32>, now: i64) {
        if let Some(uid) = uid {
            self.region.half(inode.0 + UID).store(uid, Ordering::Release);
        }
        if let Some(gid) = gid {
            self.region.half(inode.0 + GID).store(gid, Ordering::Release);
        }
        self.region.set_field(inode, CTIME, now as u64);
    }

    /// Changes times.
    pub fn set_times(&self, inode: Inode, times: &NewTimes, now: i64) {
        if let Some(atime) = times.atime {
            self.region.set_field(inode, ATIME, atime as u64);
        }
        if let Some(mtime) = times.mtime {
            self.region.set_field(inode, MTIME, mtime as u64);
        }
        self.region.set_field(inode, CTIME, now as u64);
    }

    /// Content was read: notes the time if the one noted is older than the last change, or a day.
    #[inline]
    pub fn note_access(&self, inode: Inode, now: i64) {
        const DAY: i64 = 86_400_000_000_000;
        let region = self.region;
        let atime = region.field(inode, ATIME) as i64;
        let mtime = region.field(inode, MTIME) as i64;
        let ctime = region.field(inode, CTIME) as i64;
        if atime <= mtime || atime <= ctime || now.saturating_sub(atime) >= DAY {
            region.set_field(inode, ATIME, now as u64);
        }
    }

    /// The keeper holds a file that stands in for the content from now on. No thread is inside.
    pub fn set_stand_in(&self, inode: Inode, number: u32) {
        self.region.set_field(inode, PARENT, u64::from(number) + 1);
    }

    pub(crate) fn content_class(bytes: u64) -> u32 {
        class_of(bytes.max(64))
    }
}
