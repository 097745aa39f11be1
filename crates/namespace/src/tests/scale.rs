//! Large directories, many inodes, long and strange names.

use metastore::Rows;
use types::{Cred, EntryName, Ino, RenameFlags, Seq, Timestamp, name_hash};

use crate::{Mode, Namespace, PlannedInode};

fn namespace_with(files: u64) -> Namespace {
    let mut namespace = Namespace::with_root(Timestamp(1));
    for number in 0..files {
        create(&mut namespace, format!("file-{number:07}").as_bytes(), number);
    }
    namespace
}

fn create(namespace: &mut Namespace, name: &[u8], number: u64) {
    let new = PlannedInode { mode: 0o100_644, time: Timestamp(2), ..PlannedInode::default() };
    let ino = Ino(Ino::FIRST_FREE + number);
    let planned =
        namespace.plan().make(&Cred::root(), EntryName::new(Ino::ROOT, name), &new, ino).unwrap();
    namespace.apply(Seq(number + 1), Mode::Live, &planned.event());
}

fn listed(namespace: &Namespace) -> Vec<(Vec<u8>, Ino)> {
    let entries = namespace.list(&Cred::root(), Ino::ROOT, None, usize::MAX, false).unwrap();
    entries.into_iter().map(|entry| (entry.name, entry.attr.ino)).collect()
}

#[test]
fn a_directory_of_100_000_entries_is_listed_in_hash_order_and_emptied() {
    let mut namespace = namespace_with(100_000);
    let names = listed(&namespace);
    assert_eq!(names.len(), 100_000);
    let key = |name: &[u8]| (name_hash(name), name.to_vec());
    assert!(names.windows(2).all(|pair| key(&pair[0].0) < key(&pair[1].0)));
    assert_eq!(namespace.getattr(Ino::ROOT).unwrap().size, 100_000);
    for (name, ino) in &names {
        assert_eq!(namespace.peek(Ino::ROOT, name), Ok(Some(*ino)));
        let planned =
            namespace.plan().unlink(&Cred::root(), Ino::ROOT, name, Timestamp(3)).unwrap();
        namespace.apply(Seq(200_000), Mode::Live, &planned.event());
    }
    assert_eq!(listed(&namespace), []);
    assert_eq!(namespace.inodes(), 1);
}

#[test]
fn announced_names_find_the_same_place_whatever_was_announced() {
    let as_it_comes = listed(&namespace_with(40_000));
    for (names, bytes) in [(40_000, 480_000), (5000, 0), (1_000_000, 12), (1024, 1 << 30)] {
        let mut namespace = Namespace::with_root(Timestamp(1));
        namespace.expect(Ino::ROOT, names, bytes);
        assert_eq!(listed(&namespace), []);
        for number in 0..40_000 {
            create(&mut namespace, format!("file-{number:07}").as_bytes(), number);
        }
        // Too late to be of use, and no harm.
        namespace.expect(Ino::ROOT, 1_000_000, 12_000_000);
        assert_eq!(listed(&namespace), as_it_comes, "{names} names announced");
    }
}

#[test]
fn a_large_directory_is_stored_and_fetched_while_it_grows() {
    let mut namespace = namespace_with(30_000);
    let mut rows = Rows::new();
    let mut capture = namespace.store().begin_capture(Ino::ROOT).unwrap();
    let mut number = 30_000;
    while !namespace.store().capture(&mut capture, &mut rows, 1000) {
        // Pages split under the capture.
        for _ in 0..2000 {
            create(&mut namespace, format!("late-{number}").as_bytes(), number);
            number += 1;
        }
    }
    namespace.store().end_capture(Ino::ROOT);
    assert_eq!(namespace.dirs().dirty_since(Ino::ROOT), Some(Seq(30_001)));
    let mut capture = namespace.store().begin_capture(Ino::ROOT).unwrap();
    assert!(namespace.store().capture(&mut capture, &mut rows, usize::MAX));
    assert_eq!(namespace.dirs().dirty_entries(Ino::ROOT), 0);

    let mut again = Namespace::new();
    again.store().load(Ino::ROOT, rows.iter());
    again.store().finish_load(Ino::ROOT, types::Seq(0), Default::default());
    assert_eq!(again.dirs().counts(Ino::ROOT), (number, 0, true));
    assert_eq!(again.inodes(), number);
}

#[test]
fn an_inode_takes_at_most_250_bytes() {
    let namespace = namespace_with(200_000);
    let bytes = namespace.memory() as u64 / namespace.inodes();
    assert!(bytes <= 250, "{bytes} bytes an inode");
}

#[test]
fn names_are_bytes_of_any_value_up_to_255() {
    let mut namespace = Namespace::with_root(Timestamp(1));
    let root = Cred::root();
    let legal = |byte: &u8| *byte != 0 && *byte != b'/';
    let every_byte: Vec<u8> = (0..=255).filter(legal).collect();
    let names = [vec![0xff; 255], every_byte, b"\xc3\x28".to_vec(), b"...".to_vec(), vec![b' ']];
    for (number, name) in (0..).zip(&names) {
        create(&mut namespace, name, number);
        assert_eq!(namespace.lookup(&root, Ino::ROOT, name).unwrap().nlink, 1);
    }
    let (from, to) = (names[0].as_slice(), [0xfe; 255]);
    let flags = RenameFlags::default();
    let planned = namespace
        .plan()
        .rename(
            &root,
            EntryName::new(Ino::ROOT, from),
            EntryName::new(Ino::ROOT, &to),
            flags,
            Timestamp(3),
        )
        .unwrap()
        .unwrap();
    namespace.apply(Seq(99), Mode::Live, &planned.event());
    assert_eq!(namespace.peek(Ino::ROOT, from), Ok(None));
    assert!(namespace.peek(Ino::ROOT, &to).unwrap().is_some());
    assert_eq!(listed(&namespace).len(), names.len());
}
