//! Faults of journal bytes.

use types::bytes::Malformed;
use types::{Errno, Error};

/// The bytes are not a journal, or no longer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalError {
    /// Where, in bytes from the start of the segment.
    pub offset: u64,
    /// The fault at the offset.
    pub cause: String,
}

impl JournalError {
    pub(crate) fn new(offset: usize, cause: impl Into<String>) -> Self {
        Self { offset: offset as u64, cause: cause.into() }
    }

    pub(crate) fn at(base: usize, malformed: Malformed) -> Self {
        Self::new(base + malformed.offset, format!("expected {}", malformed.expected))
    }

    /// For people: names the journal and the remedy. Maps to `EBADMSG`.
    #[must_use]
    pub fn in_journal(&self, journal: &str) -> Error {
        Error::new(Errno::BadMessage, journal, self.to_string()).remedy(
            "run `cudele journal inspect` on it to see what is still readable; nothing was applied",
        )
    }
}

impl std::fmt::Display for JournalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.cause)
    }
}

impl std::error::Error for JournalError {}
