//! The invariants of what kernels may use.

use super::{CONTESTED_MAX, LAPSE, Lent};

impl Lent {
    /// Checks the invariants of what kernels may use.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        for (dir, due) in &self.returning {
            assert!(!self.newest.contains_key(dir), "{dir} is returned, and not lent");
            assert!(*due <= self.last + LAPSE, "{dir} is returned when the last answer lapses");
        }
        for (dir, newest) in &self.newest {
            assert!(*newest <= self.last, "{dir}: the last answer is not older than any");
        }
        assert!(self.contested.len() <= CONTESTED_MAX, "contested directories are bounded");
    }
}
