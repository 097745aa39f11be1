use super::*;
use crate::{BalancerView, State, decide, default_policy, preset};

fn view() -> BalancerView {
    BalancerView { ranks: vec![crate::Metrics::default(); 2], ..BalancerView::default() }
}

fn bad() -> BalancerPolicy {
    let text = "-- When policy\nif MDSs[9][\"load\"] > 1 then\n";
    BalancerPolicy::parse("bad", text).unwrap()
}

fn tick(versions: &mut Versions) -> VersionVerdict {
    let decision = decide(versions.current().1, &view(), &State::Nothing);
    versions.observe(&decision)
}

#[test]
fn three_failures_in_a_row_bring_the_last_good_version_back() {
    let mut versions = Versions::new(0, default_policy());
    assert!(versions.install(1, preset("greedy-spill").unwrap()));
    for _ in 0..PROOF_TICKS {
        assert_eq!(tick(&mut versions), VersionVerdict::Fine);
    }
    assert!(versions.install(2, bad()));
    assert!(matches!(tick(&mut versions), VersionVerdict::Warn { failures: 1, .. }));
    assert!(matches!(tick(&mut versions), VersionVerdict::Warn { failures: 2, .. }));
    let VersionVerdict::Reverted { fault, from: 2, to: 1 } = tick(&mut versions) else { panic!() };
    assert_eq!(fault.line, Some(2), "{fault}");
    assert_eq!(versions.current().1.name(), "greedy-spill");
    assert!(!versions.install(2, bad()), "given up for good");
    assert!(versions.install(3, bad()));
}

#[test]
fn a_revert_skips_versions_that_never_worked() {
    let mut versions = Versions::new(0, default_policy());
    versions.install(1, bad());
    tick(&mut versions);
    versions.install(2, bad());
    for _ in 0..FAILURES_MAX {
        tick(&mut versions);
    }
    assert_eq!(versions.current().0, 0);
}

#[test]
fn a_success_in_between_begins_the_count_again() {
    let mut versions = Versions::new(0, default_policy());
    versions.install(1, bad());
    let good = decide(&default_policy(), &view(), &State::Nothing);
    for _ in 0..4 {
        tick(&mut versions);
        tick(&mut versions);
        assert_eq!(versions.observe(&good), VersionVerdict::Fine);
    }
    assert_eq!(versions.current().0, 1);
    assert_eq!(versions.good().0, 0, "never three good ticks in a row");
}

#[test]
fn a_senseless_view_is_not_held_against_the_policy() {
    let mut versions = Versions::new(0, default_policy());
    versions.install(1, preset("greedy-spill").unwrap());
    for _ in 0..10 {
        let decision = decide(versions.current().1, &BalancerView::default(), &State::Nothing);
        assert!(matches!(versions.observe(&decision), VersionVerdict::Warn { failures: 0, .. }));
    }
    assert_eq!(versions.current().0, 1);
}

#[test]
fn a_manual_revert_needs_an_earlier_version() {
    let mut versions = Versions::new(0, default_policy());
    assert!(!versions.revert());
    versions.install(1, preset("static").unwrap());
    assert!(versions.revert());
    assert_eq!(versions.current().0, 0);
}
