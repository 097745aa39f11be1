//! The name that a cursor stands on, rebuilt from prefix-compressed pieces.
//!
//! Invariant: at most [`NAME_BYTES_MAX`] bytes; growing it never allocates.

use types::NAME_BYTES_MAX;

/// A name in place.
#[derive(Clone)]
pub(crate) struct NameBuf {
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
}

impl NameBuf {
    /// The empty name, which sorts before every legal one.
    pub(crate) fn new() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX], len: 0 }
    }

    /// The bytes of the name.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Keeps the first `shared` bytes and appends `suffix`. Returns whether the result is a name
    /// of legal length; if not, nothing changes.
    #[inline]
    pub(crate) fn replace(&mut self, shared: usize, suffix: &[u8]) -> bool {
        let len = shared + suffix.len();
        if shared > self.len || len > NAME_BYTES_MAX {
            return false;
        }
        self.bytes[shared..len].copy_from_slice(suffix);
        self.len = len;
        true
    }

    /// Becomes a copy of a legal name.
    #[inline]
    pub(crate) fn set(&mut self, name: &[u8]) {
        let fits = self.replace(0, name);
        debug_assert!(fits, "names are at most 255 bytes");
    }
}

impl std::fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.as_slice().escape_ascii())
    }
}

/// How many leading bytes two names share.
#[inline]
pub(crate) fn shared_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}
