//! Inode numbers that came back unused.

use std::collections::BTreeMap;

use types::{Ino, InoRange};

/// Most free ranges that are kept: the table is stored as a whole. The smallest are given up.
const RANGES_MAX: usize = 1024;

/// Ranges that do not touch one another: starts, and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Free(BTreeMap<u64, u64>);

impl Free {
    /// All of them, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = InoRange> {
        self.0.iter().map(|(start, end)| InoRange { start: *start, end: *end })
    }

    /// Whether a number is in one of them.
    pub(super) fn contains(&self, ino: Ino) -> bool {
        let before = self.0.range(..=ino.0).next_back();
        before.is_some_and(|(_, end)| ino.0 < *end)
    }

    /// Adds a range, none of which is among them.
    pub(super) fn put(&mut self, range: InoRange) {
        if range.is_empty() {
            return;
        }
        let InoRange { mut start, mut end } = range;
        let overlaps = self.ranges().any(|known| known.start < end && start < known.end);
        debug_assert!(!overlaps, "numbers {range:?} are free already");
        if let Some((before, until)) = self.0.range(..start).next_back()
            && *until == start
        {
            start = *before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.0.insert(start, end);
        if self.0.len() > RANGES_MAX
            && let Some(smallest) = self.ranges().min_by_key(|range| range.len())
        {
            self.0.remove(&smallest.start);
        }
    }

    /// So many in a row, out of the smallest range that has them.
    pub(super) fn take(&mut self, count: u64) -> Option<InoRange> {
        let large = self.ranges().filter(|range| range.len() >= count.max(1));
        let InoRange { start, end } = large.min_by_key(|range| range.len())?;
        self.0.remove(&start);
        let taken = InoRange { start, end: start + count };
        assert!(taken.end <= end, "a free range has {count} numbers");
        if taken.end < end {
            self.0.insert(taken.end, end);
        }
        Some(taken)
    }

    /// Takes the range that ends here, and returns its start.
    pub(super) fn take_before(&mut self, end: u64) -> Option<u64> {
        let (start, _) = self.0.iter().next_back().filter(|(_, until)| **until == end)?;
        let start = *start;
        self.0.remove(&start);
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> InoRange {
        InoRange { start, end }
    }

    fn free(ranges: &[(u64, u64)]) -> Free {
        let mut free = Free::default();
        ranges.iter().for_each(|(start, end)| free.put(range(*start, *end)));
        free
    }

    #[test]
    fn adjacent_ranges_are_joined() {
        let all = free(&[(10, 20), (30, 40), (20, 30), (50, 50), (60, 70)]);
        assert_eq!(all.ranges().collect::<Vec<_>>(), [range(10, 40), range(60, 70)]);
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_taken() {
        let mut all = free(&[(10, 40), (50, 60), (70, 75)]);
        assert_eq!(all.take(8), Some(range(50, 58)));
        assert_eq!(all.take(8), Some(range(10, 18)));
        assert_eq!(all.take(30), None);
        assert_eq!(all.ranges().map(InoRange::len).sum::<u64>(), 2 + 5 + 22);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let many = (0..2_000).map(|number| (number * 100, number * 100 + 1 + number % 7));
        let all = free(&many.collect::<Vec<_>>());
        assert_eq!(all.ranges().count(), RANGES_MAX);
        assert!(all.ranges().all(|range| range.len() > 3));
    }

    #[test]
    fn the_end_is_taken_only_if_it_is_there() {
        let mut all = free(&[(10, 20), (30, 40)]);
        assert_eq!(all.take_before(20), None);
        assert_eq!(all.take_before(40), Some(30));
        assert_eq!(all.take_before(20), Some(10));
        assert_eq!(all, Free::default());
    }
}
