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

    pub(crate) fn read(&self) -> Clock {
        let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let civil = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = i64::try_from(civil.as_nanos()).unwrap_or(i64::MAX);
        Clock { now: Moment(now), time: Timestamp(time) }
    }
}
