//! The system calls the store makes, with interruptions and short transfers dealt with.
//!
//! Not here: the purpose of the calls. Errors stay the kernel's until [`explain`] puts them in
//! words.
//!
//! Invariant: every descriptor is close-on-exec, so no child of the process keeps a lock or an
//! object open.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Uid};
pub(super) use rustix::io::Errno as Sys;
use rustix::io::retry_on_intr;
use types::{Errno, Error};

pub(super) type SysResult<T> = std::result::Result<T, Sys>;

/// Opens a path below a directory, without following a symbolic link anywhere in it: a user who can
/// write to a directory of the store could make this process write to any file of its own user.
pub(super) fn open(dir: BorrowedFd<'_>, path: &str, flags: OFlags) -> SysResult<OwnedFd> {
    let Some(owner) = flags.contains(OFlags::CREATE).then(|| heir(dir)).flatten() else {
        return open_plainly(dir, path, flags);
    };
    match open_plainly(dir, path, flags | OFlags::EXCL) {
        // The owner may have put a link to a file of root there: only new files are given away.
        Err(Sys::EXIST) if !flags.contains(OFlags::EXCL) => open_plainly(dir, path, flags),
        made => made.inspect(|file| give(file.as_fd(), owner)),
    }
}

fn open_plainly(dir: BorrowedFd<'_>, path: &str, flags: OFlags) -> SysResult<OwnedFd> {
    let mode = if flags.contains(OFlags::CREATE) { 0o600 } else { 0 };
    let (mode, flags) = (Mode::from_raw_mode(mode), flags | OFlags::CLOEXEC);
    match retry_on_intr(|| rustix::fs::openat2(dir, path, flags, mode, ResolveFlags::NO_SYMLINKS)) {
        // Linux before 5.6, or a container, refuses the call: protect the last part of the path.
        Err(Sys::NOSYS | Sys::PERM) => {
            retry_on_intr(|| rustix::fs::openat(dir, path, flags | OFlags::NOFOLLOW, mode))
        }
        result => result,
    }
}

/// The owner of a directory of the store, if this process is root's and the store is another
/// user's. Files and directories that root makes are given to this user, whose servers could not
/// read or remove them otherwise.
fn heir(dir: BorrowedFd<'_>) -> Option<(Uid, Gid)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let stat = rustix::fs::fstat(dir).ok()?;
    (stat.st_uid != 0).then_some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)))
}

/// Gives a new file away. In a user namespace that lacks the user the file stays root's.
fn give(file: BorrowedFd<'_>, (uid, gid): (Uid, Gid)) {
    let _ = rustix::fs::fchown(file, Some(uid), Some(gid));
}

/// Makes one directory.
pub(super) fn make_new_directory(dir: BorrowedFd<'_>, name: &str) -> SysResult<()> {
    retry_on_intr(|| rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)))?;
    if let Some(owner) = heir(dir)
        && let Ok(made) = open_directory(dir, name)
    {
        give(made.as_fd(), owner);
    }
    Ok(())
}

/// Carries out `act` on the last part of a path, in the directory that holds it. As in [`open`],
/// the path to that directory contains no link.
pub(super) fn in_parent<T>(
    dir: BorrowedFd<'_>,
    path: &str,
    act: impl Fn(BorrowedFd<'_>, &str) -> SysResult<T>,
) -> SysResult<T> {
    match path.rsplit_once('/') {
        Some((above, name)) => {
            let above = open_directory(dir, above)?;
            retry_on_intr(|| act(above.as_fd(), name))
        }
        None => retry_on_intr(|| act(dir, path)),
    }
}

/// Removes the file at a path below a directory.
pub(super) fn remove(dir: BorrowedFd<'_>, path: &str) -> SysResult<()> {
    in_parent(dir, path, |above, name| rustix::fs::unlinkat(above, name, AtFlags::empty()))
}

/// Opens a directory below a directory; the empty path is the directory itself.
pub(super) fn open_directory(dir: BorrowedFd<'_>, path: &str) -> SysResult<OwnedFd> {
    open(dir, if path.is_empty() { "." } else { path }, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Makes a directory below a directory, unless it exists.
pub(super) fn make_directory(dir: BorrowedFd<'_>, path: &str) -> SysResult<()> {
    match in_parent(dir, path, make_new_directory) {
        Err(Sys::EXIST) => Ok(()),
        result => result,
    }
}

/// Carries out `act`, which needs the directories above `path`; if one is missing, makes them all
/// and tries again. The common case costs nothing.
pub(super) fn with_parents<T>(
    dir: BorrowedFd<'_>,
    path: &str,
    mut act: impl FnMut() -> SysResult<T>,
) -> SysResult<T> {
    match act() {
        Err(Sys::NOENT) => {}
        result => return result,
    }
    for (end, _) in path.match_indices('/') {
        make_directory(dir, &path[..end])?;
    }
    act()
}

/// One entry of a directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    /// Unknown on file systems that would have to look.
    pub(super) kind: FileType,
}

/// The entries of a directory, without `.` and `..`, in no particular order.
pub(super) fn entries(dir: BorrowedFd<'_>, path: &str) -> SysResult<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(open_directory(dir, path)?)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(Entry { name: name.to_vec(), kind: entry.file_type() });
        }
    }
    Ok(entries)
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(dir: BorrowedFd<'_>, path: &str) -> SysResult<()> {
    let directory = open_directory(dir, path)?;
    retry_on_intr(|| rustix::fs::fsync(&directory))
}

/// Writes all of `data` at `offset`.
pub(super) fn write_at(file: impl AsFd, mut data: &[u8], mut offset: u64) -> SysResult<()> {
    while !data.is_empty() {
        let written = retry_on_intr(|| rustix::io::pwrite(&file, data, offset))?;
        if written == 0 {
            // A regular file never takes nothing without saying why; do not spin if one does.
            return Err(Sys::IO);
        }
        data = &data[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Reads up to `length` bytes at `offset`; fewer only at the end of the file.
pub(super) fn read_at(file: impl AsFd, offset: u64, length: usize) -> SysResult<Vec<u8>> {
    let available = state(&file)?.size.saturating_sub(offset);
    let length = length.min(usize::try_from(available).unwrap_or(usize::MAX));
    let mut data = vec![0; length];
    let filled = read_into(file, offset, &mut data)?;
    data.truncate(filled); // The file may have shrunk meanwhile.
    Ok(data)
}

/// Fills a buffer from `offset` on; returns how many bytes, fewer only at the end of the file.
pub(super) fn read_into(file: impl AsFd, offset: u64, buffer: &mut [u8]) -> SysResult<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        let read = retry_on_intr(|| rustix::io::pread(&file, &mut *rest, offset + filled as u64))?;
        if read == 0 {
            break;
        }
        filled += read;
    }
    Ok(filled)
}

/// The kernel's facts about an open file.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileState {
    /// Length in bytes.
    pub(super) size: u64,
    /// Whether the file still has a name: false once it was deleted or replaced.
    pub(super) has_name: bool,
}

/// Asks the kernel about an open file.
pub(super) fn state(file: impl AsFd) -> SysResult<FileState> {
    let stat = rustix::fs::fstat(file)?;
    Ok(FileState { size: stat.st_size.cast_unsigned(), has_name: stat.st_nlink > 0 })
}

/// Whether a path below a directory exists.
pub(super) fn exists(dir: BorrowedFd<'_>, path: &str) -> SysResult<bool> {
    match rustix::fs::statat(dir, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Sys::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// An exclusive advisory lock on an open file, released when dropped. The release is explicit
/// because a child between fork and exec still shares the descriptor, so that closing ours would
/// not be enough.
#[derive(Debug)]
pub(super) struct Flock<F: AsFd>(F);

impl<F: AsFd> Flock<F> {
    /// Waits for the lock.
    pub(super) fn wait(file: F) -> SysResult<Self> {
        retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
        Ok(Self(file))
    }

    /// Takes the lock, or gives the file back if another open file holds it.
    pub(super) fn attempt(file: F) -> SysResult<std::result::Result<Self, F>> {
        match retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Ok(Self(file))),
            Err(Sys::WOULDBLOCK) => Ok(Err(file)),
            Err(errno) => Err(errno),
        }
    }

    /// The locked file.
    pub(super) fn file(&self) -> &F {
        &self.0
    }
}

impl<F: AsFd> Drop for Flock<F> {
    fn drop(&mut self) {
        // Unlocking a lock we hold cannot fail; if it did, closing the file would still do it.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Puts a kernel error in words: which object in which store, the attempted operation, and the
/// remedy.
pub(super) fn explain(store: &str, name: &str, attempted: &str, errno: Sys) -> Error {
    let kind = match errno {
        Sys::NOENT => Errno::NotFound,
        Sys::NOSPC | Sys::DQUOT => Errno::NoSpace,
        Sys::ROFS => Errno::ReadOnly,
        Sys::ACCESS | Sys::PERM => Errno::Access,
        Sys::FBIG => Errno::TooBig,
        Sys::LOOP => Errno::Loop,
        _ => Errno::Io,
    };
    let subject =
        if name.is_empty() { store.to_string() } else { format!("object {name} in {store}") };
    let error = Error::new(kind, subject, format!("cannot {attempted}: {errno}"));
    match errno {
        Sys::NOSPC | Sys::DQUOT => {
            error.remedy("free space on the file system that holds the store, or enlarge it")
        }
        Sys::ROFS => error.remedy("mount the file system that holds the store writable"),
        Sys::ACCESS | Sys::PERM => error.remedy("run as the user who owns the store"),
        Sys::MFILE | Sys::NFILE => error.remedy("raise the limit on open files"),
        Sys::LOOP => error.remedy(
            "a symbolic link is where the store has its own files: find out who put it there, remove it, \
             and let nobody but its users write to the store",
        ),
        Sys::IO => error.remedy("look for disk errors in the kernel's log"),
        _ => error,
    }
}
