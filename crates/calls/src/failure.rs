//! How a call fails: one number for the program, and for people the path, the cause and the remedy.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cudele::{Errno, Error};

/// Why a call failed. `EBADF` is a matter between a library and its program, which no server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFailure {
    /// An error of the file system.
    Refused(Error),
    /// A handle that is closed, or not open for this call (`EBADF`): object, cause and remedy.
    Closed {
        /// The kind of thing.
        what: &'static str,
        /// The cause.
        cause: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// The number of `EBADF`.
const BAD_HANDLE: u16 = 9;

impl CallFailure {
    /// A handle of this kind that is not open.
    #[must_use]
    pub fn not_open(what: &'static str) -> Self {
        let cause = "the handle is not open".to_owned();
        Self::Closed { what, cause, remedy: "it was closed before, or is of another kind" }
    }

    /// A file that was not opened for this.
    #[must_use]
    pub fn not_opened_for(wish: &str) -> Self {
        let cause = format!("it is not open for {wish}");
        Self::Closed { what: "file", cause, remedy: "open it with other flags" }
    }

    /// Linux's number.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Refused(error) => error.errno.code(),
            Self::Closed { .. } => BAD_HANDLE,
        }
    }
}

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl fmt::Display for CallFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "{error}"),
            Self::Closed { what, cause, remedy } => write!(f, "{what}: {cause} (EBADF); {remedy}"),
        }
    }
}

impl std::error::Error for CallFailure {}

/// Makes a call and turns a panic, which is a defect, into an error: the caller's language has no
/// panics.
///
/// # Errors
/// Those of the call; `EIO` for a panic.
pub fn guarded<T>(call: impl FnOnce() -> Result<T, CallFailure>) -> Result<T, CallFailure> {
    // State behind a lock is changed in single steps (`vfs::held`), so it is usable after a panic.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
        let cause = format!("defect of the library: {}", said.unwrap_or_default());
        Err(Error::new(Errno::Io, "cudele", cause)
            .remedy("disconnect and connect again, and report it")
            .into())
    })
}

/// Makes an error one about a path, even if it was about a part of the path so far.
#[must_use]
pub fn about(path: &[u8], error: Error) -> Error {
    let path = String::from_utf8_lossy(path).into_owned();
    if error.subject.starts_with('/') && !path.starts_with(&error.subject) {
        return error;
    }
    let part = error.subject.is_empty() || path.ends_with(&error.subject);
    let cause = if part || error.subject.starts_with('/') {
        error.cause
    } else {
        format!("{}: {}", error.subject, error.cause)
    };
    Error { subject: path, cause, ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_says_so() {
        let index = std::hint::black_box(3);
        let failed = guarded(|| Ok([1, 2, 3][index])).map_err(|failure| failure.to_string());
        let said = failed.err().unwrap_or_default();
        assert!(said.contains("defect of the library: index out of bounds"), "{said}");
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }

    #[test]
    fn errors_name_the_path() {
        let said =
            |subject: &str| about(b"/a/b", Error::new(Errno::Stale, subject, "gone")).to_string();
        assert_eq!(said(""), "/a/b: gone (ESTALE)");
        assert_eq!(said("b"), "/a/b: gone (ESTALE)");
        assert_eq!(said("/a"), "/a/b: gone (ESTALE)");
        assert_eq!(said("/etc/state"), "/etc/state: gone (ESTALE)");
        assert_eq!(said("metadata server"), "/a/b: metadata server: gone (ESTALE)");
    }
}
