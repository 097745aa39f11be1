//! A name that comes from another rank, and concurrent events around it.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use journal::{Event, InodeSnapshot, JournalBuffer};
use metastore::request::StoreOp;
use metastore::{CrossRename, CrossRenameState, cross_rename_name};
use objstore::{Expect, ObjectStore, PutOutcome};
use types::{Attr, ClientId, Cred, Errno, Ino, Origin, Rank, Seq, Tid, Timestamp};
use wire::{Answer, ChangeOp, NewInode, Op, RankOp, ReadOp, SessionOp};

use crate::server::{Answered, World};

/// A file of the other rank.
const FILE: Ino = Ino(2 << 40);
const FROM: Rank = Rank(1);
const NUMBER: u64 = 7;

fn ask(world: &mut World, op: Op<'_>) -> Answered {
    let tid = world.ask(0, op);
    world.until(|world| world.is_answered(0, tid));
    world.clients[0].answers[&tid].clone()
}

/// The other rank offers the name with a number for a directory.
fn arrive(world: &mut World, dir: Ino, number: u64) -> u64 {
    world.ask_as_rank(FROM, Op::Rank(RankOp::Arrive { dir, from: FROM, cross_rename: number }))
}

/// The answer to that.
fn arrived(world: &mut World, dir: Ino, number: u64) -> Answered {
    let question = arrive(world, dir, number);
    world.until(|world| world.peer_answers.contains_key(&question));
    world.peer_answers[&question].clone()
}

fn make_dir(world: &mut World) -> Ino {
    let new = NewInode { mode: 0o040_777, ..NewInode::default() };
    match ask(world, Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"dir", new })) {
        Ok(Answer::Attr(attr)) => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// The other rank offers a file.
fn offer(world: &World, new_parent: Ino) {
    let cross_rename = CrossRename { from: FROM, to: Rank(0), new_parent, ..cross_rename() };
    put(world, &cross_rename);
}

fn put(world: &World, cross_rename: &CrossRename) {
    let name = cross_rename_name(cross_rename.from, NUMBER);
    let put = world.memory.put(&name, &cross_rename.encode(), Expect::Any).unwrap();
    assert!(matches!(put, PutOutcome::Done(_)), "{put:?}");
}

fn cross_rename() -> CrossRename {
    let attr = Attr { ino: FILE, mode: 0o100_644, nlink: 1, size: 3, ..Attr::default() };
    let event = Event::Rename {
        parent: Ino(5),
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
    CrossRename {
        state: CrossRenameState::Offered,
        from: Rank(0),
        to: FROM,
        ino: FILE,
        parent: Ino(5),
        name: b"old".to_vec(),
        new_parent: Ino(6),
        new_name: b"new".to_vec(),
        no_replace: false,
        time: Timestamp(9),
        inode: buffer.take_blocks().concat(),
        cred: Cred::root(),
        is_dir: false,
        request: (ClientId(0), Tid(0)),
    }
}

fn state(world: &World) -> CrossRenameState {
    let name = cross_rename_name(FROM, NUMBER);
    let (bytes, _) = world.memory.get(&name).unwrap();
    CrossRename::decode(&name, &bytes).unwrap().state
}

fn is_cross_rename(op: &StoreOp) -> bool {
    matches!(op, StoreOp::Put { object, .. } if object.starts_with("mds/passage/"))
}

fn file(world: &mut World, dir: Ino) -> Answered {
    ask(world, Op::Read(ReadOp::Lookup { parent: dir, name: b"new" }))
}

#[test]
fn a_directory_that_a_name_comes_to_is_not_removed_meanwhile() {
    let mut world = World::new("consistency: rpcs\ndurability: stream\n", 1);
    let dir = make_dir(&mut world);
    offer(&world, dir);
    world.fails = is_cross_rename;
    let arrives = arrive(&mut world, dir, NUMBER);
    world.pass(20);
    let removes = world.ask(0, Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"dir" }));
    world.pass(300);
    let is_taken = |world: &World| world.peer_answers.contains_key(&arrives);
    assert!(!is_taken(&world) && !world.is_answered(0, removes), "it is not decided");
    world.fails = |_| false;
    world.until(|world| is_taken(world) && world.is_answered(0, removes));
    assert_eq!(world.peer_answers[&arrives], Ok(Answer::Done));
    let refused = world.clients[0].answers[&removes].clone();
    assert_eq!(refused.map_err(|failure| failure.errno), Err(Errno::NotEmpty));
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
    assert_eq!(state(&world), CrossRenameState::Done);
}

#[test]
fn a_taken_cross_rename_survives_a_crash_at_any_time() {
    // The store executes the operation, and the server dies before it gets the result; then with
    // its journal written, then without.
    for held in [is_cross_rename as fn(&StoreOp) -> bool, |op| matches!(op, StoreOp::Append { .. })]
    {
        let mut world = World::new("consistency: rpcs\ndurability: stream\n", 1);
        let dir = make_dir(&mut world);
        ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
        offer(&world, dir);
        world.lies = held;
        arrive(&mut world, dir, NUMBER);
        world.pass(10);
        assert_ne!(state(&world), CrossRenameState::Offered);
        world.crash();
        assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
        assert_eq!(state(&world), CrossRenameState::Done);
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
fn a_withdrawn_or_foreign_cross_rename_is_not_taken() {
    let mut world = World::new("consistency: rpcs\ndurability: stream\n", 1);
    let dir = make_dir(&mut world);
    let arrive = |world: &mut World, cross_rename| {
        arrived(world, dir, cross_rename).map_err(|failure| failure.errno)
    };
    offer(&world, dir);
    // Not `ESTALE`: the directory is here, and no other rank is to be asked.
    assert_eq!(arrive(&mut world, NUMBER + 1), Err(Errno::Again));
    offer(&world, Ino(99));
    assert_eq!(arrive(&mut world, NUMBER), Err(Errno::Again));
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    ask(&mut world, Op::Change(ChangeOp::Create { parent: dir, name: b"new", new })).unwrap();
    offer(&world, dir);
    assert_eq!(arrive(&mut world, NUMBER), Ok(Answer::Done));
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(attr)) if attr.ino == FILE));
}

#[test]
fn the_record_of_a_done_cross_rename_goes_without_its_directory() {
    let mut world = World::new("consistency: rpcs\ndurability: stream\n", 1);
    put(&world, &CrossRename { state: CrossRenameState::Done, ..cross_rename() });
    world.crash();
    let name = cross_rename_name(Rank(0), NUMBER);
    world.until(|world| world.memory.get(&name).is_err());
    // It stops in good order.
    world.restart(mds::Settings::default(), |_| ());
}

#[test]
fn recovery_withdraws_an_offer_that_no_rank_took() {
    let mut world = World::new("consistency: rpcs\ndurability: stream\n", 1);
    let dir = make_dir(&mut world);
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    let made = ask(&mut world, Op::Change(ChangeOp::Create { parent: dir, name: b"new", new }));
    let Ok(Answer::Attr(attr)) = made else { panic!("{made:?}") };
    ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
    put(
        &world,
        &CrossRename { ino: attr.ino, parent: dir, name: b"new".to_vec(), ..cross_rename() },
    );
    world.crash();
    let name = cross_rename_name(Rank(0), NUMBER);
    assert!(matches!(file(&mut world, dir), Ok(Answer::Attr(found)) if found.ino == attr.ino));
    world.until(|world| world.memory.get(&name).is_err());
}

#[test]
fn nothing_is_taken_while_the_journal_cannot_be_written() {
    let mut world = World::new("consistency: rpcs\ndurability: stream\n", 1);
    let dir = make_dir(&mut world);
    ask(&mut world, Op::Session(SessionOp::Sync)).unwrap();
    world.fails = |op| matches!(op, StoreOp::Append { .. });
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    world.ask(0, Op::Change(ChangeOp::Create { parent: dir, name: b"other", new }));
    world.pass(300);
    offer(&world, dir);
    let refused = arrived(&mut world, dir, NUMBER);
    assert_eq!(refused.map_err(|failure| failure.errno), Err(Errno::Io));
    assert_eq!(state(&world), CrossRenameState::Offered);
    world.fails = |_| false;
    world.pass(1000);
    let taken = arrived(&mut world, dir, NUMBER);
    assert_eq!(taken, Ok(Answer::Done));
}
