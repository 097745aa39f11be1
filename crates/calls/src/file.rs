//! Files that are open.

use std::sync::{Arc, Mutex, PoisonError};

use cudele::{Attr, AttrChange, Errno, Error, Ino, Result};
use posix::{NewNode, OpenMode};
use rustix::fs::OFlags;
use types::acl::{self, ACCESS_LIST, AccessList};
use types::{Cred, EntryName, FileType};

use crate::failure::{CallFailure, about};
use crate::mount::{Mount, Use};
use crate::place::{Follow, Place};

const READ: u32 = 4;
const WRITE: u32 = 2;

/// How a file is opened, from the flags of open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    read: bool,
    write: bool,
    append: bool,
    create: bool,
    exclusive: bool,
    truncate: bool,
}

impl Flags {
    /// # Errors
    /// `EINVAL` for flags that are not known or do not go together.
    pub(crate) fn of(flags: i32) -> Result<Self> {
        let given = OFlags::from_bits_retain(flags.cast_unsigned());
        let known = OFlags::ACCMODE
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::TRUNC
            | OFlags::CLOEXEC
            | OFlags::LARGEFILE;
        let refused = |cause: String| {
            Error::new(Errno::Invalid, "", cause).remedy(
                "combine O_RDONLY, O_WRONLY or O_RDWR with O_CREAT, O_EXCL, O_TRUNC and O_APPEND; \
                 cudele_fsync makes writes durable",
            )
        };
        let unknown = given.difference(known);
        if !unknown.is_empty() {
            return Err(refused(format!("the open flags {:#o} are not known", unknown.bits())));
        }
        let access = given & OFlags::ACCMODE;
        let (read, write) = match access {
            OFlags::WRONLY => (false, true),
            OFlags::RDWR => (true, true),
            access if access.is_empty() => (true, false),
            _ => return Err(refused("there is no such access mode".to_owned())),
        };
        let flags = Self {
            read,
            write,
            append: given.contains(OFlags::APPEND),
            create: given.contains(OFlags::CREATE),
            exclusive: given.contains(OFlags::EXCL),
            truncate: given.contains(OFlags::TRUNC),
        };
        if flags.truncate && !write {
            return Err(refused("O_TRUNC needs a file that is opened for writing".to_owned()));
        }
        Ok(flags)
    }

    /// The access that the permissions must allow.
    fn wanted(self) -> u32 {
        (if self.read { READ } else { 0 }) | (if self.write { WRITE } else { 0 })
    }
}

/// A file that is open.
#[derive(Debug)]
pub struct OpenFile {
    open: Use,
    path: Vec<u8>,
    ino: Ino,
    flags: Flags,
    /// Where the next read or write begins.
    at: Mutex<u64>,
    _place: Place,
    /// This call made the file: the inode has one more reference than its directory.
    made: bool,
}

impl OpenFile {
    /// Opens a file. `flags` are those of open(2): an access mode with any of `O_CREAT`, `O_EXCL`,
    /// `O_TRUNC` and `O_APPEND`; `mode` are the permissions of a file that is made.
    ///
    /// # Errors
    /// Those of open(2); `EBUSY` in another client's subtree.
    pub fn open(mount: &Arc<Mount>, path: &[u8], flags: i32, mode: u32) -> Result<Self> {
        let run = || {
            let flags = Flags::of(flags)?;
            let (place, ino, made) = open_at(mount, path, flags, mode)?;
            let (open, path) = (Use::of(mount), path.to_vec());
            Ok(Self { open, path, ino, flags, at: Mutex::new(0), _place: place, made })
        };
        run().map_err(|error| about(path, error))
    }

    fn about(&self, error: Error) -> CallFailure {
        about(&self.path, error).into()
    }

    /// Reads from a position; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// `EBADF` if it is not open for reading, `EIO`.
    pub fn read_at(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, CallFailure> {
        if !self.flags.read {
            return Err(CallFailure::not_opened_for("reading"));
        }
        self.open.0.fs.read(self.ino, offset, buffer).map_err(|error| self.about(error))
    }

    /// Reads where the last read or write ended.
    ///
    /// # Errors
    /// As [`OpenFile::read_at`].
    pub fn read(&self, buffer: &mut [u8]) -> std::result::Result<usize, CallFailure> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.read_at(*at, buffer)?;
        *at += count as u64;
        Ok(count)
    }

    /// Writes all of it at a position, or with `O_APPEND` at the end.
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing, `EFBIG`, `ENOSPC`, `EIO`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> std::result::Result<(), CallFailure> {
        if !self.flags.write {
            return Err(CallFailure::not_opened_for("writing"));
        }
        let written = self.open.0.fs.write(self.ino, offset, data, self.flags.append);
        written.map_err(|error| self.about(error))
    }

    /// Writes where the last read or write ended.
    ///
    /// # Errors
    /// As [`OpenFile::write_at`].
    pub fn write(&self, data: &[u8]) -> std::result::Result<(), CallFailure> {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_at(*at, data)?;
        if data.is_empty() {
            // As write(2): the position stays, also where everything is added at the end.
            return Ok(());
        }
        *at = if self.flags.append { self.attr()?.size } else { *at + data.len() as u64 };
        Ok(())
    }

    /// Moves where the next read or write begins.
    pub fn seek(&self, offset: u64) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = offset;
    }

    /// Where the next read or write begins.
    #[must_use]
    pub fn position(&self) -> u64 {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts it off, or lengthens it with zeros.
    ///
    /// # Errors
    /// `EBADF` if it is not open for writing, `EFBIG`, `ENOSPC`, `EIO`.
    pub fn truncate(&self, size: u64) -> std::result::Result<(), CallFailure> {
        if !self.flags.write {
            return Err(CallFailure::not_opened_for("writing"));
        }
        let mount = &self.open.0;
        let change = AttrChange { size: Some(size), ..AttrChange::default() };
        let changed = mount.fs.set_attr(&mount.caller, self.ino, &change, true);
        changed.map(drop).map_err(|error| self.about(error))
    }

    /// Its attributes.
    ///
    /// # Errors
    /// `EIO`, `ESTALE`.
    pub fn attr(&self) -> std::result::Result<Attr, CallFailure> {
        let entry = self.open.0.fs.attr(self.ino);
        entry.map(|entry| entry.attr).map_err(|error| self.about(error))
    }

    /// Makes written data as durable as the policy promises.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn sync(&self) -> std::result::Result<(), CallFailure> {
        self.open.0.fs.sync(self.ino).map_err(|error| self.about(error))
    }

    /// Flushes written data to the inode before the close, because a flush may fail.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn finish(&self) -> std::result::Result<(), CallFailure> {
        let flushed = self.open.0.fs.flush(self.ino);
        flushed.map_err(|error| self.about(error))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // The flush before has reported every error.
        let _ = self.open.0.fs.close(self.ino, self.flags.write);
        if self.made {
            self.open.0.fs.forget(self.ino, 1);
        }
    }
}

fn open_at(mount: &Arc<Mount>, path: &[u8], flags: Flags, mode: u32) -> Result<(Place, Ino, bool)> {
    match open_found(mount, path, flags, mode) {
        // Another inode has the name by now; in a branch a copy, because the file is to be written.
        Err(error) if error.errno == Errno::Stale => open_found(mount, path, flags, mode),
        opened => opened,
    }
}

fn open_found(
    mount: &Arc<Mount>,
    path: &[u8],
    flags: Flags,
    mode: u32,
) -> Result<(Place, Ino, bool)> {
    let how = OpenMode { write: flags.write, truncate: flags.truncate, exclusive: flags.exclusive };
    if !(flags.create && flags.exclusive) {
        match mount.object(path, Follow::Last) {
            Ok(place) => {
                if place.attr.is_dir() {
                    return Err(Error::of(Errno::IsDirectory, ""));
                }
                check_allowed(mount, &place, flags.wanted())?;
                mount.fs.open(&mount.caller, place.ino, how)?;
                let ino = place.ino;
                return Ok((place, ino, false));
            }
            Err(error) if flags.create && error.errno == Errno::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let place = mount.parent(path)?;
    let at = EntryName::new(place.ino, &place.name);
    let (entry, _) = mount.fs.create(&mount.caller, at, &NewNode::of(mode), how)?;
    Ok((place, entry.attr.ino, true))
}

/// Permission to use what is at a place, by its mode and its access control list: in a decoupled
/// subtree no server checks it.
pub(crate) fn check_allowed(mount: &Mount, place: &Place, want: u32) -> Result<()> {
    let (cred, attr) = (mount.cred(), &place.attr);
    if cred.is_root() || cred.uid == attr.uid || attr.file_type() == FileType::Symlink {
        return check_mode(cred, attr, want);
    }
    match mount.fs.xattr(&mount.caller, place.ino, ACCESS_LIST) {
        Ok(list) => {
            let record = AccessList::from_linux(&list).map(|list| list.encode());
            let record = record.map_err(|errno| Error::of(errno, "access control list"))?;
            match acl::is_allowed(&record, attr.mode, attr.gid, cred, want) {
                Some(true) => Ok(()),
                Some(false) => Err(Error::of(Errno::Access, "")),
                None => check_mode(cred, attr, want),
            }
        }
        Err(error) if matches!(error.errno, Errno::NoData | Errno::NotSupported) => {
            check_mode(cred, attr, want)
        }
        Err(error) => Err(error),
    }
}

fn check_mode(cred: &Cred, attr: &Attr, want: u32) -> Result<()> {
    let bits = if cred.uid == attr.uid {
        attr.mode >> 6
    } else if cred.gid == attr.gid || cred.groups.contains(&attr.gid) {
        attr.mode >> 3
    } else {
        attr.mode
    };
    if cred.is_root() || bits & want == want { Ok(()) } else { Err(Error::of(Errno::Access, "")) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_open() {
        let create = (OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).bits().cast_signed();
        let flags = Flags::of(create).unwrap();
        assert!(flags.write && !flags.read && flags.create && flags.exclusive && !flags.append);
        assert_eq!(Flags::of(0).unwrap().wanted(), READ);
        for refused in [OFlags::TRUNC, OFlags::ACCMODE, OFlags::RDWR | OFlags::DSYNC] {
            let error = Flags::of(refused.bits().cast_signed()).unwrap_err();
            assert_eq!(error.errno, Errno::Invalid, "{refused:?}");
        }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let attr = Attr { uid: 1, gid: 2, mode: 0o100_460, ..Attr::default() };
        let cred = |uid, gid, groups: &[u32]| Cred { uid, gid, groups: groups.to_vec() };
        let may = |cred, want| check_mode(&cred, &attr, want).is_ok();
        assert!(may(cred(1, 2, &[]), READ) && !may(cred(1, 2, &[]), WRITE));
        assert!(may(cred(3, 2, &[]), READ | WRITE) && may(cred(3, 4, &[2]), WRITE));
        assert!(!may(cred(3, 4, &[]), READ) && may(cred(0, 0, &[]), READ | WRITE));
    }
}
