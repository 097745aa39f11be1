//! The one error of this crate: an object with bytes that do not follow their format.
//!
//! Not for I/O errors: this crate performs none.
//!
//! Invariant: an error names the object and the byte, so that a damaged store can be examined
//! without a debugger.

use types::bytes::Malformed;
use types::{Errno, Error};

/// The format version is not one that this build reads. Kept apart because its remedy differs:
/// nothing is damaged.
pub(crate) const KNOWN_VERSION: &str = "a format version that this build reads";

/// An object is truncated, corrupt, foreign or of an unknown version (`EBADMSG`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The name of the object; `run` or `manifest` where the decoder was not told it.
    pub object: String,
    /// Where, in bytes from the start of the object.
    pub offset: usize,
    /// The rule of the format there.
    pub cause: &'static str,
}

impl FormatError {
    /// Puts the name of the object in.
    #[must_use]
    pub fn about(mut self, object: impl Into<String>) -> Self {
        self.object = object.into();
        self
    }

    /// The error for something found wrong in `object`.
    #[cold]
    pub(crate) fn new(object: impl Into<String>, malformed: Malformed) -> Self {
        Self { object: object.into(), offset: malformed.offset, cause: malformed.expected }
    }
}

impl std::fmt::Display for FormatError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: at byte {}: expected {}", self.object, self.offset, self.cause)
    }
}

impl std::error::Error for FormatError {}

impl From<FormatError> for Error {
    fn from(error: FormatError) -> Self {
        let remedy = if error.cause == KNOWN_VERSION {
            "read it with the release that wrote it, or a later one"
        } else {
            "run `cudele fsck` to find what is damaged and what can be rebuilt"
        };
        let cause = format!("at byte {}: expected {}", error.offset, error.cause);
        Error::new(Errno::BadMessage, error.object, cause).remedy(remedy)
    }
}

/// The error at `offset`.
#[cold]
pub(crate) fn malformed(offset: usize, expected: &'static str) -> Malformed {
    Malformed { offset, expected }
}
