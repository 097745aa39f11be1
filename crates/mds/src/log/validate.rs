//! The invariants of the rank's journal.

use types::Seq;

use super::Log;

impl Log {
    /// Checks the invariants of the journal.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let (safe, written, last) = (self.safe, self.written, self.last());
        assert!(safe <= written, "events up to {safe} are safe, and up to {written} are written");
        assert!(written <= last, "events up to {written} are written, and {last} is the newest");
        let pending = self.pending_since.is_some();
        assert!(
            pending != self.buffer.is_empty(),
            "the age of the oldest unwritten event is known"
        );
        self.validate_segments();
        self.validate_flights();
        for waiter in &self.waiters {
            assert!(
                waiter.until > safe,
                "the reply to {} waits for {}",
                waiter.at.tid,
                waiter.until
            );
            assert!(waiter.until <= last, "the reply to {} waits for an event", waiter.at.tid);
        }
    }

    /// How many writes the store executes.
    pub(crate) fn writes(&self) -> usize {
        self.flights.iter().filter(|flight| !flight.done && flight.failed.is_none()).count()
    }

    fn validate_segments(&self) {
        assert!(!self.open || !self.segments.is_empty(), "the open segment is the last one");
        let mut before = Seq(0);
        for segment in &self.segments {
            let index = segment.index;
            assert!(segment.first >= before, "segment {index} is in the order of its events");
            assert!(index < self.next_index, "segment {index} has a number that was given");
            before = segment.first;
        }
    }

    /// The writes under way are parts of the journal that follow one another.
    fn validate_flights(&self) {
        let mut next = Seq(self.safe.0 + 1);
        for flight in &self.flights {
            let (first, last) = (flight.first, flight.last);
            assert!(first == next, "the write of {first} to {last} follows the one before");
            assert!(first <= last, "the write of {first} to {last} has an event");
            let known = self.segments.iter().any(|segment| segment.index == flight.segment);
            assert!(known, "the write of {first} to {last} goes to a known segment");
            assert!(
                !flight.done || flight.failed.is_none(),
                "the write of {first} has one outcome"
            );
            next = Seq(last.0 + 1);
        }
        let written = Seq(next.0 - 1);
        assert!(written == self.written, "writes up to {written} are done or under way");
        let done = self.flights.front().is_some_and(|flight| flight.done);
        assert!(!done, "the oldest write that is done makes its events safe");
        let failed = self.flights.iter().any(|flight| flight.failed.is_some());
        assert!(!failed || self.failed.is_some(), "a failed write rejects changes");
        let waits = self.failed.is_none() || !self.flights.is_empty();
        assert!(waits, "changes are rejected until the failed write is repeated");
    }
}
