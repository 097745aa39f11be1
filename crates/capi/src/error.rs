//! How a call ends: one number for the program, and a sentence for people.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use calls::{CallFailure, guarded};

thread_local! {
    /// The message of this thread's last failed call.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Makes a call. Returns its result, or the negative error number, and keeps the message for
/// [`last`].
pub(crate) fn answer(call: impl FnOnce() -> Result<i64, CallFailure>) -> i64 {
    guarded(call).unwrap_or_else(|failure| {
        keep(failure.to_string());
        -i64::from(failure.code())
    })
}

/// Keeps a message. A thread that is ending has no storage for it, and no reader.
fn keep(mut message: String) {
    message.retain(|character| character != '\0');
    let message = CString::new(message).unwrap_or_default();
    let _ = LAST.try_with(|last| *last.borrow_mut() = message);
}

/// The message, which stays where it is until the next call of this thread fails.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::ffi::CStr;

    use cudele::{Errno, Error};

    use super::*;

    #[allow(unsafe_code, reason = "what C does with the pointer")]
    fn said() -> String {
        // SAFETY: the string is this thread's, and no call is made before the copy.
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
        assert_eq!(other.join().unwrap(), r"'/there'$'\000': file exists (EEXIST)");
        assert_eq!(said(), "/here: no such file or directory (ENOENT)");
    }
}
