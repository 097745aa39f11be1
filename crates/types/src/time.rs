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

    /// Date and time of day in UTC.
    #[must_use]
    pub fn civil(self) -> Civil {
        let (days, second) = (self.seconds().div_euclid(86_400), self.seconds().rem_euclid(86_400));
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Civil { year, month, day, hour, minute, second }
    }

    /// Date and time in UTC, to milliseconds: `2026-11-24T07:48:58.123Z`.
    #[must_use]
    pub fn utc(self) -> String {
        let Civil { year, month, day, hour, minute, second } = self.civil();
        let millisecond = self.nanoseconds() / 1_000_000;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }
}

/// A date of the Gregorian calendar and a time of day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// 1677 to 2262.
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 to 59: this calendar has no leap seconds.
    pub second: i64,
}

/// Year, month and day of the Gregorian calendar, `days` after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so the leap day is the last of its year. 719,468 days lie between
    // 0000-03-01 and 1970-01-01, and 146,097 days are four centuries.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day_of_month)
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
