use super::Order;
use crate::{Composition, Mechanism};

fn order(text: &str) -> Order {
    Order::of(&Composition::parse(text).unwrap())
}

fn persist_follows_append(text: &str) -> bool {
    order(text)
        .some_follows_every(Mechanism::LocalPersist, |kind| kind == Mechanism::AppendClientJournal)
}

#[test]
fn members_of_a_serial_follow_each_other_and_members_of_a_parallel_do_not() {
    for (text, follows) in [
        ("create+save", true),
        ("save+create", false),
        ("create||save", false),
        ("create+(save||persist)", true),
        ("(create||rpcs)+save", true),
        ("(create+persist)||save", false),
        ("(create+save)||persist", true),
        ("create+save+create", false),
        ("save+create+save", true),
        ("create", false),
    ] {
        assert_eq!(persist_follows_append(text), follows, "{text}");
    }
}

#[test]
fn all_precede_is_true_of_kinds_that_do_not_occur() {
    assert!(order("rpcs").all_precede(Mechanism::persists, Mechanism::applies));
    assert!(order("save+apply").all_precede(Mechanism::persists, Mechanism::applies));
    assert!(!order("save+apply+save").all_precede(Mechanism::persists, Mechanism::applies));
    assert!(!order("save||apply").all_precede(Mechanism::persists, Mechanism::applies));
}
