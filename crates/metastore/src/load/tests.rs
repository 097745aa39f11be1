use std::collections::BTreeMap;

use proptest::prelude::*;
use types::{FileType, Ino};

use super::*;
use crate::manifest::RunInfo;
use crate::object::RunId;
use crate::tests::{dirfrag, inode};

/// A manifest for runs that are given newest first.
fn stored(runs: Vec<Rows>) -> (Manifest, Vec<Vec<u8>>) {
    let mut manifest = Manifest::new(dirfrag(Ino(9)));
    manifest.next_run = 100;
    let mut objects = Vec::new();
    for (rows, id) in runs.into_iter().zip((1..100).rev()) {
        let bytes = rows.into_run(manifest.dirfrag, RunId(id));
        manifest.runs.push(RunInfo::of(&RunReader::open(&bytes).unwrap()));
        objects.push(bytes);
    }
    (manifest, objects)
}

fn names(rows: &Rows) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(row.name).into_owned()).collect()
}

#[test]
fn the_newest_row_of_a_name_wins_and_removals_hide_older_ones() {
    let mut newest = Rows::new();
    newest.push(b"gone", RowValue::Removed);
    newest.push(b"back", inode(1, FileType::Regular, b"new"));
    newest.push(b"never", RowValue::Removed);
    let mut middle = Rows::new();
    middle.push(b"back", RowValue::Removed);
    middle.push(b"moved", RowValue::Remote { ino: Ino(4), file_type: FileType::Regular });
    let mut oldest = Rows::new();
    oldest.push(b"gone", inode(2, FileType::Regular, b""));
    oldest.push(b"back", inode(3, FileType::Regular, b"old"));
    oldest.push(b"moved", inode(4, FileType::Regular, b""));
    oldest.push(b"kept", inode(5, FileType::Directory, b""));
    let (manifest, runs) = stored(vec![newest, middle, oldest]);
    let rows = merge(&manifest, &runs).unwrap();
    assert_eq!(names(&rows), ["back", "kept", "moved"]);
    let values: Vec<RowValue<'_>> = rows.iter().map(|row| row.value).collect();
    assert_eq!(values[0], inode(1, FileType::Regular, b"new"));
    assert_eq!(values[2], RowValue::Remote { ino: Ino(4), file_type: FileType::Regular });
}

#[test]
fn no_runs_are_no_rows() {
    let rows = merge(&Manifest::new(dirfrag(Ino(9))), &[]).unwrap();
    assert!(rows.is_empty());
}

#[test]
fn runs_that_the_manifest_does_not_mean_are_refused() {
    let run = |number| {
        let mut rows = Rows::new();
        rows.push(b"name", inode(number, FileType::Regular, b""));
        rows
    };
    let (manifest, runs) = stored(vec![run(1), run(2)]);
    let cause = |runs: &[Vec<u8>]| merge(&manifest, runs).expect_err("other runs").cause;
    assert_eq!(cause(&runs[..1]), "as many runs as there are to merge");
    let swapped = [runs[1].clone(), runs[0].clone()];
    assert_eq!(cause(&swapped), "the checksum that the manifest states");
    let cut = [runs[0].clone(), runs[1][..50].to_vec()];
    assert_eq!(cause(&cut), "the length that the manifest states");

    // The manifest means these bytes, but they are another fragment's.
    let foreign = run(1).into_run(dirfrag(Ino(8)), RunId(1));
    let info = RunInfo::of(&RunReader::open(&foreign).unwrap());
    let manifest = Manifest { runs: vec![info], next_run: 2, ..Manifest::new(dirfrag(Ino(9))) };
    let error = merge(&manifest, &[foreign]).expect_err("a foreign run");
    assert_eq!(error.cause, "the identity that the object's name states");
    assert_eq!(error.object, run_name(dirfrag(Ino(9)), RunId(1)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loading_agrees_with_a_map(
        runs in prop::collection::vec(
            prop::collection::vec((0..60_u8, any::<bool>()), 0..40), 0..7,
        ),
    ) {
        let mut expected = BTreeMap::new();
        let mut newest_first = Vec::new();
        for (age, changes) in runs.iter().enumerate().rev() {
            let mut rows = Rows::new();
            for (number, (name, removed)) in changes.iter().enumerate() {
                let (name, ino) = (format!("{name}").into_bytes(), (age * 100 + number) as u64);
                let value = inode(ino, FileType::Regular, b"");
                rows.push(&name, if *removed { RowValue::Removed } else { value });
                expected.insert(name, (!removed).then_some(value));
            }
            newest_first.insert(0, rows);
        }
        let (manifest, objects) = stored(newest_first);
        let loaded = merge(&manifest, &objects).unwrap();
        let loaded: Vec<_> = loaded.iter().map(|row| (row.name.to_vec(), row.value)).collect();
        let expected: Vec<_> =
            expected.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        prop_assert_eq!(loaded, expected);
    }
}
