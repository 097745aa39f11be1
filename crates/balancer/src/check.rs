//! Runs a policy on synthetic clusters before it is put in force, for `balancer check`.
//!
//! Reading a policy finds faults at compile time. This check finds faults at run time: every rank
//! of small and large clusters decides, idle and busy, several ticks in a row.
//!
//! Invariant: the clusters are the same every time.

use types::{DirFragId, Frag, Ino, Rank};

use crate::{
    BalancerPolicy, BalancerView, Counts, Decision, DecisionKind, Expired, Fault, Metrics, State,
    Unit, decide_until,
};

/// Sizes of clusters that are tried.
const SIZES: [u16; 5] = [1, 2, 3, 16, 128];
/// Ticks in a row: policies that count (`RDstate`) act at the third.
const TICKS: u32 = 4;
/// Subtrees of a busy rank.
const SUBTREES: u32 = 256;

/// A way in which load lies on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Nobody does anything.
    Idle,
    /// The first rank has everything.
    First,
    /// The last rank has everything.
    Last,
    /// All have the same.
    Even,
    /// Each rank has half the load of the rank before.
    Falling,
}

impl Scene {
    const ALL: [Scene; 5] = [Self::Idle, Self::First, Self::Last, Self::Even, Self::Falling];

    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::First => "all on the first rank",
            Self::Last => "all on the last rank",
            Self::Even => "even",
            Self::Falling => "each half of the one before",
        }
    }

    fn load(self, rank: u16, ranks: u16) -> f64 {
        match self {
            Self::Idle => 0.0,
            Self::First => {
                if rank == 0 {
                    1000.0
                } else {
                    0.0
                }
            }
            Self::Last => {
                if rank + 1 == ranks {
                    1000.0
                } else {
                    0.0
                }
            }
            Self::Even => 1000.0,
            Self::Falling => 1000.0 * (-f64::from(rank)).exp2(),
        }
    }
}

/// The decisions of a policy in one scene.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneResult {
    /// How load lay.
    pub scene: Scene,
    /// Ranks of the cluster.
    pub ranks: u16,
    /// Load that the ranks together wanted to move in the tick in which they wanted most, in the
    /// policy's own measure.
    pub wanted: f64,
    /// Subtrees that the ranks together sent in that tick.
    pub exports: usize,
    /// The first fault, and the rank (from 0) and tick (from 1) that had it.
    pub fault: Option<(Rank, u32, Fault)>,
    /// The most steps of a decision.
    pub steps: u64,
}

/// Tries a policy in all scenes, bounded by steps only. A policy that uses up a budget in one
/// scene is not tried in the others: each decision may take seconds to do so, and it would in
/// every scene.
#[must_use]
pub fn try_out(policy: &BalancerPolicy) -> Vec<SceneResult> {
    try_out_with(policy, Expired::never)
}

/// As [`try_out`]; `begin` is called at the start of each decision and returns the look at the
/// clock that ends it.
#[must_use]
pub fn try_out_with(policy: &BalancerPolicy, begin: impl Fn() -> Expired) -> Vec<SceneResult> {
    let mut all = Vec::new();
    for ranks in SIZES {
        for scene in Scene::ALL {
            let tried = try_scene(policy, scene, ranks, &begin);
            let spent = tried.fault.as_ref().is_some_and(|(.., fault)| fault.kind.is_budget());
            all.push(tried);
            if spent {
                return all;
            }
        }
    }
    all
}

fn try_scene(
    policy: &BalancerPolicy,
    scene: Scene,
    ranks: u16,
    begin: &dyn Fn() -> Expired,
) -> SceneResult {
    let mut tried = SceneResult { scene, ranks, wanted: 0.0, exports: 0, fault: None, steps: 0 };
    let mut states = vec![State::Nothing; usize::from(ranks)];
    for tick in 1..=TICKS {
        let mut wanted = 0.0;
        let mut exports = 0;
        // In a larger cluster the first and the last ranks represent all ranks.
        let asked = (0..ranks).filter(|rank| ranks <= 3 || *rank < 2 || *rank + 2 >= ranks);
        for rank in asked {
            let Some(state) = states.get_mut(usize::from(rank)) else { continue };
            let decision = decide_until(policy, &view(scene, rank, ranks), state, &begin());
            tried.steps = tried.steps.max(decision.steps);
            let Decision { outcome, targets, exports: sent, state: after, .. } = decision;
            *state = after;
            match outcome {
                DecisionKind::Balanced | DecisionKind::NoNeighbour(_) => {}
                DecisionKind::Migrate => {
                    wanted += targets.iter().sum::<f64>();
                    exports += sent.len();
                }
                DecisionKind::Failed(fault) => {
                    let spent = fault.kind.is_budget();
                    tried.fault.get_or_insert((Rank(rank), tick, fault));
                    if spent {
                        return tried;
                    }
                }
            }
        }
        if wanted > tried.wanted {
            (tried.wanted, tried.exports) = (wanted, exports);
        }
        // A second fault in one scene would only repeat the first.
        if tried.fault.is_some() {
            break;
        }
    }
    tried
}

fn view(scene: Scene, whoami: u16, ranks: u16) -> BalancerView {
    let counts = |load: f64| Counts {
        inode_reads: load,
        inode_writes: load,
        readdirs: load / 10.0,
        fetches: load / 100.0,
        stores: load / 100.0,
    };
    let busy = |load: f64| Metrics {
        auth: load,
        all: load,
        cpu_percent: if load > 0.0 { 95.0 } else { 1.0 },
        mem_percent: 20.0,
        queue: load / 100.0,
        requests_per_second: load,
        request_seconds: 0.0002,
        inodes: 1000.0,
        age_seconds: 3.0,
    };
    let own = scene.load(whoami, ranks);
    let root = Unit {
        id: DirFragId { ino: Ino::ROOT, frag: Frag::WHOLE },
        parent: None,
        counts: counts(own),
        inodes: 1000,
        movable: whoami != 0,
        pin: None,
    };
    let below = |number: u32| Unit {
        id: DirFragId { ino: Ino(u64::from(number) + 100), frag: Frag::WHOLE },
        parent: Some(0),
        counts: counts(own / f64::from(SUBTREES)),
        inodes: 100,
        movable: true,
        pin: None,
    };
    BalancerView {
        whoami: Rank(whoami),
        ranks: (0..ranks).map(|rank| busy(scene.load(rank, ranks))).collect(),
        auth: counts(own),
        all: counts(own),
        units: std::iter::once(root).chain((0..SUBTREES).map(below)).collect(),
        tick_seconds: 10.0,
        move_seconds: 0.01,
    }
}

#[cfg(test)]
mod tests;
