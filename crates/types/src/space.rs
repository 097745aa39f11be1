//! The room of a store or a file system.

/// How much a store or a file system can hold, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// In all.
    pub total: u64,
    /// The rest, as far as this process may use it.
    pub available: u64,
}
