//! The invariants of quotas.

use types::Ino;

use super::Quotas;

impl Quotas {
    /// Checks the invariants that need no walk.
    ///
    /// # Panics
    /// If it does not hold.
    pub(crate) fn validate(&self, is_file: impl Fn(Ino) -> bool) {
        for (ino, root) in &self.roots {
            assert!(!is_file(*ino), "{ino}: a directory has limits");
            assert!(self.is_enforced, "{ino}: a view of a namespace has no quotas");
            let is_begun = root.count.as_ref().is_none_or(|count| !count.queue.is_empty());
            assert!(is_begun, "{ino}: a count without a directory to visit is complete");
        }
    }
}
