//! The knowledge of a rank at a decision: itself, the heartbeats of all ranks, and its subtrees.
//!
//! Invariant: a view that passed [`View::check`] has at least one rank, finite numbers that are not
//! negative, and a forest of units in which parents come first.

use types::{DirFragId, Rank};

use crate::{Counts, Fault, FaultKind};

/// The most ranks a cluster may have for a decision to be made.
pub const RANKS_MAX: usize = 1024;
/// The most subtrees and fragments that a rank may offer: a rank that has more offers the warmest.
pub const UNITS_MAX: usize = 65_536;

/// The metrics of one rank in a heartbeat; policies see them as `MDSs[i]`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Metrics {
    /// Metadata load of the rank's own subtrees (`auth`), by the policy's `metaload`.
    pub auth: f64,
    /// Metadata load of all the rank sees, including other ranks' subtrees (`all`).
    pub all: f64,
    /// CPU of the rank's process in per cent of its share (`cpu`).
    pub cpu_percent: f64,
    /// Memory in per cent of its limit (`mem`).
    pub mem_percent: f64,
    /// Requests that wait (`q`).
    pub queue: f64,
    /// Requests per second (`req`).
    pub requests_per_second: f64,
    /// Mean work of a request, in seconds of CPU (`cost`).
    pub request_seconds: f64,
    /// Inodes in memory (`files`).
    pub inodes: f64,
    /// How long ago the rank said all this, in seconds (`age`).
    pub age_seconds: f64,
}

impl Metrics {
    /// The numbers with the names that policies give them.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 9] {
        [
            ("auth", self.auth),
            ("all", self.all),
            ("cpu", self.cpu_percent),
            ("mem", self.mem_percent),
            ("q", self.queue),
            ("req", self.requests_per_second),
            ("cost", self.request_seconds),
            ("files", self.inodes),
            ("age", self.age_seconds),
        ]
    }
}

/// Whether the measurements of a rank in an interval of `tick_seconds` describe its subtrees, if no
/// subtree came or left for `quiet_seconds`. If not, the mechanism skips the tick: pending fetches,
/// and redirects that clients have yet to learn, would look like a difference in load.
#[must_use]
pub fn is_settled(quiet_seconds: f64, tick_seconds: f64) -> bool {
    quiet_seconds >= 0.9 * tick_seconds
}

/// A directory fragment, with everything below it that this rank has: the unit of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Which fragment.
    pub id: DirFragId,
    /// The unit that contains it, by its place in [`BalancerView::units`]; None for the roots of
    /// the rank's subtrees.
    pub parent: Option<usize>,
    /// The hits in it and below, without other ranks' subtrees.
    pub counts: Counts,
    /// Inodes that would have to move.
    pub inodes: u64,
    /// Whether it may move: false for the root of the namespace and for frozen, migrating or
    /// promised units. The units below may still move.
    pub movable: bool,
    /// The rank to which it is pinned. It goes there under any policy, and nowhere else.
    pub pin: Option<Rank>,
}

/// The input of a decision. A rank builds one at every tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalancerView {
    /// The rank that decides.
    pub whoami: Rank,
    /// All ranks, by number. The entry of `whoami` is as stale as the rest unless the rank replaces
    /// it: heartbeats of one time can be compared.
    pub ranks: Vec<Metrics>,
    /// The hits in all that this rank has, now.
    pub auth: Counts,
    /// The hits in all that this rank sees, now.
    pub all: Counts,
    /// The rank's units: subtrees and fragments, each after its parent.
    pub units: Vec<Unit>,
    /// Time between two decisions, in seconds (`tick`).
    pub tick_seconds: f64,
    /// The recent cost of moving one subtree, in seconds of work of both ends (`movecost`).
    pub move_seconds: f64,
}

impl BalancerView {
    /// The part of all hits in this rank's subtrees that fell into the one directory or fragment
    /// with the most, without those below it (`hottest`): a smaller part cannot be moved.
    #[must_use]
    pub fn hottest(&self) -> f64 {
        let mut own: Vec<f64> = self.units.iter().map(|unit| unit.counts.sum()).collect();
        for unit in &self.units {
            if let Some(above) = unit.parent.and_then(|parent| own.get_mut(parent)) {
                *above -= unit.counts.sum();
            }
        }
        let most = own.into_iter().fold(0.0, f64::max);
        (most / self.auth.sum().max(f64::MIN_POSITIVE)).min(1.0)
    }

    /// Looks whether a decision can be made of this.
    ///
    /// # Errors
    /// [`FaultKind::View`], with the cause.
    pub fn check(&self) -> Result<(), Fault> {
        let wrong = |message: String| Err(Fault::new(FaultKind::View, message));
        let ranks = self.ranks.len();
        if ranks == 0 || ranks > RANKS_MAX || usize::from(self.whoami.0) >= ranks {
            return wrong(format!("rank {} of {ranks}", self.whoami.0));
        }
        if self.units.len() > UNITS_MAX {
            return wrong(format!("{} subtrees, at most {UNITS_MAX}", self.units.len()));
        }
        for (rank, metrics) in self.ranks.iter().enumerate() {
            if let Some((name, value)) = metrics.named().into_iter().find(|(_, v)| !is_load(*v)) {
                return wrong(format!("`{name}` of rank {rank} is {value}"));
            }
        }
        let counts = self.units.iter().map(|unit| &unit.counts).chain([&self.auth, &self.all]);
        if counts.into_iter().any(|counts| counts.named().iter().any(|(_, v)| !is_load(*v))) {
            return wrong("a counter that is no number".to_owned());
        }
        if !is_load(self.tick_seconds) || !is_load(self.move_seconds) {
            return wrong("a time that is no number".to_owned());
        }
        let orphan = |(at, unit): (usize, &Unit)| unit.parent.is_some_and(|parent| parent >= at);
        if self.units.iter().enumerate().any(orphan) {
            return wrong("a subtree comes before the one it stands in".to_owned());
        }
        Ok(())
    }
}

/// Whether a number may be a load: finite and not negative.
pub(crate) fn is_load(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
