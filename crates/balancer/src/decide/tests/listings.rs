//! The published listings, as printed and as shipped, and their decisions.

use super::*;

fn printed(number: u8) -> Result<BalancerPolicy, Fault> {
    let text = match number {
        1 => include_str!("../../../testdata/listing1.lua"),
        2 => include_str!("../../../testdata/listing2.lua"),
        3 => include_str!("../../../testdata/listing3.lua"),
        _ => include_str!("../../../testdata/listing4.lua"),
    };
    BalancerPolicy::parse(&format!("listing {number}"), text)
}

fn targets(policy: &BalancerPolicy, whoami: u16, loads: &[f64]) -> Vec<f64> {
    decide(policy, &view(whoami, loads), &State::Nothing).targets
}

/// All ranks decide at once, and every target is reached exactly, until nothing moves any more.
fn steady(policy: &BalancerPolicy, mut loads: Vec<f64>, ticks: usize) -> Vec<f64> {
    for _ in 0..ticks {
        let before = loads.clone();
        for whoami in 0..4u16 {
            for (rank, target) in targets(policy, whoami, &before).iter().enumerate() {
                loads[usize::from(whoami)] -= target;
                loads[rank] += target;
            }
        }
    }
    loads
}

#[test]
fn greedy_spill_runs_as_printed() {
    let policy = printed(1).unwrap();
    assert_eq!(targets(&policy, 0, &[100.0, 0.0]), [0.0, 50.0]);
    assert_eq!(steady(&policy, vec![100.0, 0.0, 0.0, 0.0], 10), [50.0, 25.0, 12.5, 12.5]);
}

#[test]
fn as_printed_the_last_rank_has_no_neighbour_and_that_is_no_fault() {
    let decision = decide(&printed(1).unwrap(), &view(1, &[0.0, 100.0]), &State::Nothing);
    let DecisionKind::NoNeighbour(fault) = &decision.outcome else { panic!("{decision:?}") };
    assert_eq!(fault.line, Some(7), "{fault}");
    assert_eq!(decision.targets, [0.0, 0.0]);
    // Another rank that does not exist is a mistake.
    let decision = decide(
        &mantle("if MDSs[whoami+2][\"load\"] < .01 then"),
        &view(1, &[0.0, 100.0]),
        &State::Nothing,
    );
    assert_eq!(failed(&decision).line, Some(2));
}

#[test]
fn greedy_spill_even_is_no_program_as_printed_and_says_where() {
    let fault = printed(2).unwrap_err();
    assert_eq!((fault.kind, fault.line), (FaultKind::Syntax, Some(4)), "{fault}");
}

#[test]
fn fill_and_spill_runs_as_printed() {
    let policy = printed(3).unwrap();
    let mut busy = view(0, &[100.0, 0.0]);
    busy.ranks[0].cpu_percent = 60.0;
    // As printed nothing is saved at first, which reads as 0: it fires at once, and then every
    // third tick.
    let mut state = State::Nothing;
    let mut fired = Vec::new();
    for _ in 0..7 {
        let decision = decide(&policy, &busy, &state);
        fired.push(decision.targets[1]);
        state = State::decode(&decision.state.encode()).unwrap();
    }
    assert_eq!(fired, [25.0, 0.0, 0.0, 25.0, 0.0, 0.0, 25.0]);
}

#[test]
fn adaptable_as_printed_calls_the_number_it_made_of_max() {
    let decision = decide(&printed(4).unwrap(), &view(0, &[100.0, 0.0]), &State::Nothing);
    let fault = failed(&decision);
    assert_eq!(fault.line, Some(6), "{fault}");
    assert!(fault.message.contains("attempt to call a number value"), "{fault}");
    // It had its way with `max` in its own tick only.
    let decision = decide(&default_policy(), &view(0, &[100.0, 0.0]), &State::Nothing);
    assert_eq!(decision.outcome, DecisionKind::Migrate);
}

#[test]
fn greedy_spill_ends_where_the_paper_says() {
    let policy = preset("greedy-spill").unwrap();
    assert_eq!(steady(&policy, vec![100.0, 0.0, 0.0, 0.0], 10), [50.0, 25.0, 12.5, 12.5]);
}

#[test]
fn greedy_spill_even_looks_for_the_middle() {
    let policy = preset("greedy-spill-even").unwrap();
    assert_eq!(targets(&policy, 0, &[100.0, 0.0, 0.0, 0.0]), [0.0, 0.0, 50.0, 0.0]);
    assert_eq!(targets(&policy, 0, &[50.0, 0.0, 50.0, 0.0]), [0.0, 25.0, 0.0, 0.0]);
    assert_eq!(targets(&policy, 2, &[50.0, 0.0, 50.0, 0.0]), [0.0, 0.0, 0.0, 25.0]);
    assert_eq!(targets(&policy, 1, &[50.0, 50.0, 0.0, 0.0]), [0.0, 0.0, 25.0, 0.0]);
    assert_eq!(targets(&policy, 3, &[0.0, 0.0, 0.0, 50.0]), [0.0; 4]);
    assert_eq!(steady(&policy, vec![100.0, 0.0, 0.0, 0.0], 2), [25.0; 4]);
    assert_eq!(steady(&policy, vec![100.0, 0.0, 0.0, 0.0], 9), [25.0; 4]);
}

#[test]
fn fill_and_spill_waits_for_the_third_overloaded_tick() {
    for (name, amount) in [("fill-and-spill", 25.0), ("fill-and-spill-10", 10.0)] {
        let policy = preset(name).unwrap();
        let mut state = State::Nothing;
        let mut fired = Vec::new();
        // A tick below 48 % in between begins the count again.
        for cpu in [60.0, 60.0, 60.0, 60.0, 60.0, 40.0, 60.0, 60.0, 60.0] {
            let mut busy = view(0, &[100.0, 0.0]);
            busy.ranks[0].cpu_percent = cpu;
            let decision = decide(&policy, &busy, &state);
            fired.push(decision.targets[1]);
            state = decision.state;
        }
        assert_eq!(fired, [0.0, 0.0, amount, 0.0, 0.0, 0.0, 0.0, 0.0, amount], "{name}");
    }
}

#[test]
fn adaptable_levels_what_is_more_than_half_of_all() {
    let policy = preset("adaptable").unwrap();
    assert_eq!(targets(&policy, 0, &[100.0, 0.0, 0.0, 0.0]), [0.0, 25.0, 25.0, 25.0]);
    assert_eq!(targets(&policy, 0, &[60.0, 40.0, 0.0, 0.0]), [0.0, 0.0, 25.0, 25.0]);
    assert_eq!(targets(&policy, 1, &[60.0, 40.0, 0.0, 0.0]), [0.0; 4]);
    assert_eq!(targets(&policy, 0, &[50.0, 50.0, 0.0, 0.0]), [0.0; 4]);
    let conservative = preset("adaptable-conservative").unwrap();
    assert_eq!(targets(&conservative, 0, &[100.0, 0.0, 0.0, 0.0]), [0.0; 4]);
    assert_eq!(targets(&conservative, 0, &[400.0, 0.0, 0.0, 0.0]), [0.0, 100.0, 100.0, 100.0]);
    let too = preset("adaptable-too-aggressive").unwrap();
    assert_eq!(targets(&too, 1, &[60.0, 40.0, 0.0, 0.0]), [0.0, 0.0, 25.0, 25.0]);
}

#[test]
fn cephfs_matches_large_importers_to_large_exporters() {
    let policy = default_policy();
    let near = |whoami, loads: &[f64], wanted: &[f64]| {
        // The mean work of a request is not counted, so loads equal the counters.
        let got = targets(&policy, whoami, loads);
        let same = got.iter().zip(wanted).all(|(got, wanted)| (got - wanted).abs() < 1e-9);
        assert!(same, "{whoami} of {loads:?}: {got:?}");
    };
    near(0, &[60.0, 20.0, 10.0], &[0.0, 10.0, 20.0]);
    near(1, &[60.0, 20.0, 10.0], &[0.0; 3]);
    near(2, &[60.0, 20.0, 10.0], &[0.0; 3]);
    // Two exporters: the larger one fills the emptiest rank first.
    near(0, &[70.0, 50.0, 0.0, 0.0], &[0.0, 0.0, 30.0, 10.0]);
    near(1, &[70.0, 50.0, 0.0, 0.0], &[0.0, 0.0, 0.0, 20.0]);
}

#[test]
fn hash_sends_everything_home_and_then_rests() {
    let policy = preset("hash").unwrap();
    let before = view(0, &[100.0, 0.0, 0.0, 0.0]);
    let decision = decide(&policy, &before, &State::Nothing);
    let away = before.units[1..].iter().filter(|unit| home(unit.id, 4) != 0);
    assert_eq!(decision.exports.len(), away.count());
    assert!(decision.exports.iter().all(|export| home(export.id, 4) == usize::from(export.to.0)));
    let mut after = before;
    after.units.retain(|unit| unit.parent.is_none() || home(unit.id, 4) == 0);
    assert!(decide(&policy, &after, &State::Nothing).exports.is_empty());
}
