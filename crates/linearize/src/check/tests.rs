use proptest::prelude::*;

use super::{Next, Specification, TimedOperation, Verdict, check};

/// A few registers: the textbook object.
struct Registers;

#[derive(Clone, Copy, Debug)]
enum Act {
    Read(usize, u32),
    Write(usize, u32),
    /// Writes the second value if the object has the first; the flag is the result.
    Swap(usize, u32, u32, bool),
}

impl Specification for Registers {
    type State = [u32; 3];
    type Operation = Act;

    fn step(&self, state: &[u32; 3], act: &Act) -> Next<[u32; 3]> {
        let with = |at: usize, value| {
            let mut next = *state;
            next[at] = value;
            Next::One(vec![next])
        };
        match *act {
            Act::Read(at, value) if state[at] == value => Next::Same,
            Act::Read(..) => Next::Impossible,
            Act::Write(at, value) => with(at, value),
            Act::Swap(at, old, new, done) => match (state[at] == old, done) {
                (true, true) => with(at, new),
                (false, false) => Next::Same,
                _ => Next::Impossible,
            },
        }
    }
}

fn judge(entries: &[(u64, Option<u64>, Act)]) -> Verdict {
    let entries: Vec<_> = entries
        .iter()
        .map(|(start, end, operation)| {
            let hint = *end;
            TimedOperation { start: *start, end: *end, hint, operation: *operation }
        })
        .collect();
    check(&Registers, &[0; 3], &entries, 1_000_000)
}

#[track_caller]
fn accepted(entries: &[(u64, Option<u64>, Act)]) {
    let verdict = judge(entries);
    assert!(matches!(verdict, Verdict::Linearizable(_)), "{verdict:?}");
}

#[track_caller]
fn rejected(entries: &[(u64, Option<u64>, Act)]) {
    let verdict = judge(entries);
    assert!(matches!(verdict, Verdict::Violation { .. }), "{verdict:?}");
}

use Act::{Read, Swap, Write};

#[test]
fn a_read_during_a_write_may_see_either_value() {
    accepted(&[(1, Some(9), Write(0, 5)), (2, Some(3), Read(0, 0)), (4, Some(5), Read(0, 5))]);
    accepted(&[(1, Some(9), Write(0, 5)), (2, Some(3), Read(0, 5))]);
}

#[test]
fn a_read_after_a_write_sees_it() {
    rejected(&[(1, Some(2), Write(0, 5)), (3, Some(4), Read(0, 0))]);
}

#[test]
fn no_read_misses_a_write_that_an_earlier_read_saw() {
    rejected(&[(1, Some(9), Write(0, 5)), (2, Some(3), Read(0, 5)), (4, Some(5), Read(0, 0))]);
}

#[test]
fn two_readers_see_the_same_order() {
    let writes = [(1, Some(20), Write(0, 5)), (1, Some(20), Write(0, 6))];
    let one = [(2, Some(3), Read(0, 5)), (4, Some(5), Read(0, 6))];
    let other = [(2, Some(3), Read(0, 6)), (4, Some(5), Read(0, 5))];
    accepted(&[&writes[..], &one].concat());
    accepted(&[&writes[..], &other].concat());
    rejected(&[&writes[..], &one, &other].concat());
}

#[test]
fn a_pending_write_takes_effect_late_or_never() {
    let write = (1, None, Write(0, 5));
    accepted(&[write, (2, Some(3), Read(0, 0))]);
    accepted(&[write, (2, Some(3), Read(0, 0)), (50, Some(51), Read(0, 5))]);
    rejected(&[write, (2, Some(3), Read(0, 5)), (50, Some(51), Read(0, 0))]);
    // Not before it was asked for, and not twice.
    rejected(&[(3, None, Write(0, 5)), (1, Some(2), Read(0, 5))]);
    let again = (60, Some(61), Write(0, 0));
    rejected(&[write, (2, Some(3), Read(0, 5)), again, (62, Some(63), Read(0, 5))]);
}

#[test]
fn one_of_two_swaps_fails() {
    accepted(&[(1, Some(5), Swap(0, 0, 1, true)), (1, Some(5), Swap(0, 0, 2, false))]);
    rejected(&[(1, Some(5), Swap(0, 0, 1, true)), (1, Some(5), Swap(0, 0, 2, true))]);
}

#[test]
fn a_search_without_end_is_given_up() {
    let mut entries: Vec<_> = (1..=24).map(|value| (1, Some(100), Write(0, value))).collect();
    entries.push((200, Some(201), Read(0, 99)));
    let entries: Vec<_> = entries
        .into_iter()
        .map(|(start, end, operation)| TimedOperation { start, end, hint: None, operation })
        .collect();
    let verdict = check(&Registers, &[0; 3], &entries, 10_000);
    assert!(matches!(verdict, Verdict::Unknown { .. }), "{verdict:?}");
}

/// A sequential execution; each request begins before and ends after its effect.
fn execution() -> impl Strategy<Value = Vec<(u64, Option<u64>, Act)>> {
    let act = (0..4_u32, 0..3_usize, 0..4_u32, 0..4_u32, 0..60_u64, 0..60_u64);
    proptest::collection::vec(act, 1..60).prop_map(|acts| {
        let mut state = [0; 3];
        let mut entries = Vec::new();
        for (at, (kind, register, one, two, early, late)) in acts.into_iter().enumerate() {
            let now = 1000 + 10 * at as u64;
            let act = match kind {
                0 | 1 => Read(register, state[register]),
                2 => {
                    state[register] = one;
                    Write(register, one)
                }
                _ => {
                    let done = state[register] == one;
                    if done {
                        state[register] = two;
                    }
                    Swap(register, one, two, done)
                }
            };
            entries.push((now - early, Some(now + late), act));
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sequential_executions_are_accepted(mut entries in execution(), lost in 0..8_usize) {
        // A client that did not wait for an answer knows no more than the other clients.
        if let Some(entry) = entries.get_mut(lost) {
            entry.1 = if matches!(entry.2, Swap(..)) { entry.1 } else { None };
        }
        prop_assert!(matches!(judge(&entries), Verdict::Linearizable(_)));
    }

    #[test]
    fn an_order_that_is_found_explains_every_answer(entries in execution()) {
        let Verdict::Linearizable(order) = judge(&entries) else { panic!("accepted above") };
        let mut state = [0; 3];
        for (at, entry) in order.iter().enumerate() {
            let earliest = order[at..].iter().filter_map(|later| entries[*later].1).min();
            prop_assert!(entries[*entry].0 <= earliest.unwrap_or(u64::MAX));
            match Registers.step(&state, &entries[*entry].2) {
                Next::One(next) => state = next[0],
                Next::Same => {}
                Next::Impossible | Next::Some(_) => prop_assert!(false, "impossible"),
            }
        }
    }

    #[test]
    fn an_unwritten_value_is_rejected(mut entries in execution(), which in 0..60_usize) {
        let reads: Vec<usize> =
            (0..entries.len()).filter(|at| matches!(entries[*at].2, Read(..))).collect();
        prop_assume!(!reads.is_empty());
        let at = reads[which % reads.len()];
        let Read(register, _) = entries[at].2 else { unreachable!() };
        entries[at].2 = Read(register, 77);
        let is_rejected = matches!(judge(&entries), Verdict::Violation { .. });
        prop_assert!(is_rejected);
    }

    #[test]
    fn an_old_value_is_rejected(entries in execution(), register in 0..3_usize) {
        // Everything is over, then a write, then a look that does not see it.
        let end = entries.iter().filter_map(|entry| entry.1).max().unwrap_or(0) + 1;
        let mut entries = entries;
        entries.push((end, Some(end + 1), Write(register, 50)));
        let mut fresh = entries.clone();
        fresh.push((end + 2, Some(end + 3), Read(register, 50)));
        prop_assert!(matches!(judge(&fresh), Verdict::Linearizable(_)));
        entries.push((end + 2, Some(end + 3), Read(register, 1)));
        let is_rejected = matches!(judge(&entries), Verdict::Violation { .. });
        prop_assert!(is_rejected);
    }
}
