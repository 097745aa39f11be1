//! The order of the incidents: from the seed, each once before any comes again.
//!
//! Invariant: the incident at a place, and its random numbers, depend on the seed and the place
//! only, so that a continued run and a repeated run do the same.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use types::rng::{self, Rng};

/// A rough event of the operation of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Incident {
    /// The store refuses the objects of directories while clients create, so that no checkpoint
    /// trims the journal
    UntrimmedJournal,
    /// A client holds thousands of open files and capabilities, and stops (SIGSTOP)
    Hoarder,
    /// Eight writers create names in one directory, 20 million in a run of 24 hours
    LargeDirectory,
    /// A balancer policy moves everything to the next rank at each tick
    BalancerCircles,
    /// All metadata servers are killed while their journals are full, and started again
    FullJournalRestart,
    /// The server of a rank is killed; a standby takes over
    KillMds,
    /// A writer is killed, and started again
    KillClient,
    /// The monitor is killed, and started again
    KillMon,
    /// Another program fills the disk of the store
    FullDisk,
    /// The server of a rank stops (SIGSTOP) for some seconds
    StopMds,
    /// The machine of the servers and the store loses power, and its disk what was not flushed
    PowerCut,
    /// The machine of a client with a decoupled subtree loses power, and its disk what was not
    /// flushed
    ClientPowerCut,
}

/// The cost that is allowed to an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The slowest answer to the probe, if it is announced to be above the common bound.
    pub(crate) stall: Option<Duration>,
    /// Errors that writers may get, by symbol.
    pub(crate) errors: &'static [&'static str],
}

/// An outage that is announced: a started server waits 2 s for clients of the term before that do
/// not return, and replays its journal first.
pub(crate) const FAIL_OVER: Duration = Duration::from_secs(3);
/// The same, and the time in which the machine mounts its file system again.
const POWER_CUT: Duration = Duration::from_secs(8);
/// The longest wait for a client that does not answer, and of writes in a full or refusing store.
const HELD_UP: Duration = Duration::from_secs(2);

impl Incident {
    /// Whether the incident needs a file system of its own for the store.
    pub(crate) fn needs_mounts(self) -> bool {
        matches!(self, Self::UntrimmedJournal | Self::FullDisk)
    }

    /// Whether the incident needs a disk that loses writes.
    pub(crate) fn needs_lossy_disk(self) -> bool {
        matches!(self, Self::PowerCut | Self::ClientPowerCut)
    }

    /// The name on the command line and in records.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// See [`Allowance`].
    pub(crate) fn allowance(self) -> Allowance {
        let stall = match self {
            Self::KillMds | Self::FullJournalRestart => Some(FAIL_OVER),
            Self::PowerCut => Some(POWER_CUT),
            // The incident announces its own pause.
            Self::StopMds => Some(FAIL_OVER),
            Self::Hoarder
            | Self::KillClient
            | Self::KillMon
            | Self::FullDisk
            | Self::ClientPowerCut
            | Self::UntrimmedJournal => Some(HELD_UP),
            Self::LargeDirectory | Self::BalancerCircles => None,
        };
        let errors: &[&str] = if self.needs_mounts() { &["ENOSPC", "EROFS"] } else { &[] };
        Allowance { stall, errors }
    }
}

/// The incidents of a run.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    seed: u64,
    incidents: Vec<Incident>,
}

impl Schedule {
    pub(crate) fn new(seed: u64, incidents: Vec<Incident>) -> Self {
        Self { seed, incidents }
    }

    /// The incident at a place of the order, and its random numbers.
    pub(crate) fn at(&self, place: u64) -> (Incident, Rng) {
        let round = place / self.incidents.len().max(1) as u64;
        let mut random = Rng::new(rng::mix(self.seed ^ rng::mix(round + 1)));
        let mut order = self.incidents.clone();
        for end in (1..order.len()).rev() {
            order.swap(end, random.index(end + 1));
        }
        let at = usize::try_from(place % self.incidents.len().max(1) as u64).unwrap_or(0);
        (order[at], Rng::new(rng::mix(self.seed.wrapping_add(place))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_incident_comes_once_in_a_round_in_the_order_of_the_seed() {
        let all = Incident::value_variants();
        let of = |seed| {
            let schedule = Schedule::new(seed, all.to_vec());
            (0..3 * all.len() as u64).map(|place| schedule.at(place).0).collect::<Vec<_>>()
        };
        let order = of(7);
        for round in order.chunks(all.len()) {
            assert!(all.iter().all(|one| round.contains(one)), "{round:?}");
        }
        assert_eq!(order, of(7));
        assert_ne!(order, of(8));
    }
}
