//! The invariants of the table of a page.

use super::{LINE, Slots, hash_of};

impl Slots {
    /// Checks the invariants of a table with so many taken slots.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, count: u32) {
        assert!(self.lines.len() > 1 << self.bits, "a line behind the home lines takes overflow");
        let (mut taken, mut last) = (0, None);
        for at in 0..self.lines.len() * LINE {
            let Some(slot) = self.get(at) else { continue };
            taken += 1;
            // The page orders names of equal hash.
            let in_order = last.is_none_or(|last| last <= hash_of(slot));
            assert!(in_order, "slots are in the order of hashes");
            last = Some(hash_of(slot));
            let home = self.home(hash_of(slot)) * LINE;
            assert!(home <= at, "a slot is in its home line, or behind");
            let line = at / LINE * LINE;
            let gap = (home..line).any(|before| self.get(before).is_none());
            assert!(!gap, "nothing is empty between a slot and its home line");
        }
        assert!(taken == count, "{taken} slots are taken, and {count} are counted");
        assert!(self.get(self.lines.len() * LINE - 1).is_none(), "the very last slot is empty");
    }
}
