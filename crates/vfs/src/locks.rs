//! Locks on files. The server keeps them, also for files in decoupled subtrees: two programs on one
//! mount exclude each other as two on different machines do.
//!
//! Locks of `flock` and of `fcntl` are two independent kinds. A process loses its `fcntl` locks
//! when it closes the file through any descriptor. Locks of `flock` and locks of open file
//! descriptions (`F_OFD_SETLK`) end with the open file that set them. The kernel does not tell
//! locks of open file descriptions from those of processes, and does not release them. But when an
//! open file ends, every process has closed it and lost its locks, so the remaining locks belong
//! to the open file.

use std::sync::Mutex;

use cudele::{Fs, Ino, Lock, LockKind, LockMode, Result};
use posix::{Locker, Range};
use types::{Map, Set};

use crate::held;
use crate::tree::Trees;

/// The possible owners of locks by file.
#[derive(Debug, Default)]
pub(crate) struct Lockers(Map<Ino, Set<Locker>>);

impl Lockers {
    fn add(&mut self, ino: Ino, locker: Locker) {
        self.0.entry(ino).or_default().insert(locker);
    }

    fn has(&self, ino: Ino, Locker { kind, owner, .. }: Locker) -> bool {
        let of_owner = |known: &Locker| known.kind == kind && known.owner == owner;
        self.0.get(&ino).is_some_and(|known| known.iter().any(of_owner))
    }

    /// Removes and returns the matching owners.
    fn take(&mut self, ino: Ino, which: impl Fn(&Locker) -> bool) -> Vec<Locker> {
        let Some(known) = self.0.get_mut(&ino) else { return Vec::new() };
        let taken: Vec<_> = known.iter().copied().filter(which).collect();
        known.retain(|locker| !taken.contains(locker));
        if known.is_empty() {
            self.0.remove(&ino);
        }
        taken
    }
}

/// Locks, with all that they may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocksCx<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) trees: &'a Trees,
    pub(crate) lockers: &'a Mutex<Lockers>,
}

impl LocksCx<'_> {
    /// Sets or releases a lock; with `wait`, waits for conflicting locks to be released.
    ///
    /// # Errors
    /// `EAGAIN` for a conflicting lock, `EDEADLK` if the wait would never end.
    pub(crate) fn lock(&self, ino: Ino, locker: Locker, range: &Range, wait: bool) -> Result<()> {
        if range.mode == LockMode::Unlock && !held(self.lockers).has(ino, locker) {
            return Ok(());
        }
        // Before the request: a concurrent close must find the owner.
        held(self.lockers).add(ino, locker);
        self.trees.walked(ino, || self.fs.lock(ino, lock_of(locker, range), wait))
    }

    /// Ends another thread's wait for this very lock with `EINTR`.
    pub(crate) fn cancel_lock(&self, ino: Ino, locker: Locker, range: &Range) {
        // If no server answers, the wait ends with that.
        let _ = self.fs.cancel_lock(ino, lock_of(locker, range));
    }

    /// The first lock in the way.
    ///
    /// # Errors
    /// If no server answers.
    pub(crate) fn lock_in_the_way(
        &self,
        ino: Ino,
        locker: Locker,
        range: &Range,
    ) -> Result<Option<Range>> {
        let found = self.trees.walked(ino, || self.fs.get_lock(ino, lock_of(locker, range)))?;
        Ok(found.map(|(client, lock)| {
            // A process of another machine has no number here.
            let pid = if client == self.fs.client() { lock.pid } else { 0 };
            Range { mode: lock.mode, start: lock.start, end: lock.end, pid }
        }))
    }

    /// Releases the locks of a process that closes the file.
    pub(crate) fn unlock_process(&self, ino: Ino, owner: u64) {
        let is_its = |known: &Locker| known.kind == LockKind::Posix && known.owner == owner;
        let lockers = held(self.lockers).take(ino, is_its);
        self.unlock_all(ino, lockers);
    }

    /// Releases the locks of an open file that ends.
    pub(crate) fn unlock_file(&self, ino: Ino, handle: u64) {
        let lockers = held(self.lockers).take(ino, |known| known.handle == handle);
        self.unlock_all(ino, lockers);
    }

    fn unlock_all(&self, ino: Ino, lockers: Vec<Locker>) {
        let all = Range { mode: LockMode::Unlock, start: 0, end: u64::MAX, pid: 0 };
        let mut done: Option<Locker> = None;
        for locker in lockers {
            let is_done = |done: Locker| (done.kind, done.owner) == (locker.kind, locker.owner);
            if !done.is_some_and(is_done) {
                // Without an answer the session ends, and its locks with it.
                let _ = self.fs.lock(ino, lock_of(locker, &all), false);
            }
            done = Some(locker);
        }
    }
}

fn lock_of(locker: Locker, range: &Range) -> Lock {
    let (Range { mode, start, end, pid }, Locker { kind, owner, .. }) = (*range, locker);
    Lock { kind, mode, owner, pid, start, end }
}
