use std::collections::BTreeMap;

use proptest::prelude::*;
use types::{ClientId, Ino, Lock, LockKind, LockMode};

use super::{LockOutcome, Locks};

const FILE: Ino = Ino(1 << 41);
const OTHER: Ino = Ino(1 << 42);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn posix(mode: LockMode, start: u64, end: u64) -> Lock {
    Lock { kind: LockKind::Posix, mode, owner: 1, pid: 10, start, end }
}

fn flock(mode: LockMode) -> Lock {
    Lock { kind: LockKind::Flock, mode, owner: 1, pid: 10, start: 0, end: u64::MAX }
}

/// A table, and the requests that it served.
#[derive(Default)]
struct Table {
    locks: Locks<&'static str>,
    served: Vec<&'static str>,
}

impl Table {
    fn set_in(&mut self, ino: Ino, client: ClientId, lock: Lock) -> LockOutcome {
        self.locks.set(ino, client, lock, None, &mut self.served)
    }

    fn set(&mut self, client: ClientId, lock: Lock) -> LockOutcome {
        self.set_in(FILE, client, lock)
    }

    fn wait(&mut self, client: ClientId, lock: Lock, ticket: &'static str) -> LockOutcome {
        self.locks.set(FILE, client, lock, Some(ticket), &mut self.served)
    }

    fn served(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.served)
    }
}

#[test]
fn ranges_are_split_merged_and_given_up() {
    let mut table = Table::default();
    assert_eq!(table.set(A, posix(LockMode::Write, 0, 99)), LockOutcome::Set);
    assert_eq!(table.set(A, posix(LockMode::Read, 40, 59)), LockOutcome::Set);
    assert_eq!(table.set(B, posix(LockMode::Read, 40, 59)), LockOutcome::Set);
    assert_eq!(table.set(B, posix(LockMode::Read, 39, 59)), LockOutcome::Taken);
    assert_eq!(table.set(B, posix(LockMode::Unlock, 0, u64::MAX)), LockOutcome::Set);
    assert_eq!(table.set(A, posix(LockMode::Write, 40, 59)), LockOutcome::Set);
    let held = table.locks.test(FILE, B, &posix(LockMode::Read, 0, u64::MAX));
    assert_eq!(held, Some((A, posix(LockMode::Write, 0, 99))), "merged again");
    assert_eq!(table.set(A, posix(LockMode::Unlock, 0, u64::MAX)), LockOutcome::Set);
    assert_eq!(table.locks.len(), 0);
}

#[test]
fn flock_and_fcntl_locks_are_independent() {
    let mut table = Table::default();
    assert_eq!(table.set(A, flock(LockMode::Write)), LockOutcome::Set);
    assert_eq!(table.set(B, posix(LockMode::Write, 0, 9)), LockOutcome::Set);
    assert_eq!(table.set(B, flock(LockMode::Read)), LockOutcome::Taken);
}

#[test]
fn waiting_lock_requests_are_served_in_order_of_arrival() {
    let mut table = Table::default();
    table.set(A, posix(LockMode::Read, 0, 9));
    assert_eq!(table.wait(B, posix(LockMode::Write, 0, 9), "writer"), LockOutcome::Waits);
    assert_eq!(table.wait(C, posix(LockMode::Read, 5, 5), "reader"), LockOutcome::Waits);
    // A try does not overtake waiting requests; and a holder is not delayed by them.
    let another = ClientId(4);
    assert_eq!(table.set(another, posix(LockMode::Read, 5, 29)), LockOutcome::Set);
    table.locks.disconnect(another, |_| true, &mut table.served);
    table.locks.end_old(another, |_| true, &mut table.served);
    assert_eq!(table.wait(A, posix(LockMode::Read, 5, 20), "holder"), LockOutcome::Set);
    assert_eq!(table.served(), [""; 0]);
    table.set(A, posix(LockMode::Unlock, 0, u64::MAX));
    assert_eq!(table.served(), ["writer"]);
    table.locks.disconnect(B, |_| true, &mut table.served);
    table.locks.end_old(B, |_| true, &mut table.served);
    assert_eq!(table.served(), ["reader"]);
}

#[test]
fn a_cancelled_wait_lets_later_requests_through() {
    let mut table = Table::default();
    table.set(A, posix(LockMode::Read, 0, 9));
    let wish = posix(LockMode::Write, 0, 9);
    table.wait(B, wish, "writer");
    table.wait(C, posix(LockMode::Read, 0, 9), "reader");
    let mut served = Vec::new();
    assert_eq!(table.locks.cancel(FILE, B, &wish, &mut served), Some("writer"));
    assert_eq!(served, ["reader"]);
    assert_eq!(table.locks.cancel(FILE, B, &wish, &mut served), None);
}

#[test]
fn a_circle_of_processes_is_refused() {
    let mut table = Table::default();
    table.set(A, posix(LockMode::Write, 0, 0));
    table.set(B, posix(LockMode::Write, 1, 1));
    table.set_in(OTHER, C, posix(LockMode::Write, 0, 0));
    assert_eq!(table.wait(A, posix(LockMode::Write, 1, 1), "a"), LockOutcome::Waits);
    let lock = posix(LockMode::Read, 0, 0);
    let mut served = Vec::new();
    assert_eq!(table.locks.set(OTHER, B, lock, Some("b"), &mut served), LockOutcome::Waits);
    assert_eq!(table.wait(C, posix(LockMode::Read, 0, 0), "c"), LockOutcome::Deadlock);
    // Both readers want to write.
    let mut table = Table::default();
    table.set(A, posix(LockMode::Read, 0, 0));
    table.set(B, posix(LockMode::Read, 0, 0));
    assert_eq!(table.wait(A, posix(LockMode::Write, 0, 0), "a"), LockOutcome::Waits);
    assert_eq!(table.wait(B, posix(LockMode::Write, 0, 0), "b"), LockOutcome::Deadlock);
    table.set(B, posix(LockMode::Unlock, 0, 0));
    assert_eq!(table.served(), ["a"]);
}

#[test]
fn open_files_that_both_want_to_write_what_they_read_do_not_stand_still() {
    let mut table = Table::default();
    table.set(A, flock(LockMode::Read));
    table.set(B, flock(LockMode::Read));
    assert_eq!(table.wait(A, flock(LockMode::Write), "a"), LockOutcome::Waits);
    assert_eq!(table.wait(B, flock(LockMode::Write), "b"), LockOutcome::Set);
    table.set(B, flock(LockMode::Unlock));
    assert_eq!(table.served(), ["a"]);
}

const BYTES: u64 = 12;

/// Locks, byte by byte.
#[derive(Debug, Default)]
struct Model(BTreeMap<(u64, ClientId), LockMode>);

impl Model {
    fn excludes(&self, client: ClientId, lock: &Lock) -> bool {
        let mut bytes = lock.start..=lock.end;
        lock.mode != LockMode::Unlock
            && bytes.any(|byte| {
                self.0.iter().any(|((at, holder), mode)| {
                    let writes = *mode == LockMode::Write || lock.mode == LockMode::Write;
                    *at == byte && *holder != client && writes
                })
            })
    }

    fn place(&mut self, client: ClientId, lock: &Lock) {
        for byte in lock.start..=lock.end {
            self.0.remove(&(byte, client));
            if lock.mode != LockMode::Unlock {
                self.0.insert((byte, client), lock.mode);
            }
        }
    }
}

fn wishes() -> impl Strategy<Value = Vec<(ClientId, Lock, bool)>> {
    let mode = prop_oneof![Just(LockMode::Read), Just(LockMode::Write), Just(LockMode::Unlock)];
    let wish = (1..4u64, mode, 0..BYTES, 0..BYTES, any::<bool>());
    let wish = wish.prop_map(|(client, mode, one, other, waits)| {
        (ClientId(client), posix(mode, one.min(other), one.max(other)), waits)
    });
    prop::collection::vec(wish, 1..40)
}

proptest! {
    #[test]
    fn locks_agree_with_the_bytes(wishes in wishes()) {
        let (mut locks, mut model) = (Locks::default(), Model::default());
        let mut waiting: BTreeMap<usize, (ClientId, Lock)> = BTreeMap::new();
        for (ticket, (client, lock, waits)) in wishes.into_iter().enumerate() {
            // A waiting client sends no other request.
            if waiting.values().any(|(waiter, _)| *waiter == client) {
                continue;
            }
            let mut served = Vec::new();
            let excluded = model.excludes(client, &lock);
            let found = locks.test(FILE, client, &lock);
            prop_assert_eq!(found.is_some(), excluded);
            let outcome = locks.set(FILE, client, lock, waits.then_some(ticket), &mut served);
            match outcome {
                LockOutcome::Set => {
                    prop_assert!(!excluded);
                    model.place(client, &lock);
                }
                LockOutcome::Taken => prop_assert!(excluded && !waits),
                LockOutcome::Deadlock => prop_assert!(excluded && waits && !waiting.is_empty()),
                LockOutcome::Waits => {
                    prop_assert!(waits && (excluded || !waiting.is_empty()));
                    waiting.insert(ticket, (client, lock));
                }
            }
            for ticket in served {
                let (client, lock) = waiting.remove(&ticket).expect("it waited");
                prop_assert!(!model.excludes(client, &lock), "served too early");
                model.place(client, &lock);
            }
            // No request waits needlessly: the first in the queue waits for a held lock.
            if let Some((_, (client, lock))) = waiting.first_key_value() {
                prop_assert!(model.excludes(*client, lock), "not served");
            }
            for byte in 0..BYTES {
                for client in [A, B, C] {
                    let probe = posix(LockMode::Write, byte, byte);
                    let others = model.excludes(client, &probe);
                    prop_assert_eq!(locks.test(FILE, client, &probe).is_some(), others);
                }
            }
        }
        let mut served = Vec::new();
        for client in [A, B, C] {
            locks.disconnect(client, |_| true, &mut served);
            locks.end_old(client, |_| true, &mut served);
        }
        prop_assert_eq!(locks.len(), 0);
    }
}
