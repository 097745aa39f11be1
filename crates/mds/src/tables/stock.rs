//! Numbers that wait to be used.

use types::{Ino, InoRange};

/// Numbers that the store knows as reserved, and a reservation that it does not know yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stock {
    /// Numbers that may be used.
    pub(super) ready: InoRange,
    /// The next reservation, which is not durable yet.
    pub(super) coming: Option<InoRange>,
    /// Whether the put under way stores it.
    in_flight: bool,
    /// The length of the last reservation.
    length: u64,
}

impl Stock {
    pub(super) fn new(ready: InoRange) -> Self {
        Self { ready, length: ready.len(), ..Self::default() }
    }

    /// Whether a number was not used yet.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.ready.contains(ino) || self.coming.is_some_and(|range| range.contains(ino))
    }

    /// The length of the reservation that it is time for: at least `first`, and twice the last one
    /// up to `most`.
    #[inline]
    pub(super) fn wanted(&self, first: u64, most: u64) -> Option<u64> {
        let is_low = self.ready.len() < self.length.max(1).div_ceil(2) && self.coming.is_none();
        is_low.then(|| (self.length * 2).clamp(first, most))
    }

    /// A range is reserved.
    pub(super) fn reserve(&mut self, range: InoRange) {
        (self.coming, self.length) = (Some(range), range.len());
    }

    /// A put of the table begins.
    pub(super) fn put_begins(&mut self) {
        self.in_flight = self.coming.is_some();
    }

    /// The put is done: the reservation may be used. If other numbers were given out in between,
    /// the rest of the former reservation is skipped: at most half a million of a rank's 2^40
    /// numbers.
    pub(super) fn stored(&mut self) {
        if !std::mem::take(&mut self.in_flight) {
            return;
        }
        let Some(range) = self.coming.take() else { return };
        assert!(self.ready.end <= range.start, "{range:?} is behind the numbers in use");
        if self.ready.end == range.start {
            self.ready.end = range.end;
        } else {
            self.ready = range;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> InoRange {
        InoRange { start, end }
    }

    #[test]
    fn a_reservation_is_used_only_when_it_is_stored() {
        let mut stock = Stock::default();
        assert_eq!(stock.wanted(10, 100), Some(10));
        stock.reserve(range(50, 60));
        assert_eq!((stock.wanted(10, 100), stock.ready.take()), (None, None));
        // A put that began before.
        stock.stored();
        assert_eq!(stock.ready.take(), None);
        stock.put_begins();
        stock.stored();
        assert_eq!(stock.ready.take(), Some(Ino(50)));
        assert!(stock.has(Ino(51)) && !stock.has(Ino(50)));
    }

    #[test]
    fn reservations_grow_to_the_most() {
        let mut stock = Stock::new(range(0, 40));
        assert_eq!(stock.wanted(10, 100), None);
        stock.ready.start = 21;
        assert_eq!(stock.wanted(10, 100), Some(80));
        assert_eq!(stock.wanted(10, 60), Some(60));
    }
}
