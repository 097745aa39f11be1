use super::*;
use crate::{FaultKind, PRESETS, preset};

fn tried(text: &str) -> Vec<SceneResult> {
    try_out(&BalancerPolicy::parse("test", text).unwrap())
}

#[test]
fn no_shipped_policy_fails_anywhere() {
    for known in PRESETS {
        let all = try_out(&preset(known.name).unwrap());
        assert_eq!(all.len(), SIZES.len() * Scene::ALL.len());
        for tried in all {
            assert_eq!(tried.fault, None, "{} {tried:?}", known.name);
        }
    }
}

#[test]
fn shipped_policies_move_load_away_from_the_first_rank_and_leave_idle_clusters_alone() {
    for known in PRESETS.iter().filter(|known| !["static", "hash"].contains(&known.name)) {
        for tried in try_out(&preset(known.name).unwrap()) {
            let moves = tried.exports > 0;
            match tried.scene {
                Scene::Idle => assert!(!moves, "{} {tried:?}", known.name),
                // With 128 ranks the mean is less than the conservative one moves.
                Scene::First if known.name != "adaptable-conservative" || tried.ranks < 128 => {
                    assert_eq!(moves, tried.ranks > 1, "{} {tried:?}", known.name);
                }
                Scene::First => assert!(!moves, "{tried:?}"),
                Scene::Last | Scene::Even | Scene::Falling => {}
            }
        }
    }
}

#[test]
fn check_finds_a_failure_only_on_the_last_rank_of_a_large_cluster() {
    let all = tried("-- When policy\nif whoami == 128 then error('here') end if false then");
    let failed: Vec<_> = all.iter().filter(|tried| tried.fault.is_some()).collect();
    assert_eq!(failed.len(), Scene::ALL.len());
    let Some((rank, tick, fault)) = &failed[0].fault else { panic!() };
    assert_eq!((rank.0, *tick, fault.kind, fault.line), (127, 1, FaultKind::Script, Some(2)));
}

#[test]
fn check_finds_a_failure_only_at_the_third_tick() {
    let all =
        tried("-- When policy\nn = RDstate() + 1 WRstate(n)\nif n == 3 then\n\ntargets[1] = -1");
    assert!(all.iter().all(|tried| tried.fault.as_ref().is_some_and(|(_, tick, _)| *tick == 3)));
}

#[test]
fn a_policy_that_uses_up_a_budget_is_not_tried_again() {
    let all = tried("-- When policy\nwhile true do pcall(error) end if false then");
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].fault.as_ref().is_some_and(|(.., fault)| fault.kind == FaultKind::Steps));
}
