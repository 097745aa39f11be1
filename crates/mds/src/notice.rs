//! Events of a metadata server that its log records: a line for each.
//!
//! The server decides which events are worth a line; the driver adds the time and writes.
//! Invariant: the number of notices does not grow with the number of requests.

use std::fmt;

use metastore::{StoreNotice, StoreWatch};
use types::{Epoch, Moment, Seq};

use crate::health::Health;
use crate::log::Log;
use crate::tables::Tables;
use crate::{MdsEffects, Phase};

/// An event of a metadata server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MdsNotice {
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
    /// The store is full: changes that add to it are rejected.
    Full {
        /// The free room without the reserve, in bytes.
        available: u64,
    },
    /// The store has room again.
    HasRoom,
}

impl fmt::Display for MdsNotice {
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
            Self::Full { available } => write!(
                f,
                "the store is full ({available} bytes left): only removals are accepted (ENOSPC)"
            ),
            Self::HasRoom => f.write_str("the store has room again: all changes are accepted"),
        }
    }
}

/// The state that the newest notices reported.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    phase: Option<Phase>,
    pub(crate) store: StoreWatch,
    is_full: bool,
}

/// The notices, with all that they report.
pub(crate) struct NoticeCx<'a> {
    pub(crate) noticed: &'a mut Noticed,
    pub(crate) health: &'a Health,
    pub(crate) log: &'a Log,
    pub(crate) tables: &'a Tables,
    pub(crate) phase: Phase,
    pub(crate) now: Moment,
}

impl NoticeCx<'_> {
    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        let is_new =
            |before: Phase| std::mem::discriminant(&before) != std::mem::discriminant(&self.phase);
        if self.noticed.phase.is_none_or(is_new) {
            self.noticed.phase = Some(self.phase);
            let (last, term) = (self.log.last(), self.tables.epoch());
            effects.notices.extend(match self.phase {
                Phase::Recovering | Phase::Stopped => None,
                Phase::Reconnecting { .. } => Some(MdsNotice::Replayed { last, term }),
                Phase::Active => Some(MdsNotice::Active { term }),
                Phase::Stopping => Some(MdsNotice::Stopping),
            });
        }
        effects.notices.extend(self.noticed.store.notice(self.now).map(MdsNotice::Store));
        if let Some(available) = self.health.full() {
            if !std::mem::replace(&mut self.noticed.is_full, true) {
                effects.notices.push(MdsNotice::Full { available });
            }
        } else if std::mem::take(&mut self.noticed.is_full) {
            effects.notices.push(MdsNotice::HasRoom);
        }
    }
}
