//! The invariants of the leases.

use super::{DIRS_MAX, Leases};

impl Leases {
    /// Checks the invariants of the leases.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        assert!(self.dirs.len() <= DIRS_MAX, "the number of leased directories is bounded");
        let unknown = self.awaited.iter().find(|dir| !self.dirs.contains_key(dir));
        assert!(unknown.is_none(), "a request waits for the lease of {unknown:?}, which has none");
    }
}
