//! The invariants of the client's open files and locks.

use types::LockMode;

use super::Held;

impl Held {
    /// Checks the invariants of open files and locks.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        for (ino, open) in &self.opens {
            assert!(open.reading > 0 || open.writing > 0, "{ino}: an open file is open");
        }
        for ((ino, kind, owner), ranges) in &self.locks {
            assert!(!ranges.is_empty(), "{ino}: the owner {owner} has a lock");
            for lock in ranges.iter() {
                let own = lock.kind == *kind && lock.owner == *owner;
                assert!(own, "{ino}: {lock:?} is a lock of the owner {owner}");
                assert!(lock.mode != LockMode::Unlock, "{ino}: {lock:?} is a lock, not a release");
            }
        }
    }
}
