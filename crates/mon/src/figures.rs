//! Figures about the monitor at one moment, for the metrics of its process.

use types::{Moment, Rank, Span};
use wire::ClusterMap;

use crate::{Mon, Phase};

/// The output of [`Mon::figures`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MonFigures {
    /// The map with the servers' last reports.
    pub map: ClusterMap,
    /// The monitor has read the map.
    pub is_serving: bool,
    /// How long ago each server reported.
    pub silences: Vec<(Rank, Span)>,
    /// Servers that have not found out their terms yet.
    pub starting: u64,
    /// Requests that servers execute for the monitor's clients.
    pub forwarded: u64,
    /// Replies that wait until the map is stored.
    pub storing: u64,
}

impl Mon {
    /// The figures of this moment.
    #[must_use]
    pub fn figures(&self, now: Moment) -> MonFigures {
        MonFigures {
            map: self.status(),
            is_serving: self.phase == Phase::Serving,
            silences: self.servers.silences(now).collect(),
            starting: self.servers.starting() as u64,
            forwarded: self.forwards.len() as u64,
            storing: self.ledger.waiting() as u64,
        }
    }
}
