//! The seam as a rank uses it: the published listings, the environment, and attacks.

mod attacks;
mod environment;
mod listings;

use types::{DirFragId, Frag, Ino, Rank};

use crate::*;

/// A cluster in which every rank has this load and nothing else, seen by `whoami`, counted from 0.
fn view(whoami: u16, loads: &[f64]) -> BalancerView {
    let counts = |load: f64| Counts { inode_writes: load, ..Counts::default() };
    let metrics = |load: &f64| Metrics { auth: *load, all: *load, ..Metrics::default() };
    let own = loads[usize::from(whoami)];
    // A root that stays, and eight movable directories of the same load.
    let unit = |at: u64, load: f64| Unit {
        id: DirFragId { ino: Ino(100 + at), frag: Frag::WHOLE },
        parent: (at > 0).then_some(0),
        counts: counts(load),
        inodes: 10,
        movable: at > 0,
        pin: None,
    };
    let units = (0..=8).map(|at| unit(at, if at == 0 { own } else { own / 8.0 })).collect();
    BalancerView {
        whoami: Rank(whoami),
        ranks: loads.iter().map(metrics).collect(),
        auth: counts(own),
        all: counts(own),
        units,
        tick_seconds: 10.0,
        move_seconds: 0.01,
    }
}

fn mantle(code: &str) -> BalancerPolicy {
    BalancerPolicy::parse("test", &format!("-- When policy\n{code}\n")).unwrap()
}

fn failed(decision: &Decision) -> &Fault {
    assert!(decision.exports.is_empty(), "{decision:?}");
    assert!(decision.targets.iter().all(|target| *target == 0.0), "{decision:?}");
    decision.fault().unwrap_or_else(|| panic!("{decision:?}"))
}

#[test]
fn equal_arguments_give_equal_decisions() {
    for preset in PRESETS {
        let policy = super::super::preset(preset.name).unwrap();
        let view = view(0, &[100.0, 3.0, 0.0, 20.0]);
        let first = decide(&policy, &view, &State::Nothing);
        assert_eq!(first, decide(&policy, &view, &State::Nothing), "{}", preset.name);
        assert_eq!(first.fault(), None, "{}", preset.name);
    }
}

#[test]
fn a_view_that_makes_no_sense_is_a_fault_of_the_view() {
    let sound = view(0, &[1.0, 2.0]);
    let spoil: [fn(&mut BalancerView); 6] = [
        |view| view.ranks.clear(),
        |view| view.whoami = Rank(2),
        |view| view.ranks[1].queue = f64::NAN,
        |view| view.all.fetches = -1.0,
        |view| view.units[3].parent = Some(3),
        |view| view.tick_seconds = f64::INFINITY,
    ];
    assert_eq!(sound.check(), Ok(()));
    for (at, spoil) in spoil.iter().enumerate() {
        let mut view = sound.clone();
        spoil(&mut view);
        let decision = decide(&default_policy(), &view, &State::Nothing);
        assert_eq!(failed(&decision).kind, FaultKind::View, "{at}");
    }
}

#[test]
fn a_decision_names_its_reason() {
    let decision =
        decide(&preset("greedy-spill").unwrap(), &view(0, &[100.0, 0.0]), &State::Nothing);
    assert_eq!(decision.why, "rank 1: wants 50.00, 4 subtrees of 50.00 by half");
    assert_eq!(decision.loads, [100.0, 0.0]);
    assert!(decision.exports.iter().all(|export| export.to == Rank(1) && export.load == 12.5));
}

#[test]
fn small_targets_are_dropped_where_the_settings_say_so() {
    let text = "-- Settings\nmin_offload = 30\n-- When policy\nif true then\ntargets[2] = 29\n\
                targets[3] = 31\n";
    let policy = BalancerPolicy::parse("test", text).unwrap();
    let decision = decide(&policy, &view(0, &[100.0, 0.0, 0.0]), &State::Nothing);
    assert_eq!(decision.targets, [0.0, 0.0, 31.0]);
}

#[test]
fn a_target_for_oneself_cancels_all() {
    let policy = mantle("if true then targets[1] = 1 targets[2] = 5");
    let decision = decide(&policy, &view(0, &[100.0, 0.0]), &State::Nothing);
    assert_eq!((decision.outcome, decision.targets), (DecisionKind::Balanced, vec![0.0, 0.0]));
    assert!(decision.why.contains("own rank"));
}
