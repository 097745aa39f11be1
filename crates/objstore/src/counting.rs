//! A wrapper that counts operations and bytes per kind.
//!
//! For "bytes written to the store" reports and for tests that bound the work of an operation. Not
//! for times: the crate has no clock.
//!
//! Invariant: an operation is counted when it returns, its bytes only if it succeeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{ClientId, Pool, Result};

use crate::{
    Capacity, Expect, Fencing, LockGuard, ObjectStore, Pools, Presence, PutOutcome, Reserved,
    Space, Stat, Sweeping, Swept, SyncScope, Tuned, Version, forward::forward,
};

/// The kinds of operation, one per method of [`ObjectStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operation {
    /// [`ObjectStore::put`]
    Put,
    /// [`ObjectStore::append`]
    Append,
    /// [`ObjectStore::write_range`]
    WriteRange,
    /// [`ObjectStore::get`]
    Get,
    /// [`ObjectStore::read_range`]
    ReadRange,
    /// [`ObjectStore::stat`]
    Stat,
    /// [`ObjectStore::delete`]
    Delete,
    /// [`ObjectStore::list`]
    List,
    /// [`ObjectStore::sync`]
    Sync,
    /// [`Fencing::lock`](crate::Fencing::lock)
    Lock,
}

/// All kinds, in the order of the traits.
pub const OPERATIONS: [Operation; 10] = [
    Operation::Put,
    Operation::Append,
    Operation::WriteRange,
    Operation::Get,
    Operation::ReadRange,
    Operation::Stat,
    Operation::Delete,
    Operation::List,
    Operation::Sync,
    Operation::Lock,
];

impl Operation {
    /// The word that reports and error messages use.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Append => "append",
            Self::WriteRange => "write_range",
            Self::Get => "get",
            Self::ReadRange => "read_range",
            Self::Stat => "stat",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Sync => "sync",
            Self::Lock => "lock",
        }
    }
}

/// How often one kind of operation ran, and the bytes that it moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTally {
    /// Calls that returned, with any result.
    pub calls: u64,
    /// How many of them returned an error.
    pub failures: u64,
    /// Payload bytes of successful calls; names are not counted.
    pub bytes: u64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts([OpTally; OPERATIONS.len()]);

impl StoreCounts {
    /// The tally of one kind.
    #[must_use]
    pub fn of(&self, operation: Operation) -> OpTally {
        self.0[operation as usize]
    }

    /// Payload bytes written: puts, appends and ranges.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        use Operation::{Append, Put, WriteRange};
        [Put, Append, WriteRange].into_iter().map(|operation| self.of(operation).bytes).sum()
    }

    /// Payload bytes read: whole objects and ranges.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        use Operation::{Get, ReadRange};
        [Get, ReadRange].into_iter().map(|operation| self.of(operation).bytes).sum()
    }

    /// Calls of all kinds.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.iter().map(|tally| tally.calls).sum()
    }

    /// The difference from `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &StoreCounts) -> StoreCounts {
        let mut difference = *self;
        for (tally, before) in difference.0.iter_mut().zip(earlier.0) {
            tally.calls -= before.calls;
            tally.failures -= before.failures;
            tally.bytes -= before.bytes;
        }
        difference
    }
}

/// Counters shared between a [`Counting`] store and the code that reports them; clones are the same
/// counters.
#[derive(Clone, Debug, Default)]
pub struct StoreCounters(Arc<[AtomicTally; OPERATIONS.len()]>);

#[derive(Debug, Default)]
struct AtomicTally {
    calls: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
}

impl StoreCounters {
    /// The values now. Operations in flight may be counted in part.
    #[must_use]
    pub fn counts(&self) -> StoreCounts {
        let mut counts = StoreCounts::default();
        for (tally, shared) in counts.0.iter_mut().zip(self.0.iter()) {
            *tally = OpTally {
                calls: shared.calls.load(Ordering::Relaxed),
                failures: shared.failures.load(Ordering::Relaxed),
                bytes: shared.bytes.load(Ordering::Relaxed),
            };
        }
        counts
    }

    fn note<T>(&self, operation: Operation, result: &Result<T>, bytes: impl FnOnce(&T) -> usize) {
        let tally = &self.0[operation as usize];
        tally.calls.fetch_add(1, Ordering::Relaxed);
        match result {
            Ok(value) => tally.bytes.fetch_add(bytes(value) as u64, Ordering::Relaxed),
            Err(_) => tally.failures.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// Counts the operations on the store inside.
#[derive(Debug)]
pub struct Counting<S> {
    inner: S,
    counters: StoreCounters,
}

impl<S: ObjectStore> Counting<S> {
    /// Wraps a store; all counters start at zero.
    pub fn new(inner: S) -> Self {
        Self { inner, counters: StoreCounters::default() }
    }

    /// The counters, to keep and to read at any time.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        self.counters.clone()
    }
}

impl<S: ObjectStore> ObjectStore for Counting<S> {
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome> {
        let result = self.inner.put(name, data, expect);
        self.counters.note(Operation::Put, &result, |outcome| match outcome {
            PutOutcome::Done(_) => data.len(),
            PutOutcome::Conflict(_) => 0,
        });
        result
    }

    fn append(&self, name: &str, data: &[u8]) -> Result<u64> {
        let result = self.inner.append(name, data);
        self.counters.note(Operation::Append, &result, |_| data.len());
        result
    }

    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()> {
        let result = self.inner.write_range(name, offset, data);
        self.counters.note(Operation::WriteRange, &result, |()| data.len());
        result
    }

    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)> {
        let result = self.inner.get(name);
        self.counters.note(Operation::Get, &result, |(data, _)| data.len());
        result
    }

    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let result = self.inner.read_range(name, offset, length);
        self.counters.note(Operation::ReadRange, &result, Vec::len);
        result
    }

    fn stat(&self, name: &str) -> Result<Stat> {
        let result = self.inner.stat(name);
        self.counters.note(Operation::Stat, &result, |_| 0);
        result
    }

    fn delete(&self, name: &str) -> Result<bool> {
        let result = self.inner.delete(name);
        self.counters.note(Operation::Delete, &result, |_| 0);
        result
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let result = self.inner.list(prefix);
        self.counters.note(Operation::List, &result, |_| 0);
        result
    }

    fn sync(&self, scope: SyncScope<'_>) -> Result<()> {
        let result = self.inner.sync(scope);
        self.counters.note(Operation::Sync, &result, |()| 0);
        result
    }
}

impl<S: Tuned> Tuned for Counting<S> {
    fn bytes_at_once(&self) -> usize {
        self.inner.bytes_at_once()
    }

    fn lists_what_it_finds(&self) -> bool {
        self.inner.lists_what_it_finds()
    }

    fn period(&self) -> u32 {
        self.inner.period()
    }
}

forward!(Capacity for Counting<S>, self => self.inner);
forward!(Pools for Counting<S>, self => self.inner);

impl<S: Fencing> Fencing for Counting<S> {
    fn enter(&self, client: ClientId) -> Result<Presence> {
        self.inner.enter(client)
    }

    fn shut_out(&self, client: ClientId) -> Result<bool> {
        self.inner.shut_out(client)
    }

    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>> {
        let result = self.inner.lock(name, owner);
        self.counters.note(Operation::Lock, &result, |_| 0);
        result
    }
}

forward!(Sweeping for Counting<S>, self => self.inner);
