use types::{Ino, Moment, Span};

use crate::leases::{Leases, Terms};

const DIR: Ino = Ino(7);

fn at(millis: u64) -> Moment {
    Moment::default() + Span::from_millis(millis)
}

fn leases() -> Leases {
    let ms = Span::from_millis;
    Leases::new(Terms { span: ms(1000), slack: ms(10), quiet: ms(500) })
}

#[test]
fn a_lease_expires_on_the_server_later_than_on_the_client() {
    let mut leases = leases();
    assert_eq!(leases.give(DIR, at(0)), Some(Span::from_millis(1000)));
    assert!(leases.is_leased(DIR, at(1009)) && !leases.is_leased(DIR, at(1010)));
    assert_eq!(leases.whole(), Span::from_millis(1010));
}

#[test]
fn a_second_lease_extends_the_first() {
    let mut leases = leases();
    leases.give(DIR, at(0));
    leases.give(DIR, at(500));
    assert!(leases.is_leased(DIR, at(1509)) && !leases.is_leased(DIR, at(1510)));
    assert_eq!(leases.len(), 1);
}

#[test]
fn a_change_of_a_directory_without_a_lease_does_not_wait() {
    let mut leases = leases();
    assert!(!leases.must_wait(DIR, at(0)) && leases.over(at(9999)).is_empty());
}

#[test]
fn a_change_of_a_directory_with_an_expired_lease_does_not_wait() {
    let mut leases = leases();
    leases.give(DIR, at(0));
    assert!(!leases.must_wait(DIR, at(1010)));
}

#[test]
fn a_lease_is_refused_while_a_change_waits() {
    let mut leases = leases();
    leases.give(DIR, at(0));
    assert!(leases.must_wait(DIR, at(10)));
    assert_eq!(leases.give(DIR, at(11)), None);
    leases.validate();
}

#[test]
fn a_change_that_waits_over_a_standstill_of_the_server_is_not_starved() {
    let mut leases = leases();
    leases.give(DIR, at(0));
    assert!(leases.must_wait(DIR, at(10)));
    // No tick came for so long that leases are granted again.
    assert!(leases.give(DIR, at(2000)).is_some());
    assert!(leases.must_wait(DIR, at(2001)), "the change comes again");
    assert_eq!(leases.give(DIR, at(2002)), None, "the change waits for the last lease");
    assert_eq!(leases.over(at(3010)), [DIR]);
}

#[test]
fn a_closed_subtree_is_closed_for_a_lease_and_the_quiet_time() {
    let mut leases = leases();
    leases.close_below(DIR, at(0));
    assert_eq!(leases.closed_below(at(1509)).collect::<Vec<_>>(), [DIR]);
    assert_eq!(leases.closed_below(at(1510)).count(), 0);
}

#[test]
fn a_subtree_that_is_closed_again_stays_closed_until_its_first_time() {
    let mut leases = leases();
    leases.close_below(DIR, at(0));
    leases.close_below(DIR, at(1000));
    assert_eq!(leases.closed_below(at(1510)).count(), 0, "or it would be closed for ever");
    leases.close_below(DIR, at(2000));
    assert_eq!(leases.closed_below(at(3509)).count(), 1);
}

#[test]
fn the_leased_directories_are_those_with_unexpired_leases() {
    let mut leases = leases();
    leases.give(DIR, at(0));
    leases.give(Ino(8), at(500));
    assert_eq!(leases.directories(at(1200)).collect::<Vec<_>>(), [Ino(8)]);
}

#[test]
fn the_end_of_a_lease_is_reported_once_to_the_changes_that_wait() {
    let mut leases = leases();
    leases.give(DIR, at(0));
    leases.must_wait(DIR, at(10));
    assert_eq!(leases.over(at(1010)), [DIR]);
    assert!(leases.over(at(1011)).is_empty());
    leases.validate();
}

#[test]
fn leases_of_an_earlier_server_are_past_after_a_minute() {
    let mut leases = leases();
    assert!(!leases.are_past(at(100_000)), "no server granted any");
    leases.recovered(at(0));
    assert!(!leases.are_past(at(59_999)) && leases.are_past(at(60_000)));
    assert!(!leases.are_past(at(60_001)), "that is reported once");
}
