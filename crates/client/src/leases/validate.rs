//! The invariants of the cache under leases.

use super::{Leases, THINGS_MAX};

impl Leases {
    /// Checks the invariants of the cache.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let names: usize = self.dirs.values().map(|dir| dir.names.len()).sum();
        let found = names + self.attrs.len();
        assert!(found == self.things, "{found} entries are cached, and {} counted", self.things);
        assert!(found <= THINGS_MAX, "the number of entries is bounded");
        let late = self.asked.values().find(|(_, sent)| *sent > self.now);
        assert!(late.is_none(), "{late:?} was sent before the present time");
    }
}
