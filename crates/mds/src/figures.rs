//! Figures about the server at one moment, for the metrics of its process.
//!
//! The driver asks for them between two inputs, as often as a scraper asks the driver. Everything
//! else counts nothing more than without metrics.

use types::{Ino, Rank, Seq, Span};
use wire::MdsState;

use crate::Mds;
use crate::balance::{SubtreeLoad, subtree_loads};
use crate::health::{HealthCx, Room};

/// See the module documentation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Figures {
    /// The rank.
    pub rank: Rank,
    /// The state that the monitor hears of.
    pub state: MdsState,
    /// The term; 0 while the server does not know it yet.
    pub term: u64,
    /// The counters, by name, as in a beacon.
    pub counters: Vec<(String, u64)>,
    /// The codes of the conditions that hold.
    pub warnings: Vec<String>,
    /// The room of the store.
    pub room: Room,
    /// How long the oldest write of the journal has been under way.
    pub journal_write: Span,
    /// Operations of the store that are under way.
    pub store_ops: u64,
    /// Directories that requests wait for.
    pub directories_awaited: u64,
    /// Capabilities that clients were asked to return.
    pub revoking: u64,
    /// Subtrees that are leaving this rank, and that are coming.
    pub exports: u64,
    /// See `exports`.
    pub imports: u64,
    /// Merges that are being received, or wait, or are applied.
    pub merges: u64,
    /// The load of the subtrees of this rank, the hottest first.
    pub subtrees: Vec<SubtreeLoad>,
}

/// The position in the journal up to which all is durable.
#[must_use]
pub fn durable_up_to(mds: &Mds) -> Seq {
    mds.log.safe()
}

impl Figures {
    /// The figures of this moment; with `paths`, subtrees have their paths.
    #[must_use]
    pub fn of(mds: &Mds, paths: bool) -> Self {
        let health = HealthCx::of(mds);
        let (exports, imports) = mds.authority.moves_under_way();
        let now = mds.clock.now;
        let since = mds.log.oldest_write();
        Self {
            rank: mds.rank,
            state: mds.state(),
            term: mds.tables.epoch().0,
            counters: mds.counters.list(mds),
            warnings: health.warnings().into_iter().map(|warning| warning.code).collect(),
            room: *mds.health.room(),
            journal_write: since.map_or(Span::default(), |since| now.since(since)),
            store_ops: mds.store.waiting().count() as u64,
            directories_awaited: mds.fetches.awaited() as u64,
            revoking: mds.caps.revoking().len() as u64,
            exports,
            imports,
            merges: mds.merges.under_way() as u64,
            subtrees: subtree_loads(mds, &roots(mds), paths),
        }
    }
}

/// The directories whose load is of interest: the root, those that this rank serves apart, and
/// those with a policy of their own.
fn roots(mds: &Mds) -> Vec<Ino> {
    let policies = mds.namespace.policies().into_iter().map(|(ino, _)| ino);
    let mut roots: Vec<Ino> = mds.authority.own_roots().into_iter().chain(policies).collect();
    if mds.rank == Rank(0) {
        roots.push(Ino::ROOT);
    }
    roots.sort_unstable();
    roots.dedup();
    roots
}
