//! The invariants of a page of dentries.

use types::name_hash;

use super::{PAGE_DENTRIES_MAX, Page};
use crate::slots::hash_of;

impl Page {
    /// Checks the invariants of the page.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, splits: bool) {
        self.slots.validate(self.occupied);
        let bounded = !splits || self.occupied as usize <= PAGE_DENTRIES_MAX;
        assert!(bounded, "a full page of {} dentries splits", self.occupied);
        let (mut dirty, mut tombstones, mut live) = (0, 0, 0);
        let shared = |hash: u32| u64::from(hash) >> (32 - u32::from(self.depth()));
        let mut last: Option<(u32, &[u8])> = None;
        for slot in self.slots.iter_from(0) {
            let dentry = self.dentry(slot);
            let key = (hash_of(slot), self.name_of(dentry));
            assert!(last.is_none_or(|last| last < key), "names of equal hash are in order");
            last = Some(key);
            live += self.record(slot).len();
            dirty += u32::from(dentry.is_dirty());
            tombstones += u32::from(dentry.is_tombstone());
            let hash = hash_of(slot);
            assert!(name_hash(self.name_of(dentry)) == hash, "a slot has the hash of its name");
            assert!(shared(hash) == shared(self.prefix), "all hashes of a page share a prefix");
            let nothing = dentry.ino.0 == 0;
            assert!(nothing || !dentry.is_tombstone(), "a tombstone names no inode");
        }
        let found = (dirty, tombstones);
        let counted = (self.dirty, self.tombstones);
        assert!(found == counted, "dirty names and tombstones are {found:?}, not {counted:?}");
        let all = self.records.len();
        assert!(live + self.dead == all, "{live} of {all} bytes are in use, and {} not", self.dead);
    }

    /// How many clean tombstones the page has: names that the store does not have.
    pub(crate) fn absent(&self) -> u64 {
        let dentries = self.slots.iter_from(0).map(|slot| self.dentry(slot));
        dentries.filter(|dentry| dentry.is_absent()).count() as u64
    }
}
