//! Open descriptors of objects that are being appended to.
//!
//! A journal segment is appended to and synced thousands of times; opening it each time would cost
//! more than the append. Not for reads, and not for `write_range`, which touches many objects once.
//!
//! Invariant: a handle is only a shortcut. Losing one costs an `open` and one more directory sync,
//! never data: whether the object still has this file is asked of the kernel, every time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sys::{self, Flock, Sys, SysResult};
use crate::OBJECT_BYTES_MAX;

/// At most so many handles stay open; the least recently used one is closed first.
pub(super) const HANDLES_MAX: usize = 128;

/// An object's open file.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) file: OwnedFd,
    /// Whether the directory entries leading to the file are known to be durable.
    pub(super) entry_durable: AtomicBool,
    /// Whether opening the handle made the file.
    created: bool,
    /// One append of this process at a time: threads share the descriptor and thus its flock.
    appending: Mutex<()>,
}

/// How an append ended.
#[derive(Debug)]
pub(super) enum Appended {
    /// The data is in the file from this offset on.
    At(u64),
    /// The object was replaced or deleted since: open it again.
    Stale,
    /// Nothing was appended and the file is as it was; `true` if it must not be there at all.
    Refused(Sys, bool),
    /// Appending failed, and so did truncating the partial append.
    Torn(Sys),
}

impl Handle {
    pub(super) fn new(file: OwnedFd, created: bool) -> Self {
        Self { file, entry_durable: AtomicBool::new(false), created, appending: Mutex::new(()) }
    }

    /// Appends to the file. Holding the file's lock from finding the end to the last byte puts
    /// appends of several processes one behind the other, and makes it safe to truncate a partial
    /// append after a full disk.
    pub(super) fn append(&self, data: &[u8]) -> SysResult<Appended> {
        let _turn = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = Flock::wait(&self.file)?;
        let state = sys::state(&self.file)?;
        if !state.has_name {
            return Ok(Appended::Stale);
        }
        let end = state.size;
        if end + data.len() as u64 > OBJECT_BYTES_MAX {
            return Ok(Appended::Refused(Sys::FBIG, false));
        }
        let Err(failure) = sys::write_at(&self.file, data, end) else {
            return Ok(Appended::At(end));
        };
        match rustix::fs::ftruncate(&self.file, end) {
            Ok(()) => Ok(Appended::Refused(failure, self.created && end == 0)),
            Err(_) => Ok(Appended::Torn(failure)),
        }
    }
}

/// The handles in use, by object name.
#[derive(Debug, Default)]
pub(super) struct Handles(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    /// Counts uses, to tell which handle was used last.
    uses: u64,
    open: BTreeMap<String, (u64, Arc<Handle>)>,
}

impl Handles {
    /// The open handle of an object, if there is one.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Handle>> {
        let mut cache = self.cache();
        cache.uses += 1;
        let now = cache.uses;
        let (last_use, handle) = cache.open.get_mut(name)?;
        *last_use = now;
        Some(Arc::clone(handle))
    }

    /// Keeps a handle, and replaces a cached one for the same object.
    pub(super) fn keep(&self, name: &str, handle: &Arc<Handle>) {
        let mut cache = self.cache();
        if cache.open.len() >= HANDLES_MAX && !cache.open.contains_key(name) {
            let oldest = cache.open.iter().min_by_key(|(_, (last_use, _))| *last_use);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                cache.open.remove(&oldest);
            }
        }
        cache.uses += 1;
        let now = cache.uses;
        cache.open.insert(name.to_string(), (now, Arc::clone(handle)));
    }

    /// Closes the handle of an object that was replaced or deleted.
    pub(super) fn forget(&self, name: &str) {
        self.cache().open.remove(name);
    }

    /// How many handles are open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.cache().open.len()
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
