//! Events of a metadata server that its log records: a line for each.
//!
//! The server decides which events are worth a line; the driver adds the time and writes.
//! The number of notices does not grow with the number of requests that read or change a name; the
//! driver limits the lines of one kind.

use std::fmt;

use metastore::{StoreNotice, StoreWatch};
use types::{ClientId, Epoch, Ino, LogEvent, LogLevel, Moment, Rank, Seq, Span};

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
    /// The server got the order to stop.
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
    /// A subtree went to another rank.
    Gave {
        /// Its root.
        root: Ino,
        /// The rank.
        to: Rank,
        /// How long requests there waited.
        froze: Span,
    },
    /// A subtree stays, which was to go to another rank.
    Kept {
        /// Its root.
        root: Ino,
        /// The rank.
        to: Rank,
        /// Why.
        why: String,
    },
    /// A subtree came from another rank.
    Took {
        /// Its root.
        root: Ino,
        /// Its path.
        path: String,
    },
    /// A decoupled subtree was merged.
    Merged {
        /// Its root.
        subtree: Ino,
        /// Its owner.
        client: ClientId,
        /// Changes that were applied.
        events: u64,
    },
    /// A client did not return a directory in time, and loses what it did not send.
    Expired {
        /// The client.
        client: ClientId,
        /// The directory.
        dir: Ino,
    },
    /// A client did not give a file back that another client wants to open.
    Silent {
        /// The client, whose connection is closed.
        client: ClientId,
    },
    /// Another client took the work of a client over, which is not heard any more.
    Fenced {
        /// The client.
        client: ClientId,
        /// Its subtree.
        subtree: Ino,
    },
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
            Self::Gave { root, to, froze } => {
                write!(
                    f,
                    "the subtree of {root} went to {to}; requests waited {} ms",
                    millis(*froze)
                )
            }
            Self::Kept { root, to, why } => {
                write!(f, "the subtree of {root} does not go to {to}: {why}")
            }
            Self::Took { root, path } => write!(f, "the subtree {path} ({root}) came here"),
            Self::Merged { subtree, client, events } => {
                write!(f, "the subtree of {subtree} is merged: {events} changes of {client}")
            }
            Self::Expired { client, dir } => write!(
                f,
                "{client} did not return {dir} in time: other clients are served without its \
                 unsent changes there"
            ),
            Self::Silent { client } => write!(
                f,
                "{client} did not give a file back that another client opens: its connection is \
                 closed"
            ),
            Self::Fenced { client, subtree } => {
                write!(f, "another client took the subtree of {subtree} over from {client}")
            }
        }
    }
}

fn millis(span: Span) -> u64 {
    span.0 / 1_000_000
}

impl From<&MdsNotice> for LogEvent {
    fn from(notice: &MdsNotice) -> Self {
        use LogLevel::{Error, Info, Warning};
        let new = |level, name| Self::new(level, name, notice);
        match notice {
            MdsNotice::Replayed { last, term } => {
                new(Info, "server.replayed").with("last", last.0).with("term", term.0)
            }
            MdsNotice::Active { term } => new(Info, "server.active").with("term", term.0),
            MdsNotice::Stopping => new(Info, "server.stopping"),
            MdsNotice::Store(notice) => notice.into(),
            MdsNotice::Full { available } => new(Error, "store.full").with("available", *available),
            MdsNotice::HasRoom => new(Info, "store.room"),
            MdsNotice::Gave { root, to, froze } => new(Info, "transfer.gave")
                .with("dir", root.0)
                .with("rank", u64::from(to.0))
                .with("ms", millis(*froze)),
            MdsNotice::Kept { root, to, why } => new(Info, "transfer.kept")
                .with("dir", root.0)
                .with("rank", u64::from(to.0))
                .with("why", why.as_str()),
            MdsNotice::Took { root, path } => {
                new(Info, "transfer.took").with("dir", root.0).with("path", path.as_str())
            }
            MdsNotice::Merged { subtree, client, events } => new(Info, "merge.done")
                .with("dir", subtree.0)
                .with("client", client.0)
                .with("events", *events),
            MdsNotice::Expired { client, dir } => {
                new(Warning, "client.expired").with("client", client.0).with("dir", dir.0)
            }
            MdsNotice::Silent { client } => new(Warning, "client.silent").with("client", client.0),
            MdsNotice::Fenced { client, subtree } => {
                new(Warning, "client.fenced").with("client", client.0).with("dir", subtree.0)
            }
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
                // The order to stop was reported.
                Phase::Recovering | Phase::Stopping | Phase::Stopped => None,
                Phase::Reconnecting { .. } => Some(MdsNotice::Replayed { last, term }),
                Phase::Active => Some(MdsNotice::Active { term }),
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
