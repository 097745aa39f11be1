//! Locks among processes: the buckets that make conditional puts atomic, and the named locks that
//! callers ask for.
//!
//! Both are advisory locks of the kernel on files below `locks/`, so they end with the process
//! that holds them. The files themselves are never removed: removing one would let two processes
//! hold "the same" lock on two files.
//!
//! Invariant: the holder of a bucket is the only one, of all threads of all processes, to replace
//! or delete the objects whose names fall into it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;

use super::place;
use super::sys::{self, Flock, SysResult};
use crate::LockGuard;

/// Two objects share a bucket with a chance of one in so many. Part of the layout.
const BUCKETS: usize = 64;

/// Of a holder's name so many bytes are read back.
const OWNER_BYTES_MAX: usize = 4096;

/// The buckets. Each one's file is opened at its first use; the mutex keeps threads apart, which
/// share the file, and the file's lock keeps processes apart.
#[derive(Debug)]
pub(super) struct Buckets([Mutex<Option<Arc<OwnedFd>>>; BUCKETS]);

/// A bucket that is held. The fields are dropped in this order: other processes first.
#[derive(Debug)]
pub(super) struct Bucket<'a> {
    _processes: Flock<Arc<OwnedFd>>,
    _threads: MutexGuard<'a, Option<Arc<OwnedFd>>>,
}

impl Buckets {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(None)))
    }

    /// Waits for the bucket of an object.
    pub(super) fn hold(&self, locks: BorrowedFd<'_>, name: &str) -> SysResult<Bucket<'_>> {
        let index = types::name_hash(name.as_bytes()) as usize % BUCKETS;
        let mut threads = self.0[index].lock().unwrap_or_else(PoisonError::into_inner);
        let file = match threads.as_ref() {
            Some(file) => Arc::clone(file),
            None => {
                let path = format!("bucket.{index:02}");
                let file = sys::open(locks, &path, OFlags::RDWR | OFlags::CREATE)?;
                Arc::clone(threads.insert(Arc::new(file)))
            }
        };
        Ok(Bucket { _processes: Flock::wait(file)?, _threads: threads })
    }
}

/// A held named lock. Its file names the holder.
#[derive(Debug)]
pub(super) struct NamedLock {
    lock: Flock<OwnedFd>,
    owner: String,
}

impl NamedLock {
    /// Takes the lock, or names its holder.
    pub(super) fn take(
        locks: BorrowedFd<'_>,
        name: &str,
        owner: &str,
    ) -> SysResult<std::result::Result<Self, String>> {
        let path = format!("named/{}", place::encode(name));
        let file = sys::with_parents(locks, &path, || {
            sys::open(locks, &path, OFlags::RDWR | OFlags::CREATE)
        })?;
        let lock = match Flock::attempt(file)? {
            Ok(lock) => lock,
            Err(file) => {
                let holder = sys::read_at(&file, 0, OWNER_BYTES_MAX)?;
                return Ok(Err(String::from_utf8_lossy(&holder).into_owned()));
            }
        };
        // The name of a dead holder must not pass for the new holder's.
        rustix::fs::ftruncate(lock.file(), 0)?;
        sys::write_at(lock.file(), owner.as_bytes(), 0)?;
        Ok(Ok(Self { lock, owner: owner.to_string() }))
    }
}

impl LockGuard for NamedLock {
    fn owner(&self) -> &str {
        &self.owner
    }
}

impl Drop for NamedLock {
    fn drop(&mut self) {
        // Cosmetic: an owner that stays in the file is overwritten by the next one.
        let _ = rustix::fs::ftruncate(self.lock.file().as_fd(), 0);
    }
}
