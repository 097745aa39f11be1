//! The contract between the system and the store of its bytes.
//!
//! Not here: how any back end keeps it. The clauses are executable in [`crate::conformance`].
//!
//! Invariant: the methods mean the same on every back end; where back ends may differ (an unsynced
//! write after a crash, a write that failed half-way) the contract states the guarantees for a
//! caller.

use std::fmt::Debug;

use types::{ClientId, Errno, Error, Pool, Result, Space};

use crate::gather::Gather;

/// The largest object in bytes, 1 GiB. Larger things are striped over several objects.
pub const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// For most stores: few calls, and small enough to be copied within a cache.
const BYTES_AT_ONCE: usize = 256 << 10;

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
    pub(crate) fn conflict(self, current: Option<Version>) -> Option<Outcome> {
        let holds = match self {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Is(version) => current == Some(version),
        };
        (!holds).then_some(Outcome::Conflict(current))
    }
}

/// The result of a [`ObjectStore::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a conflict is not an error, but nothing was written"]
pub enum Outcome {
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

/// The reserve for servers, in bytes ([`ObjectStore::reserve`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// The size that the reserve should have; 0 for no reserve.
    pub wanted: u64,
    /// The size that the reserve has.
    pub held: u64,
}

impl Reserved {
    /// Whether a part of the reserve is in use: the store is full.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.held < self.wanted
    }
}

/// What [`ObjectStore::sweep`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Parts of objects that were looked at.
    pub pieces: u64,
    /// Of these belonged to nothing, and were removed.
    pub garbage: u64,
    /// Bytes of those, copies not counted.
    pub bytes: u64,
    /// Belonged to nothing and stayed, because a process may still be writing them.
    pub young: u64,
}

/// A named lock that is held. Dropping it, or the death of the process, releases it. A store that
/// cannot see which processes are dead may give it away from a silent process; then that process
/// was fenced before (`ESTALE`).
pub trait LockGuard: Send + Debug {
    /// Who holds it: the `owner` given to [`ObjectStore::lock`].
    fn owner(&self) -> &str;

    /// Whether this process knows that another one took the lock, because this process did not
    /// answer. Then it can change nothing in the store any more, and should end.
    fn is_lost(&self) -> bool {
        false
    }
}

/// This process works as a client, until this is dropped ([`ObjectStore::enter`]).
#[derive(Debug, Default)]
pub struct Presence {
    /// Leaves when it is dropped; nothing on a store that cannot fence clients.
    _entered: Option<Box<dyn Debug + Send + Sync>>,
}

impl Presence {
    pub(crate) fn of(entered: impl Debug + Send + Sync + 'static) -> Self {
        Self { _entered: Some(Box::new(entered)) }
    }
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
    fn put(&self, name: &str, data: &[u8], expect: Expect) -> Result<Outcome>;

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

    /// As [`ObjectStore::write_range`], of all the given data, which need not lie in one place. In
    /// between, and after an error, any part of it may be written.
    ///
    /// # Errors
    /// See above.
    fn write_gathered(&self, name: &str, offset: u64, data: &[&[u8]]) -> Result<()> {
        let (mut left, mut at, mut buffer) = (Gather::of(data), offset, Vec::new());
        loop {
            let now = left.take(self.bytes_at_once(), &mut buffer);
            self.write_range(name, at, now)?;
            at += now.len() as u64;
            if left.len() == 0 {
                return Ok(());
            }
        }
    }

    /// How many bytes to hand over at a time when there are many: enough for the store to do its
    /// best, and no more.
    fn bytes_at_once(&self) -> usize {
        BYTES_AT_ONCE
    }

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

    /// As [`ObjectStore::read_range`], into a buffer that the caller uses again; returns how many
    /// bytes.
    ///
    /// # Errors
    /// `ENOENT` if it is absent.
    fn read_into(&self, name: &str, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = self.read_range(name, offset, buffer.len())?;
        buffer[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }

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

    /// Whether the cost of a list depends on its result only. Where it depends on the size of the
    /// whole store, names that can be guessed are better guessed.
    fn lists_what_it_finds(&self) -> bool {
        true
    }

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

    /// The number of the period in which no unsynced write can have been lost: it changes with a
    /// power failure. 0 if a write is durable when it returns. Two calls may differ if the store
    /// cannot determine the period.
    fn period(&self) -> u32;

    /// How much room there is.
    ///
    /// # Errors
    /// See above.
    fn space(&self) -> Result<Space>;

    /// Fills the reserve up to so many bytes, as far as the store has room. Servers use the reserve
    /// for removals, checkpoints and a clean stop. The reserve of a small store is a sixteenth of
    /// it.
    ///
    /// # Errors
    /// See above; a full store is no error.
    fn reserve(&self, _bytes: u64) -> Result<Reserved> {
        Ok(Reserved::default())
    }

    /// Allows this process to use the reserve. Such a process must reject requests that make the
    /// store larger while [`ObjectStore::is_short`].
    fn allow_reserve(&self) {}

    /// Releases a part of the reserve until so many bytes are free, for a server that writes files
    /// beside the store. Without effect on a store without a reserve.
    fn lend_reserve(&self, _bytes: u64) {}

    /// Whether a part of the reserve is in use, as far as this process knows. Costs nothing.
    fn is_short(&self) -> bool {
        false
    }

    /// The store's number for a pool of this name, from now on and for all processes: file data
    /// with names that begin with it ([`metastore::data_prefix`]) is in that pool (E-03).
    ///
    /// # Errors
    /// `EOPNOTSUPP` on a store that has no pools; `ENOENT` if there is no such pool; the error that
    /// keeps this user from writing to it.
    fn pool(&self, name: &str) -> Result<Pool> {
        Err(Error::new(Errno::NotSupported, name, "the object store has no pools to choose from")
            .remedy("leave data_pool out of the policy, or use a store in a Ceph cluster"))
    }

    /// Announces that this process writes to the store as a client, so that other processes can
    /// fence it.
    ///
    /// # Errors
    /// See above.
    fn enter(&self, _client: ClientId) -> Result<Presence> {
        Ok(Presence::default())
    }

    /// Fences every other process that has entered as this client: its later writes, and those that
    /// the store has not executed yet, are refused (`ESTALE`). False, and nothing done, on a store
    /// that cannot do that: there only clients that obey the metadata server are kept from writing.
    ///
    /// # Errors
    /// `EACCES` if this user may not do that.
    fn shut_out(&self, _client: ClientId) -> Result<bool> {
        Ok(false)
    }

    /// Finds leftovers of crashes that belong to no object, and removes them unless `look`. The
    /// time is in seconds since 1970: leftovers that may be younger than two hours stay. Other
    /// processes may use the store during that. Nothing to be done on a store that tidies up when
    /// it is opened.
    ///
    /// # Errors
    /// See above.
    fn sweep(&self, _now_s: i64, _look: bool) -> Result<Swept> {
        Ok(Swept::default())
    }

    /// Takes a lock, exclusive among all processes that use the store, without waiting longer than
    /// it takes to find out whether a silent holder lives. Lock names follow the rules of object
    /// names but live apart from them.
    ///
    /// # Errors
    /// `EBUSY`, naming the holder, if it is held; also by this very process.
    fn lock(&self, name: &str, owner: &str) -> Result<Box<dyn LockGuard>>;
}

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
pub(crate) fn absent(name: &str) -> Error {
    Error::new(Errno::NotFound, name, "no such object")
}

/// The error for a lock that is held.
pub(crate) fn held(name: &str, holder: &str) -> Error {
    let holder = if holder.is_empty() { "somebody who has not said who" } else { holder };
    Error::new(Errno::Busy, name, format!("the lock is held by {holder}"))
        .remedy("stop the holder, or wait until it is gone")
}
