//! Trees that are removed at once and restored, and the same in a replay.

use journal::Event;
use types::{Cred, EntryName, Errno, Ino, Seq, Timestamp};

use super::tree::{no_fetch, of_namespace};
use crate::{Mode, Namespace, PlannedInode, Refusal};

const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const KEPT: &[u8] = b"kept";

/// `/a/b/f` and `/a/g`: the numbers are those of the fields' order, from 10.
fn sample() -> Namespace {
    let mut namespace = Namespace::with_root(Timestamp(1));
    for (seq, (parent, name, mode)) in (1..).zip([
        (Ino::ROOT, &b"a"[..], DIR),
        (Ino(10), b"b", DIR),
        (Ino(11), b"f", FILE),
        (Ino(10), b"g", FILE),
    ]) {
        let new = PlannedInode { mode, time: Timestamp(2), ..PlannedInode::default() };
        let planned = namespace
            .plan()
            .make(&Cred::root(), EntryName::new(parent, name), &new, Ino(9 + seq))
            .unwrap();
        namespace.apply(Seq(seq), Mode::Live, &planned.event());
    }
    namespace
}

fn discard(namespace: &mut Namespace, seq: u64) -> Result<(), Refusal> {
    let entry = EntryName::new(Ino::ROOT, b"a");
    let planned = namespace.plan().discard(&Cred::root(), entry, KEPT, Timestamp(3))?;
    namespace.apply(Seq(seq), Mode::Live, &planned.event());
    Ok(())
}

fn restore(namespace: &mut Namespace, seq: u64, name: &[u8]) -> Result<(), Refusal> {
    let to = EntryName::new(Ino::ROOT, name);
    let planned = namespace.plan().restore(&Cred::root(), KEPT, to, Timestamp(4))?;
    namespace.apply(Seq(seq), Mode::Live, &planned.event());
    Ok(())
}

#[test]
fn a_removed_tree_is_below_the_trash_and_has_no_path() {
    let mut namespace = sample();
    discard(&mut namespace, 5).unwrap();
    assert_eq!(namespace.peek(Ino::ROOT, b"a"), Ok(None));
    assert!(
        namespace.is_within(Ino(12), Ino::TRASH) && !namespace.is_within(Ino::ROOT, Ino::TRASH)
    );
    assert!(namespace.is_anchored(Ino(12)));
    assert_eq!(namespace.path_of(Ino(12)), None);
    assert_eq!(namespace.name_of(Ino(10)), Some((Ino::TRASH, KEPT.to_vec())));
    assert!(namespace.take_freed().is_empty());
    namespace.validate();
}

#[test]
fn a_restored_tree_is_the_removed_one() {
    let mut namespace = sample();
    let mut before = of_namespace(&mut namespace, &mut no_fetch);
    discard(&mut namespace, 5).unwrap();
    restore(&mut namespace, 6, b"a").unwrap();
    let mut after = of_namespace(&mut namespace, &mut no_fetch);
    // These two directories have other times.
    for path in ["", "/a"] {
        let (before, after) = (before.remove(path).unwrap(), after.remove(path).unwrap());
        assert_eq!((before.attr.ino, before.attr.size), (after.attr.ino, after.attr.size));
    }
    assert_eq!(before, after);
    assert_eq!(restore(&mut namespace, 7, b"b"), Err(Errno::NotFound.into()));
    namespace.validate();
}

#[test]
fn a_tree_is_not_restored_over_a_name_nor_from_a_trash_that_is_not_in_memory() {
    let mut namespace = sample();
    discard(&mut namespace, 5).unwrap();
    let new = PlannedInode { mode: DIR, ..PlannedInode::default() };
    let entry = EntryName::new(Ino::ROOT, b"new");
    let planned = namespace.plan().make(&Cred::root(), entry, &new, Ino(20)).unwrap();
    namespace.apply(Seq(6), Mode::Live, &planned.event());
    assert_eq!(restore(&mut namespace, 7, b"new"), Err(Errno::Exists.into()));
    namespace.handover().doubt(Ino::TRASH);
    assert_eq!(restore(&mut namespace, 7, b"a"), Err(Refusal::Cold(Ino::TRASH)));
    let entry = EntryName::new(Ino::ROOT, b"new");
    let planned = namespace.plan().discard(&Cred::root(), entry, b"kept too", Timestamp(8));
    assert_eq!(planned.err(), Some(Refusal::Cold(Ino::TRASH)));
}

#[test]
fn the_root_of_a_removed_tree_goes_last() {
    let mut namespace = sample();
    discard(&mut namespace, 5).unwrap();
    let full = namespace.plan().reaped(KEPT, Timestamp(6)).err();
    assert_eq!(full, Some(Errno::NotEmpty.into()));
    let root = Cred::root();
    let events = [
        Event::Unlink { parent: Ino(11), name: b"f", ino: Ino(12), time: Timestamp(6) },
        Event::Rmdir { parent: Ino(10), name: b"b", ino: Ino(11), time: Timestamp(6) },
    ];
    for event in events {
        namespace.apply(Seq(6), Mode::Live, &event);
    }
    let planned = namespace.plan().unlink(&root, Ino(10), b"g", Timestamp(6)).unwrap();
    namespace.apply(Seq(7), Mode::Live, &planned.event());
    let planned = namespace.plan().rename_in_trash(KEPT, b"ended", Timestamp(9)).unwrap();
    namespace.apply(Seq(8), Mode::Live, &planned.event());
    let planned = namespace.plan().reaped(b"ended", Timestamp(6)).unwrap();
    namespace.apply(Seq(9), Mode::Live, &planned.event());
    assert_eq!(namespace.dirs().entries_of(Ino::TRASH), 0);
    assert_eq!(namespace.inodes(), 1, "only the root is left");
    namespace.validate();
}
