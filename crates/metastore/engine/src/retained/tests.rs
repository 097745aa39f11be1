use metastore::request::StoreOp;
use metastore::{InodeRecord, RowValue, manifest_name};
use objstore::Memory;
use types::{Attr, Seq};

use super::*;
use crate::execute;

const DIR: Ino = Ino(500);

fn file(ino: u64) -> RowValue<'static> {
    let attr = Attr { ino: Ino(ino), mode: 0o100_644, nlink: 1, ..Attr::default() };
    RowValue::Inode(InodeRecord { attr, ..InodeRecord::default() })
}

fn commit(store: &Memory, dir: Ino, all: &[(&str, RowValue<'static>)]) {
    let mut rows = Rows::new();
    all.iter().for_each(|(name, value)| rows.push(name.as_bytes(), *value));
    let (counts, position, touched) = ((0, 0, false), Seq(1), Default::default());
    let op = StoreOp::CommitDir { ino: dir, rows, counts, position, touched, attach: None };
    assert!(execute(store, op).is_ok());
}

fn take(store: &Memory, id: u64) -> u64 {
    take_snapshot(store, &Snapshot { id, ..Snapshot::default() }).unwrap()
}

fn names_at(store: &Memory, dir: Ino, number: u64) -> Vec<String> {
    let loaded = load_dir_at(store, dir, number).unwrap();
    let rows = loaded.map(|loaded| loaded.rows).unwrap_or_default();
    rows.iter().map(|row| String::from_utf8_lossy(row.name).into_owned()).collect()
}

#[test]
fn each_snapshot_reads_as_it_was_taken_whatever_is_changed_and_rewritten_since() {
    let store = Memory::new();
    let mut taken = Vec::new();
    let mut expected: Vec<String> = Vec::new();
    // More changes than a directory may have runs, so that runs are merged and replaced.
    for number in 0..30u64 {
        let name = format!("n{number:02}");
        commit(&store, DIR, &[(name.as_str(), file(number))]);
        expected.push(name);
        if number % 4 == 3 {
            taken.push((take(&store, number), expected.clone()));
        }
    }
    for (number, expected) in &taken {
        assert_eq!(names_at(&store, DIR, *number), *expected, "snapshot {number}");
    }
    for number in 0..10 {
        let guessed = guess_retained(&store, whole(DIR), number).unwrap();
        assert_eq!(guessed, find_retained(&store, whole(DIR), number).unwrap(), "{number}");
    }
}

#[test]
fn asked_twice_a_snapshot_is_taken_once() {
    let store = Memory::new();
    assert_eq!((take(&store, 7), take(&store, 7), take(&store, 8)), (1, 1, 2));
}

#[test]
fn a_directory_that_is_new_or_was_removed_is_so_for_later_snapshots_only() {
    let store = Memory::new();
    commit(&store, DIR, &[("a", file(1))]);
    let (new, first) = (Ino(501), take(&store, 1));
    commit(&store, new, &[("b", file(2))]);
    let second = take(&store, 2);
    assert!(execute(&store, StoreOp::PurgeDir { ino: DIR }).is_ok());
    commit(&store, new, &[("c", file(3))]);
    let third = take(&store, 3);
    assert_eq!(store.get(&manifest_name(whole(DIR))).unwrap_err().errno, Errno::NotFound);
    let all = |number| (names_at(&store, DIR, number), names_at(&store, new, number));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(all(first), (names(&["a"]), names(&[])));
    assert_eq!(all(second), (names(&["a"]), names(&["b"])));
    assert_eq!(all(third), (names(&[]), names(&["b", "c"])));
}

#[test]
fn a_directory_that_is_written_again_after_it_was_removed_writes_over_nothing() {
    let store = Memory::new();
    commit(&store, DIR, &[("a", file(1))]);
    let mut taken = Vec::new();
    for round in 0..3u64 {
        taken.push((take(&store, round), names_at(&store, DIR, u64::MAX)));
        assert!(execute(&store, StoreOp::PurgeDir { ino: DIR }).is_ok());
        // As a recovery does, with more or less in it.
        let name = format!("n{round}");
        commit(&store, DIR, &[(name.as_str(), file(round)), ("b", file(2))]);
        commit(&store, DIR, &[("c", file(3))]);
    }
    for (number, names) in taken {
        assert_eq!(names_at(&store, DIR, number), names, "snapshot {number}");
    }
}

#[test]
fn a_snapshot_that_is_dropped_takes_nothing_from_the_one_before_it() {
    let store = Memory::new();
    commit(&store, DIR, &[("a", file(1))]);
    let first = take(&store, 1);
    take(&store, 2);
    commit(&store, DIR, &[("b", file(2))]);
    // The needs of the first are kept under the number of the second.
    change_snapshots(&store, |snapshots| {
        snapshots.retain(|snapshot| snapshot.id == 1);
        Ok(())
    })
    .unwrap();
    for number in 3..20u64 {
        let name = format!("n{number:02}");
        commit(&store, DIR, &[(name.as_str(), file(number))]);
    }
    assert_eq!(names_at(&store, DIR, first), ["a"]);
}

#[test]
fn without_a_snapshot_nothing_is_retained() {
    let store = Memory::new();
    take(&store, 1);
    change_snapshots(&store, |snapshots| {
        snapshots.retain(|_| false);
        Ok(())
    })
    .unwrap();
    for number in 0..20u64 {
        let name = format!("n{number:02}");
        commit(&store, DIR, &[(name.as_str(), file(number))]);
    }
    assert_eq!(store.list(&retained_prefix(whole(DIR))).unwrap(), [""; 0]);
    assert!(store.list("dirs/").unwrap().len() <= 9, "a manifest and its runs");
    let purge = StoreOp::PurgeDir { ino: DIR };
    assert!(execute(&store, purge).is_ok());
    assert_eq!(store.list("dirs/").unwrap(), [""; 0]);
}

#[test]
fn content_that_a_snapshot_may_need_is_noted_and_stays() {
    let store = Memory::new();
    let (ino, pool) = (Ino(9), Pool::USUAL);
    let object = metastore::data_name(ino, pool, 0);
    let _ = store.put(&object, b"content", Expect::Any).unwrap();
    take(&store, 1);
    let purge = || StoreOp::PurgeData { ino, pool, stripes: 1 };
    assert!(execute(&store, purge()).is_ok());
    assert!(store.get(&object).is_ok());
    let notes = store.list(metastore::PURGE_PREFIX).unwrap();
    let note = Purge { number: 1, ino, pool, stripes: 1 };
    assert_eq!(notes, [note.name()]);
}
