//! The invariants of the purge queue.

use std::collections::BTreeMap;

use super::merged::MergedAway;
use super::{DELETING_MAX, Purges};

impl Purges {
    /// Checks the invariants of the queue.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        assert!(self.deleting <= DELETING_MAX, "the number of running purges is bounded");
        let mut left: BTreeMap<u64, usize> = BTreeMap::new();
        for (ino, entry) in &self.all {
            assert!(entry.freed.ino == *ino, "{ino}: the removed inode has its number");
            for number in &entry.lists {
                assert!(entry.certain, "{ino}: an inode on a list is durably removed");
                *left.entry(*number).or_default() += 1;
            }
        }
        for (number, list) in &self.lists {
            let found = left.remove(number).unwrap_or_default();
            let name = &list.name;
            assert!(found == list.left, "{name}: {found} inodes are left, not {}", list.left);
            assert!(*number < self.next_list, "{name}: a list has a number that was given");
            let writing = self.writing == Some(*number);
            assert!(writing != list.stored, "{name}: a list is stored, or is being written");
        }
        assert!(left.is_empty(), "inodes are on unknown lists {left:?}");
        let known = self.writing.is_none_or(|number| self.lists.contains_key(&number));
        assert!(known, "the list that is being written is known");
        self.merged.validate();
    }

    /// Whether a list is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// How many inodes are being purged.
    pub(crate) fn deleting(&self) -> usize {
        self.deleting
    }
}

impl MergedAway {
    fn validate(&self) {
        for (ino, held) in &self.held {
            assert!(held.freed.ino == *ino, "{ino}: the removed inode has its number");
        }
        let order = self.unlisted.iter().zip(self.unlisted.iter().skip(1));
        for ((_, before), (_, after)) in order {
            assert!(before <= after, "records of ended merges are in the order of their ends");
        }
    }
}
