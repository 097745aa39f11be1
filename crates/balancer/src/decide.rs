//! One decision of one rank.

use std::fmt::Write as _;

use types::{DirFragId, Rank};

use crate::mantle::{self, Code, Environment, Ran};
use crate::script::Machine;
use crate::source::{Sections, Source};
use crate::traverse::{Load, Selection, Walk};
use crate::{
    BalancerPolicy, BalancerSettings, BalancerView, Expired, Export, Fault, FaultKind, LogLine,
    Selector, State, ceph,
};

/// The kind of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// The policy wants nothing to move.
    Balanced,
    /// The policy wants load to move; [`Decision::exports`] lists the units.
    Migrate,
    /// The policy looks at the rank after the last one, as the published ones do, and this is the
    /// last. Not a fault.
    NoNeighbour(Fault),
    /// The policy failed: nothing moves, and its state stays as it was.
    Failed(Fault),
}

/// A decision, with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The kind of decision.
    pub outcome: DecisionKind,
    /// The load of each rank by the policy's `mdsload`.
    pub loads: Vec<f64>,
    /// How much load each rank is to get; all 0 unless the outcome is [`DecisionKind::Migrate`].
    pub targets: Vec<f64>,
    /// The exports, each with its target, in this order.
    pub exports: Vec<Export>,
    /// Fragments that are too popular to be moved and that dividing would help.
    pub indivisible: Vec<DirFragId>,
    /// One line for people: why this.
    pub why: String,
    /// The lines that the policy logged.
    pub log: Vec<LogLine>,
    /// The state to store, and to hand in at the next tick.
    pub state: State,
    /// Steps that the script took.
    pub steps: u64,
}

impl Decision {
    /// The fault, if the policy failed.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match &self.outcome {
            DecisionKind::Failed(fault) => Some(fault),
            DecisionKind::Balanced | DecisionKind::Migrate | DecisionKind::NoNeighbour(_) => None,
        }
    }

    fn nothing(view: &BalancerView, state: &State, outcome: DecisionKind) -> Self {
        let why = match &outcome {
            DecisionKind::Balanced => "nothing to do".to_owned(),
            DecisionKind::Migrate => "migrates".to_owned(),
            DecisionKind::NoNeighbour(fault) => format!("no rank after the last one ({fault})"),
            DecisionKind::Failed(fault) => format!("the policy failed: {fault}"),
        };
        Self {
            outcome,
            loads: Vec::new(),
            targets: vec![0.0; view.ranks.len().min(crate::RANKS_MAX)],
            exports: Vec::new(),
            indivisible: Vec::new(),
            why,
            log: Vec::new(),
            state: state.clone(),
            steps: 0,
        }
    }
}

/// Decides the exports of a rank. Equal arguments give equal decisions.
///
/// A rank calls this at every tick, after the heartbeats, with the [`State`] of its last decision,
/// and starts the exports in the order given. No policy can make this panic, hang or fail: faults
/// are in [`Decision::outcome`]. A rank that serves clients should call [`decide_until`], because
/// it also bounds time.
#[must_use]
pub fn decide(policy: &BalancerPolicy, view: &BalancerView, state: &State) -> Decision {
    decide_until(policy, view, state, &Expired::never())
}

/// As [`decide`], and gives up when `expired` returns true.
#[must_use]
pub fn decide_until(
    policy: &BalancerPolicy,
    view: &BalancerView,
    state: &State,
    expired: &Expired,
) -> Decision {
    if let Err(fault) = view.check() {
        return Decision::nothing(view, state, DecisionKind::Failed(fault));
    }
    let machine = match Machine::new(policy.limits(), expired) {
        Ok(machine) => machine,
        Err(fault) => return Decision::nothing(view, state, DecisionKind::Failed(fault)),
    };
    let decided = match policy.source() {
        Source::Mantle(sections) => with_mantle(&machine, sections, policy.settings(), view, state),
        Source::Ceph(script) => with_ceph(&machine, script, policy.settings(), view, state),
    };
    let mut decision = match decided {
        Ok(decision) => decision,
        Err(fault) => Decision::nothing(view, state, DecisionKind::Failed(fault)),
    };
    decision.log = machine.log();
    decision.steps = machine.steps();
    decision
}

fn with_mantle(
    machine: &Machine,
    sections: &Sections,
    settings: &BalancerSettings,
    view: &BalancerView,
    state: &State,
) -> Result<Decision, Fault> {
    let environment = machine.prepare(|lua| Environment::build(lua, view, state, settings))?;
    let code = Code::compile(machine, sections)?;
    let ran = mantle::run(machine, &code, &environment, view, sections)?;
    // Looked at even if nothing moves: a wrong name must not wait for the day it is needed.
    let selectors = mantle::howmuch(machine, &code)?;
    execute(ran, &selectors, settings, view, &mut |counts| mantle::metaload(machine, &code, counts))
}

fn with_ceph(
    machine: &Machine,
    script: &str,
    settings: &BalancerSettings,
    view: &BalancerView,
    state: &State,
) -> Result<Decision, Fault> {
    machine.prepare(|lua| ceph::build(lua, view))?;
    let script = machine.compile(script)?;
    let (loads, targets) = ceph::run(machine, &script, view)?;
    let ran = Ran { loads, targets, state: state.clone(), no_neighbour: None };
    execute(ran, &[Selector::BigFirst], settings, view, &mut |counts| Ok(ceph::metaload(counts)))
}

/// From targets to subtrees.
fn execute(
    ran: Ran,
    selectors: &[Selector],
    settings: &BalancerSettings,
    view: &BalancerView,
    load: &mut Load<'_>,
) -> Result<Decision, Fault> {
    let mut targets = ran.targets;
    let own = targets.get(usize::from(view.whoami.0)).copied().unwrap_or_default();
    let mut small = 0;
    for target in &mut targets {
        if own > 0.0 {
            *target = 0.0;
        } else if *target > 0.0 && *target < settings.min_offload {
            *target = 0.0;
            small += 1;
        }
    }
    let mut walk = Walk::new(view, settings, selectors);
    walk.pins(load)?;
    for (rank, target) in largest_first(&targets)? {
        walk.fill(rank, target, load)?;
    }
    let Selection { exports, indivisible } = walk.found();
    let wants = targets.iter().any(|target| *target > 0.0) || !exports.is_empty();
    let outcome = match ran.no_neighbour {
        Some(fault) if !wants => DecisionKind::NoNeighbour(fault),
        Some(_) | None if wants => DecisionKind::Migrate,
        Some(_) | None => DecisionKind::Balanced,
    };
    let mut decision = Decision::nothing(view, &ran.state, outcome);
    if wants {
        decision.why = why(&targets, &exports, &indivisible);
    } else if own > 0.0 {
        decision.why = "nothing to do: the policy sends load to its own rank".to_owned();
    } else if small > 0 {
        decision.why = format!("nothing to do: {small} targets are below min_offload");
    }
    decision.loads = ran.loads;
    decision.targets = targets;
    decision.exports = exports;
    decision.indivisible = indivisible;
    Ok(decision)
}

/// The ranks with a target, the one that gets most first; of equal ones the lower number.
fn largest_first(targets: &[f64]) -> Result<Vec<(Rank, f64)>, Fault> {
    let mut wanted = Vec::new();
    for (at, target) in targets.iter().enumerate().filter(|(_, target)| **target > 0.0) {
        let rank = u16::try_from(at)
            .map_err(|_| Fault::new(FaultKind::View, format!("rank {at} is no rank")))?;
        wanted.push((Rank(rank), *target));
    }
    wanted.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(wanted)
}

/// Ranks and loads that a line shows at most.
const SHOWN_MAX: usize = 8;

fn why(targets: &[f64], exports: &[Export], indivisible: &[DirFragId]) -> String {
    let mut text = String::new();
    let wanted = targets.iter().enumerate().filter(|(_, target)| **target > 0.0);
    let mut shown = 0;
    for (rank, target) in wanted {
        shown += 1;
        if shown > SHOWN_MAX {
            continue;
        }
        let to_it = || exports.iter().filter(|export| usize::from(export.to.0) == rank);
        let sent: f64 = to_it().map(|export| export.load).sum();
        let sep = if text.is_empty() { "" } else { "; " };
        let _ = write!(
            text,
            "{sep}rank {rank}: wants {target:.2}, {} subtrees of {sent:.2}",
            to_it().count()
        );
        if let Some(selector) = to_it().find_map(|export| export.selector) {
            let _ = write!(text, " by {}", selector.name());
        }
    }
    if shown > SHOWN_MAX {
        let _ = write!(text, "; and {} more ranks", shown - SHOWN_MAX);
    }
    let pinned = exports.iter().filter(|export| export.selector.is_none()).count();
    if pinned > 0 {
        let sep = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{sep}{pinned} subtrees go to their pins");
    }
    if let Some(id) = indivisible.first() {
        let _ = write!(
            text,
            "; {} fragments are too popular to be moved whole, such as {}/{:#x}.{}: divide them",
            indivisible.len(),
            id.ino,
            id.frag.value,
            id.frag.bits
        );
    }
    text
}

#[cfg(test)]
mod tests;
