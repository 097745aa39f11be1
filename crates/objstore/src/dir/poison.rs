//! Objects that cannot be trusted after a failed sync.
//!
//! When a sync fails, the kernel may mark the pages that did not reach the disk as clean: the next
//! sync then succeeds without the data. So a failure is recorded, and every operation that would
//! rely on the lost pages fails until the object is replaced or the store is opened again.
//!
//! Invariant: nothing is taken off the list but by replacing or deleting the object.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::{Errno, Error, Result};

/// After so many failures the whole store counts as broken.
const OBJECTS_MAX: usize = 1024;

/// The objects, or the store, whose last sync failed.
#[derive(Debug, Default)]
pub(super) struct Poison(Mutex<Poisoned>);

#[derive(Debug, Default)]
struct Poisoned {
    everything: bool,
    objects: BTreeSet<String>,
}

impl Poison {
    /// Rejects operations on an object whose sync failed.
    pub(super) fn check(&self, store: &str, name: &str) -> Result<()> {
        let poisoned = self.poisoned();
        if !poisoned.everything && !poisoned.objects.contains(name) {
            return Ok(());
        }
        let cause =
            "an earlier sync failed, so what was written since the last good one may be lost";
        Err(Error::new(Errno::Io, format!("object {name} in {store}"), cause)
            .remedy("look for disk errors, then open the store anew"))
    }

    /// As [`Poison::check`], for an operation on the whole store.
    pub(super) fn check_all(&self, store: &str) -> Result<()> {
        let first = self.poisoned().objects.first().cloned();
        self.check(store, &first.unwrap_or_default())
    }

    /// A sync of this object failed.
    pub(super) fn add(&self, name: &str) {
        let mut poisoned = self.poisoned();
        poisoned.everything |= poisoned.objects.len() >= OBJECTS_MAX;
        if !poisoned.everything {
            poisoned.objects.insert(name.to_string());
        }
    }

    /// A sync of the whole store failed.
    pub(super) fn add_all(&self) {
        self.poisoned().everything = true;
    }

    /// The object was replaced as a whole, or deleted: nothing of it depends on lost pages.
    pub(super) fn remove(&self, name: &str) {
        self.poisoned().objects.remove(name);
    }

    fn poisoned(&self) -> MutexGuard<'_, Poisoned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
