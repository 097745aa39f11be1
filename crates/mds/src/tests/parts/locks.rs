use types::{ClientId, Ino, Lock, LockKind, LockMode};

use crate::locks::{LockOutcome, Locks};

const FILE: Ino = Ino(1 << 41);
const OTHER: Ino = Ino(1 << 42);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn lock(mode: LockMode, start: u64, end: u64) -> Lock {
    Lock { kind: LockKind::Posix, mode, owner: 1, pid: 10, start, end }
}

/// A table, and the tickets of the requests that it served.
#[derive(Default)]
struct Table {
    locks: Locks<u32>,
    served: Vec<u32>,
}

impl Table {
    fn set(&mut self, ino: Ino, client: ClientId, lock: Lock, ticket: Option<u32>) -> LockOutcome {
        let outcome = self.locks.set(ino, client, lock, ticket, &mut self.served);
        self.locks.validate();
        outcome
    }
}

/// Client A holds bytes 0 to 9 for writing.
fn held() -> Table {
    let mut table = Table::default();
    assert_eq!(table.set(FILE, A, lock(LockMode::Write, 0, 9), None), LockOutcome::Set);
    table
}

#[test]
fn a_lock_of_the_same_owner_replaces_its_lock() {
    let mut table = held();
    assert_eq!(table.set(FILE, A, lock(LockMode::Read, 0, 9), None), LockOutcome::Set);
    assert_eq!(table.set(FILE, B, lock(LockMode::Read, 0, 9), None), LockOutcome::Set);
}

#[test]
fn a_lock_of_another_owner_of_the_same_client_is_excluded() {
    let mut table = held();
    let other = Lock { owner: 2, ..lock(LockMode::Write, 0, 9) };
    assert_eq!(table.set(FILE, A, other, None), LockOutcome::Taken);
}

#[test]
fn a_lock_on_another_file_is_granted() {
    let mut table = held();
    assert_eq!(table.set(OTHER, B, lock(LockMode::Write, 0, 9), None), LockOutcome::Set);
    assert_eq!(table.locks.len(), 2);
}

#[test]
fn an_unlock_of_a_part_keeps_the_rest() {
    let mut table = held();
    table.set(FILE, A, lock(LockMode::Unlock, 3, 5), None);
    assert_eq!(table.set(FILE, B, lock(LockMode::Write, 3, 5), None), LockOutcome::Set);
    assert_eq!(table.set(FILE, B, lock(LockMode::Write, 2, 2), None), LockOutcome::Taken);
    assert_eq!(table.set(FILE, B, lock(LockMode::Write, 6, 6), None), LockOutcome::Taken);
}

#[test]
fn an_unlock_without_a_lock_leaves_no_file_behind() {
    let mut table = Table::default();
    assert_eq!(table.set(FILE, A, lock(LockMode::Unlock, 0, 9), None), LockOutcome::Set);
    assert_eq!(table.locks.len(), 0);
}

#[test]
fn an_unlock_grants_each_waiting_reader() {
    let mut table = held();
    for (client, ticket) in [(B, 1), (C, 2)] {
        let outcome = table.set(FILE, client, lock(LockMode::Read, 0, 9), Some(ticket));
        assert_eq!(outcome, LockOutcome::Waits);
    }
    table.set(FILE, A, lock(LockMode::Unlock, 0, 9), None);
    assert_eq!(table.served, [1, 2]);
}

#[test]
fn a_partial_unlock_grants_the_waiting_request_that_fits() {
    let mut table = held();
    table.set(FILE, B, lock(LockMode::Write, 0, 4), Some(1));
    table.set(FILE, C, lock(LockMode::Write, 5, 9), Some(2));
    table.set(FILE, A, lock(LockMode::Unlock, 5, 9), None);
    assert_eq!(table.served, [2]);
}

#[test]
fn a_client_that_leaves_gives_up_its_locks_and_its_waits() {
    let mut table = held();
    table.set(FILE, B, lock(LockMode::Write, 0, 9), Some(1));
    table.locks.disconnect(B, |_| true, &mut table.served);
    table.locks.disconnect(A, |_| true, &mut table.served);
    table.locks.end_old(A, |_| true, &mut table.served);
    assert!(table.served.is_empty(), "the client that waited is gone");
    assert_eq!(table.locks.len(), 0);
}

#[test]
fn locks_that_a_client_does_not_report_end_when_it_has_reported_the_others() {
    let mut table = held();
    table.set(FILE, B, lock(LockMode::Write, 0, 4), Some(1));
    table.set(FILE, C, lock(LockMode::Write, 5, 9), Some(2));
    table.locks.disconnect(A, |_| true, &mut table.served);
    table.locks.validate();
    assert!(table.served.is_empty(), "the client may report its lock");
    assert_eq!(table.locks.clients(FILE).collect::<Vec<_>>(), [A]);
    table.set(FILE, A, lock(LockMode::Write, 0, 4), None);
    table.locks.validate();
    table.locks.end_old(A, |_| true, &mut table.served);
    assert_eq!(table.served, [2], "the first bytes are locked anew");
    table.locks.validate();
}

#[test]
fn an_old_lock_ends_with_its_release() {
    let mut table = held();
    table.locks.disconnect(A, |_| true, &mut table.served);
    table.set(FILE, A, lock(LockMode::Unlock, 0, 9), None);
    assert_eq!(table.locks.len(), 0);
}

#[test]
fn a_file_that_moves_away_takes_its_waiting_requests_along() {
    let mut table = held();
    table.set(FILE, B, lock(LockMode::Write, 0, 9), Some(7));
    assert_eq!(table.locks.remove(FILE), [7]);
    assert_eq!((table.locks.len(), table.locks.remove(FILE).len()), (0, 0));
}

#[test]
fn the_clients_of_a_file_are_those_with_locks() {
    let mut table = held();
    table.set(FILE, B, lock(LockMode::Write, 0, 9), Some(1));
    assert_eq!(table.locks.clients(FILE).collect::<Vec<_>>(), [A]);
    assert_eq!(table.locks.clients(OTHER).count(), 0);
}

#[test]
fn the_files_of_the_table_have_locks() {
    let mut table = held();
    table.set(OTHER, B, lock(LockMode::Read, 0, 0), None);
    assert_eq!(table.locks.files().collect::<Vec<_>>(), [FILE, OTHER]);
}

#[test]
fn a_test_finds_the_first_lock_in_the_way() {
    let mut table = held();
    table.set(FILE, B, lock(LockMode::Write, 20, 29), None);
    let found = table.locks.test(FILE, C, &lock(LockMode::Read, 5, 25));
    assert_eq!(found, Some((A, lock(LockMode::Write, 0, 9))));
    let found = table.locks.test(FILE, C, &lock(LockMode::Read, 10, 25));
    assert_eq!(found.map(|(client, _)| client), Some(B));
    assert_eq!(table.locks.test(FILE, C, &lock(LockMode::Read, 10, 19)), None);
}

#[test]
fn a_cancel_finds_exactly_the_request_that_waits() {
    let mut table = held();
    let wish = lock(LockMode::Write, 0, 9);
    table.set(FILE, B, wish, Some(1));
    let other = Lock { end: 8, ..wish };
    assert_eq!(table.locks.cancel(FILE, B, &other, &mut table.served), None);
    assert_eq!(table.locks.cancel(FILE, C, &wish, &mut table.served), None);
    assert_eq!(table.locks.cancel(FILE, B, &wish, &mut table.served), Some(1));
}

#[test]
fn a_circle_through_two_files_is_a_deadlock() {
    let mut table = held();
    table.set(OTHER, B, lock(LockMode::Write, 0, 9), None);
    assert_eq!(table.set(OTHER, A, lock(LockMode::Write, 0, 0), Some(1)), LockOutcome::Waits);
    assert_eq!(table.set(FILE, B, lock(LockMode::Write, 0, 0), Some(2)), LockOutcome::Deadlock);
}
