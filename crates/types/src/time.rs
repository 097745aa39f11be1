//! Two kinds of time: civil time stamps that are stored, and moments that are compared.

/// Civil time in nanoseconds since 1970-01-01 00:00 UTC; years 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// From seconds and nanoseconds; saturates outside the representable years.
    #[must_use]
    pub fn from_parts(seconds: i64, nanoseconds: i64) -> Self {
        Timestamp(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    /// Whole seconds, rounded towards the past.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Nanoseconds within the second, 0 to 999,999,999.
    #[must_use]
    pub fn nanoseconds(self) -> i64 {
        self.0.rem_euclid(1_000_000_000)
    }
}

/// A point on a driver's monotonic clock, in nanoseconds from an arbitrary start. Handed into the
/// core with every input; the core never asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    /// So many microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Span(micros * 1_000)
    }

    /// So many milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Span(millis * 1_000_000)
    }
}

/// The driver's clocks at the arrival of an input: one reading for all effects of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clock {
    /// For measuring: how long ago, and until when.
    pub now: Moment,
    /// For storing: civil time.
    pub time: Timestamp,
}

impl std::ops::Add<Span> for Moment {
    type Output = Moment;
    fn add(self, span: Span) -> Moment {
        Moment(self.0.saturating_add(span.0))
    }
}

impl Moment {
    /// Time passed since `earlier`; zero if it is later.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}
