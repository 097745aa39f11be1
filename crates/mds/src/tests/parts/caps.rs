use types::{ClientId, Ino, Moment, Span};

use crate::caps::Caps;

const DIR: Ino = Ino(7);
const ONE: ClientId = ClientId(1);
const TWO: ClientId = ClientId(2);

fn at(millis: u64) -> Moment {
    Moment::default() + Span::from_millis(millis)
}

/// Capabilities of one directory, held by two clients.
fn shared() -> Caps {
    let mut caps = Caps::default();
    assert!(caps.grant(ONE, DIR, at(0)) && caps.grant(TWO, DIR, at(0)));
    caps
}

#[test]
fn a_capability_that_a_client_holds_is_counted_once() {
    let mut caps = Caps::default();
    assert!(caps.grant(ONE, DIR, at(0)) && caps.grant(ONE, DIR, at(1)));
    caps.validate();
    assert_eq!(caps.len(), 1);
}

#[test]
fn a_client_that_holds_nothing_is_not_a_holder() {
    let caps = shared();
    assert!(caps.is_holding(ONE) && !caps.is_holding(ClientId(3)));
}

#[test]
fn a_revocation_concerns_each_other_holder() {
    let mut caps = shared();
    assert_eq!(caps.revoke(ClientId(3), DIR, at(5)), [ONE, TWO]);
    assert_eq!(caps.revoking(), [(DIR, ONE, at(5)), (DIR, TWO, at(5))]);
    caps.validate();
}

#[test]
fn a_revocation_of_a_directory_without_holders_concerns_no_client() {
    let mut caps = Caps::default();
    assert!(caps.revoke(ONE, DIR, at(0)).is_empty() && caps.revoking().is_empty());
}

#[test]
fn a_revoked_client_gets_no_capability_before_it_acknowledges() {
    let mut caps = shared();
    caps.revoke(ONE, DIR, at(0));
    assert!(!caps.grant(TWO, DIR, at(100)));
    assert!(caps.returned(TWO, DIR, at(100)));
    assert!(caps.grant(TWO, DIR, at(100)));
    caps.validate();
}

#[test]
fn a_directory_that_was_returned_without_a_revocation_is_granted_at_once() {
    let mut caps = shared();
    assert!(!caps.returned(ONE, DIR, at(1000)), "no request waits for that");
    assert!(caps.grant(ONE, DIR, at(0)));
}

#[test]
fn a_return_of_a_directory_that_a_client_does_not_hold_is_ignored() {
    let mut caps = shared();
    assert!(!caps.returned(ClientId(3), DIR, at(0)) && !caps.returned(ONE, Ino(8), at(0)));
    assert_eq!(caps.len(), 2);
    caps.validate();
}

#[test]
fn a_quiet_time_ends() {
    let mut caps = shared();
    caps.revoke(ONE, DIR, at(0));
    caps.returned(TWO, DIR, at(500));
    assert!(!caps.grant(ClientId(3), DIR, at(499)));
    caps.tidy(at(500));
    assert!(caps.grant(ClientId(3), DIR, at(500)));
}

#[test]
fn a_broken_connection_counts_as_a_revocation_of_each_capability() {
    let mut caps = shared();
    assert!(caps.grant(ONE, Ino(8), at(0)));
    caps.abandon(ONE, at(9));
    assert_eq!(caps.revoking(), [(DIR, ONE, at(9)), (Ino(8), ONE, at(9))]);
    caps.validate();
}

#[test]
fn a_client_that_leaves_hands_over_the_directories_that_others_wait_for() {
    let mut caps = shared();
    assert!(caps.grant(ONE, Ino(8), at(0)));
    caps.revoke(TWO, DIR, at(0));
    assert_eq!(caps.leave(ONE, at(1)), [DIR], "no request waits for the other directory");
    assert_eq!(caps.len(), 1);
    caps.validate();
}

#[test]
fn an_exclusive_directory_needs_the_only_capability() {
    let mut caps = shared();
    assert!(!caps.grant_exclusive(ONE, DIR));
    caps.returned(TWO, DIR, at(0));
    assert!(caps.grant_exclusive(ONE, DIR));
    assert_eq!(caps.exclusive().collect::<Vec<_>>(), [(DIR, ONE)]);
    caps.validate();
}

#[test]
fn an_exclusive_directory_is_granted_to_no_other_client() {
    let mut caps = Caps::default();
    assert!(caps.grant(ONE, DIR, at(0)) && caps.grant_exclusive(ONE, DIR));
    assert!(!caps.grant(TWO, DIR, at(0)) && caps.grant(ONE, DIR, at(0)));
    assert_eq!(caps.owner(DIR), Some(ONE));
}

#[test]
fn the_others_of_a_directory_are_its_holders_without_the_client() {
    let caps = shared();
    assert_eq!(caps.others(ONE, DIR).collect::<Vec<_>>(), [TWO]);
    assert_eq!(caps.others(ClientId(3), DIR).count(), 2);
    assert_eq!(caps.others(ONE, Ino(8)).count(), 0);
}

#[test]
fn the_directories_that_are_held_are_listed_once() {
    let mut caps = shared();
    assert!(caps.grant(TWO, Ino(8), at(0)));
    assert_eq!(caps.directories().collect::<Vec<_>>(), [DIR, Ino(8)]);
}
