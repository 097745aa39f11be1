//! The invariants of the rank's table.

use types::{Ino, InoRange};

use super::departures::{GONE_MAX, GoneList, LINKED_MAX};
use super::{Free, Tables};

impl Tables {
    /// Checks the invariants of the table.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, is_private: bool) {
        // The server of a branch has the numbers of the branch, not those of a rank.
        if !is_private {
            self.validate_numbers();
        }
        let unknown = self.expected_stored.difference(&self.expected).next();
        assert!(unknown.is_none(), "the store's list of expected clients has {unknown:?}");
        assert!(self.held.is_empty() || self.dirty, "an answer waits for a table to be stored");
        let released = self.held_in_flight.is_empty() || self.in_flight;
        assert!(released, "an answer waits for the put of the table that is under way");
        assert!(!self.looking || self.in_flight, "a table that is looked at is in no other put");
        assert!(self.stopped <= self.epoch, "the term that stopped is not a later one");
        assert!(self.crashed <= self.epoch, "the term that crashed is not a later one");
        for (root, known) in &self.decoupled {
            assert!(known.epoch <= self.epoch || known.taken_over, "{root}: of a later term");
        }
        self.gone.validate();
        self.lapsed.validate();
        self.holders.validate(self.epoch);
    }

    /// Whether a put of the table is under way.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// No number is granted that a client used, or may use.
    fn validate_numbers(&self) {
        let space = Ino::space_of(self.rank);
        assert!(space.start <= self.next, "the next number is of this rank");
        assert!(self.next <= space.end, "the next number is of this rank");
        let never = InoRange { start: self.next, end: space.end };
        let mut used = vec![("never granted", never)];
        for stock in self.holders.stocks().chain([&self.own]) {
            used.push(("reserved", stock.ready));
            used.extend(stock.coming.map(|range| ("being reserved", range)));
        }
        let is_own = |range: &InoRange| space.start <= range.start && range.end <= space.end;
        let departed = self.departed.ranges().filter(is_own);
        used.extend(departed.map(|range| ("departed", range)));
        used.extend(self.free.ranges().map(|range| ("free", range)));
        for known in self.decoupled.values().filter(|known| !known.taken_over) {
            let granted = known.ranges.iter().filter(|range| is_own(range));
            used.extend(granted.map(|range| ("a client's", *range)));
        }
        used.retain(|(_, range)| !range.is_empty());
        used.sort_unstable_by_key(|(_, range)| (range.start, range.end));
        for (before, after) in used.iter().zip(used.iter().skip(1)) {
            let apart = before.1.end <= after.1.start;
            assert!(apart, "numbers {before:?} are also {after:?}");
        }
        self.free.validate();
    }
}

impl Free {
    /// Checks that the ranges are not empty, and that no two of them touch.
    fn validate(&self) {
        let mut last = None;
        for range in self.ranges() {
            assert!(!range.is_empty(), "{range:?} has a number");
            assert!(last.is_none_or(|end| end < range.start), "{range:?} does not touch another");
            last = Some(range.end);
        }
    }
}

impl GoneList {
    fn validate(&self) {
        for gone in &self.all {
            let root = gone.root;
            assert!(gone.dirs.len() <= GONE_MAX, "{root}: noted directories are bounded");
            assert!(gone.linked.len() <= LINKED_MAX, "{root}: noted inodes are bounded");
        }
    }
}
