//! How a call ends: one number for the program, and a sentence for people.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cudele::{Errno, Error};

thread_local! {
    /// What the last call of this thread that failed said.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Why a call of C failed. `EBADF` is a matter between it and a program, which no server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    message: String,
}

/// The number of `EBADF`.
const BAD_HANDLE: u16 = 9;

impl Failure {
    /// A handle of this kind that is not open.
    pub(crate) fn not_open(kind: &str) -> Self {
        let message = format!(
            "{kind}: the handle is not open (EBADF); it was closed before, or is of another kind"
        );
        Self { code: BAD_HANDLE, message }
    }

    /// A file that was not opened for this.
    pub(crate) fn not_opened_for(what: &str) -> Self {
        let message = format!("file: it is not open for {what} (EBADF); open it with other flags");
        Self { code: BAD_HANDLE, message }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: error.errno.code(), message: error.to_string() }
    }
}

/// Makes a call. Returns what it returned, or the negative error number, and keeps the message for
/// [`last`].
pub(crate) fn answer(call: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    // What a panic leaves behind its lock is changed in single steps (`vfs::held`), so it is usable.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
        let cause = format!("defect of the library: {}", said.unwrap_or_default());
        Err(Error::new(Errno::Io, "cudele", cause)
            .remedy("disconnect and connect again, and report it")
            .into())
    });
    result.unwrap_or_else(|failure| {
        keep(failure.message);
        -i64::from(failure.code)
    })
}

/// Remembers a message. A thread that is ending has nobody to tell.
fn keep(mut message: String) {
    message.retain(|character| character != '\0');
    let message = CString::new(message).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = message);
}

/// The message, which stays where it is until the next call of this thread fails.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Makes an error one about a path, whatever part of it the error was about so far.
pub(crate) fn about(path: &[u8], error: Error) -> Error {
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
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[allow(unsafe_code, reason = "what C does with the pointer")]
    fn said() -> String {
        // SAFETY: the string is this thread's, and no call is made meanwhile.
        unsafe { CStr::from_ptr(last()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_an_error_with_a_message() {
        let index = std::hint::black_box(3);
        assert_eq!(answer(|| Ok([1, 2, 3][index])), -5);
        assert!(said().contains("defect of the library: index out of bounds"), "{}", said());
        assert_eq!(answer(|| Ok(7)), 7);
    }

    #[test]
    fn every_thread_has_its_own_message() {
        assert_eq!(answer(|| Err(Error::of(Errno::NotFound, "/here").into())), -2);
        let other = std::thread::spawn(|| {
            assert_eq!(said(), "");
            assert_eq!(answer(|| Err(Error::of(Errno::Exists, "/there\0").into())), -17);
            said()
        });
        assert_eq!(other.join().unwrap(), "/there: file exists (EEXIST)");
        assert_eq!(said(), "/here: no such file or directory (ENOENT)");
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
