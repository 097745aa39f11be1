//! Locks on files.

use types::{Errno, Error, Ino, LockKind, LockMode, Result};

use crate::unsupported;

/// The range and the kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Shared, exclusive, or none to unlock.
    pub mode: LockMode,
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
    /// The process.
    pub pid: u32,
}

impl Range {
    /// Checks the ends of a range. A kernel names the last byte, or the largest number for the end
    /// of the file.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn new(mode: LockMode, start: u64, end: u64, pid: u32) -> Result<Self> {
        let end = if end >= i64::MAX.unsigned_abs() { u64::MAX } else { end };
        if start > end {
            return Err(Error::of(Errno::Invalid, "lock"));
        }
        Ok(Self { mode, start, end, pid })
    }
}

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locker {
    /// The kind of locks.
    pub kind: LockKind,
    /// The owner's number, from the kernel.
    pub owner: u64,
    /// The handle of the open file that sets the lock.
    pub handle: u64,
}

/// Locks on files. A file system without [`crate::Features::locks`] implements no method.
pub trait Locks {
    /// Sets or releases a lock; with `wait`, waits for conflicting locks to be released.
    ///
    /// # Errors
    /// `EAGAIN` for a conflicting lock, `EDEADLK` if the wait would never end; `ENOSYS`.
    fn lock(&self, ino: Ino, locker: Locker, range: &Range, wait: bool) -> Result<()> {
        let _ = (ino, locker, range, wait);
        unsupported("lock")
    }

    /// Ends another thread's wait for this very lock with `EINTR`.
    fn cancel_lock(&self, ino: Ino, locker: Locker, range: &Range) {
        let _ = (ino, locker, range);
    }

    /// The first lock in the way.
    ///
    /// # Errors
    /// If no server answers; `ENOSYS`.
    fn lock_in_the_way(&self, ino: Ino, locker: Locker, range: &Range) -> Result<Option<Range>> {
        let _ = (ino, locker, range);
        unsupported("lock")
    }

    /// Releases the locks of a process that closes the file.
    fn unlock_process(&self, ino: Ino, owner: u64) {
        let _ = (ino, owner);
    }

    /// Releases the locks of an open file that ends.
    fn unlock_file(&self, ino: Ino, handle: u64) {
        let _ = (ino, handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_to_the_end_of_the_file_has_no_end() {
        let range = Range::new(LockMode::Write, 7, i64::MAX.unsigned_abs(), 1);
        assert_eq!(range.map(|range| (range.start, range.end)), Ok((7, u64::MAX)));
        let range = Range::new(LockMode::Read, 8, 7, 1);
        assert_eq!(range.map_err(|error| error.errno), Err(Errno::Invalid));
    }
}
