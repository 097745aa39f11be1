//! Files of this machine that stand in for the content of files of the region.
//!
//! Programs have descriptors of them, so they hold the content until the end of the
//! job; the mount reads and writes them. They are in the directory for temporary files, where they
//! may be larger than memory, and have no names there.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use cudele::{AttrChange, Ino, Result};
use jobtree::{Denied, Description, Inode, JobRegion, Kind, Visit};
use posix::{Attributes, Caller, Files, Names, OpenMode, Seek};
use rustix::fs::{OFlags, SeekFrom, Timespec, Timestamps};
use types::{Errno, Error, Map, Timestamp};
use vfs::Vfs;

use crate::machine::Machine;
use crate::{held, io};

const SECOND: i64 = 1_000_000_000;

/// A file that stands in for the content of an inode.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) inode: Inode,
    pub(crate) file: File,
}

/// Bytes of a stand-in that are copied at once.
const PIECE: usize = 1 << 20;

/// A file without a name, in the directory for temporary files. A program that has a descriptor of
/// it finds the inode in its former name.
pub(crate) fn nameless(inode: Inode) -> Result<File> {
    // The rest of the name is random: another user cannot take it before.
    let prefix = jobtree::stand_in_prefix(inode);
    let made = tempfile::Builder::new().prefix(&prefix).tempfile();
    Ok(made.map_err(|error| io("preload", error))?.into_file())
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
        let mut file = nameless(inode)?;
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

    /// The start of data or of a hole at or behind an offset.
    ///
    /// # Errors
    /// `ENXIO` behind the end.
    pub(crate) fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        let place = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&self.file, place).map_err(|errno| match errno {
            rustix::io::Errno::NXIO => Error::of(Errno::NoSuchPlace, "file"),
            errno => io("file", errno),
        })
    }

    /// Passes all content to `take`, piece by piece, without the holes.
    pub(crate) fn pieces(&self, mut take: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; PIECE];
        let mut at = 0;
        loop {
            at = match self.seek(at, Seek::Data) {
                Err(error) if error.errno == Errno::NoSuchPlace => return Ok(()),
                found => found?,
            };
            let end = self.seek(at, Seek::Hole)?;
            while at < end {
                let len = usize::try_from(end - at).map_or(PIECE, |left| left.min(PIECE));
                let read = self.file.read_at(&mut buffer[..len], at);
                match read.map_err(|error| io("preload", error))? {
                    // A program has cut the file off.
                    0 => return Ok(()),
                    read => {
                        take(at, &buffer[..read])?;
                        at += read as u64;
                    }
                }
            }
        }
    }

    /// Gives the content to the file in the subtree with this root.
    fn write_back(&self, vfs: &Vfs, root: Ino, ino: Ino) -> Result<()> {
        // The kernel may never have asked for the file.
        vfs.refer_in_owned(root, ino);
        let done = self.write_back_known(vfs, ino);
        vfs.forget(ino, 1);
        done
    }

    fn write_back_known(&self, vfs: &Vfs, ino: Ino) -> Result<()> {
        let before = match vfs.attr(ino) {
            // Its last name was removed through the mount.
            Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound) => return Ok(()),
            found => found?.attr,
        };
        let (size, mtime) = (self.size(), self.mtime());
        if before.size == size && before.mtime == mtime {
            return Ok(());
        }
        let caller = &Caller::SELF;
        vfs.open(caller, ino, OpenMode { write: true, truncate: true, exclusive: false })?;
        let set = |change: AttrChange| vfs.set_attr(caller, ino, &change, true).map(drop);
        let written = self
            .pieces(|offset, bytes| vfs.write(ino, offset, bytes, false))
            .and_then(|()| set(AttrChange { size: Some(size), ..AttrChange::default() }))
            .and_then(|()| vfs.flush(ino))
            // Writes change it.
            .and_then(|()| set(AttrChange { mtime: Some(mtime), ..AttrChange::default() }));
        written.and(vfs.close(ino, true))
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

    /// The stand-in of a file, which may be made now. No thread is in the region.
    pub(crate) fn make(
        &self,
        region: &JobRegion,
        session: &Visit<'_, Machine>,
        inode: Inode,
    ) -> Result<()> {
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
            // No thread is in a closed region. The file has no stand-in yet if it has no name:
            // `replace_open` finds files by their names.
            Err(Denied::Closed) => self.make(region, session, inode)?,
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
    pub(crate) fn write_back(&self, vfs: &Vfs, root: Ino, region: &JobRegion) -> Result<()> {
        let all: Vec<_> = held(&self.by_ino).iter().map(|(ino, it)| (*ino, it.clone())).collect();
        for (ino, stand_in) in all {
            if region.is_linked(stand_in.inode) {
                stand_in.write_back(vfs, root, ino)?;
            }
        }
        Ok(())
    }

    /// Writes one file back, for `fsync`.
    pub(crate) fn write_back_of(&self, vfs: &Vfs, root: Ino, ino: Ino) -> Result<()> {
        self.of(ino).map_or(Ok(()), |stand_in| stand_in.write_back(vfs, root, ino))
    }
}
