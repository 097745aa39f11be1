//! The invariants of what kernels may use.

use types::Set;

use super::{LAPSE, Lent};

impl Lent {
    /// Checks the invariants of what kernels may use.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let mut once = Set::default();
        for (dir, due) in &self.returning {
            assert!(once.insert(*dir), "{dir} is returned once");
            assert!(!self.newest.contains_key(dir), "{dir} is returned, and not lent");
            assert!(*due <= self.last + LAPSE, "{dir} is returned when the last answer lapses");
        }
        for (dir, newest) in &self.newest {
            assert!(*newest <= self.last, "{dir}: the last answer is not older than any");
        }
    }
}
