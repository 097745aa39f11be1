//! Events of a metadata server that its log records: a line for each.
//!
//! The server decides which events are worth a line; the driver adds the time and writes.
//! Invariant: the number of notices does not grow with the number of requests.

use std::fmt;

use metastore::{StoreNotice, StoreWatch};
use types::{Epoch, Seq};

use crate::{Effects, Mds, Phase};

/// An event of a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The journal is replayed, up to this event; clients of the term before may reconnect.
    Replayed {
        /// The newest event of the journal.
        last: Seq,
        /// The new term.
        term: Epoch,
    },
    /// The server serves requests.
    Active {
        /// Its term.
        term: Epoch,
    },
    /// The server writes everything down, to stop.
    Stopping,
    /// The object store fails, or works again.
    Store(StoreNotice),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replayed { last, term } => write!(
                f,
                "the journal is replayed up to event {}; waiting for clients (term {})",
                last.0, term.0
            ),
            Self::Active { term } => write!(f, "active: serves requests (term {})", term.0),
            Self::Stopping => f.write_str("stopping: writes everything to the store"),
            Self::Store(notice) => notice.fmt(f),
        }
    }
}

/// The state that the newest notices reported.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    phase: Option<Phase>,
    pub(crate) store: StoreWatch,
}

impl Mds {
    pub(crate) fn notice_tick(&mut self, effects: &mut Effects) {
        let is_new =
            |before: Phase| std::mem::discriminant(&before) != std::mem::discriminant(&self.phase);
        if self.noticed.phase.is_none_or(is_new) {
            self.noticed.phase = Some(self.phase);
            let (last, term) = (self.log.last(), self.tables.epoch());
            effects.notices.extend(match self.phase {
                Phase::Recovering => None,
                Phase::Reconnecting { .. } => Some(Notice::Replayed { last, term }),
                Phase::Active => Some(Notice::Active { term }),
                Phase::Stopping | Phase::Stopped => Some(Notice::Stopping),
            });
        }
        effects.notices.extend(self.noticed.store.notice(self.clock.now).map(Notice::Store));
    }
}
