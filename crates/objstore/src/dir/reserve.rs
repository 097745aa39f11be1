//! The reserve for servers: a file that is allocated in advance, and whose blocks go back to the
//! file system when a write of a server finds the disk full.
//!
//! A threshold of free bytes is not enough: other programs fill a disk to its last byte. The file
//! is as long as the reserve should be, and holes at its end are the part in use
//! ([`Reserve::state`]). So every process sees with one call whether the reserve is whole.
//!
//! Invariant: only servers use the reserve. Other processes may add to the store while the reserve
//! is whole, and replace bytes at any time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags, StatVfsMountFlags};
use rustix::io::retry_on_intr;
use types::Result;

use super::DirStore;
use super::locks::Bucket;
use super::sys::{self, Flock, Sys, SysResult};
use crate::{Capacity, Reserved, Space};

/// The file, in the store's directory.
const FILE: &str = "reserve";
/// The unit of release and refill: other programs may take the rest of a released part.
const PART_BYTES: u64 = 64 << 10;
/// The reserve takes no more than one of so many parts of the file system.
const SHARE: u64 = 16;
/// Zeros, for file systems that allocate by writing only.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    /// The open file, after the first use.
    file: Mutex<Option<Arc<OwnedFd>>>,
    /// Whether this process may use the reserve.
    may_take: AtomicBool,
    /// Whether the reserve has holes, as far as this process knows.
    short: AtomicBool,
}

impl Reserve {
    fn file(&self, root: BorrowedFd<'_>, create: bool) -> SysResult<Option<Arc<OwnedFd>>> {
        let mut known = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = known.as_ref() {
            return Ok(Some(Arc::clone(file)));
        }
        let flags = if create { OFlags::CREATE } else { OFlags::empty() };
        match sys::open(root, FILE, OFlags::RDWR | OFlags::NOFOLLOW | flags) {
            Ok(file) => Ok(Some(Arc::clone(known.insert(Arc::new(file))))),
            Err(Sys::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The wanted size and the allocated size.
    pub(super) fn state(&self, root: BorrowedFd<'_>) -> SysResult<Reserved> {
        self.file(root, false)?.map_or(Ok(Reserved::default()), |file| state(&file))
    }

    /// Allows this process to use the reserve.
    pub(super) fn allow(&self) {
        self.may_take.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Allocates the reserve up to the wanted size, as far as the disk has room.
    pub(super) fn fill(&self, root: BorrowedFd<'_>, wanted: u64) -> SysResult<Reserved> {
        let stat = retry_on_intr(|| rustix::fs::fstatvfs(root))?;
        if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Sys::ROFS);
        }
        let total = stat.f_blocks * stat.f_frsize;
        let wanted = wanted.min(total / SHARE) / PART_BYTES * PART_BYTES;
        let Some(file) = self.file(root, wanted > 0)? else { return Ok(Reserved::default()) };
        let _lock = Flock::wait(&*file)?;
        let mut now = state(&file)?;
        if now.wanted != wanted {
            rustix::fs::ftruncate(&file, wanted)?;
            now = state(&file)?;
        }
        while now.held < wanted {
            let length = PART_BYTES.min(wanted - now.held);
            match allocate(&file, now.held, length) {
                Ok(()) => {}
                Err(Sys::NOSPC | Sys::DQUOT) => break,
                Err(errno) => return Err(errno),
            }
            now.held += length;
        }
        self.short.store(now.is_short(), Ordering::Relaxed);
        Ok(now)
    }

    /// Releases a part to the file system. False if the reserve is empty, or if this process may
    /// not use it.
    pub(super) fn give(&self, root: BorrowedFd<'_>) -> SysResult<bool> {
        if !self.may_take.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.short.store(true, Ordering::Relaxed);
        let Some(file) = self.file(root, false)? else { return Ok(false) };
        let _lock = Flock::wait(&*file)?;
        let now = state(&file)?;
        let Some(start) = now.held.checked_sub(1).map(|last| last / PART_BYTES * PART_BYTES) else {
            return Ok(false);
        };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(&file, flags, start, now.wanted - start))?;
        Ok(true)
    }

    /// Executes a change, and repeats it with one more part of the reserve as long as the disk is
    /// full.
    pub(super) fn with<T>(
        &self,
        root: BorrowedFd<'_>,
        mut act: impl FnMut() -> SysResult<T>,
    ) -> SysResult<T> {
        loop {
            match act() {
                Err(full @ (Sys::NOSPC | Sys::DQUOT)) => {
                    if !self.give(root).unwrap_or(false) {
                        return Err(full);
                    }
                }
                done => return done,
            }
        }
    }

    /// Rejects growth of the store while the reserve is in use, unless this process may use it.
    pub(super) fn check_growth(&self, root: BorrowedFd<'_>) -> SysResult<()> {
        if self.may_take.load(Ordering::Relaxed) || !self.state(root)?.is_short() {
            return Ok(());
        }
        Err(Sys::NOSPC)
    }
}

impl DirStore {
    /// Executes a change that makes the store larger.
    pub(super) fn grow<T>(&self, act: impl FnMut() -> SysResult<T>) -> SysResult<T> {
        self.reserve.check_growth(self.layout.root.as_fd())?;
        self.reserve.with(self.layout.root.as_fd(), act)
    }

    /// Replaced bytes need no room, so they are allowed while the reserve is in use.
    pub(super) fn write_file(&self, file: &OwnedFd, data: &[u8], offset: u64) -> SysResult<()> {
        if let Err(full) = self.reserve.check_growth(self.layout.root.as_fd())
            && offset + data.len() as u64 > sys::state(file)?.size
        {
            return Err(full);
        }
        sys::write_at(file, data, offset)
    }

    /// Waits for the bucket of an object.
    pub(super) fn bucket(&self, name: &str) -> SysResult<Bucket<'_>> {
        let hold = || self.buckets.hold(self.layout.locks.as_fd(), name);
        self.reserve.with(self.layout.root.as_fd(), hold)
    }
}

impl Capacity for DirStore {
    fn space(&self) -> Result<Space> {
        let stat = retry_on_intr(|| rustix::fs::fstatvfs(self.objects()));
        let stat = stat.map_err(self.to_error("objects", "ask for the room left"))?;
        Ok(Space::of_bytes(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
    }

    fn reserve(&self, bytes: u64) -> Result<Reserved> {
        let filled = self.reserve.fill(self.layout.root.as_fd(), bytes);
        filled.map_err(self.to_error("", "keep room for removals"))
    }

    fn allow_reserve(&self) {
        self.reserve.allow();
    }

    fn lend_reserve(&self, bytes: u64) {
        while self.space().is_ok_and(|space| space.available < bytes)
            && self.reserve.give(self.layout.root.as_fd()).unwrap_or(false)
        {}
    }

    fn is_short(&self) -> bool {
        self.reserve.is_short()
    }
}

/// The allocated part is at the beginning of the file. The file system may add its own blocks.
fn state(file: impl AsFd) -> SysResult<Reserved> {
    let stat = rustix::fs::fstat(file)?;
    let wanted = stat.st_size.cast_unsigned();
    let allocated = stat.st_blocks.cast_unsigned() * 512;
    let held = if allocated >= wanted { wanted } else { allocated / PART_BYTES * PART_BYTES };
    Ok(Reserved { wanted, held })
}

fn allocate(file: impl AsFd, start: u64, length: u64) -> SysResult<()> {
    let allocated =
        retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, start, length));
    if !matches!(allocated, Err(Sys::OPNOTSUPP | Sys::NOSYS)) {
        return allocated;
    }
    let (mut at, end) = (start, start + length);
    while at < end {
        let now = (end - at).min(ZEROS.len() as u64);
        sys::write_at(&file, &ZEROS[..usize::try_from(now).unwrap_or(ZEROS.len())], at)?;
        at += now;
    }
    Ok(())
}
