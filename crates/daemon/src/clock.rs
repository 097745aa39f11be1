//! The clocks that are handed to the state machines.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use types::{Clock, Moment, Timestamp};

/// Reads both clocks.
#[derive(Debug)]
pub(crate) struct Clocks {
    start: Instant,
}

impl Clocks {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// The time since the start only.
    pub(crate) fn now(&self) -> Moment {
        Moment(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn read(&self) -> Clock {
        let now = self.now();
        let civil = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = i64::try_from(civil.as_nanos()).unwrap_or(i64::MAX);
        Clock { now, time: Timestamp(time) }
    }
}
