//! The invariants of the fetches.

use namespace::Namespace;
use types::{Ino, Set};

use super::{Fetches, TABLE_PUT};

impl Fetches {
    /// Checks the invariants of the fetches, between two inputs, and that each awaited directory
    /// will be fetched. The store reads the directories of `reading`.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, reading: &[Ino], namespace: &Namespace) {
        assert!(self.batch.is_none(), "no needs are being collected");
        assert!(self.woken.is_empty(), "every waiter whose wait is over has gone on");
        for (dir, waiters) in self.waiting.iter().chain(&self.returning) {
            assert!(!waiters.is_empty(), "{dir}: a request waits for the directory");
        }
        for dir in self.needed.keys() {
            assert!(self.waiting.contains_key(dir), "{dir}: what is needed is waited for");
        }
        let arrived = self.arrived.iter().map(|arrived| arrived.dir);
        let mut fetching = Set::default();
        for dir in reading.iter().copied().chain(arrived) {
            assert!(fetching.insert(dir), "{dir}: one part of a directory is fetched at a time");
            assert!(self.under_way.contains(&dir), "{dir}: the fetch is known to be under way");
        }
        assert!(fetching.len() == self.under_way.len(), "the store reads what is under way");
        for dir in self.waiting.keys().filter(|dir| **dir != TABLE_PUT) {
            let held = self.held.iter().any(|(held, ..)| held == dir);
            let failed = self.failed.iter().any(|(failed, _)| failed == dir);
            let comes = self.under_way.contains(dir) || namespace.dirs().is_flushing(*dir);
            assert!(comes || held || failed, "{dir}: the awaited directory will be fetched");
        }
    }
}
