//! The same job on a simulated cluster (`balancer::simulate`), beside the measured one: a check of
//! the simulation.
//!
//! Its ranks take the measured time of one real rank for a create, its clients wait between two as
//! real ones did. Its ranks decide every ten seconds and real ones here twice in a second, so one
//! second is twenty there, and a directory is split at twenty times as many names.

use balancer::simulate::{Setup, Workload, simulate};
use balancer::{BalancerPolicy, Expired};

use crate::harness::stats::median;

/// Seconds on paper for a second.
const STRETCH: f64 = 20.0;
const SECONDS: u32 = 300;
const SEEDS: u64 = 5;

/// The measurements of one real rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Creates that it carried out in a second, with all clients.
    pub(super) one_rank_per_second: f64,
    /// A client's time between two creates.
    pub(super) client_seconds: f64,
    /// A directory with more names is split.
    pub(super) split_entries: f64,
}

/// The rate of all ranks as a multiple of one rank's when load has found its place; the median of
/// some seeds.
pub(super) fn settled_speedup(
    policy: &BalancerPolicy,
    workload: Workload,
    ranks: u16,
    clients: u16,
    costs: Costs,
) -> f64 {
    let run = |ranks: u16, seed: u64| {
        let mut setup = Setup { clients, seconds: SECONDS, seed, ..Setup::new(workload, ranks) };
        setup.model.request_seconds = 1.0 / costs.one_rank_per_second.max(1.0);
        setup.model.think_seconds = costs.client_seconds;
        setup.model.split_entries = costs.split_entries * STRETCH;
        let series = simulate(policy, &setup, &Expired::never()).series;
        let sums = series[series.len() / 2..].iter().map(|ranks| ranks.iter().sum());
        median(&sums.collect::<Vec<f64>>())
    };
    let speedups: Vec<f64> =
        (1..=SEEDS).map(|seed| run(ranks, seed) / run(1, seed).max(1e-9)).collect();
    median(&speedups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_moves_nothing_gains_nothing_and_one_that_spreads_does() {
        let costs =
            Costs { one_rank_per_second: 2_000.0, client_seconds: 50e-6, split_entries: 1_000.0 };
        let gain = |name: &str| {
            let policy = balancer::preset(name).expect("it is shipped");
            settled_speedup(&policy, Workload::Private, 4, 16, costs)
        };
        assert!((gain("static") - 1.0).abs() < 0.01);
        assert!(gain("cudele") > 2.0);
    }
}
