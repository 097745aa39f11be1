//! The required state after a fault, derived from the line of the table.
//!
//! The state is always the result of the first acts, because acts are journalled in order. So an
//! expectation is a set of numbers of acts: one number where the table decides, more where the
//! fault struck before a promise was complete.

use std::collections::BTreeSet;
use std::fmt;

use policy::Consistency;

use crate::step::{Merged, Persisted, Step};
use crate::table::{Fate, Row, Seen};
use crate::tree::acts;

/// A column of the table, two at once, or one with the kernel's unwritten data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `kill -9` of the client.
    ClientKilled,
    /// The client is killed and its disk removed.
    ClientGone,
    /// The power of the client's machine fails.
    ClientPower,
    /// `kill -9` of the metadata server, which is started again. The client continues.
    MdsKilled,
    /// Both processes are killed.
    BothKilled,
    /// The client's machine and disk are gone, and the metadata server is killed.
    GoneAndMds,
    /// The power of the servers' machine fails, and with it of the store. The client is killed.
    StorePower,
}

impl Fault {
    pub(crate) const ALL: [Self; 7] = [
        Self::ClientKilled,
        Self::ClientGone,
        Self::ClientPower,
        Self::MdsKilled,
        Self::BothKilled,
        Self::GoneAndMds,
        Self::StorePower,
    ];

    fn takes_the_server(self) -> bool {
        match self {
            Self::ClientKilled | Self::ClientGone | Self::ClientPower => false,
            Self::MdsKilled | Self::BothKilled | Self::GoneAndMds | Self::StorePower => true,
        }
    }

    pub(crate) fn takes_the_clients_disk(self) -> bool {
        matches!(self, Self::ClientGone | Self::GoneAndMds)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ClientKilled => "client killed",
            Self::ClientGone => "client gone",
            Self::ClientPower => "client's power cut",
            Self::MdsKilled => "mds killed",
            Self::BothKilled => "client and mds killed",
            Self::GoneAndMds => "client gone, mds killed",
            Self::StorePower => "store's power cut",
        })
    }
}

/// Cells and faults of which it is known that the system does not keep the promise, and why. The
/// list only shrinks: a case in it that is as the table says fails, too.
pub(crate) const KNOWN: [(&str, Fault); 0] = [];

/// Numbers of acts.
pub(crate) type Acts = BTreeSet<usize>;

/// The shared view afterwards, and the state after all recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) seen: Acts,
    pub(crate) kept: Acts,
}

/// See the module documentation.
pub(crate) fn expected(row: &Row, fault: Fault, step: &Step) -> Expected {
    match row.cell.consistency {
        Consistency::Strong => {
            let kept = strong(row, fault, step);
            // The next process on the disk of a client that is dead replays its log.
            let replayed = row.mds_killed == Fate::KeptTheClientReplaysItsLog;
            let later = replayed && fault.takes_the_server() && fault != Fault::MdsKilled;
            let seen = if later { Acts::from([0]) } else { kept.clone() };
            Expected { seen, kept }
        }
        Consistency::Invisible | Consistency::Weak => decoupled(row, fault, step),
    }
}

fn decoupled(row: &Row, fault: Fault, step: &Step) -> Expected {
    let all = acts().len();
    let nothing = Acts::from([0]);
    let merged = match step.merged {
        Merged::No => nothing.clone(),
        Merged::Perhaps => Acts::from([0, all]),
        Merged::Yes => Acts::from([all]),
    };
    let repeated = row.mds_killed == Fate::KeptTheServerMergesAgain;
    let visible = row.seen != Seen::AfterAnExplicitMerge;
    let seen =
        if visible && (repeated || !fault.takes_the_server()) { merged } else { nothing.clone() };
    if fault == Fault::MdsKilled {
        // The client has its unmerged updates. The answer to a pending merge may have been under
        // way.
        let kept = match (step.merged, row.mds_killed) {
            (Merged::Yes, Fate::MergedPartLost) => nothing,
            (Merged::Perhaps, Fate::MergedPartLost) => Acts::from([0, all]),
            _ => Acts::from([all]),
        };
        return Expected { seen, kept };
    }
    let fate = if fault.takes_the_clients_disk() { row.client_gone } else { row.client_killed };
    let journal = if fate == Fate::Kept { durable(fault, step) } else { nothing };
    let kept = seen.iter().flat_map(|seen| journal.iter().map(|kept| *seen.max(kept))).collect();
    Expected { seen, kept }
}

/// The content of the journal after the fault.
fn durable(fault: Fault, step: &Step) -> Acts {
    let all = acts().len();
    match step.persisted {
        Persisted::No => Acts::from([0]),
        Persisted::Written if fault == Fault::StorePower => Acts::from([0, all]),
        Persisted::Written | Persisted::Yes => Acts::from([all]),
    }
}

fn strong(row: &Row, fault: Fault, step: &Step) -> Acts {
    let client = if fault.takes_the_clients_disk() { row.client_gone } else { row.client_killed };
    let answered = Acts::from([step.answered]);
    if !fault.takes_the_server() {
        assert!(matches!(client, Fate::Kept | Fate::KeptUnlessTheServerFailsToo));
        return answered;
    }
    match row.mds_killed {
        Fate::Lost => Acts::from([0]),
        // It is alive, and its request returns when it is logged.
        Fate::KeptTheClientReplaysItsLog if fault == Fault::MdsKilled => answered,
        Fate::KeptTheClientReplaysItsLog if client == Fate::Kept => Acts::from([step.logged]),
        Fate::KeptTheClientReplaysItsLog => Acts::from([0]),
        // It repeats answered changes that are not safe.
        Fate::Kept if fault == Fault::MdsKilled || step.complete => answered,
        Fate::Kept => (0..=step.answered).collect(),
        Fate::LostIfUnmerged
        | Fate::MergedPartLost
        | Fate::KeptByTheClient
        | Fate::KeptTheClientMergesAgain
        | Fate::KeptTheServerMergesAgain
        | Fate::KeptUnlessTheServerFailsToo => panic!("the table has none of these here"),
    }
}
