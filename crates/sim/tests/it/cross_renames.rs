//! A name that comes from another rank, and concurrent events around it.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use journal::{Event, InodeSnapshot, JournalBuffer};
use metastore::request::StoreOp;
use metastore::{MovedName, SUBTREES_NAME, Subtrees};
use objstore::{Expect, ObjectStore, PutOutcome};
use types::{Attr, Errno, Ino, Origin, Rank, Seq, Timestamp};
use wire::{Answer, ChangeOp, NewInode, Op, PeerBody, RankOp, ReadOp, SessionOp, TransferStep};

use crate::server::{Answered, World};

/// A file of the other rank.
const FILE: Ino = Ino(2 << 40);
const FROM: Rank = Rank(1);
const NUMBER: u64 = 7;

fn world() -> World {
    World::new("consistency: rpcs\ndurability: stream\n", 1)
}

fn ask(world: &mut World, op: Op<'_>) -> Answered {
    let tid = world.ask(0, op);
    world.until(|world| world.is_answered(0, tid));
    world.clients[0].answers[&tid].clone()
}

/// The other rank asks for the place of a name, until it has the answer.
fn arrive(world: &mut World, dir: Ino, record: &MovedName) -> Answered {
    for _ in 0..100 {
        let number =
            world.ask_as_rank(FROM, Op::Rank(RankOp::Arrive { dir, moved: &record.encode() }));
        world.pass(20);
        if let Some(answer) = world.peer_answers.get(&number) {
            return answer.clone();
        }
    }
    panic!("no answer about {dir}");
}

fn make_dir(world: &mut World) -> Ino {
    let new = NewInode { mode: 0o040_777, ..NewInode::default() };
    match ask(world, Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"dir", new })) {
        Ok(Answer::Attr(attr)) => attr.ino,
        other => panic!("{other:?}"),
    }
}

fn make_file(world: &mut World, parent: Ino, name: &[u8]) -> Ino {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    match ask(world, Op::Change(ChangeOp::Create { parent, name, new })) {
        Ok(Answer::Attr(attr)) => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// The name of a file of the other rank that comes to a directory here.
fn coming(new_parent: Ino) -> MovedName {
    MovedName { from: FROM, to: Rank(0), new_parent, ..record() }
}

fn record() -> MovedName {
    let attr = Attr { ino: FILE, mode: 0o100_644, nlink: 1, size: 3, ..Attr::default() };
    let event = Event::Rename {
        parent: Ino(50),
        name: b"old",
        new_parent: Ino::mount_stub(FILE),
        new_name: b"root",
        moved: InodeSnapshot { attr, data: b"abc", extra: &[] },
        exchanged: None,
        replaced: Ino(0),
        time: Timestamp(9),
    };
    let mut buffer = JournalBuffer::new(Seq(1), true);
    buffer.append(Origin::default(), &event);
    buffer.close_block();
    MovedName {
        from: Rank(0),
        number: NUMBER,
        to: FROM,
        ino: FILE,
        parent: Ino(50),
        name: b"old".to_vec(),
        new_parent: Ino(60),
        new_name: b"new".to_vec(),
        time: Timestamp(9),
        inode: buffer.take_blocks().concat(),
        ..MovedName::default()
    }
}

fn list(world: &World) -> Subtrees {
    world
        .memory
        .get(SUBTREES_NAME)
        .map_or_else(|_| Subtrees::default(), |(bytes, _)| Subtrees::decode(&bytes).unwrap())
}

fn fence(world: &World) -> u64 {
    list(world).fence(Rank(0))
}

/// The other rank replaces the list by one with the record.
fn commit(world: &World, record: &MovedName) {
    let mut list = list(world);
    list.put_name(record.clone());
    let put = world.memory.put(SUBTREES_NAME, &list.encode(), Expect::Any).unwrap();
    assert!(matches!(put, PutOutcome::Done(_)), "{put:?}");
}

/// The other rank reserves the place of a name, and commits.
fn give(world: &mut World, dir: Ino) -> MovedName {
    let record = coming(dir);
    assert_eq!(arrive(world, dir, &record), Ok(Answer::Done));
    assert_eq!(world.reservations.get(&NUMBER), Some(&fence(world)), "it is reserved");
    commit(world, &record);
    record
}

fn send(world: &mut World, step: TransferStep) {
    world.hear(FROM, PeerBody::Transfer { giver: FROM, number: NUMBER, step });
}

/// Whether the list says that this rank's journal has the name.
fn is_taken(world: &World) -> bool {
    list(world).name((FROM, NUMBER)).is_some_and(|name| name.is_taken)
}

fn replaces_list(op: &StoreOp) -> bool {
    matches!(op, StoreOp::Put { object, .. } if object == SUBTREES_NAME)
}

fn file(world: &mut World, dir: Ino) -> Answered {
    ask(world, Op::Read(ReadOp::Lookup { parent: dir, name: b"new" }))
}

#[test]
fn a_directory_that_a_name_comes_to_is_not_removed_meanwhile() {
    let mut world = world();
    let dir = make_dir(&mut world);
    assert_eq!(arrive(&mut world, dir, &coming(dir)), Ok(Answer::Done));
    let removes = world.ask(0, Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" }));
    world.pass(300);
    assert!(!world.is_answered(0, removes), "it is not decided");
    world.fails = replaces_list;
    commit(&world, &coming(dir));
    send(&mut world, TransferStep::Committed);
    world.pass(300);
    assert!(!world.is_answered(0, removes), "the list does not say that it is taken");
    world.fails = |_| false;
    world.until(|world| world.is_answered(0, removes));
    let refused = world.clients[0].answers[&removes].clone();
    assert_eq!(refused.map_err(|failure| failure.errno), Err(Errno::NotEmpty));
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
    assert!(is_taken(&world));
}

#[test]
fn a_taken_cross_rename_survives_a_crash_at_any_time() {
    // The store executes the operation, and the server dies before it gets the result; then with
    // its journal written, then without.
    for held in [replaces_list as fn(&StoreOp) -> bool, |op| matches!(op, StoreOp::Append { .. })] {
        let mut world = world();
        let dir = make_dir(&mut world);
        ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
        give(&mut world, dir);
        world.lies = held;
        send(&mut world, TransferStep::Committed);
        world.pass(10);
        world.crash();
        assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
        assert!(is_taken(&world));
        let Ok(Answer::Data(data)) = ask(&mut world, Op::Read(ReadOp::GetData { ino: FILE }))
        else {
            panic!()
        };
        assert_eq!(data, b"abc");
        // A repetition is harmless, and finds nothing to do.
        world.crash();
        assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.size == 3));
    }
}

#[test]
fn a_committed_name_comes_although_the_message_about_it_is_lost() {
    let mut world = world();
    let dir = make_dir(&mut world);
    give(&mut world, dir);
    world.until(is_taken);
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
}

#[test]
fn a_withdrawn_or_foreign_cross_rename_is_not_taken() {
    let mut world = world();
    let dir = make_dir(&mut world);
    let arrive = |world: &mut World, record: &MovedName| {
        arrive(world, dir, record).map_err(|failure| failure.errno)
    };
    // Not `ESTALE`: the directory is here, and no other rank is to be asked.
    assert_eq!(arrive(&mut world, &coming(Ino(99))), Err(Errno::Again));
    assert_eq!(arrive(&mut world, &MovedName { to: FROM, ..coming(dir) }), Err(Errno::Again));
    assert_eq!(arrive(&mut world, &coming(dir)), Ok(Answer::Done));
    send(&mut world, TransferStep::Stayed);
    make_file(&mut world, dir, b"new");
    let kept = MovedName { no_replace: true, ..coming(dir) };
    assert_eq!(arrive(&mut world, &kept), Err(Errno::Exists));
    give(&mut world, dir);
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
}

#[test]
fn the_record_of_a_done_cross_rename_goes_without_its_directory() {
    let mut world = world();
    commit(&world, &MovedName { is_taken: true, ..record() });
    world.crash();
    world.until(|world| list(world).names().count() == 0);
    // It stops in good order.
    world.restart(mds::Settings::default(), |_| ());
}

#[test]
fn the_reservation_of_a_silent_giver_ends_with_the_fence() {
    let mut world = world();
    let dir = make_dir(&mut world);
    assert_eq!(arrive(&mut world, dir, &coming(dir)), Ok(Answer::Done));
    let before = fence(&world);
    let creates = world.ask(0, Op::Read(ReadOp::Lookup { parent: dir, name: b"new" }));
    world.pass(1900);
    assert!(!world.is_answered(0, creates) && fence(&world) == before);
    world.until(|world| world.is_answered(0, creates));
    assert!(fence(&world) > before, "the giver cannot commit any more");
}

#[test]
fn recovery_ends_a_reservation_that_no_rank_used() {
    let mut world = world();
    let dir = make_dir(&mut world);
    let ino = make_file(&mut world, dir, b"new");
    ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
    assert_eq!(arrive(&mut world, dir, &coming(dir)), Ok(Answer::Done));
    let before = fence(&world);
    world.crash();
    assert!(fence(&world) > before, "the giver cannot commit any more");
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(found)) if found.ino == ino));
}

#[test]
fn a_name_that_left_before_a_crash_does_not_come_back() {
    let mut world = world();
    let dir = make_dir(&mut world);
    let ino = make_file(&mut world, dir, b"new");
    ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
    commit(&world, &MovedName { ino, parent: dir, name: b"new".to_vec(), ..record() });
    world.crash();
    let refused = file(&mut world, dir).map_err(|failure| failure.errno);
    assert_eq!(refused, Err(Errno::NotFound));
    world.until(|world| list(world).name((Rank(0), NUMBER)).is_some_and(|it| it.is_given));
}

#[test]
fn nothing_is_reserved_while_the_journal_cannot_be_written() {
    let mut world = world();
    let dir = make_dir(&mut world);
    ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
    world.fails = |op| matches!(op, StoreOp::Append { .. });
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    world.ask(0, Op::Change(ChangeOp::Create { parent: dir, name: b"other", new }));
    world.pass(300);
    let refused = arrive(&mut world, dir, &coming(dir));
    assert_eq!(refused.map_err(|failure| failure.errno), Err(Errno::Io));
    assert!(world.reservations.is_empty());
    world.fails = |_| false;
    world.pass(1000);
    give(&mut world, dir);
    world.until(is_taken);
}
