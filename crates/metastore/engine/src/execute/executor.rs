//! State that a process keeps from one operation to the next.
//!
//! Invariant: manifests of one directory are read and replaced by one thread at a time, so a
//! replacement fails only if another process made one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{RunId, Tiers};
use objstore::Store;
use types::{Ino, Map};

use super::cache::{Cache, Key, Piece};

/// Locks for the manifests of all directories.
const SWAPS: usize = 16;

/// Sizes that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// When runs are merged.
    pub tiers: Tiers,
    /// A look-up reads a directory of at most this many bytes as a whole.
    pub whole_bytes: u64,
    /// Bytes of pieces of runs that are kept.
    pub cache_bytes: usize,
    /// Fewer bytes of long values than this are not worth an object of their own; `u64::MAX` for
    /// none ever.
    pub segment_bytes_min: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            tiers: Tiers::default(),
            whole_bytes: 1 << 20,
            cache_bytes: 32 << 20,
            segment_bytes_min: 64 << 10,
        }
    }
}

/// Executes operations; a process has one for its store.
#[derive(Debug)]
pub struct Executor {
    pub(super) tuning: Tuning,
    cache: Mutex<Cache>,
    /// Numbers of runs that are being written and that no manifest says are taken.
    numbers: Mutex<Map<Ino, RunId>>,
    swaps: [Mutex<()>; SWAPS],
    pub(super) stopping: AtomicBool,
}

impl Default for Executor {
    fn default() -> Self {
        Self::new(Tuning::default())
    }
}

/// A number of a run is taken as long as this lives.
pub(super) struct Taken<'a> {
    executor: &'a Executor,
    ino: Ino,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        lock(&self.executor.numbers).remove(&self.ino);
    }
}

impl Tuning {
    /// Whether long values go to value segments at all.
    pub(super) fn has_segments(&self) -> bool {
        self.segment_bytes_min < u64::MAX
    }
}

impl Executor {
    /// An executor with an empty cache.
    #[must_use]
    pub fn new(tuning: Tuning) -> Self {
        Self {
            cache: Mutex::new(Cache::new(tuning.cache_bytes)),
            tuning,
            numbers: Mutex::default(),
            swaps: Default::default(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Executes an operation.
    ///
    /// # Errors
    /// The store's error, with the operation so that it can be retried.
    pub fn execute(
        &self,
        store: &dyn Store,
        op: StoreOp,
    ) -> Result<StoreResult, Box<StoreFailure>> {
        match super::try_op(store, self, &op) {
            Ok(result) => Ok(result),
            Err(error) => Err(Box::new(StoreFailure { error, op })),
        }
    }

    /// Long operations end soon, and fail: the process is about to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// No other thread of this process replaces the directory's manifest while the guard lives.
    pub(super) fn swap(&self, ino: Ino) -> MutexGuard<'_, ()> {
        let number = usize::try_from(ino.0 % SWAPS as u64).unwrap_or(0);
        lock(&self.swaps[number])
    }

    /// Takes a number for a run that will be listed later. One at a time for each directory.
    pub(super) fn take_number(&self, ino: Ino, id: RunId) -> Taken<'_> {
        lock(&self.numbers).insert(ino, id);
        Taken { executor: self, ino }
    }

    /// The number from `next` on that is not taken.
    pub(super) fn free_number(&self, ino: Ino, next: u64) -> RunId {
        let taken = lock(&self.numbers).get(&ino).copied();
        RunId(if taken == Some(RunId(next)) { next + 1 } else { next })
    }

    pub(super) fn cached(&self, key: Key) -> Option<Piece> {
        lock(&self.cache).get(key)
    }

    pub(super) fn cache(&self, key: Key, piece: Piece) {
        lock(&self.cache).put(key, piece);
    }
}

/// State behind a lock is whole after a panic: every step leaves it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
