//! All runs of the protocol in small clusters, checked with stateright: the same
//! [`TransferState::step`](crate::transfer::state::TransferState::step) as in the server, between
//! two or three ranks that crash, with messages that are lost, repeated and late, and replacements
//! of the list with an unknown outcome.
//!
//! Properties, in every reachable state:
//! * at most one rank serves a key, with every acknowledged change;
//! * a payload finds its place free;
//! * without further faults everything ends soon, and then each key has exactly one authority.

use stateright::{Checker, Model, Property};

use super::world::{Budget, Fault, Plan, Scenario, Step, World};
use crate::transfer::state::TransferEnd;

impl Model for Scenario {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(self, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        next.take(self, &step);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(
                "one authority with every change",
                |scenario: &Self, world: &World| world.is_sound(scenario),
            ),
            Property::always("a payload finds its place", |_, world: &World| world.wrong.is_none()),
            Property::always("every transfer ends", |scenario: &Self, world: &World| {
                let end = world.healed(scenario);
                end.is_settled(scenario) && end.is_sound(scenario) && end.wrong.is_none()
            }),
        ];
        if self.proceeds {
            all.push(Property::always(
                "one transfer proceeds",
                |scenario: &Self, world: &World| {
                    let end = world.healed(scenario);
                    !(0..scenario.plans.len())
                        .all(|plan| end.ended(scenario, plan, TransferEnd::Stayed))
                },
            ));
        } else if self.fault.is_none() {
            all.push(Property::sometimes("a payload moves", |scenario: &Self, world: &World| {
                (0..scenario.plans.len())
                    .any(|plan| world.ended(scenario, plan, TransferEnd::Moved))
            }));
            all.push(Property::sometimes("a payload stays", |scenario: &Self, world: &World| {
                (0..scenario.plans.len())
                    .any(|plan| world.ended(scenario, plan, TransferEnd::Stayed))
            }));
        }
        all
    }
}

const FAULTS: Budget = Budget { crashes: 1, silences: 1, stays: 1, unknowns: 1, writes: 1 };

fn subtree(key: usize, from: usize, to: usize) -> Plan {
    Plan { key, from, to, dirs: None }
}

fn name(key: usize, from: usize, to: usize, dirs: (usize, usize)) -> Plan {
    Plan { key, from, to, dirs: Some(dirs) }
}

fn scenario(keys: &[(Option<usize>, usize)], plans: &[Plan], budget: Budget) -> Scenario {
    let ranks = 1 + plans.iter().map(|plan| plan.from.max(plan.to)).max().unwrap_or(1);
    Scenario {
        ranks,
        keys: keys.to_vec(),
        plans: plans.to_vec(),
        budget,
        fault: None,
        proceeds: false,
    }
}

/// Checks all states. Prints how many there are, and how deep the longest run is.
fn check(of: &str, scenario: Scenario) {
    let checker = scenario.checker().spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    #[allow(clippy::print_stderr, reason = "shown with --nocapture, for the report of a change")]
    {
        eprintln!("{of}: {states} states, depth {depth}");
    }
    checker.assert_properties();
}

/// Whether the checker finds a run that breaks a property.
fn is_found(scenario: Scenario) -> bool {
    let checker = scenario.checker().spawn_bfs().join();
    !checker.discoveries().is_empty()
}

#[test]
fn a_subtree_moves_between_two_ranks_that_crash() {
    let budget = Budget { crashes: 2, ..FAULTS };
    check("subtree", scenario(&[(None, 0)], &[subtree(0, 0, 1)], budget));
}

#[test]
fn a_subtree_goes_and_comes_back() {
    let plans = [subtree(0, 0, 1), subtree(0, 1, 0)];
    check("there and back", scenario(&[(None, 0)], &plans, FAULTS));
}

#[test]
fn a_name_moves_to_a_place_that_clients_use() {
    let budget = Budget { crashes: 2, writes: 2, ..FAULTS };
    check("name", scenario(&[(None, 0)], &[name(0, 0, 1, (0, 1))], budget));
}

#[test]
fn two_names_meet_in_opposite_directions() {
    let plans = [name(0, 0, 1, (0, 1)), name(1, 1, 0, (1, 0))];
    let budget = Budget { unknowns: 0, writes: 0, ..FAULTS };
    check("opposite names", scenario(&[(None, 0), (None, 1)], &plans, budget));
}

#[test]
fn of_two_names_that_meet_one_proceeds() {
    let plans = [name(0, 0, 1, (0, 1)), name(1, 1, 0, (1, 0))];
    let mut meeting = scenario(&[(None, 0), (None, 1)], &plans, Budget::default());
    meeting.proceeds = true;
    check("names that meet", meeting);
}

#[test]
fn an_outer_and_an_inner_subtree_meet() {
    // The inner one is the other rank's, and comes back while the outer one goes there.
    let plans = [subtree(0, 0, 1), subtree(1, 1, 0)];
    check("nested, opposite", scenario(&[(None, 0), (Some(0), 1)], &plans, FAULTS));
}

#[test]
fn a_subtree_leaves_with_the_one_in_it() {
    let plans = [subtree(0, 0, 1), subtree(1, 0, 1)];
    check("nested, together", scenario(&[(None, 0), (Some(0), 0)], &plans, FAULTS));
}

#[test]
fn an_inner_subtree_goes_to_a_third_rank() {
    let budget = Budget { silences: 0, unknowns: 0, ..FAULTS };
    let plans = [subtree(0, 0, 1), subtree(1, 2, 1)];
    check("nested, three ranks", scenario(&[(None, 0), (Some(0), 2)], &plans, budget));
}

#[test]
fn the_model_finds_a_commit_that_ignores_the_fence() {
    let mut broken = scenario(&[(None, 0)], &[name(0, 0, 1, (0, 1))], FAULTS);
    broken.fault = Some(Fault::IgnoresFence);
    assert!(is_found(broken));
}

#[test]
fn the_model_finds_a_giver_that_stays_in_doubt() {
    let mut broken = scenario(&[(None, 0)], &[subtree(0, 0, 1)], FAULTS);
    broken.fault = Some(Fault::StaysInDoubt);
    assert!(is_found(broken));
}

#[test]
fn the_model_finds_a_recovery_that_forgets_records() {
    let mut broken = scenario(&[(None, 0)], &[name(0, 0, 1, (0, 1))], FAULTS);
    broken.fault = Some(Fault::ForgetsRecords);
    assert!(is_found(broken));
}
