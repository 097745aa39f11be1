//! The contract between the system and the store of its bytes.
//!
//! Not here: how any back end keeps it. The clauses are executable in [`crate::conformance`].
//!
//! Invariant: the methods mean the same on every back end; where back ends may differ (an unsynced
//! write after a crash, a write that failed half-way) the contract states the guarantees for a
//! caller.

use std::fmt::Debug;

use types::{Errno, Error, Result};

use crate::{Capacity, Fencing, Pools, Sweeping, Tuned};

/// The largest object in bytes, 1 GiB. Larger things are striped over several objects.
pub const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// Identifies the content of an object: equal content has equal versions, so an object that
/// changes and changes back is the same version again. Callers that must notice put a counter
/// into the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version of some content.
    #[must_use]
    pub fn of(data: &[u8]) -> Self {
        Version(xxhash_rust::xxh3::xxh3_64(data))
    }
}

/// The required state of an object for [`ObjectStore::put`] to replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Any,
    /// There is no such object.
    Absent,
    /// It has this content.
    Is(Version),
}

impl Expect {
    /// The answer of `put`, without any effect, if `current` is not the expected version.
    #[must_use]
    pub fn conflict(self, current: Option<Version>) -> Option<PutOutcome> {
        let holds = match self {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Is(version) => current == Some(version),
        };
        (!holds).then_some(PutOutcome::Conflict(current))
    }
}

/// The result of a [`ObjectStore::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a conflict is not an error, but nothing was written"]
pub enum PutOutcome {
    /// The object now has the new content, durably; this is its version.
    Done(Version),
    /// The expectation did not hold and nothing changed; the current version, `None` if absent.
    Conflict(Option<Version>),
}

/// The properties of an object that are known without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length in bytes.
    pub size: u64,
}

/// The objects that [`ObjectStore::sync`] makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope<'a> {
    /// One object: its content and its existence, or its absence.
    Object(&'a str),
    /// Every object with this prefix: their content, and which of them exist.
    Prefix(&'a str),
    /// Everything written or deleted through this store so far.
    All,
}

/// Named byte strings. Names follow [`crate::check_name`]; other names are `EINVAL` everywhere.
///
/// Any thread and any process may call any method at any time. `put` and `delete` of one object are
/// atomic against each other, and appends to one object never overlap. The contract does *not*
/// order an `append` or `write_range` and a simultaneous `put` or `delete` of the same object: an
/// object is either replaced as a whole or extended by one writer at a time.
///
/// Errors of all methods: `ENOSPC` when the store is full, `EIO` when the medium fails, `ETIMEDOUT`
/// when it does not answer, `ESTALE` when this process was fenced, `EROFS`, `EACCES`, and `EFBIG`
/// over [`OBJECT_BYTES_MAX`].
pub trait ObjectStore: Send + Sync + Debug {
    /// Replaces the whole object atomically, if it is as `expect` requires: a reader sees the old
    /// or the new content, also after a crash. Durable on return.
    ///
    /// # Errors
    /// See above. After an error the object is as it was, except that after `EIO` or `ETIMEDOUT` it
    /// may have the new content: then a retry, or a read, settles which.
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<PutOutcome>;

    /// Adds to the end, creating the object if it is absent, and returns the offset at which the
    /// data landed. Durable only after [`ObjectStore::sync`].
    ///
    /// # Errors
    /// See above. After `ENOSPC` the object is as it was, or ends with zeros.
    fn append(&self, name: &str, data: &[u8]) -> Result<u64>;

    /// Overwrites from `offset` on, creating the object or filling a gap with zeros if needed; no
    /// data changes nothing but existence. Not atomic. Durable only after [`ObjectStore::sync`].
    ///
    /// # Errors
    /// See above. After an error the range may be partly written, and the object may have become
    /// longer by zeros.
    fn write_range(&self, name: &str, offset: u64, data: &[u8]) -> Result<()>;

    /// The whole content and its version.
    ///
    /// # Errors
    /// `ENOENT` if it is absent.
    fn get(&self, name: &str) -> Result<(Vec<u8>, Version)>;

    /// At most `length` bytes from `offset` on; fewer, or none, at the end.
    ///
    /// # Errors
    /// `ENOENT` if it is absent.
    fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>>;

    /// The properties that are known without reading.
    ///
    /// # Errors
    /// `ENOENT` if it is absent.
    fn stat(&self, name: &str) -> Result<Stat>;

    /// Removes the object; false if it was not there. Durable after the next
    /// [`ObjectStore::sync`] that covers it, perhaps earlier.
    ///
    /// # Errors
    /// See above.
    fn delete(&self, name: &str) -> Result<bool>;

    /// All names that start with `prefix`, sorted by bytes. A prefix need not end at a `/`.
    ///
    /// # Errors
    /// See above.
    fn list(&self, prefix: &str) -> Result<Vec<String>>;

    /// Makes writes from before the call durable. Syncing an absent object makes its absence
    /// durable.
    ///
    /// # Errors
    /// See above. After `EIO`, writes that were not yet durable may be lost, and no later sync may
    /// claim otherwise: appends, writes and syncs of the object (of all objects, for
    /// [`SyncScope::All`]) fail until it is put, deleted, or the store is opened again.
    fn sync(&self, scope: SyncScope<'_>) -> Result<()>;
}

/// A store with everything that the system asks of one. A function that needs bytes only takes an
/// [`ObjectStore`].
pub trait Store: ObjectStore + Tuned + Capacity + Pools + Fencing + Sweeping {}

impl<S: ObjectStore + Tuned + Capacity + Pools + Fencing + Sweeping + ?Sized> Store for S {}

/// Checks that an object may reach `offset + length` bytes, and returns that end.
pub(crate) fn check_end(name: &str, offset: u64, length: usize) -> Result<u64> {
    match offset.checked_add(length as u64) {
        Some(end) if end <= OBJECT_BYTES_MAX => Ok(end),
        Some(_) | None => {
            Err(Error::new(Errno::TooBig, name, "an object holds at most 1 GiB".to_string())
                .remedy("spread the data over several objects"))
        }
    }
}

/// The error for an object that is not there.
#[must_use]
pub fn absent(name: &str) -> Error {
    Error::new(Errno::NotFound, name, "no such object")
}

/// The error for a lock that is held.
pub(crate) fn held(name: &str, holder: &str) -> Error {
    let holder = if holder.is_empty() { "somebody who has not said who" } else { holder };
    Error::new(Errno::Busy, name, format!("the lock is held by {holder}"))
        .remedy("stop the holder, or wait until it is gone")
}
