//! The owner and the policy of a subtree, while the object that records them cannot be written.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use metastore::request::StoreOp;
use types::{Errno, Ino};
use wire::{Answer, ChangeOp, JobOp, NewInode, Op, ReadOp, UnusedNumbers};

use crate::server::{Answered, World};

const DECOUPLED: &str = "consistency: append_client_journal\ndurability: none\n";
const STRONG: &str = "consistency: rpcs\ndurability: stream\nack: safe\n";

/// A replacement of the rank's table.
fn is_table(op: &StoreOp) -> bool {
    matches!(op, StoreOp::Put { object, .. } if object.starts_with("rank/"))
}

fn ask(world: &mut World, op: Op<'_>) -> Answered {
    let tid = world.ask(0, op);
    world.until(|world| world.is_answered(0, tid));
    world.clients[0].answers[&tid].clone()
}

/// A directory that is the client's.
fn decoupled(world: &mut World) -> Ino {
    let new = NewInode { mode: 0o040_777, ..NewInode::default() };
    let made = ask(world, Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"job", new }));
    let Ok(Answer::Attr(root)) = made else { panic!("{made:?}") };
    let given = decouple(world);
    assert!(matches!(given, Ok(Answer::Decoupled(_))), "{given:?}");
    root.ino
}

fn decouple(world: &mut World) -> Answered {
    let client = world.clients[0].session.client();
    ask(world, Op::Job(JobOp::Decouple { path: b"/job", client, policy: DECOUPLED.as_bytes() }))
}

fn give_back(world: &mut World, subtree: Ino) -> Answered {
    ask(world, Op::Job(JobOp::Release { subtree, unused: UnusedNumbers::default() }))
}

/// Sets the policy of the directory; returns whether that was answered.
fn set_policy(world: &mut World, policy: &str) -> bool {
    world.monitor.clear();
    world.set_policy_of("/job", policy);
    world.pass(200);
    world.monitor.iter().any(Result::is_ok)
}

fn policy(world: &mut World, dir: Ino) -> String {
    match ask(world, Op::Read(ReadOp::GetPolicy { dir })) {
        Ok(Answer::Policy(found)) => found.policy,
        other => panic!("{other:?}"),
    }
}

fn canonical(text: &str) -> String {
    policy::Policy::parse(text).unwrap().policy.to_yaml()
}

#[test]
fn a_policy_that_was_answered_outlives_a_table_that_could_not_be_written() {
    let mut world = World::new("cache: caps\n", 1);
    let dir = decoupled(&mut world);
    world.fails = is_table;
    let given_back = give_back(&mut world, dir);
    assert_eq!(given_back.map_err(|failure| failure.errno), Err(Errno::Io));
    // For clients of this server it has no owner; the store has one.
    let answered = set_policy(&mut world, STRONG);
    world.crash();
    let found = policy(&mut world, dir);
    assert!(!answered || found == canonical(STRONG), "answered, and lost: {found}");

    // When the store takes it, the answer comes, and the policy stays.
    give_back(&mut world, dir).unwrap();
    assert!(set_policy(&mut world, STRONG));
    world.crash();
    assert_eq!(policy(&mut world, dir), canonical(STRONG));
}

#[test]
fn a_policy_outlives_a_decoupling_with_an_unknown_outcome() {
    let mut world = World::new("cache: caps\n", 1);
    let dir = decoupled(&mut world);
    give_back(&mut world, dir).unwrap();
    // It is carried out, and reported as failed.
    world.lies = is_table;
    let given = decouple(&mut world);
    assert_eq!(given.map_err(|failure| failure.errno), Err(Errno::Io));
    let answered = set_policy(&mut world, STRONG);
    world.crash();
    let found = policy(&mut world, dir);
    assert!(!answered || found == canonical(STRONG), "answered, and lost: {found}");
}

#[test]
fn a_returned_subtree_is_not_confirmed_before_it_is_stored() {
    let mut world = World::new("cache: caps\n", 1);
    let dir = decoupled(&mut world);
    world.fails = is_table;
    assert!(give_back(&mut world, dir).is_err());
    // Its client asks again. Were it told that the subtree is not its own, it would forget it.
    let again = give_back(&mut world, dir);
    assert_eq!(again.map_err(|failure| failure.errno), Err(Errno::Io));
    world.fails = |_| false;
    let again = give_back(&mut world, dir);
    assert_eq!(again.map_err(|failure| failure.errno), Err(Errno::Stale));
    world.crash();
    assert!(decouple(&mut world).is_ok());
}
