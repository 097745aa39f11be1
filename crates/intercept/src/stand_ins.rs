//! Files in memory that stand in for the content of files of the region.
//!
//! Programs have descriptors of them, so they hold the content until the end of the
//! job; the mount reads and writes them.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use cudele::{Ino, Result, Subtree};
use jobtree::{Denied, Description, Inode, JobRegion, Kind, Visit};
use rustix::fs::{MemfdFlags, OFlags, Timespec, Timestamps};
use types::{Errno, Error, Map, Timestamp};

use crate::machine::Machine;
use crate::{held, io};

const SECOND: i64 = 1_000_000_000;

/// A file that stands in for the content of an inode.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) inode: Inode,
    pub(crate) file: File,
}

/// Content, and the time of its last change.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mtime: Timestamp,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct StandIns {
    by_ino: Mutex<Map<Ino, Arc<StandIn>>>,
    /// Open file descriptions that programs share, kept for those that ask later.
    descriptions: Mutex<Map<u64, Arc<OwnedFd>>>,
}

impl StandIn {
    fn new(region: &JobRegion, inode: Inode) -> Result<Self> {
        let failed = |errno: rustix::io::Errno| io("preload", errno);
        let name = format!("cudele-{:x}", inode.0);
        let memory = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(failed)?;
        let mut file = File::from(memory);
        file.write_all(region.content(inode)).map_err(|error| io("preload", error))?;
        let stat = region.stat(inode);
        set_times(&file, Some(stat.atime), Some(stat.mtime))?;
        Ok(Self { inode, file })
    }

    pub(crate) fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    pub(crate) fn mtime(&self) -> Timestamp {
        let found = self.file.metadata();
        Timestamp(found.map_or(0, |found| found.mtime() * SECOND + found.mtime_nsec()))
    }

    pub(crate) fn content(&self) -> Result<Content> {
        let mtime = self.mtime();
        let len = usize::try_from(self.size()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        let read = self.file.read_exact_at(&mut bytes, 0);
        read.map_err(|error| io("preload", error))?;
        Ok(Content { bytes, mtime })
    }
}

/// Sets times of a stand-in, in nanoseconds.
pub(crate) fn set_times(file: &File, atime: Option<i64>, mtime: Option<i64>) -> Result<()> {
    let time = |time: Option<i64>| match time {
        Some(time) => {
            Timespec { tv_sec: time.div_euclid(SECOND), tv_nsec: time.rem_euclid(SECOND) }
        }
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    rustix::fs::futimens(file, &times).map_err(|errno| io("preload", errno))
}

impl StandIns {
    pub(crate) fn of(&self, ino: Ino) -> Option<Arc<StandIn>> {
        held(&self.by_ino).get(&ino).cloned()
    }

    pub(crate) fn is_empty(&self) -> bool {
        held(&self.by_ino).is_empty()
    }

    pub(crate) fn content(&self, inode: Inode) -> Result<Option<Content>> {
        let found = held(&self.by_ino).values().find(|it| it.inode == inode).cloned();
        found.map(|found| found.content()).transpose()
    }

    /// The stand-in of a file, which may be made now. No thread is in the region.
    fn make(&self, region: &JobRegion, session: &Visit<'_, Machine>, inode: Inode) -> Result<()> {
        if region.stand_in(inode).is_some() || region.kind(inode) != Kind::File {
            return Ok(());
        }
        let made = StandIn::new(region, inode)?;
        session.set_stand_in(inode, u32::try_from(made.file.as_raw_fd()).unwrap_or_default());
        held(&self.by_ino).insert(Ino(region.ino(inode)), Arc::new(made));
        Ok(())
    }

    /// Every open file with a name gets a stand-in. The region is closed.
    pub(crate) fn replace_open(&self, session: &Visit<'_, Machine>) -> Result<()> {
        let region = session.region();
        let mut dirs = vec![region.root()];
        while let Some(dir) = dirs.pop() {
            let mut from = 0;
            while let Some(listed) = region.list(dir, from) {
                from = listed.next;
                match region.kind(listed.inode) {
                    Kind::Directory => dirs.push(listed.inode),
                    Kind::File if region.is_open(listed.inode) => {
                        self.make(region, session, listed.inode)?;
                    }
                    Kind::File | Kind::Symlink => {}
                }
            }
        }
        Ok(())
    }

    /// A descriptor for a description of the region, the same description for all that ask.
    pub(crate) fn describe(
        &self,
        session: &Visit<'_, Machine>,
        description: Description,
    ) -> Result<Arc<OwnedFd>> {
        let region = session.region();
        let invalid = || Error::of(Errno::Invalid, "preload");
        if !region.is_description(description) {
            return Err(invalid());
        }
        let mut descriptions = held(&self.descriptions);
        if let Some(known) = descriptions.get(&description.0) {
            return Ok(known.clone());
        }
        let inode = region.described(description);
        match session.alone(|| self.make(region, session, inode)) {
            Ok(made) => made?,
            Err(Denied::Closed) => {}
            Err(_) => return Err(invalid()),
        }
        let number = region.stand_in(inode).ok_or_else(invalid)?;
        let flags = OFlags::from_bits_retain(region.flags(description));
        let kept = flags & (OFlags::ACCMODE | OFlags::APPEND | OFlags::NONBLOCK);
        let path = format!("/proc/self/fd/{number}");
        let opened = rustix::fs::open(path, kept | OFlags::CLOEXEC, rustix::fs::Mode::empty());
        let opened = opened.map_err(|errno| io("preload", errno))?;
        let position = region.position(description);
        rustix::fs::seek(&opened, rustix::fs::SeekFrom::Start(position))
            .map_err(|errno| io("preload", errno))?;
        let opened = Arc::new(opened);
        descriptions.insert(description.0, opened.clone());
        Ok(opened)
    }

    /// Gives the content to the files, which are in the subtree by now.
    pub(crate) fn write_back(&self, subtree: &mut Subtree, region: &JobRegion) -> Result<()> {
        let all: Vec<_> = held(&self.by_ino).iter().map(|(ino, it)| (*ino, it.clone())).collect();
        for (ino, stand_in) in all {
            if region.is_linked(stand_in.inode) {
                write_back_one(subtree, ino, &stand_in)?;
            }
        }
        Ok(())
    }

    /// Writes one file back, for `fsync`.
    pub(crate) fn write_back_of(&self, subtree: &mut Subtree, ino: Ino) -> Result<()> {
        match self.of(ino) {
            Some(stand_in) => write_back_one(subtree, ino, &stand_in),
            None => Ok(()),
        }
    }
}

fn write_back_one(subtree: &mut Subtree, ino: Ino, stand_in: &StandIn) -> Result<()> {
    let before = match subtree.attr(ino) {
        // Its last name was removed through the mount.
        Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound) => return Ok(()),
        found => found?,
    };
    let Content { bytes, mtime } = stand_in.content()?;
    if before.size == bytes.len() as u64 && before.mtime == mtime {
        return Ok(());
    }
    subtree.replace_content(ino, &bytes, mtime)
}
