//! Merges with one part applied and the rest waiting: in the end all of the journal exists, even if
//! its client never comes back.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use client::{ClientSubtree, Grant};
use mds::Settings;
use metastore::request::{StoreOp, client_journal_name};
use objstore::ObjectStore;
use policy::{Cell, Policy};
use types::{Cred, Ino, Seq};
use wire::{Answer, ChangeOp, JobOp, MergeFlags, NewInode, Op, ReadOp, UnusedNumbers};

use crate::server::{Answered, World, conn};

fn ask(world: &mut World, client: usize, op: Op<'_>) -> Answered {
    let tid = world.ask(client, op);
    world.until(|world| world.is_answered(client, tid));
    world.clients[client].answers[&tid].clone()
}

fn made(world: &mut World, parent: Ino, name: &str, mode: u32) -> Ino {
    let new = NewInode { mode, ..NewInode::default() };
    match ask(world, 1, Op::Change(ChangeOp::Create { parent, name: name.as_bytes(), new })) {
        Ok(Answer::Attr(attr)) => attr.ino,
        other => panic!("{other:?}"),
    }
}

/// Names of the journal, before and behind the waiting part.
const BEFORE: u64 = 3;
const BEHIND: u64 = 3;

struct Halfway {
    world: World,
    object: String,
    old: Ino,
}

/// A journal in the store is being merged; of a directory that it is about nothing can be read.
fn halfway() -> Halfway {
    let mut world = World::new("cache: caps\n", 2);
    let job = made(&mut world, Ino::ROOT, "job", 0o040_777);
    let old = made(&mut world, job, "old", 0o040_777);
    made(&mut world, old, "file", 0o100_644);
    let settings = Settings { segment_bytes_max: 300, segments_max: 2, ..Settings::default() };
    world.restart(settings, |_| ());
    ask(&mut world, 1, Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"job" })).unwrap();

    let cell = Cell::from_name("weak-global").unwrap();
    let policy = Policy { allocated_inodes: 100, ..Policy::of_cell(cell) }.to_yaml();
    let id = world.clients[0].session.client();
    let op = Op::Job(JobOp::Decouple { path: b"/job", client: id, policy: policy.as_bytes() });
    let Ok(Answer::Decoupled(given)) = ask(&mut world, 0, op) else { panic!("not decoupled") };
    let wire::Decoupled { root, range, epoch, empty } = given;
    let grant = Grant { client: id, root, range, epoch, empty, check: false };
    let mut journal = ClientSubtree::new(grant, Seq(1));
    let new = namespace::PlannedInode { mode: 0o100_644, ..namespace::PlannedInode::default() };
    let create = |journal: &mut ClientSubtree, number: u64| {
        let name = format!("n{number}");
        journal.create(&Cred::root(), job, name.as_bytes(), &new).unwrap();
    };
    (0..BEFORE).for_each(|number| create(&mut journal, number));
    // Whether it takes the place of a directory is not known before the one above it is read.
    let dir = namespace::PlannedInode { mode: 0o040_777, ..namespace::PlannedInode::default() };
    journal.create(&Cred::root(), old, b"fresh", &dir).unwrap();
    (BEFORE..BEFORE + BEHIND).for_each(|number| create(&mut journal, number));
    let mut bytes = journal.header().encode().to_vec();
    bytes.extend(journal.blocks().concat());
    let object = client_journal_name(job, id, range, 1);
    let _ = world.memory.put(&object, &bytes, objstore::Expect::Any).unwrap();

    world.holds = Box::new(move |op| matches!(op, StoreOp::LoadDir { ino } if *ino == old));
    let (flags, unused) = (MergeFlags::default(), UnusedNumbers::default());
    let name = object.as_bytes();
    world.ask(0, Op::Job(JobOp::Merge { subtree: job, bytes: 0, object: name, flags, unused }));
    world.until(World::is_holding);
    // The applied part is in the journal.
    world.pass(100);
    Halfway { world, object, old }
}

impl Halfway {
    /// Other clients work, and all possible checkpoints run, until the journal has been trimmed.
    fn work_until_trimmed(&mut self) {
        let world = &mut self.world;
        for number in 0..40 {
            made(world, Ino::ROOT, &format!("other{number}"), 0o100_644);
            world.pass(50);
        }
    }

    fn complete(&mut self) {
        let world = &mut self.world;
        world.until(|world| !world.mds.is_merging());
        for number in 0..BEFORE + BEHIND {
            let path = format!("job/n{number}");
            let found =
                ask(world, 1, Op::Read(ReadOp::Walk { base: Ino::ROOT, path: path.as_bytes() }));
            let there = matches!(found, Ok(Answer::Walked { attr: Some(_), .. }));
            assert!(there, "half of the journal is there: {path} is not: {found:?}");
        }
    }
}

#[test]
fn the_record_of_a_merge_that_waits_is_not_trimmed() {
    let mut merge = halfway();
    merge.work_until_trimmed();
    merge.world.holds = Box::new(|_| false);
    merge.world.crash_without(0);
    merge.complete();
}

#[test]
fn a_merge_goes_on_when_its_object_can_be_read_again() {
    let mut merge = halfway();
    let object = merge.object.clone();
    merge.world.holds = Box::new(|_| false);
    // Recovery reads it; the continued merge cannot.
    merge.world.fails_of = Some((object, 2));
    merge.world.crash_without(0);
    merge.world.pass(2000);
    assert!(merge.world.mds.is_merging(), "it is not at its end");
    merge.world.fails_of = None;
    merge.complete();
}

#[test]
fn a_stop_leaves_what_a_merge_needs_to_go_on() {
    let mut merge = halfway();
    // Half of it is applied by a server that dies, and the next one cannot go on before it stops.
    merge.world.holds = Box::new(|_| false);
    merge.world.fails_of = Some((merge.object.clone(), 2));
    merge.world.crash_without(0);
    assert!(merge.world.mds.is_merging(), "it is not at its end");
    merge.world.restart_without(0);
    merge.complete();
}

#[test]
fn a_merge_that_waited_too_long_goes_on_without_its_client() {
    let mut merge = halfway();
    let old = merge.old;
    // The directory cannot be read for longer than a merge waits for it, and its client is gone.
    merge.world.fails_dir = old;
    merge.world.let_go();
    merge.world.handle(mds::MdsInput::Closed(conn(0)));
    merge.world.pass(40_000);
    merge.work_until_trimmed();
    merge.world.fails_dir = Ino(0);
    merge.complete();
}
