//! The native object behind a Python object, until it is closed.
//!
//! Invariant: after a `fork` the child leaves the parent's objects alone: the child has no threads
//! for them, and the connection is the parent's. The garbage collector does not end them either.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use calls::CallFailure;
use cudele::{Errno, Error};
use pyo3::prelude::*;

/// How often this process is the child of another one since the module was loaded.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Python calls this in the child.
#[pyfunction(name = "_forked")]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// See the module documentation.
pub(crate) struct Held<T> {
    kind: &'static str,
    forks: u64,
    value: Mutex<Option<T>>,
}

impl<T: Clone> Held<T> {
    pub(crate) fn new(kind: &'static str, value: T) -> Self {
        Self { kind, forks: FORKS.load(Ordering::Relaxed), value: Mutex::new(Some(value)) }
    }

    /// The native object.
    ///
    /// # Errors
    /// `EBADF` if it was closed, `ESTALE` in a child process.
    pub(crate) fn get(&self) -> Result<T, CallFailure> {
        self.check()?;
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner).clone();
        value.ok_or_else(|| CallFailure::Closed {
            what: self.kind,
            cause: "it was closed".to_owned(),
            remedy: "open it again",
        })
    }

    /// Closes the object. A call that uses it at this moment runs to its end.
    pub(crate) fn take(&self) -> Option<T> {
        self.value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_of_parent(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<(), CallFailure> {
        if self.is_of_parent() {
            let cause = "it belongs to the process that this one was forked from";
            let error = Error::new(Errno::Stale, self.kind, cause);
            return Err(error.remedy("connect anew in this process").into());
        }
        Ok(())
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(value.take());
        }
    }
}

impl<T> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("kind", &self.kind).finish_non_exhaustive()
    }
}
