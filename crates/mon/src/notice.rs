//! Events of a cluster that the monitor's log records: a line for each.
//!
//! The monitor decides which events are worth a line; the driver adds the time and writes.
//! Notices about servers come from comparing the map with the map of the notices before, so no way
//! of changing the map can leave one out.

use std::fmt;

use metastore::{StoreNotice, StoreWatch};
use types::{LogEvent, LogLevel, Moment, Rank};
use wire::{ClusterMap, MdsEntry, MdsState};

use crate::{Mon, MonEffects, Phase};

/// An event of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonNotice {
    /// The map is read, and requests are served.
    Serving {
        /// Ranks in the map.
        ranks: usize,
    },
    /// The map cannot be read: requests are refused.
    Refusing {
        /// Why.
        why: String,
    },
    /// The state of a metadata server changed.
    Server(Box<MdsEntry>),
    /// No beacon of a metadata server came for too long, or it does not stop.
    Silent(Rank),
    /// A rank is no longer part of the cluster.
    Removed(Rank),
    /// The cluster is to stop.
    Stopping,
    /// The object store fails, or works again.
    Store(StoreNotice),
}

impl fmt::Display for MonNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serving { ranks } => {
                write!(f, "serving: the cluster map is read and has {ranks} ranks")
            }
            Self::Refusing { why } => write!(f, "refusing requests: {why}"),
            Self::Server(entry) => {
                let MdsEntry { rank, epoch, address, state, pid, .. } = &**entry;
                match state {
                    MdsState::Lost => write!(f, "{rank} has lost its server (process {pid})"),
                    MdsState::Replaying | MdsState::Active | MdsState::Stopping => {
                        let (state, term) = (state.word(), epoch.0);
                        write!(f, "{rank} is {state} at {address} (process {pid}, term {term})")
                    }
                }
            }
            Self::Silent(rank) => write!(f, "the server of {rank} does not answer: given up"),
            Self::Removed(rank) => write!(f, "{rank} is removed from the cluster"),
            Self::Stopping => f.write_str("stopping the cluster"),
            Self::Store(notice) => notice.fmt(f),
        }
    }
}

impl From<&MonNotice> for LogEvent {
    fn from(notice: &MonNotice) -> Self {
        use LogLevel::{Error, Info, Warning};
        let new = |level, name| Self::new(level, name, notice);
        match notice {
            MonNotice::Serving { ranks } => new(Info, "server.active").with("ranks", *ranks as u64),
            MonNotice::Refusing { why } => new(Error, "server.refusing").with("why", why.as_str()),
            MonNotice::Server(entry) => {
                let level = if entry.state == MdsState::Lost { Warning } else { Info };
                new(level, "rank.state")
                    .with("rank", u64::from(entry.rank.0))
                    .with("state", entry.state.word())
                    .with("term", entry.epoch.0)
                    .with("process", u64::from(entry.pid))
            }
            MonNotice::Silent(rank) => new(Warning, "rank.silent").with("rank", u64::from(rank.0)),
            MonNotice::Removed(rank) => new(Info, "rank.removed").with("rank", u64::from(rank.0)),
            MonNotice::Stopping => new(Info, "server.stopping"),
            MonNotice::Store(notice) => notice.into(),
        }
    }
}

/// The state that the newest notices reported.
#[derive(Debug, Default)]
pub(crate) struct Noticed {
    phase: Option<Phase>,
    servers: Vec<MdsEntry>,
    pub(crate) store: StoreWatch,
}

impl Mon {
    pub(crate) fn notice(&mut self, now: Moment, effects: &mut MonEffects) {
        let map = self.ledger.map();
        if self.noticed.phase.as_ref() != Some(&self.phase) {
            self.noticed.phase = Some(self.phase.clone());
            effects.notices.extend(match &self.phase {
                Phase::Serving => Some(MonNotice::Serving { ranks: map.mds.len() }),
                Phase::Refusing(why) => Some(MonNotice::Refusing { why: why.text.clone() }),
                Phase::Loading | Phase::Stopped => None,
            });
        }
        if matches!(self.phase, Phase::Serving) && self.noticed.servers != map.mds {
            note_servers(&self.noticed.servers, map, effects);
            self.noticed.servers.clone_from(&map.mds);
        }
        effects.notices.extend(self.noticed.store.notice(now).map(MonNotice::Store));
    }
}

fn note_servers(before: &[MdsEntry], map: &ClusterMap, effects: &mut MonEffects) {
    let changed = map.mds.iter().filter(|entry| !before.contains(entry));
    effects.notices.extend(changed.map(|entry| MonNotice::Server(Box::new(entry.clone()))));
    let is_in_map = |rank| map.mds.iter().any(|entry| entry.rank == rank);
    let removed = before.iter().map(|entry| entry.rank).filter(|rank| !is_in_map(*rank));
    effects.notices.extend(removed.map(MonNotice::Removed));
}
