use std::collections::BTreeMap;

use proptest::prelude::*;
use types::{FileType, Ino};

use super::*;
use crate::tests::{dirfrag, inode};
use crate::{RunBuilder, RunId, RunInfo};

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

/// Merges slice by slice, of each run only the blocks that are needed.
fn in_slices(manifest: &Manifest, objects: &[Vec<u8>], bytes: usize) -> (Rows, usize) {
    let whole: Vec<_> = objects.iter().map(|bytes| RunReader::open(bytes).unwrap()).collect();
    let indexes: Vec<_> = whole.iter().map(RunReader::index).collect();
    let cuts = cuts(&indexes, bytes);
    let mut rows = Rows::new();
    for number in 0..=cuts.len() {
        let from = number.checked_sub(1).map_or(&[][..], |before| &cuts[before]);
        let slice = Slice { from, to: cuts.get(number).map(Vec::as_slice) };
        let part = |(index, bytes): (&&'_ RunIndex, &'_ Vec<u8>)| {
            let blocks = index.blocks_between(slice.from, slice.to);
            let span = index.span(blocks.clone());
            let start = usize::try_from(span.offset).unwrap();
            (blocks, bytes[start..start + span.length].to_vec())
        };
        let parts: Vec<_> = indexes.iter().zip(objects).map(part).collect();
        let readers: Vec<_> = indexes
            .iter()
            .zip(&parts)
            .map(|(index, (blocks, bytes))| {
                RunReader::open_part(index, blocks.clone(), bytes).unwrap()
            })
            .collect();
        merge_slice(manifest, &readers, slice, |name, value| match value {
            RowValue::Removed => {}
            RowValue::Remote { .. } | RowValue::Inode(_) => rows.push(name, *value),
        })
        .unwrap();
    }
    (rows, cuts.len() + 1)
}

#[test]
fn slices_of_large_runs_are_the_whole() {
    let mut numbers = types::rng::Rng::new(7);
    let mut large = |count: u64| {
        let mut rows = Rows::new();
        for _ in 0..count {
            let number = numbers.bits() % 30_000;
            let gone = number.is_multiple_of(7);
            let value = inode(number, FileType::Regular, b"");
            let name = format!("{number:x}.out");
            rows.push(name.as_bytes(), if gone { RowValue::Removed } else { value });
        }
        rows
    };
    let (manifest, objects) = stored(vec![large(300), large(5_000), large(40_000)]);
    let whole = merge(&manifest, &objects).unwrap();
    for bytes in [1, 20_000, 100_000, usize::MAX] {
        let (sliced, count) = in_slices(&manifest, &objects, bytes);
        assert!(count > 3 || bytes > 100_000, "{count} slices of {bytes}");
        assert!(sliced.iter().eq(whole.iter()), "slices of {bytes}");
    }
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
        // The newest as one, above the oldest.
        if let Some((_, newest)) = objects.split_last() {
            let mut front = manifest.clone();
            front.runs.pop();
            let mut builder = RunBuilder::new(manifest.dirfrag, RunId(99));
            overlay(&front, newest, |name, value| builder.push(name, value)).unwrap();
            let (run, info) = builder.finish();
            let mut both = manifest.clone();
            both.runs.splice(..newest.len(), [info]);
            let merged = merge(&both, &[&[run], &objects[newest.len()..]].concat()).unwrap();
            prop_assert!(merged.iter().eq(loaded.iter()));
        }
        prop_assert!(in_slices(&manifest, &objects, 1).0.iter().eq(loaded.iter()));
        let loaded: Vec<_> = loaded.iter().map(|row| (row.name.to_vec(), row.value)).collect();
        let expected: Vec<_> =
            expected.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        prop_assert_eq!(loaded, expected);
    }
}
