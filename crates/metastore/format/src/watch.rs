//! Watching whether the object store executes operations, for the log of a daemon.
//!
//! Invariant: a store that fails on and on makes one notice in [`REPEAT`], however many operations
//! fail.

use std::fmt;

use types::{Error, LogEvent, LogLevel, Moment, Span};

use crate::request::{StoreFailure, StoreResult};

/// How long the store must have carried everything out before it counts as recovered.
const RECOVERED: Span = Span::from_millis(5_000);
/// How often a store that keeps failing is mentioned again.
const REPEAT: Span = Span::from_millis(60_000);

/// A change in the state of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreNotice {
    /// Operations fail.
    Failing {
        /// Why the newest one failed.
        error: Error,
        /// How many failed since the last notice.
        failures: u64,
    },
    /// Operations succeed again.
    Recovered,
}

impl From<&StoreNotice> for LogEvent {
    fn from(notice: &StoreNotice) -> Self {
        match notice {
            StoreNotice::Failing { error, failures } => {
                Self::new(LogLevel::Error, "store.failing", notice)
                    .with("errno", error.errno.symbol())
                    .with("failures", *failures)
            }
            StoreNotice::Recovered => Self::new(LogLevel::Info, "store.recovered", notice),
        }
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct StoreWatch {
    /// The newest failure, until the store recovers.
    failed: Option<(Moment, Error)>,
    /// Failures that no notice has counted.
    failures: u64,
    /// When a notice said last that the store fails; `None` once it has recovered.
    noticed: Option<Moment>,
    /// Whether an operation succeeded after the newest failure.
    works: bool,
}

impl StoreWatch {
    /// Takes the result of an operation in.
    pub fn note(&mut self, now: Moment, result: &Result<StoreResult, Box<StoreFailure>>) {
        match result {
            Ok(_) => self.works = true,
            Err(failure) => {
                self.failed = Some((now, failure.error.clone()));
                self.failures += 1;
                self.works = false;
            }
        }
    }

    /// The notice that is due now, if there is one.
    pub fn notice(&mut self, now: Moment) -> Option<StoreNotice> {
        let (at, error) = self.failed.as_ref()?;
        let due = self.noticed.is_none_or(|noticed| now.since(noticed) >= REPEAT);
        if due && self.failures > 0 {
            self.noticed = Some(now);
            let failures = std::mem::take(&mut self.failures);
            return Some(StoreNotice::Failing { error: error.clone(), failures });
        }
        if self.works && now.since(*at) >= RECOVERED {
            *self = Self::default();
            return Some(StoreNotice::Recovered);
        }
        None
    }
}

impl fmt::Display for StoreNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing { error, failures: 1 } => write!(f, "the store fails: {error}"),
            Self::Failing { error, failures } => {
                write!(f, "the store fails ({failures} operations): {error}")
            }
            Self::Recovered => f.write_str("the store works again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Errno, Error, Moment};

    use super::*;
    use crate::request::StoreOp;

    fn failure() -> Result<StoreResult, Box<StoreFailure>> {
        let error = Error::new(Errno::NoSpace, "journal", "no space left");
        Err(Box::new(StoreFailure { error, op: StoreOp::Get { object: "journal".into() } }))
    }

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    #[test]
    fn a_store_that_fails_on_is_mentioned_once_a_minute_and_when_it_works_again() {
        let mut watch = StoreWatch::default();
        watch.note(at(1), &Ok(StoreResult::Done));
        assert_eq!(watch.notice(at(1)), None);
        let mut said = Vec::new();
        for second in 2..=70 {
            // Small writes may fit where large ones do not.
            watch.note(at(second), &failure());
            watch.note(at(second), &Ok(StoreResult::Done));
            said.extend(watch.notice(at(second)).map(|notice| (second, notice.to_string())));
        }
        let cause = "journal: no space left (ENOSPC)";
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], (2, format!("the store fails: {cause}")));
        assert_eq!(said[1], (62, format!("the store fails (60 operations): {cause}")));
        assert_eq!(watch.notice(at(74)), None, "too early");
        assert_eq!(watch.notice(at(75)), Some(StoreNotice::Recovered));
        assert_eq!(watch.notice(at(76)), None);
    }

    #[test]
    fn an_unused_store_has_not_recovered() {
        let mut watch = StoreWatch::default();
        watch.note(at(1), &failure());
        assert!(watch.notice(at(1)).is_some());
        assert_eq!(watch.notice(at(50)), None);
    }
}
