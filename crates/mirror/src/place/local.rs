//! A directory of the copy on this machine.
//!
//! Each directory is held by a descriptor and each name is used relative to one, without following
//! symbolic links: users may own directories of the copy, and change them while root copies.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cudele::{Errno, Error, FileType, Result, Timestamp};
use rustix::fs::{
    AtFlags, CWD, FileType as DiskType, FlockOperation, Gid, Mode, OFlags, Stat, Timespec,
    Timestamps, UTIME_OMIT, Uid,
};
use types::MODE_PERMISSIONS;

use super::{BESIDE, Content};
use crate::step::Item;
use crate::streams::{PIECE, stream_error};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct LocalPlace {
    fd: OwnedFd,
    /// For messages.
    path: PathBuf,
    /// The name of a file that is being written. No other run has used it, not even one that was
    /// killed.
    beside: Rc<[u8]>,
}

impl LocalPlace {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(terminal::io(path, &error));
            }
            _ => {}
        }
        let fd = rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|error| terminal::io(path, &error.into()))?;
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let cause = "another `cudele sync` writes to this directory";
                Err(Error::new(Errno::Busy, path.display().to_string(), cause)
                    .remedy("wait for its end, or choose another directory"))
            }
            // Some network file systems have no locks; the user sees to it there.
            _ => Ok(Self { fd, path: path.to_owned(), beside: beside() }),
        }
    }

    pub(crate) fn again(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|error| terminal::io(&self.path, &error))?;
        Ok(Self { fd, path: self.path.clone(), beside: self.beside.clone() })
    }

    fn below(&self, name: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(name))
    }

    /// Makes the error of a call about a name one for people.
    fn about<T>(&self, name: &[u8], result: rustix::io::Result<T>) -> Result<T> {
        result.map_err(|error| terminal::io(&self.below(name), &error.into()))
    }

    pub(crate) fn keeps_owner(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    pub(crate) fn list(&self) -> Result<Vec<(Vec<u8>, Item)>> {
        let entries = self.about(b"", rustix::fs::Dir::read_from(&self.fd))?;
        let mut names = Vec::new();
        for entry in entries {
            let entry = self.about(b"", entry)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if let Some(item) = self.look(name)? {
                names.push((name.to_vec(), item));
            }
        }
        Ok(names)
    }

    pub(crate) fn look(&self, name: &[u8]) -> Result<Option<Item>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(item(&stat))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => self.about(name, Err(error)),
        }
    }

    pub(crate) fn own(&self) -> Result<Item> {
        self.about(b"", rustix::fs::fstat(&self.fd)).map(|stat| item(&stat))
    }

    pub(crate) fn enter(&self, name: &[u8]) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.about(name, rustix::fs::openat(&self.fd, name, flags, Mode::empty()))?;
        Ok(Self { fd, path: self.below(name), beside: self.beside.clone() })
    }

    pub(crate) fn make_dir(&self, name: &[u8], permissions: u32) -> Result<()> {
        self.about(name, rustix::fs::mkdirat(&self.fd, name, mode(permissions & 0o777)))
    }

    pub(crate) fn write(&self, name: &[u8], item: &Item, content: Content<'_>) -> Result<u64> {
        self.beside(name, |beside| match content {
            Content::Bytes(source) => self.write_bytes(name, beside, item, source),
            Content::Target(target) => {
                self.about(name, rustix::fs::symlinkat(&*target, &self.fd, beside))?;
                self.set(beside, item).map(|()| 0)
            }
            Content::Nothing => {
                let kind = DiskType::from_raw_mode(item.file_type.mode_bits());
                let made =
                    rustix::fs::mknodat(&self.fd, beside, kind, mode(item.permissions), item.rdev);
                self.about(name, made)?;
                self.set(beside, item).map(|()| 0)
            }
        })
    }

    /// Makes a file under another name, and moves it over the present one.
    fn beside<T>(&self, name: &[u8], make: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let beside = &*self.beside;
        let made = make(beside).and_then(|value| {
            let moved = rustix::fs::renameat(&self.fd, beside, &self.fd, name);
            self.about(name, moved).map(|()| value)
        });
        if made.is_err() {
            // The first error is the one to report.
            let _ = rustix::fs::unlinkat(&self.fd, beside, AtFlags::empty());
        }
        made
    }

    fn write_bytes(
        &self,
        name: &[u8],
        beside: &[u8],
        item: &Item,
        source: &mut dyn Read,
    ) -> Result<u64> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.about(name, rustix::fs::openat(&self.fd, beside, flags, mode(0o600)))?;
        let mut file = File::from(fd);
        let bytes = self.pour(name, source, &mut file)?;
        if self.keeps_owner() {
            let (uid, gid) = ids(item);
            self.about(name, rustix::fs::fchown(&file, uid, gid))?;
        }
        self.about(name, rustix::fs::fchmod(&file, mode(item.permissions)))?;
        self.about(name, rustix::fs::futimens(&file, &times(item.mtime)))?;
        Ok(bytes)
    }

    /// Copies bytes; pieces of zeros become holes.
    fn pour(&self, name: &[u8], source: &mut dyn Read, file: &mut File) -> Result<u64> {
        let failed = |error: std::io::Error| terminal::io(&self.below(name), &error);
        let mut piece = vec![0; PIECE];
        let mut bytes = 0;
        loop {
            let count = match source.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(stream_error(&error)),
            };
            if piece[..count].iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(count as i64)).map_err(failed)?;
            } else {
                file.write_all(&piece[..count]).map_err(failed)?;
            }
            bytes += count as u64;
        }
        // A hole at the end.
        file.set_len(bytes).map_err(failed)?;
        Ok(bytes)
    }

    pub(crate) fn read(&self, name: &[u8]) -> Result<Box<dyn Read>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = self.about(name, rustix::fs::openat(&self.fd, name, flags, Mode::empty()))?;
        Ok(Box::new(File::from(fd)))
    }

    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = self.about(name, rustix::fs::readlinkat(&self.fd, name, Vec::new()))?;
        Ok(target.into_bytes())
    }

    pub(crate) fn link(&self, name: &[u8], from: &Self, old: &[u8]) -> Result<()> {
        self.beside(name, |beside| {
            let linked = rustix::fs::linkat(&from.fd, old, &self.fd, beside, AtFlags::empty());
            self.about(name, linked)
        })
    }

    pub(crate) fn set(&self, name: &[u8], item: &Item) -> Result<()> {
        if self.keeps_owner() {
            let (uid, gid) = ids(item);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            self.about(name, rustix::fs::chownat(&self.fd, name, uid, gid, flags))?;
        }
        if item.file_type != FileType::Symlink {
            // Linux has no chmod(2) that follows no link before 6.6; a descriptor follows none.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = self.about(name, rustix::fs::openat(&self.fd, name, flags, Mode::empty()))?;
            self.change_mode(name, &fd, item)?;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        self.about(name, rustix::fs::utimensat(&self.fd, name, &times(item.mtime), flags))
    }

    /// Changes the permissions of a file that a descriptor without access holds, unless a symbolic
    /// link has taken its place.
    fn change_mode(&self, name: &[u8], fd: &OwnedFd, item: &Item) -> Result<()> {
        let stat = self.about(name, rustix::fs::fstat(fd))?;
        if FileType::from_mode(stat.st_mode) != Some(item.file_type) {
            return Err(Error::new(
                Errno::Again,
                self.below(name).display().to_string(),
                "another process changes the copy",
            )
            .remedy("only `cudele sync` may change a copy; run the command again"));
        }
        let permissions = Permissions::from_mode(item.permissions);
        let own = format!("/proc/self/fd/{}", fd.as_raw_fd());
        fs::set_permissions(own, permissions)
            .map_err(|error| terminal::io(&self.below(name), &error))
    }

    pub(crate) fn set_own(&self, item: &Item) -> Result<()> {
        if self.keeps_owner() {
            let (uid, gid) = ids(item);
            self.about(b"", rustix::fs::fchown(&self.fd, uid, gid))?;
        }
        self.about(b"", rustix::fs::fchmod(&self.fd, mode(item.permissions)))?;
        self.about(b"", rustix::fs::futimens(&self.fd, &times(item.mtime)))
    }

    pub(crate) fn unlink(&self, name: &[u8]) -> Result<()> {
        self.about(name, rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()))
    }

    pub(crate) fn remove_tree(&self, name: &[u8]) -> Result<()> {
        let place = self.enter(name)?;
        for (below, item) in place.list()? {
            if item.is_dir() {
                place.remove_tree(&below)?;
            } else {
                place.unlink(&below)?;
            }
        }
        self.about(name, rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR))
    }

    pub(crate) fn rename(&self, name: &[u8], to: &Self, new: &[u8]) -> Result<()> {
        self.about(name, rustix::fs::renameat(&self.fd, name, &to.fd, new))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.about(b"", rustix::fs::syncfs(&self.fd))
    }
}

fn beside() -> Rc<[u8]> {
    let (process, time) = (std::process::id(), cudele::now().0);
    [BESIDE, format!("{process:x}.{time:x}").as_bytes()].concat().into()
}

fn mode(permissions: u32) -> Mode {
    Mode::from_raw_mode(permissions & MODE_PERMISSIONS)
}

fn ids(item: &Item) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(item.owner.0)), Some(Gid::from_raw(item.owner.1)))
}

/// The time of the last change, and the present time of the last access.
fn times(mtime: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds(), tv_nsec: mtime.nanoseconds() },
    }
}

fn item(stat: &Stat) -> Item {
    Item {
        file_type: FileType::from_mode(stat.st_mode).unwrap_or_default(),
        permissions: stat.st_mode & MODE_PERMISSIONS,
        owner: (stat.st_uid, stat.st_gid),
        rdev: stat.st_rdev,
        size: u64::try_from(stat.st_size).unwrap_or_default(),
        mtime: Timestamp::from_parts(stat.st_mtime, stat.st_mtime_nsec.cast_signed()),
        inode: (stat.st_dev, stat.st_ino),
        names: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
    }
}
