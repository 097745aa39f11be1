//! Locks on files. The server keeps them, also for files in decoupled subtrees: two programs on one
//! mount exclude each other as two on different machines do.
//!
//! The kernel does not say here whether a lock is one of `flock` or of `fcntl`, so both are locks on a
//! range of bytes, as they are on NFS: one of `flock` is on the whole file.

use cudele::{Errno, Error, Ino, Lock, LockKind, LockMode, Result};

use crate::{Vfs, held};

/// What a program wants to lock, or has locked.
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

impl Vfs {
    /// Sets a lock, or gives one up; with `wait`, when nobody is in the way any more.
    ///
    /// # Errors
    /// `EAGAIN` if somebody is in the way, `EDEADLK` if waiting would never end.
    pub fn lock(&self, ino: Ino, owner: u64, range: &Range, wait: bool) -> Result<()> {
        if range.mode == LockMode::Unlock && !held(&self.locked).contains(&(ino, owner)) {
            return Ok(());
        }
        // Before it is asked for: whoever closes the file must know that there may be one.
        held(&self.locked).insert((ino, owner));
        self.walked(ino, || self.fs.lock(ino, lock_of(owner, range), wait))
    }

    /// Ends another thread's wait for this very lock with `EINTR`.
    pub fn cancel_lock(&self, ino: Ino, owner: u64, range: &Range) {
        // If no server answers, the wait ends with that.
        let _ = self.fs.cancel_lock(ino, lock_of(owner, range));
    }

    /// The first lock in the way.
    ///
    /// # Errors
    /// If no server answers.
    pub fn lock_in_the_way(&self, ino: Ino, owner: u64, range: &Range) -> Result<Option<Range>> {
        let found = self.walked(ino, || self.fs.get_lock(ino, lock_of(owner, range)))?;
        Ok(found.map(|(client, lock)| {
            // A process of another machine has no number here.
            let pid = if client == self.fs.client() { lock.pid } else { 0 };
            Range { mode: lock.mode, start: lock.start, end: lock.end, pid }
        }))
    }

    /// Gives up everything that an owner has locked in a file: it closes it.
    pub fn unlock_all(&self, ino: Ino, owner: u64) {
        if !held(&self.locked).remove(&(ino, owner)) {
            return;
        }
        let all = Range { mode: LockMode::Unlock, start: 0, end: u64::MAX, pid: 0 };
        // If no server answers, the session ends, and its locks with it.
        let _ = self.fs.lock(ino, lock_of(owner, &all), false);
    }

    /// Checks the ends of a range, of which a kernel says the last byte, or the largest number for
    /// the end of the file.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn lock_range(mode: LockMode, start: u64, end: u64, pid: u32) -> Result<Range> {
        let end = if end >= i64::MAX.unsigned_abs() { u64::MAX } else { end };
        if start > end {
            return Err(Error::of(Errno::Invalid, "lock"));
        }
        Ok(Range { mode, start, end, pid })
    }
}

fn lock_of(owner: u64, range: &Range) -> Lock {
    let Range { mode, start, end, pid } = *range;
    Lock { kind: LockKind::Posix, mode, owner, pid, start, end }
}
