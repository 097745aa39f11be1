use types::{Errno, Lock, LockKind, LockMode};
use wire::{Answer, Op, SessionOp};

use crate::tests::fixture::Tree;

fn posix(mode: LockMode, start: u64, end: u64) -> Lock {
    Lock { kind: LockKind::Posix, mode, owner: 1, pid: 10, start, end }
}

fn whole(mode: LockMode) -> Lock {
    posix(mode, 0, u64::MAX)
}

fn flock(mode: LockMode) -> Lock {
    Lock { kind: LockKind::Flock, mode, owner: 1, pid: 10, start: 0, end: u64::MAX }
}

/// A tree in which client 1 has a lock on the file, and client 2 is connected.
fn locked(lock: Lock) -> Tree {
    let mut tree = Tree::new();
    tree.connect(2);
    let ino = tree.file;
    tree.answer(Op::Session(SessionOp::Lock { ino, lock, wait: false })).unwrap();
    tree
}

/// How the server answers client 2, which does not wait.
fn tries(tree: &mut Tree, lock: Lock) -> Result<Answer, Errno> {
    let ino = tree.file;
    let tid = tree.ask(2, Op::Session(SessionOp::Lock { ino, lock, wait: false }));
    tree.reply(2, tid).result.map_err(|failure| failure.errno)
}

#[test]
fn a_free_lock_is_granted() {
    let tree = locked(whole(LockMode::Write));
    assert_eq!(tree.counted(0, "locked_files"), 1);
}

#[test]
fn a_lock_that_another_client_holds_is_not_granted() {
    let mut tree = locked(whole(LockMode::Write));
    assert_eq!(tries(&mut tree, whole(LockMode::Read)), Err(Errno::Again));
}

#[test]
fn two_clients_hold_a_lock_for_reading() {
    let mut tree = locked(whole(LockMode::Read));
    assert_eq!(tries(&mut tree, whole(LockMode::Read)), Ok(Answer::Done));
}

#[test]
fn two_clients_hold_locks_on_ranges_that_do_not_overlap() {
    let mut tree = locked(posix(LockMode::Write, 0, 9));
    assert_eq!(tries(&mut tree, posix(LockMode::Write, 10, 19)), Ok(Answer::Done));
}

#[test]
fn a_lock_with_an_end_before_its_start_is_refused() {
    let mut tree = Tree::new();
    let op = Op::Session(SessionOp::Lock {
        ino: tree.file,
        lock: posix(LockMode::Write, 5, 4),
        wait: false,
    });
    assert_eq!(tree.refusal(op), Some(Errno::Invalid));
}

#[test]
fn a_blocked_lock_is_granted_when_its_holder_unlocks() {
    let mut tree = locked(whole(LockMode::Write));
    let ino = tree.file;
    let tid =
        tree.ask(2, Op::Session(SessionOp::Lock { ino, lock: whole(LockMode::Write), wait: true }));
    tree.pass(10);
    assert!(!tree.is_answered(2, tid));
    tree.answer(Op::Session(SessionOp::Lock { ino, lock: whole(LockMode::Unlock), wait: false }))
        .unwrap();
    assert_eq!(tree.reply(2, tid).result, Ok(Answer::Done));
}

#[test]
fn a_blocked_lock_is_granted_when_its_holder_is_gone() {
    let mut tree = locked(whole(LockMode::Write));
    let ino = tree.file;
    let tid =
        tree.ask(2, Op::Session(SessionOp::Lock { ino, lock: whole(LockMode::Write), wait: true }));
    tree.disconnect(1);
    assert_eq!(tree.reply(2, tid).result, Ok(Answer::Done));
}

#[test]
fn a_canceled_wait_for_a_lock_is_interrupted() {
    let mut tree = locked(whole(LockMode::Write));
    let (ino, lock) = (tree.file, whole(LockMode::Read));
    let tid = tree.ask(2, Op::Session(SessionOp::Lock { ino, lock, wait: true }));
    let cancel = tree.ask(2, Op::Session(SessionOp::CancelLock { ino, lock }));
    assert_eq!(tree.reply(2, cancel).result, Ok(Answer::Done));
    assert_eq!(tree.reply(2, tid).result.unwrap_err().errno, Errno::Interrupted);
}

#[test]
fn a_cancel_without_a_wait_changes_nothing() {
    let mut tree = locked(whole(LockMode::Write));
    let (ino, lock) = (tree.file, whole(LockMode::Write));
    let cancel = tree.ask(2, Op::Session(SessionOp::CancelLock { ino, lock }));
    assert_eq!(tree.reply(2, cancel).result, Ok(Answer::Done));
    assert_eq!(tries(&mut tree, lock), Err(Errno::Again));
}

#[test]
fn a_circle_of_waiting_processes_is_a_deadlock() {
    let mut tree = locked(posix(LockMode::Write, 0, 0));
    let ino = tree.file;
    assert_eq!(tries(&mut tree, posix(LockMode::Write, 1, 1)), Ok(Answer::Done));
    tree.ask(
        1,
        Op::Session(SessionOp::Lock { ino, lock: posix(LockMode::Write, 1, 1), wait: true }),
    );
    let tid = tree.ask(
        2,
        Op::Session(SessionOp::Lock { ino, lock: posix(LockMode::Write, 0, 0), wait: true }),
    );
    assert_eq!(tree.reply(2, tid).result.unwrap_err().errno, Errno::Deadlock);
}

#[test]
fn a_lock_of_an_open_file_and_one_of_a_process_do_not_exclude_each_other() {
    let mut tree = locked(flock(LockMode::Write));
    assert_eq!(tries(&mut tree, whole(LockMode::Write)), Ok(Answer::Done));
    assert_eq!(tries(&mut tree, flock(LockMode::Read)), Err(Errno::Again));
}

#[test]
fn a_query_names_the_lock_that_is_in_the_way() {
    let held = posix(LockMode::Write, 5, 9);
    let mut tree = locked(held);
    let ino = tree.file;
    let tid = tree.ask(2, Op::Session(SessionOp::GetLock { ino, lock: whole(LockMode::Read) }));
    let found = Some((types::ClientId(1), held));
    assert_eq!(tree.reply(2, tid).result, Ok(Answer::Locked(found)));
}

#[test]
fn a_query_of_the_holder_finds_no_lock_in_the_way() {
    let mut tree = locked(whole(LockMode::Write));
    let op = Op::Session(SessionOp::GetLock { ino: tree.file, lock: whole(LockMode::Write) });
    assert_eq!(tree.answer(op), Ok(Answer::Locked(None)));
}

#[test]
fn a_waiting_writer_comes_before_later_readers() {
    let mut tree = locked(whole(LockMode::Read));
    tree.connect(3);
    let ino = tree.file;
    let writer =
        tree.ask(2, Op::Session(SessionOp::Lock { ino, lock: whole(LockMode::Write), wait: true }));
    let reader =
        tree.ask(3, Op::Session(SessionOp::Lock { ino, lock: whole(LockMode::Read), wait: true }));
    assert!(!tree.is_answered(3, reader), "the writer came first");
    tree.answer(Op::Session(SessionOp::Lock { ino, lock: whole(LockMode::Unlock), wait: false }))
        .unwrap();
    assert!(tree.is_answered(2, writer) && !tree.is_answered(3, reader));
    tree.disconnect(2);
    assert!(tree.is_answered(3, reader));
}
