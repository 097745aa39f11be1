//! Where new content is written before it takes an object's place.
//!
//! Each open store of each process has its own directory below `tmp/` and holds a lock on it, so
//! that a process that opens the store later can tell the leftovers of the dead from the work of
//! the living.
//!
//! Invariant: a temporary file is complete and durable before it gets an object's name, and gone
//! if it never gets one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::retry_on_intr;

use super::sys::{self, Flock, Sys, SysResult};

/// A process has far fewer stores open at a time.
const ATTEMPTS_MAX: usize = 4096;

/// A directory for temporary files.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The directory, locked as long as this value lives.
    directory: Flock<OwnedFd>,
    /// The directory of all such directories, and the name in it.
    parent: OwnedFd,
    name: String,
    /// Numbers the files.
    next: AtomicU64,
}

impl Scratch {
    /// Makes a new one in `tmp`. No process may [`sweep`] during that.
    pub(super) fn create(tmp: BorrowedFd<'_>) -> SysResult<Self> {
        let process = rustix::process::getpid().as_raw_nonzero();
        for attempt in 0..ATTEMPTS_MAX {
            let name = format!("{process}.{attempt}");
            match sys::make_new_directory(tmp, &name) {
                Ok(()) => {}
                // Another store of this process, or a process of that number in another container.
                Err(Sys::EXIST) => continue,
                Err(errno) => return Err(errno),
            }
            let directory = Flock::wait(sys::open_directory(tmp, &name)?)?;
            let parent = sys::open_directory(tmp, "")?;
            return Ok(Self { directory, parent, name, next: AtomicU64::new(0) });
        }
        Err(Sys::EXIST)
    }

    /// Writes a temporary file and makes its content durable.
    pub(super) fn write(&self, data: &[u8]) -> SysResult<Temporary<'_>> {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = sys::open(self.directory.file().as_fd(), &name, flags)?;
        let temporary = Temporary { scratch: self, name, placed: false };
        sys::write_at(&file, data, 0)?;
        retry_on_intr(|| rustix::fs::fdatasync(&file))?;
        Ok(temporary)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next one to open the store sweeps it away.
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

/// A temporary file.
#[derive(Debug)]
pub(super) struct Temporary<'a> {
    scratch: &'a Scratch,
    name: String,
    placed: bool,
}

impl Temporary<'_> {
    /// Gives the file an object's place, in place of any file there.
    pub(super) fn place(&mut self, objects: BorrowedFd<'_>, path: &str) -> SysResult<()> {
        let directory = self.scratch.directory.file();
        sys::with_parents(objects, path, || {
            sys::in_parent(objects, path, |above, name| {
                rustix::fs::renameat(directory, &self.name, above, name)
            })
        })?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let directory = self.scratch.directory.file();
            let _ = rustix::fs::unlinkat(directory, &self.name, AtFlags::empty());
        }
    }
}

/// Removes the leftovers of dead processes in `tmp`. As much as possible: a leftover that cannot be
/// removed (a read-only file system, another user's file) wastes space and does no other harm.
pub(super) fn sweep(tmp: BorrowedFd<'_>) {
    for entry in sys::entries(tmp, "").unwrap_or_default() {
        let Ok(name) = String::from_utf8(entry.name) else { continue };
        let Ok(directory) = sys::open_directory(tmp, &name) else { continue };
        let Ok(Ok(abandoned)) = Flock::attempt(directory) else { continue };
        let directory = abandoned.file().as_fd();
        for file in sys::entries(directory, "").unwrap_or_default() {
            let _ = rustix::fs::unlinkat(directory, file.name, AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(tmp, &name, AtFlags::REMOVEDIR);
    }
}
