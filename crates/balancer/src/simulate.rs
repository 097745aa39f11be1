//! A simulated cluster: the effect of a policy on a load, before it affects users.
//!
//! Time advances in steps of a quarter of a second. Clients are closed loops, each with one request
//! under way; ranks are servers with one queue, solved by approximate mean value analysis in every
//! step. Ranks tick at different moments, learn of each other only through heartbeats, and measure
//! with noise, so decisions rest on facts that are some seconds old, as in a real cluster.
//!
//! The numbers of [`SimulationModel`] are not measurements. They compare one policy with another,
//! and do not predict the speed of a cluster.
//!
//! Invariant: equal setups give equal reports; only the seed is chance.

mod draw;
mod queue;
mod recorded;
mod tick;
mod workload;
mod world;

use types::Span;
use types::rng::Rng;

use crate::{BalancerPolicy, Decision, Expired, Fault, State, share_left};
use queue::{Queues, Work};
use recorded::Load;
pub use recorded::Recording;

pub use workload::Workload;
use world::SimulatedNamespace;

/// The setup of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Ranks, 1 to [`RANKS_SIMULATED_MAX`].
    pub ranks: u16,
    /// Clients, 1 to [`CLIENTS_MAX`].
    pub clients: u16,
    /// How long, in seconds; at most [`SECONDS_MAX`].
    pub seconds: u32,
    /// The work of the clients.
    pub workload: Workload,
    /// Randomness: noise of measurements, moments of ticks, hot directories.
    pub seed: u64,
    /// The constants.
    pub model: SimulationModel,
    /// Pins every directory below the root to a rank, in turn: the choice of an administrator who
    /// knows that all directories are equally busy. For the policy `static`.
    pub pinned: bool,
}

/// The most ranks that are simulated.
pub const RANKS_SIMULATED_MAX: u16 = 128;
/// The most clients.
pub const CLIENTS_MAX: u16 = 1024;
/// The longest run in seconds.
pub const SECONDS_MAX: u32 = 7200;

/// The constants of the model, all of them assumptions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationModel {
    /// CPU of a create, in seconds. With the think time it is such that one rank is busy with four
    /// clients, as in the paper.
    pub request_seconds: f64,
    /// Time of a client between an answer and its next request, with the network.
    pub think_seconds: f64,
    /// CPU of a rank that only redirects a request to another rank.
    pub forward_seconds: f64,
    /// The extra cost of each request in a directory for every further rank that has a part of it.
    pub shared_share: f64,
    /// Fixed CPU of moving a subtree, at both ends.
    pub move_seconds: f64,
    /// The same for each inode.
    pub move_inode_seconds: f64,
    /// Fixed time for which a moving subtree is frozen.
    pub freeze_seconds: f64,
    /// The same for each inode.
    pub freeze_inode_seconds: f64,
    /// CPU of flushing one client's session when something it uses moves.
    pub flush_seconds: f64,
    /// Time between two decisions of a rank.
    pub tick_seconds: f64,
    /// Measurements are off by up to this share.
    pub noise: f64,
    /// A fragment with more entries is divided into eight.
    pub split_entries: f64,
}

impl Default for SimulationModel {
    fn default() -> Self {
        Self {
            request_seconds: 250e-6,
            think_seconds: 750e-6,
            forward_seconds: 60e-6,
            shared_share: 0.05,
            move_seconds: 0.02,
            move_inode_seconds: 2e-6,
            freeze_seconds: 0.005,
            freeze_inode_seconds: 0.4e-6,
            flush_seconds: 0.001,
            tick_seconds: 10.0,
            noise: 0.1,
            split_entries: 50_000.0,
        }
    }
}

impl Setup {
    /// Four clients for each rank, five minutes.
    #[must_use]
    pub fn new(workload: Workload, ranks: u16) -> Self {
        let ranks = ranks.clamp(1, RANKS_SIMULATED_MAX);
        Self {
            ranks,
            clients: (ranks * 4).min(CLIENTS_MAX),
            seconds: 300,
            workload,
            seed: 1,
            model: SimulationModel::default(),
            pinned: false,
        }
    }

    /// The same with all sizes within their limits.
    fn bounded(mut self) -> Self {
        self.ranks = self.ranks.clamp(1, RANKS_SIMULATED_MAX);
        self.clients = self.clients.clamp(1, CLIENTS_MAX);
        self.seconds = self.seconds.clamp(1, SECONDS_MAX);
        self
    }
}

/// A decision that moved something, or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedMove {
    /// When, in seconds from the start.
    pub second: u32,
    /// Which rank decided.
    pub rank: u16,
    /// Subtrees that it sent.
    pub exports: usize,
    /// Why; see [`Decision::why`].
    pub why: String,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulationReport {
    /// Requests answered per second, over the whole run.
    pub per_second: f64,
    /// Requests of each rank in each second: `series[second][rank]`.
    pub series: Vec<Vec<f64>>,
    /// Requests that asked the wrong rank first, for each thousand.
    pub forwards_per_thousand: f64,
    /// Subtrees that moved.
    pub migrations: u64,
    /// Inodes that moved.
    pub inodes_moved: f64,
    /// Sessions that were flushed because something their client uses moved.
    pub sessions_flushed: u64,
    /// Seconds that clients stood still before frozen subtrees, all together.
    pub frozen_seconds: f64,
    /// How uneven the ranks are on average: standard deviation by mean of their requests in a
    /// second. 0 is even; one of n ranks alone is the root of n - 1.
    pub unevenness: f64,
    /// Decisions that failed.
    pub faults: u64,
    /// The first of them.
    pub fault: Option<Fault>,
    /// Decisions that moved something or failed, the first [`EVENTS_MAX`].
    pub events: Vec<SimulatedMove>,
    /// The most steps that a script took for one decision.
    pub steps_most: u64,
}

/// Decisions that a report keeps.
pub const EVENTS_MAX: usize = 1000;

const STEP_SECONDS: f64 = 0.25;
const STEPS_PER_SECOND: u32 = 4;
/// The decay of the counters in a step, as in [`crate::LoadTable`].
const STEP: Span = Span::from_millis(250);

struct Cluster<'a> {
    setup: Setup,
    load: Load<'a>,
    policy: &'a BalancerPolicy,
    expired: &'a Expired,
    world: SimulatedNamespace,
    queues: Queues,
    rng: Rng,
    ranks: Vec<RankState>,
    /// The fragments that each client uses in this second.
    users: Vec<Vec<usize>>,
    report: SimulationReport,
    answered: f64,
    forwarded: f64,
}

/// The memory of a rank, and its last heartbeat.
#[derive(Clone, Debug, Default)]
struct RankState {
    /// Its first tick, within the tick time.
    offset_seconds: f64,
    state: State,
    last_metrics: crate::Metrics,
    last_metrics_at: f64,
    /// Requests and CPU since its last tick.
    requests: f64,
    busy_seconds: f64,
    /// Work of migrations that still has to be done.
    debt_seconds: f64,
    /// When something went last.
    moved_at: f64,
}

/// Runs `policy` on every rank of a cluster. `expired` ends a decision that takes too long, and so
/// bounds the run.
#[must_use]
pub fn simulate(policy: &BalancerPolicy, setup: &Setup, expired: &Expired) -> SimulationReport {
    run(policy, setup, Load::Made(setup.workload), expired)
}

/// Runs `policy` as [`simulate`] does, with a load that was recorded, or so many `times` of it. The
/// workload of the setup counts for nothing.
#[must_use]
pub fn replay(
    policy: &BalancerPolicy,
    setup: &Setup,
    recording: &Recording,
    times: f64,
    expired: &Expired,
) -> SimulationReport {
    run(policy, setup, Load::Recorded(recording, times), expired)
}

fn run(
    policy: &BalancerPolicy,
    setup: &Setup,
    load: Load<'_>,
    expired: &Expired,
) -> SimulationReport {
    let setup = setup.bounded();
    let mut rng = Rng::new(setup.seed);
    let ranks = usize::from(setup.ranks);
    let first = |rng: &mut Rng| RankState {
        offset_seconds: rng.unit() * setup.model.tick_seconds,
        moved_at: -setup.model.tick_seconds,
        ..RankState::default()
    };
    let mut cluster = Cluster {
        world: SimulatedNamespace::new(&setup, load),
        queues: Queues::new(ranks, usize::from(setup.clients)),
        ranks: (0..ranks).map(|_| first(&mut rng)).collect(),
        users: Vec::new(),
        report: SimulationReport::default(),
        answered: 0.0,
        forwarded: 0.0,
        policy,
        expired,
        setup,
        load,
        rng,
    };
    for second in 0..setup.seconds {
        let work = cluster.plan(second);
        let mut served = vec![0.0; ranks];
        for step in 0..STEPS_PER_SECOND {
            let now = f64::from(second) + f64::from(step) * STEP_SECONDS;
            cluster.step(now, &work, &mut served);
            cluster.tick(now, second);
        }
        cluster.report.series.push(served);
    }
    cluster.finish()
}

impl Cluster<'_> {
    /// The work of each client in this second.
    fn plan(&mut self, second: u32) -> Vec<Work> {
        self.world.split(self.setup.model.split_entries);
        let clients = 0..self.setup.clients;
        let work: Vec<Work> =
            clients.map(|client| self.world.work(&self.setup, self.load, client, second)).collect();
        let parts = |work: &Work| work.units.iter().map(|used| used.part).collect();
        self.users = work.iter().map(parts).collect();
        work
    }

    fn step(&mut self, now: f64, work: &[Work], served: &mut [f64]) {
        let speeds: Vec<f64> = self
            .ranks
            .iter_mut()
            .map(|rank| {
                // Migrations take at most half of a rank at a time.
                let part = rank.debt_seconds.min(STEP_SECONDS / 2.0);
                rank.debt_seconds -= part;
                rank.busy_seconds += part;
                1.0 - part / STEP_SECONDS
            })
            .collect();
        self.queues.solve(work, &speeds);
        self.world.fade(share_left(STEP, crate::LoadTable::HALF_LIFE));
        for (client, work) in work.iter().enumerate() {
            let rate = self.queues.rate(client);
            let frozen = self.world.frozen_share(work, rate * STEP_SECONDS, now, STEP_SECONDS);
            let requests = rate * STEP_SECONDS * (1.0 - frozen);
            self.report.frozen_seconds += frozen * STEP_SECONDS;
            self.answered += requests;
            self.forwarded += requests * work.forwards;
            for visit in &work.visits {
                served[visit.rank] += requests * visit.share;
                let rank = &mut self.ranks[visit.rank];
                rank.requests += requests * visit.share;
                rank.busy_seconds += requests * visit.seconds;
            }
            self.world.count(work, requests);
        }
    }

    fn finish(mut self) -> SimulationReport {
        let seconds = f64::from(self.setup.seconds);
        self.report.per_second = self.answered / seconds;
        self.report.forwards_per_thousand =
            if self.answered > 0.0 { self.forwarded * 1000.0 / self.answered } else { 0.0 };
        let busy: Vec<f64> =
            self.report.series.iter().filter_map(|served| uneven(served)).collect();
        self.report.unevenness = busy.iter().sum::<f64>() / count(busy.len()).max(1.0);
        self.report
    }

    /// Takes note of a decision for the report.
    fn note(&mut self, second: u32, rank: usize, decision: &Decision) {
        self.report.steps_most = self.report.steps_most.max(decision.steps);
        if let Some(fault) = decision.fault() {
            self.report.faults += 1;
            self.report.fault.get_or_insert_with(|| fault.clone());
        } else if decision.exports.is_empty() {
            return;
        }
        if self.report.events.len() < EVENTS_MAX {
            self.report.events.push(SimulatedMove {
                second,
                rank: u16::try_from(rank).unwrap_or(u16::MAX),
                exports: decision.exports.len(),
                why: decision.why.clone(),
            });
        }
    }
}

/// Standard deviation by mean; none if nothing was served.
fn uneven(served: &[f64]) -> Option<f64> {
    let ranks = count(served.len());
    let mean = served.iter().sum::<f64>() / ranks;
    let square = |value: &f64| (value - mean) * (value - mean);
    (mean > 0.0).then(|| (served.iter().map(square).sum::<f64>() / ranks).sqrt() / mean)
}

/// A count as a number.
fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
