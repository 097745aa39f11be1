//! Observes the stages of the library's work: for progress bars, for traces, and for tests that
//! stop a client at an exact place.
//!
//! An observer cannot change or refuse a stage, and without an observer a stage costs one load.
//! Invariant: a stage is reported after it was reached, on its own thread, which continues when the
//! observer returns.

use std::fmt;
use std::sync::{Arc, OnceLock};

use policy::Mechanism;

/// Receives every stage. Members of a parallel composition report from threads of their own.
pub type Observer = Arc<dyn Fn(Progress) + Send + Sync>;

/// Something was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The mechanism at work.
    pub mechanism: Mechanism,
    /// How far it is.
    pub stage: Stage,
}

/// How far a mechanism is. None passes through all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is about to begin.
    Begun,
    /// The local file exists, without the journal.
    Opened,
    /// All bytes are written; a power cut may still take them.
    Written,
    /// The bytes are durable.
    Synced,
    /// A part of the journal is sent, and the rest is not.
    Sending,
    /// All of the journal is sent. Whether the server has applied it is not known.
    Sent,
    /// The server said that it is applied.
    Applied,
    /// It is complete.
    Ended,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 8] = [
        Self::Begun,
        Self::Opened,
        Self::Written,
        Self::Synced,
        Self::Sending,
        Self::Sent,
        Self::Applied,
        Self::Ended,
    ];

    /// One word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Opened => "opened",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Sending => "sending",
            Self::Sent => "sent",
            Self::Applied => "applied",
            Self::Ended => "ended",
        }
    }
}

/// `local_persist:written` and so on.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.mechanism.name(), self.stage.name())
    }
}

/// Where stages are reported to.
#[derive(Clone, Default)]
pub(crate) struct Observed(Arc<OnceLock<Observer>>);

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observed").field(&self.0.get().is_some()).finish()
    }
}

impl Observed {
    /// The first one stays.
    pub(crate) fn by(&self, observer: Observer) {
        let _ = self.0.set(observer);
    }

    #[inline]
    pub(crate) fn note(&self, mechanism: Mechanism, stage: Stage) {
        if let Some(observer) = self.0.get() {
            observer(Progress { mechanism, stage });
        }
    }
}
