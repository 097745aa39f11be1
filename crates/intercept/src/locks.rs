//! Locks of a job's files: the subtree keeps them, so the first lock closes the region.

use cudele::{Ino, Result};
use posix::{Locker, Locks, Range};

use crate::JobFs;

impl Locks for JobFs {
    fn lock(&self, ino: Ino, locker: Locker, range: &Range, wait: bool) -> Result<()> {
        self.settle("lock", &[ino])?;
        self.inner.lock(ino, locker, range, wait)
    }

    fn cancel_lock(&self, ino: Ino, locker: Locker, range: &Range) {
        self.inner.cancel_lock(ino, locker, range);
    }

    fn lock_in_the_way(&self, ino: Ino, locker: Locker, range: &Range) -> Result<Option<Range>> {
        self.settle("lock", &[ino])?;
        self.inner.lock_in_the_way(ino, locker, range)
    }

    fn unlock_process(&self, ino: Ino, owner: u64) {
        self.inner.unlock_process(ino, owner);
    }

    fn unlock_file(&self, ino: Ino, handle: u64) {
        self.inner.unlock_file(ino, handle);
    }
}
