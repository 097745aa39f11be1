use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{LINE, Slots, hash_of, record_of, slot};

/// Hashes as they may come: spread, all in one line, or at the very end of the table.
fn hashes() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0u32..40, (u32::MAX - 40)..=u32::MAX, Just(0x8000_0000)]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u32),
    /// Removes the slot of this rank.
    Remove(usize),
    Grow,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => hashes().prop_map(Step::Insert),
        3 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::Grow),
    ];
    prop::collection::vec(step, 0..300)
}

/// The promises of the module documentation.
fn check(slots: &Slots, model: &BTreeSet<u64>) {
    let all: Vec<u64> = slots.iter_from(0).collect();
    assert!(all.iter().eq(model), "the slots are those of the model, in order");
    assert_eq!(slots.to_vec(0), all);
    assert_eq!(slots.get(slots.lines.len() * LINE - 1), None, "the last slot is empty");
    let mut hole = None;
    for at in 0..slots.lines.len() * LINE {
        match slots.get(at) {
            None => hole = Some(at),
            Some(slot) => {
                let home = slots.home(hash_of(slot)) * LINE;
                assert!(home <= at, "a slot is not before its home line");
                assert!(hole.is_none_or(|hole| hole < home), "nothing is empty in between");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn slots_stay_in_order_whatever_comes_and_goes(depth in 0u8..3, steps in steps()) {
        let mut slots = Slots::with_room(depth, 2);
        let mut model = BTreeSet::new();
        for (record, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(hash) => {
                    // All hashes of a page share its leading bits.
                    let hash = hash >> depth;
                    let mut at = slots.lower_bound(hash);
                    while slots.get_if(at, hash).is_some() {
                        at += 1;
                    }
                    slots.insert(at, slot(hash, record));
                    model.insert(slot(hash, record));
                    if slots.is_crowded(u32::try_from(model.len()).unwrap()) {
                        slots.grow(0);
                    }
                }
                Step::Remove(rank) if !model.is_empty() => {
                    let gone = *model.iter().nth(rank % model.len()).unwrap();
                    let mut at = slots.lower_bound(hash_of(gone));
                    while slots.get_if(at, hash_of(gone)).map(record_of) != Some(record_of(gone)) {
                        at += 1;
                    }
                    slots.remove(at);
                    model.remove(&gone);
                }
                Step::Remove(_) => {}
                Step::Grow if slots.bits < 8 => slots.grow(0),
                Step::Grow => {}
            }
            check(&slots, &model);
        }
    }
}

#[test]
fn a_line_is_searched_like_a_sorted_list() {
    let mut slots = Slots::with_room(0, 6);
    for hash in [10, 20, 30, 40, 50, 60] {
        slots.insert(slots.lower_bound(hash), slot(hash, 0));
    }
    for hash in 0..70 {
        let below = [10, 20, 30, 40, 50, 60].iter().filter(|known| **known < hash).count();
        assert_eq!(slots.lower_bound(hash), below);
        assert_eq!(slots.get_if(below, hash).is_some(), hash % 10 == 0 && hash > 0 && hash < 70);
    }
}

#[test]
fn the_highest_hash_is_not_taken_for_an_empty_slot() {
    let mut slots = Slots::with_room(0, 2);
    let at = slots.lower_bound(u32::MAX);
    assert_eq!(slots.get_if(at, u32::MAX), None);
    slots.insert(at, slot(u32::MAX, 7));
    assert_eq!(slots.get_if(at, u32::MAX).map(record_of), Some(7));
}

#[test]
fn many_names_of_one_hash_make_the_table_longer_but_not_larger() {
    let mut slots = Slots::with_room(0, 12);
    for record in 0..500 {
        let at = slots.lower_bound(u32::MAX) + record;
        slots.insert(at, slot(u32::MAX, record));
    }
    assert_eq!(slots.iter_from(0).map(record_of).collect::<Vec<_>>(), (0..500).collect::<Vec<_>>());
    assert!(slots.memory() < 2 * 8 * 600);
}
