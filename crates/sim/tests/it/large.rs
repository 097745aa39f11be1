//! Directories that are larger than the server's memory.

#![allow(clippy::unwrap_used, reason = "the harness of tests")]

use engine::execute;
use mds::Settings;
use metastore::request::StoreOp;
use metastore::{InodeRecord, RowValue, Rows};
use objstore::Memory;
use types::{Attr, Errno, FileType, Ino, Seq};
use wire::{Answer, ChangeOp, NewInode, Op, ReadOp};

use crate::server::{Answered, World};

/// More than a megabyte of rows.
const FILES: u64 = 120_000;

fn name(number: u64) -> Vec<u8> {
    format!("a.name.of.some.length.{number:08}").into_bytes()
}

fn ino(number: u64) -> Ino {
    Ino(Ino::FIRST_FREE + (1 << 40) + number)
}

/// A server and a directory that only the store knows.
fn world(inodes_max: u64) -> (World, Ino) {
    let mut world = World::new("cache: caps\n", 1);
    let new = NewInode { mode: 0o040_755, ..NewInode::default() };
    let made =
        ask(&mut world, Op::Change(ChangeOp::Create { parent: Ino::ROOT, name: b"large", new }));
    let Ok(Answer::Attr(attr)) = made else { panic!("{made:?}") };
    let settings = Settings { inodes_max, ..Settings::default() };
    world.restart(settings, |memory| fill(memory, attr.ino));
    (world, attr.ino)
}

fn fill(memory: &Memory, dir: Ino) {
    let mut rows = Rows::new();
    for number in 0..FILES {
        let mode = FileType::Regular.mode_bits() | 0o644;
        let attr = Attr { ino: ino(number), mode, nlink: 1, ..Attr::default() };
        let record = InodeRecord { attr, ..InodeRecord::default() };
        rows.push(&name(number), RowValue::Inode(record));
    }
    let (counts, position, touched) = ((FILES, 0, true), Seq(1), Default::default());
    let op = StoreOp::CommitDir { ino: dir, rows, counts, position, touched, attach: None };
    execute(memory, op).unwrap();
}

fn ask(world: &mut World, op: Op<'_>) -> Answered {
    let tid = world.ask(0, op);
    world.until(|world| world.is_answered(0, tid));
    world.clients[0].answers[&tid].clone()
}

fn lookup(world: &mut World, dir: Ino, number: u64) -> Result<Ino, Errno> {
    match ask(world, Op::Read(ReadOp::Lookup { parent: dir, name: &name(number) })) {
        Ok(Answer::Attr(attr)) => Ok(attr.ino),
        Ok(answer) => panic!("{answer:?}"),
        Err(failure) => Err(failure.errno),
    }
}

fn size(world: &mut World, dir: Ino) -> u64 {
    match ask(world, Op::Read(ReadOp::GetAttr { ino: dir })) {
        Ok(Answer::Attr(attr)) => attr.size,
        answer => panic!("{answer:?}"),
    }
}

fn create(world: &mut World, dir: Ino, number: u64) -> Result<Ino, Errno> {
    let new = NewInode { mode: 0o100_644, ..NewInode::default() };
    match ask(world, Op::Change(ChangeOp::Create { parent: dir, name: &name(number), new })) {
        Ok(Answer::Attr(attr)) => Ok(attr.ino),
        Ok(answer) => panic!("{answer:?}"),
        Err(failure) => Err(failure.errno),
    }
}

#[test]
fn names_of_a_large_directory_are_found_without_the_others() {
    let (mut world, dir) = world(1 << 20);
    // Where it is.
    lookup_large(&mut world, dir);
    let fetches = world.counted("fetches");
    for number in [0, 1, 77_777, FILES - 1] {
        assert_eq!(lookup(&mut world, dir, number), Ok(ino(number)));
    }
    let looked = world.counted("cold_lookups");
    assert_eq!(lookup(&mut world, dir, FILES), Err(Errno::NotFound));
    assert_eq!(lookup(&mut world, dir, FILES), Err(Errno::NotFound));
    assert_eq!(lookup(&mut world, dir, 77_777), Ok(ino(77_777)));
    assert_eq!(world.counted("cold_lookups"), looked + 1, "the second time they are known");

    assert_eq!(size(&mut world, dir), FILES);
    assert_eq!(create(&mut world, dir, 5), Err(Errno::Exists));
    let made = create(&mut world, dir, FILES + 5).unwrap();
    let gone = name(7);
    assert!(ask(&mut world, Op::Change(ChangeOp::Unlink { parent: dir, name: &gone })).is_ok());
    assert_eq!(lookup(&mut world, dir, 7), Err(Errno::NotFound));
    assert!(create(&mut world, dir, FILES + 6).is_ok());
    assert_eq!(size(&mut world, dir), FILES + 1);
    let removed =
        ask(&mut world, Op::Change(ChangeOp::Rmdir { parent: Ino::ROOT, name: b"large" }));
    assert_eq!(removed.unwrap_err().errno, Errno::NotEmpty);
    assert!(world.counted("inodes") < 100, "{}", world.counted("inodes"));
    assert_eq!(world.counted("fetches"), fetches, "it was never fetched as a whole");

    // The next server finds the same, in the store.
    world.restart(Settings::default(), |_| {});
    lookup_large(&mut world, dir);
    assert_eq!(lookup(&mut world, dir, FILES + 5), Ok(made));
    assert_eq!(lookup(&mut world, dir, 7), Err(Errno::NotFound));
    assert_eq!(size(&mut world, dir), FILES + 1);
    let op = Op::Read(ReadOp::List { dir, after: None, limit: 10, attrs: false });
    assert!(ask(&mut world, op).is_ok());
    assert!(world.counted("inodes") > FILES, "a listing needs all of it");
    assert_eq!(size(&mut world, dir), FILES + 1);
}

/// Brings the inode of the directory into memory, as a client does that walks to it.
fn lookup_large(world: &mut World, dir: Ino) {
    match ask(world, Op::Read(ReadOp::Walk { base: Ino::ROOT, path: b"large" })) {
        Ok(Answer::Walked { attr: Some(attr), .. }) => assert_eq!(attr.ino, dir),
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn lookups_and_creates_in_a_large_directory_do_not_fill_the_memory() {
    const MAX: u64 = 500;
    let (mut world, dir) = world(MAX);
    lookup_large(&mut world, dir);
    let mut most = 0;
    for number in 0..3000 {
        assert_eq!(lookup(&mut world, dir, number * 37 % FILES), Ok(ino(number * 37 % FILES)));
        assert_eq!(lookup(&mut world, dir, FILES + 2 * number), Err(Errno::NotFound));
        create(&mut world, dir, FILES + 2 * number).unwrap();
        if number % 50 == 49 {
            // Time for a checkpoint, and for forgetting.
            world.pass(300);
            most = most.max(world.counted("inodes"));
        }
    }
    assert!(most <= MAX, "{most} inodes");
    assert!(world.counted("evicted") > 10);
    assert_eq!(size(&mut world, dir), FILES + 3000);
    for number in (0..3000).step_by(97) {
        assert!(lookup(&mut world, dir, FILES + 2 * number).is_ok());
        assert_eq!(lookup(&mut world, dir, FILES + 2 * number + 1), Err(Errno::NotFound));
    }
    assert!(world.counted("inodes") < 3000, "it was never fetched as a whole");
}
