use cudele::Stripe;

use super::{OBJECTS_MAX, Unsynced};

const STRIPE: u64 = Stripe::DEFAULT.bytes();

fn numbers(unsynced: &Unsynced) -> Vec<u64> {
    unsynced.numbers.iter().copied().collect()
}

#[test]
fn unsynced_writes_are_noted_by_object() {
    let mut unsynced = Unsynced::default();
    assert!(!unsynced.is_any());
    for range in [5..5, 0..1, STRIPE - 1..STRIPE + 1, 1 << 59..(1 << 59) + 1] {
        unsynced.note(Stripe::DEFAULT, range);
    }
    assert_eq!(numbers(&unsynced), [0, 1, (1 << 59) / STRIPE]);
    assert!(unsynced.is_changed() && !unsynced.all);
}

#[test]
fn a_change_of_many_objects_marks_all_as_unsynced() {
    let mut unsynced = Unsynced::default();
    unsynced.note(Stripe::DEFAULT, 0..OBJECTS_MAX * STRIPE);
    assert_eq!(numbers(&unsynced).len() as u64, OBJECTS_MAX);
    unsynced.note(Stripe::DEFAULT, 0..OBJECTS_MAX * STRIPE + 1);
    assert!(unsynced.all && numbers(&unsynced).is_empty());
    // As long as it was, and not only as long as it is: a sync must also cover removed objects.
    assert_eq!(unsynced.changed_to, OBJECTS_MAX * STRIPE + 1);
}

#[test]
fn an_opened_file_is_unsynced_and_unchanged() {
    let unsynced = Unsynced::unknown();
    assert!(unsynced.is_any() && !unsynced.is_changed());
}
