//! Handles: numbers by which a C program names open objects.
//!
//! Invariant: no number is given twice, over all tables, so a handle that was closed, or is of
//! another kind, is in no table any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use calls::CallFailure;
use cudele::{Errno, Error};

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// Open objects by handle.
pub(crate) struct Table<T> {
    kind: &'static str,
    open: RwLock<BTreeMap<usize, Arc<T>>>,
}

impl<T> Table<T> {
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self { kind, open: RwLock::new(BTreeMap::new()) }
    }

    /// Opens it: gives it a number.
    pub(crate) fn insert(&self, value: T) -> usize {
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, Arc::new(value));
        handle
    }

    /// The object of a handle.
    ///
    /// # Errors
    /// `EINVAL` for none (a null pointer), `EBADF` for one that is not open.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, CallFailure> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle).cloned().ok_or_else(|| self.unknown(handle))
    }

    /// Closes it.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>, CallFailure> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.remove(&handle).ok_or_else(|| self.unknown(handle))
    }

    fn unknown(&self, handle: usize) -> CallFailure {
        if handle == 0 {
            return Error::new(Errno::Invalid, self.kind, "the handle is NULL").into();
        }
        CallFailure::not_open(self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_open_until_it_is_closed_and_in_one_table_only() {
        let (files, dirs) = (Table::new("file"), Table::new("directory"));
        let handle = files.insert(7);
        assert_eq!(files.get(handle).map(|value| *value), Ok(7));
        let _other = dirs.insert(8);
        assert_eq!(dirs.get(handle).map_err(|failure| failure.code()), Err(9));
        assert_eq!(files.get(0).map_err(|failure| failure.code()), Err(22));
        assert_eq!(files.remove(handle).map(|value| *value), Ok(7));
        assert_eq!(files.remove(handle).map_err(|failure| failure.code()), Err(9));
        assert_ne!(files.insert(9), handle);
    }
}
