//! Files of this user in directories that other users may be able to write to.
//!
//! Another user may have put a symbolic link, a pipe or a file of their own in the place of such a
//! file.
//!
//! New files and directories are for this user only, whatever the umask is.
//!
//! Invariant: this module writes and truncates only regular files of this user that have one name.
//! It follows no symbolic link in the last part of a path, nor below a [`Folder`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use types::{Errno, Error, Result};

/// The permissions of a new file, and of a new directory.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// Makes a directory, and those above it that are missing.
///
/// # Errors
/// Those of `mkdir`.
pub fn make_dirs(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(path)
}

/// Creates a file, or opens and truncates an existing one, for reading and writing.
///
/// # Errors
/// `ELOOP` for a symbolic link, `EACCES` for a file of another user, and those of `open`.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open(OpenOptions::new().read(true).write(true).create(true), path)?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file for writing at its end, and creates it if it is missing.
///
/// # Errors
/// As [`create`].
pub fn append(path: &Path) -> io::Result<File> {
    open(OpenOptions::new().append(true).create(true), path)
}

/// Opens a file that exists for reading and writing.
///
/// # Errors
/// As [`create`]; `ENOENT`.
pub fn open_existing(path: &Path) -> io::Result<File> {
    open(OpenOptions::new().read(true).write(true), path)
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // A pipe must not hold this up; for a file the second flag means nothing.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.mode(PRIVATE_FILE).custom_flags(flags.bits().cast_signed()).open(path)?;
    check(&file, None)?;
    Ok(file)
}

/// Rejects all but a regular file with one name, of this user or of the owner of its directory.
fn check(file: &File, owner: Option<u32>) -> io::Result<()> {
    let found = file.metadata()?;
    let user = rustix::process::geteuid();
    let owned = user.is_root() || found.uid() == user.as_raw() || Some(found.uid()) == owner;
    if found.file_type().is_char_device() {
        // Only root makes one: this is /dev/null or a terminal.
        return Ok(());
    }
    let cause = if !found.is_file() {
        "it is not a regular file"
    } else if !owned {
        "it belongs to another user"
    } else if found.nlink() > 1 {
        "it has another name elsewhere"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, cause))
}

/// A directory in which only this user, or root, makes and replaces names.
#[derive(Debug)]
pub struct Folder {
    dir: OwnedFd,
    path: PathBuf,
    owner: u32,
}

impl Folder {
    /// Opens a directory below another one, and makes it if it is missing.
    ///
    /// # Errors
    /// `EACCES` if every user can write to it, `ENOTDIR` for a symbolic link or a file.
    pub fn make(above: &Path, name: &str) -> Result<Self> {
        let path = above.join(name);
        let made = || -> rustix::io::Result<_> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let above = rustix::fs::open(above, flags, Mode::empty())?;
            match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(PRIVATE_DIR)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            let dir = rustix::fs::openat(&above, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            let stat = rustix::fs::fstat(&dir)?;
            Ok((dir, stat))
        };
        let (dir, stat) = made().map_err(|errno| crate::state::io_error(&path, &errno.into()))?;
        let user = rustix::process::geteuid();
        let trusted = stat.st_uid == user.as_raw() || stat.st_uid == 0 || user.is_root();
        let mode = Mode::from_raw_mode(stat.st_mode);
        let open = mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX);
        if open || !trusted {
            let cause = if open { "every user can write to it" } else { "another user owns it" };
            return Err(Error::new(Errno::Access, path.display().to_string(), cause)
                .remedy("`chmod o-w` it, or remove it, and check what is in it"));
        }
        Ok(Self { dir, path, owner: stat.st_uid })
    }

    /// Opens a file in it for writing at its end, and creates a missing one.
    ///
    /// # Errors
    /// `ELOOP` for a symbolic link, `EACCES` for a file of another user.
    pub fn append(&self, name: &str) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = Mode::from_raw_mode(PRIVATE_FILE);
        let open = || -> io::Result<File> {
            let file = rustix::fs::openat(self.dir.as_fd(), name, flags | OFlags::CLOEXEC, mode)?;
            let file = File::from(file);
            check(&file, Some(self.owner))?;
            Ok(file)
        };
        let path = self.path.join(name);
        open().map_err(|error| {
            let remedy = "remove what is there: it is not what this program put there";
            let described = crate::state::io_error(&path, &error).remedy(remedy);
            if error.raw_os_error().is_none() {
                Error { errno: Errno::Access, ..described }
            } else {
                described
            }
        })
    }
}

#[cfg(test)]
mod tests;
