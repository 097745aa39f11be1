//! The invariants of the lock table.

use types::LockMode;

use super::{File, Locks, owner};

impl<T> Locks<T> {
    /// Checks the invariants of the table.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        for (ino, file) in &self.files {
            let is_used = file.holders().next().is_some() || !file.waiting.is_empty();
            assert!(is_used, "{ino}: a file in the lock table has a lock or a waiting request");
            file.validate();
            for (at, wish) in file.waiting.iter().enumerate() {
                if self.deferred.contains(ino) {
                    break;
                }
                let free = file.is_free(wish.client, &wish.lock);
                let behind = file.is_behind(at, wish.client, &wish.lock);
                assert!(!free || behind, "{ino}: waiting request {at} can be granted");
            }
        }
    }
}

impl<T> File<T> {
    fn validate(&self) {
        for (key, ranges) in self.held.iter().chain(&self.old) {
            assert!(!ranges.is_empty(), "{key:?} is in the table with a lock");
            let mut last = None;
            for lock in ranges.iter() {
                assert!(owner(key.1, lock) == *key, "{lock:?} belongs to its owner {key:?}");
                assert!(lock.mode != LockMode::Unlock, "{lock:?} is a lock, not a release");
                assert!(lock.start <= lock.end, "{lock:?} covers a byte");
                assert!(last.is_none_or(|end| end < lock.start), "{lock:?} is apart and in order");
                last = Some(lock.end);
                let other = self.in_the_way(key.1, lock).next();
                assert!(other.is_none(), "{lock:?} of {key:?} and {other:?} exclude each other");
            }
        }
    }
}
