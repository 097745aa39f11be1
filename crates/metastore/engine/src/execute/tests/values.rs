//! Content that is kept in value segments.

use std::collections::BTreeMap;

use metastore::{ObjectName, Snapshot, Tiers};
use types::rng::Rng;

use super::compaction::{check_objects, commit_on, compact_on};
use super::*;
use crate::{load_dir_at, take_snapshot};
use objstore::{Action, FaultRules, Faulty, Rule};

/// Directories of a few kilobytes are large.
fn small() -> Executor {
    let tiers = Tiers { small_bytes: 2_000, at_once_bytes: 6_000, run_bytes_max: 1 << 20 };
    let (whole_bytes, cache_bytes) = (400, 1 << 20);
    Executor::new(Tuning { tiers, whole_bytes, cache_bytes, segment_bytes_min: 1000 })
}

/// The expected content of a directory: the number of each file, from which its content follows.
type Model = BTreeMap<String, u64>;

/// Some are long, some are not.
fn content(number: u64) -> Vec<u8> {
    let length = if number.is_multiple_of(3) { 20 } else { 200 + number % 400 };
    (0..length).map(|at| (number + at).to_le_bytes()[0]).collect()
}

fn push(rows: &mut Rows, name: &str, number: u64) {
    let data = content(number);
    let extra = if number.is_multiple_of(7) { &data[..data.len() / 2] } else { &[] };
    let attr = types::Attr {
        ino: Ino(number),
        mode: 0o100_644,
        nlink: 1,
        size: data.len() as u64,
        ..types::Attr::default()
    };
    let record = metastore::InodeRecord { attr, data: &data, extra, ..Default::default() };
    rows.push(name.as_bytes(), RowValue::Inode(record));
}

fn change(random: &mut Rng, model: &mut Model, count: u64) -> Rows {
    let mut rows = Rows::new();
    for _ in 0..count {
        let (name, number) = (format!("name.{:03}", random.below(200)), random.below(1 << 40));
        if random.below(4) == 0 {
            model.remove(&name);
            rows.push(name.as_bytes(), RowValue::Removed);
        } else {
            push(&mut rows, &name, number);
            model.insert(name, number);
        }
    }
    rows
}

/// The files of rows, whose content must match.
fn files(rows: &Rows) -> Model {
    let mut found = Model::new();
    for row in rows.iter() {
        let RowValue::Inode(record) = row.value else { continue };
        let number = record.attr.ino.0;
        assert_eq!((record.data, record.pointer), (&content(number)[..], None));
        assert_eq!(record.extra.is_empty(), !number.is_multiple_of(7));
        found.insert(String::from_utf8_lossy(row.name).into_owned(), number);
    }
    found
}

fn loaded(store: &dyn Store) -> Model {
    match execute(store, StoreOp::LoadDir { ino: DIR }) {
        Ok(StoreResult::Dir(loaded)) => files(&loaded.rows),
        other => panic!("{other:?}"),
    }
}

fn looked_up(store: &dyn Store, executor: &Executor) -> Model {
    let names = (0..200).map(|number| format!("name.{number:03}").into_bytes()).collect();
    match executor.execute(store, StoreOp::LookUp { ino: DIR, names }) {
        Ok(StoreResult::Found(loaded) | StoreResult::Dir(loaded)) => files(&loaded.rows),
        other => panic!("{other:?}"),
    }
}

/// Bytes that value segments hold, and that runs point to.
fn held(store: &Memory) -> (u64, u64) {
    let values = manifest(store).values;
    let held = values.iter().map(|segment| segment.bytes).sum();
    (held, values.iter().map(metastore::ValueSegment::used).sum())
}

#[test]
fn files_keep_their_content_whatever_is_merged_and_what_they_leave_is_reclaimed() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(7));
    let (mut model, mut most) = (Model::new(), 0);
    for step in 0..200 {
        let count = [1, 5, 40][usize::try_from(random.below(3)).unwrap()];
        let mut wanted =
            commit_on(&store, &executor, change(&mut random, &mut model, count)).unwrap();
        while wanted && random.below(4) > 0 {
            wanted = compact_on(&store, &executor).unwrap();
        }
        most = most.max(manifest(&store).values.len());
        if step % 10 == 9 {
            assert_eq!(loaded(&store), model, "after {step} commits");
            assert_eq!(looked_up(&store, &executor), model, "after {step} commits");
        }
    }
    assert!(most > 1, "there were value segments");
    while compact_on(&store, &executor).unwrap() {}
    let (held, used) = held(&store);
    assert!(held <= 2 * used + 6_000, "{held} bytes for {used}");
    assert_eq!(loaded(&store), model);
    check_objects(&store);
    let mut rows = Rows::new();
    model.keys().for_each(|name| rows.push(name.as_bytes(), RowValue::Removed));
    commit_on(&store, &executor, rows).unwrap();
    assert!(executor.execute(&store, StoreOp::PurgeDir { ino: DIR }).is_ok());
    assert_eq!(store.list("").unwrap(), [""; 0]);
}

#[test]
fn whatever_fails_at_any_step_no_content_is_lost() {
    let (start, executor, mut random) = (Memory::new(), small(), Rng::new(3));
    let mut model = Model::new();
    while !commit_on(&start, &executor, change(&mut random, &mut model, 20)).unwrap() {}
    assert!(!manifest(&start).values.is_empty());
    let mut after = model.clone();
    let rows = change(&mut random, &mut after, 20);
    let (mut failed, mut calls) = (0, 0);
    loop {
        let store = Memory::new();
        for name in start.list("").unwrap() {
            let _ = store.put(&name, &start.get(&name).unwrap().0, Expect::Any).unwrap();
        }
        let faults = FaultRules::default();
        let what = if calls % 2 == 0 { Action::Fail } else { Action::FailAfter };
        faults.add(Rule::new(what(Errno::Io)).after(calls / 2));
        let faulty = Faulty::new(store.clone(), faults);
        let own = small();
        let written = commit_on(&faulty, &own, rows.clone());
        let merged = written.clone().and_then(|_| compact_on(&faulty, &own));
        let found = loaded(&store);
        assert!(found == after || (written.is_err() && found == model), "after {calls} calls");
        // The next server knows nothing of it.
        commit_on(&store, &small(), rows.clone()).unwrap();
        while compact_on(&store, &small()).unwrap() {}
        assert_eq!(loaded(&store), after, "after {calls} calls, repeated");
        if written.is_ok() && merged.is_ok() {
            break;
        }
        (failed, calls) = (failed + 1, calls + 1);
    }
    assert!(failed > 30, "{failed} calls could fail");
}

#[test]
fn a_snapshot_has_the_content_that_was_there_when_it_was_taken() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(11));
    let (mut model, mut taken) = (Model::new(), Vec::new());
    for step in 0..60 {
        if commit_on(&store, &executor, change(&mut random, &mut model, 30)).unwrap() {
            while compact_on(&store, &executor).unwrap() {}
        }
        if step % 20 == 10 {
            let snapshot = Snapshot { id: step, ..Snapshot::default() };
            taken.push((take_snapshot(&store, &snapshot).unwrap(), model.clone()));
        }
    }
    for (number, model) in &taken {
        let loaded = load_dir_at(&store, DIR, *number).unwrap().expect("it was there");
        assert_eq!(files(&loaded.rows), *model, "snapshot {number}");
    }
    // Also when the directory is gone.
    assert!(executor.execute(&store, StoreOp::PurgeDir { ino: DIR }).is_ok());
    for (number, model) in &taken {
        let loaded = load_dir_at(&store, DIR, *number).unwrap().expect("it was there");
        assert_eq!(files(&loaded.rows), *model, "snapshot {number}");
    }
}

#[test]
fn a_read_that_races_with_moved_values_is_repeated() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(5));
    let mut model = Model::new();
    while !commit_on(&store, &executor, change(&mut random, &mut model, 40)).unwrap() {}
    // The manifest and the runs were read, and then their values were moved.
    let stale = manifest(&store);
    let runs = read_runs(&store, &stale).unwrap();
    let rows = metastore::merge(&stale, &runs).unwrap();
    assert!(rows.has_pointers());
    for _ in 0..20 {
        commit_on(&store, &executor, change(&mut random, &mut model, 40)).unwrap();
        while compact_on(&store, &executor).unwrap() {}
    }
    let gone = resolve(&store, stale.dirfrag, rows).map_err(|error| error.errno);
    assert_eq!(gone.err(), Some(Errno::NotFound));
    assert_eq!(loaded(&store), model);
}

#[test]
fn damaged_content_is_no_content() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(2));
    commit_on(&store, &executor, change(&mut random, &mut Model::new(), 100)).unwrap();
    let names = store.list("").unwrap();
    let is_values =
        |name: &&String| matches!(ObjectName::parse(name), Some(ObjectName::Values(..)));
    let name = names.iter().find(is_values).expect("it has a segment");
    let mut bytes = store.get(name).unwrap().0;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let _ = store.put(name, &bytes, Expect::Any).unwrap();
    let error = execute(&store, StoreOp::LoadDir { ino: DIR }).unwrap_err().error;
    assert_eq!((error.errno, &error.subject), (Errno::BadMessage, name));
}

/// A job that stores small files with their inodes: bytes written for each byte that came, without
/// and with value segments (I-08, I-09).
#[test]
fn content_is_written_hardly_more_than_once() {
    let amplification = |segment_bytes_min: u64| {
        let tiers =
            Tiers { small_bytes: 64 << 10, at_once_bytes: 256 << 10, run_bytes_max: 1 << 30 };
        let executor = Executor::new(Tuning { tiers, segment_bytes_min, ..Tuning::default() });
        let (store, mut random) = (Memory::new(), Rng::new(1));
        let (mut came, mut written) = (0, 0);
        let take = |result| match result {
            Ok(StoreResult::Written { compact, bytes }) => (compact, bytes.0),
            other => panic!("{other:?}"),
        };
        let data = vec![b'x'; 4096];
        for batch in 0..64 {
            let mut rows = Rows::new();
            for number in 0..50 {
                let name = format!("{:08x}", random.below(1 << 32));
                let data = &data[..1024 + usize::try_from(random.below(3072)).unwrap()];
                let attr = types::Attr {
                    ino: Ino(batch * 50 + number),
                    mode: 0o100_644,
                    size: data.len() as u64,
                    nlink: 1,
                    ..types::Attr::default()
                };
                let record = metastore::InodeRecord { attr, data, ..Default::default() };
                rows.push(name.as_bytes(), RowValue::Inode(record));
                came += (name.len() + data.len()) as u64;
            }
            let (counts, position, touched) = ((0, 0, false), Seq(1), Default::default());
            let op = StoreOp::CommitDir { ino: DIR, rows, counts, position, touched, attach: None };
            let (mut compact, mut bytes) = take(executor.execute(&store, op));
            written += bytes;
            while compact {
                (compact, bytes) = take(executor.execute(&store, StoreOp::CompactDir { ino: DIR }));
                written += bytes;
            }
        }
        check_objects(&store);
        (written * 100) / came
    };
    let (without, with) = (amplification(u64::MAX), amplification(64 << 10));
    assert!(without > 300 && with < 250, "{without} and {with} hundredths");
}
