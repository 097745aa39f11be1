//! Value segments that are damaged in every way that their parts allow.

use engine::execute;
use mds::RankTable;
use metastore::request::{StoreOp, StoreResult, rank_name};
use metastore::{
    InodeRecord, Manifest, ObjectName, Removal, RowValue, Rows, manifest_name, removals_name,
    values_name,
};
use objstore::{Expect, Memory, ObjectStore};
use types::{Attr, DirFragId, FileType, Frag, Ino, Rank, Seq, Timestamp};

use super::*;

const FILES: u64 = 48;
const HALF: usize = 24;
const ROOT: DirFragId = DirFragId { ino: Ino::ROOT, frag: Frag::WHOLE };

fn content(number: u64) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; 3000]
}

fn commit(store: &Memory, numbers: std::ops::Range<u64>) {
    let mut rows = Rows::new();
    for number in numbers {
        let (ino, mode) = (Ino(Ino::FIRST_FREE + number), FileType::Regular.mode_bits() | 0o644);
        let data = content(number);
        let attr = Attr { ino, mode, size: 3000, nlink: 1, ..Attr::default() };
        let record = InodeRecord { attr, data: &data, ..InodeRecord::default() };
        rows.push(format!("file.{number:02}").as_bytes(), RowValue::Inode(record));
    }
    let counts = (FILES, 0, true);
    let (position, touched) = (Seq(1), Default::default());
    let ino = Ino::ROOT;
    let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach: None };
    assert!(execute(store, op).is_ok());
}

/// A root directory of two runs, each with a value segment.
fn made() -> Memory {
    let store = Memory::new();
    let table = RankTable::begin(Rank(0), Ino::FIRST_FREE + FILES, Seq(1));
    let _ = store.put(&rank_name(Rank(0)), &table, Expect::Any).unwrap();
    commit(&store, 0..FILES / 2);
    commit(&store, FILES / 2..FILES);
    assert_eq!(segments(&store).len(), 2);
    store
}

fn manifest(store: &Memory) -> Manifest {
    Manifest::decode(&store.get(&manifest_name(ROOT)).unwrap().0).unwrap()
}

fn segments(store: &Memory) -> Vec<String> {
    let mut names = store.list("dirs/").unwrap();
    names.retain(|name| matches!(ObjectName::parse(name), Some(ObjectName::Values(..))));
    names
}

/// The codes of all findings of a check.
fn found(store: &Memory) -> Vec<&'static str> {
    let report = check(store, Scope::AtRest, Depth::Content, &mut |_, _| {}).unwrap();
    report.findings.iter().map(|finding| finding.kind.code()).collect()
}

/// The empty files. Every other file must have its content.
fn empty(store: &Memory) -> Vec<u64> {
    let Ok(StoreResult::Dir(loaded)) = execute(store, StoreOp::LoadDir { ino: Ino::ROOT }) else {
        panic!("it can be read");
    };
    assert_eq!(loaded.rows.len() as u64, FILES);
    let mut empty = Vec::new();
    for row in loaded.rows.iter() {
        let RowValue::Inode(record) = row.value else { panic!("files") };
        let number = record.attr.ino.0 - Ino::FIRST_FREE;
        if record.attr.size == 0 {
            empty.push(number);
        } else {
            assert_eq!(record.data, content(number));
        }
    }
    empty
}

fn mended(store: &Memory) {
    repair(store, Timestamp(1)).unwrap();
    let left: Vec<_> = found(store).into_iter().filter(|code| *code != "left_run").collect();
    assert_eq!(left, [""; 0], "only what may be left of the damage stays");
}

#[test]
fn a_directory_with_value_segments_adds_up() {
    let store = made();
    assert_eq!(found(&store), [""; 0]);
    assert!(
        check(&store, Scope::EachByItself, Depth::Content, &mut |_, _| {}).unwrap().bytes
            > FILES * 3000
    );
}

#[test]
fn one_value_that_is_damaged_costs_one_file() {
    let store = made();
    let name = &segments(&store)[0];
    let (mut bytes, _) = store.get(name).unwrap();
    bytes[5 * 3004] ^= 1;
    let _ = store.put(name, &bytes, Expect::Any).unwrap();
    assert_eq!(found(&store), ["unreadable", "content_lost"]);
    mended(&store);
    assert_eq!(empty(&store).len(), 1);
    assert_eq!(store.list("lost/").unwrap().len(), 1, "the damaged one is kept");
}

#[test]
fn a_segment_that_is_gone_costs_the_content_of_its_files() {
    let store = made();
    store.delete(&segments(&store)[0]).unwrap();
    let codes = found(&store);
    assert_eq!(codes.iter().filter(|code| **code == "content_lost").count(), HALF);
    assert_eq!((codes.len(), codes.contains(&"missing_run")), (HALF + 1, true));
    mended(&store);
    assert_eq!(empty(&store).len(), HALF);
    // It can be written again.
    commit(&store, 0..FILES);
    assert_eq!(empty(&store), [0; 0]);
}

#[test]
fn wrong_segment_uses_in_a_manifest_are_corrected() {
    let store = made();
    let mut wrong = manifest(&store);
    wrong.values[0].uses[0].1 -= 1;
    let _ = store.put(&manifest_name(ROOT), &wrong.encode(), Expect::Any).unwrap();
    assert_eq!(found(&store), ["uses"]);
    mended(&store);
    wrong.values[0].uses[0].1 += 1;
    assert_eq!(manifest(&store).values, wrong.values);
    // A segment that it does not list any more.
    wrong.values.remove(0);
    let _ = store.put(&manifest_name(ROOT), &wrong.encode(), Expect::Any).unwrap();
    assert!(found(&store).contains(&"uses"));
    mended(&store);
    assert_eq!((manifest(&store).values.len(), empty(&store)), (2, vec![]));
}

#[test]
fn a_manifest_is_made_again_with_its_segments_and_those_that_were_left_go() {
    let store = made();
    store.delete(&manifest_name(ROOT)).unwrap();
    assert!(found(&store).contains(&"no_manifest"));
    mended(&store);
    assert_eq!((manifest(&store).values.len(), empty(&store)), (2, vec![]));
    let left = values_name(ROOT, metastore::RunId(0xff));
    let _ = store.put(&left, b"x", Expect::Any).unwrap();
    assert_eq!(found(&store), ["left_run"]);
    mended(&store);
    assert!(!segments(&store).contains(&left));
}

#[test]
fn a_segment_of_a_directory_that_is_gone_is_left() {
    let store = made();
    let gone = DirFragId { ino: Ino(Ino::FIRST_FREE + 1000), frag: Frag::WHOLE };
    let left = values_name(gone, metastore::RunId(7));
    let _ = store.put(&left, b"x", Expect::Any).unwrap();
    assert_eq!(found(&store), ["left_run"]);
    mended(&store);
    assert!(!segments(&store).contains(&left));
}

#[test]
fn a_removed_directory_that_is_purged_in_part_is_no_damage_while_a_list_has_it() {
    let store = made();
    let gone = Ino(Ino::FIRST_FREE + 1000);
    let dirfrag = DirFragId { ino: gone, frag: Frag::WHOLE };
    let mut rows = Rows::new();
    rows.push(b"file", RowValue::Removed);
    let (counts, touched) = ((0, 0, true), Default::default());
    let op =
        StoreOp::CommitDir { ino: gone, rows, counts, position: Seq(1), touched, attach: None };
    assert!(execute(&store, op).is_ok());
    store.delete(&manifest_name(dirfrag)).unwrap();
    assert_eq!(found(&store), ["no_manifest"]);
    let list = Removal::encode_list(&[Removal::Directory { ino: gone }]);
    let name = removals_name(Rank(0), types::Epoch(1), 0);
    let _ = store.put(&name, &list, Expect::Any).unwrap();
    assert_eq!(found(&store), [""; 0]);
}
