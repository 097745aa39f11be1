//! Runs that are merged while a directory is used, and names that are looked up one by one.

use std::collections::BTreeMap;

use metastore::Tiers;
use types::rng::Rng;

use super::*;
use crate::execute::compact;
use objstore::{Action, Counting, FaultRules, Faulty, Operation, Rule};

/// Directories of a few hundred bytes are large.
fn small() -> Executor {
    let tiers = Tiers { small_bytes: 300, at_once_bytes: 600, run_bytes_max: 1 << 20 };
    let (whole_bytes, cache_bytes) = (400, 1 << 20);
    Executor::new(Tuning { tiers, whole_bytes, cache_bytes, segment_bytes_min: 1 })
}

pub(super) fn commit_on(store: &dyn Store, executor: &Executor, rows: Rows) -> Result<bool> {
    let (counts, position, touched) = ((0, 0, false), Seq(1), Default::default());
    let op = StoreOp::CommitDir { ino: DIR, rows, counts, position, touched, attach: None };
    match executor.execute(store, op) {
        Ok(StoreResult::Written { compact, .. }) => Ok(compact),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure.error),
    }
}

pub(super) fn compact_on(store: &dyn Store, executor: &Executor) -> Result<bool> {
    match executor.execute(store, StoreOp::CompactDir { ino: DIR }) {
        Ok(StoreResult::Written { compact, .. }) => Ok(compact),
        Ok(other) => panic!("{other:?}"),
        Err(failure) => Err(failure.error),
    }
}

/// The expected content of a directory.
type Model = BTreeMap<String, u64>;

/// Makes or removes some names.
fn change(random: &mut Rng, model: &mut Model, count: u64) -> Rows {
    let mut rows = Rows::new();
    for _ in 0..count {
        let (name, ino) = (format!("name.{:04}", random.below(600)), random.below(1 << 40));
        if random.below(4) == 0 {
            model.remove(&name);
            rows.push(name.as_bytes(), RowValue::Removed);
        } else {
            rows.push(name.as_bytes(), file(ino));
            model.insert(name, ino);
        }
    }
    rows
}

fn ino_of(value: &RowValue<'_>) -> Option<u64> {
    match value {
        RowValue::Inode(record) => Some(record.attr.ino.0),
        RowValue::Remote { ino, .. } => Some(ino.0),
        RowValue::Removed => None,
    }
}

fn loaded(store: &Memory) -> Model {
    let Ok(StoreResult::Dir(loaded)) = execute(store, StoreOp::LoadDir { ino: DIR }) else {
        panic!("it is there");
    };
    let row = |row: metastore::Row<'_>| {
        Some((String::from_utf8_lossy(row.name).into_owned(), ino_of(&row.value)?))
    };
    loaded.rows.iter().filter_map(row).collect()
}

/// Looks every name up that there may be.
fn looked_up(store: &dyn Store, executor: &Executor) -> Model {
    let names: Vec<_> = (0..600).map(|number| format!("name.{number:04}").into_bytes()).collect();
    let op = StoreOp::LookUp { ino: DIR, names };
    let loaded = match executor.execute(store, op) {
        Ok(StoreResult::Found(loaded)) => loaded,
        other => panic!("not a directory that is large: {other:?}"),
    };
    assert_eq!(loaded.rows.len(), 600, "each has an answer");
    let row = |row: metastore::Row<'_>| {
        Some((String::from_utf8_lossy(row.name).into_owned(), ino_of(&row.value)?))
    };
    loaded.rows.iter().filter_map(row).collect()
}

/// The objects are the manifest and the runs and value segments that it lists.
pub(super) fn check_objects(store: &Memory) {
    let manifest = manifest(store);
    let listed = manifest.runs.len() + manifest.values.len();
    assert_eq!(store.list("").unwrap().len(), listed + 1);
}

#[test]
fn a_directory_stays_what_it_is_whatever_is_merged() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(7));
    let (mut model, mut compactions, mut most) = (Model::new(), 0, 0);
    for step in 0..300 {
        let count = [1, 5, 40, 200][usize::try_from(random.below(4)).unwrap()];
        let mut wanted =
            commit_on(&store, &executor, change(&mut random, &mut model, count)).unwrap();
        while wanted && random.below(3) > 0 {
            wanted = compact_on(&store, &executor).unwrap();
            compactions += 1;
        }
        most = most.max(manifest(&store).runs.len());
        if step % 10 == 9 {
            assert_eq!(loaded(&store), model, "after {step} commits");
            assert_eq!(looked_up(&store, &executor), model, "after {step} commits");
        }
    }
    assert!(compactions > 30, "{compactions}");
    assert!(most < 30, "{most} runs, although some were not merged when they could be");
    while compact_on(&store, &executor).unwrap() {}
    assert_eq!(loaded(&store), model);
    check_objects(&store);
}

#[test]
fn compaction_drops_removed_rows_and_their_tombstones() {
    let (store, executor) = (Memory::new(), small());
    let name = |number: u64| format!("name.{number:04}");
    let all = |value: &dyn Fn(u64) -> RowValue<'static>| {
        let mut rows = Rows::new();
        (0..600).for_each(|number| rows.push(name(number).as_bytes(), value(number)));
        rows
    };
    commit_on(&store, &executor, all(&file)).unwrap();
    assert!(!commit_on(&store, &executor, Rows::new()).unwrap());
    assert!(!commit_on(&store, &executor, all(&|_| RowValue::Removed)).unwrap());
    let mut one = Rows::new();
    one.push(b"name.0000", RowValue::Removed);
    assert!(commit_on(&store, &executor, one).unwrap(), "more is removed than there is");
    compact_on(&store, &executor).unwrap();
    assert_eq!(manifest(&store).runs, [], "nothing is left to be said");
    check_objects(&store);
}

#[test]
fn commits_during_a_compaction_stay_above_the_merged_run() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(1));
    let mut model = Model::new();
    while !commit_on(&store, &executor, change(&mut random, &mut model, 60)).unwrap() {}
    let before = manifest(&store);
    let count = executor.tuning.tiers.choose(&before).unwrap();
    let id = RunId(before.next_run);
    let taken = executor.take_number(DIR, id);
    let written = compact::write(&store, &executor, &before, count, id).unwrap();
    for _ in 0..3 {
        commit_on(&store, &executor, change(&mut random, &mut model, 30)).unwrap();
    }
    assert_eq!(loaded(&store), model);
    let replaced = &before.runs[..count];
    assert!(compact::put_in_place(&store, &executor, DIR, replaced, &written).unwrap().is_some());
    drop(taken);
    assert_eq!(loaded(&store), model);
    commit_on(&store, &executor, change(&mut random, &mut model, 30)).unwrap();
    assert_eq!(loaded(&store), model);
    assert_eq!(looked_up(&store, &executor), model);
    check_objects(&store);
    // Another that began at the same time finds that its runs are gone.
    let again = compact::put_in_place(&store, &executor, DIR, replaced, &written).unwrap();
    assert_eq!(again, None);
    assert_eq!(loaded(&store), model);
}

#[test]
fn a_compaction_that_fails_at_any_step_loses_nothing_and_can_be_repeated() {
    let (start, executor, mut random) = (Memory::new(), small(), Rng::new(3));
    let mut model = Model::new();
    while !commit_on(&start, &executor, change(&mut random, &mut model, 60)).unwrap() {}
    let copy = || {
        let store = Memory::new();
        for name in start.list("").unwrap() {
            let _ = store.put(&name, &start.get(&name).unwrap().0, Expect::Any).unwrap();
        }
        store
    };
    let (mut failed, mut calls) = (0, 0);
    loop {
        let store = copy();
        let faults = FaultRules::default();
        faults.add(Rule::new(Action::Fail(Errno::Io)).after(calls));
        let faulty = Faulty::new(store.clone(), faults);
        let ended = compact_on(&faulty, &small());
        assert_eq!(loaded(&store), model, "after {calls} calls");
        // The next server knows nothing of it.
        while compact_on(&store, &small()).unwrap() {}
        assert_eq!(loaded(&store), model, "after {calls} calls, repeated");
        if ended.is_ok() {
            check_objects(&store);
            break;
        }
        (failed, calls) = (failed + 1, calls + 1);
    }
    assert!(failed > 10, "{failed} calls could fail");
}

#[test]
fn a_look_up_reads_one_block_and_the_next_one_none() {
    let (store, executor) = (Memory::new(), Executor::default());
    let mut rows = Rows::new();
    let name = |number: u64| format!("a.rather.long.name.of.a.file.{number:08}");
    for number in 0..200_000 {
        rows.push(name(number).as_bytes(), file(number));
    }
    let mut newer = Rows::new();
    for number in (0..200_000).step_by(3) {
        newer.push(name(number).as_bytes(), file(number + 1_000_000));
    }
    assert!(!commit_on(&store, &executor, rows).unwrap());
    assert!(!commit_on(&store, &executor, newer).unwrap());
    let counting = Counting::new(store);
    let look = |number: u64| {
        let names = vec![name(number).into_bytes()];
        let before = counting.counters().counts();
        let op = StoreOp::LookUp { ino: DIR, names };
        let Ok(StoreResult::Found(loaded)) = executor.execute(&counting, op) else {
            panic!("it is large");
        };
        let reads = counting.counters().counts().since(&before).of(Operation::ReadRange);
        let found = loaded.rows.iter().next().and_then(|row| ino_of(&row.value));
        (found, reads.calls, reads.bytes)
    };
    assert_eq!(look(150_000).0, Some(1_150_000));
    assert_eq!(look(150_001).0, Some(150_001));
    // Filters and blocks of both runs, once; the ends were read before.
    let (found, calls, bytes) = look(77_777);
    assert_eq!(found, Some(77_777));
    assert!((2..=4).contains(&calls) && bytes < 80_000, "{calls} reads of {bytes} bytes");
    assert_eq!(look(77_777), (Some(77_777), 0, 0), "it is remembered");
    assert_eq!(look(500_000).0, None);
}

/// A row of a client's run without the right numbers is not found either, and its runs can be
/// merged.
#[test]
fn a_look_up_finds_of_a_clients_run_what_loading_finds() {
    let (store, executor) = (Memory::new(), small());
    let all: Vec<(String, u64)> =
        (0..600).map(|number| (format!("name.{number:04}"), 100 + number * 2)).collect();
    let borrowed: Vec<(&str, RowValue<'static>)> =
        all.iter().map(|(name, ino)| (name.as_str(), file(*ino))).collect();
    let run = clients_run(&store, &borrowed);
    attach(&store, run).unwrap();
    let model = loaded(&store);
    assert_eq!(model.len(), 450, "numbers from 1000 on are not the client's");
    assert_eq!(looked_up(&store, &executor), model);
    let mut both = model;
    for _ in 0..10 {
        let mut rows = Rows::new();
        for number in 0..60 {
            let name = format!("name.{:04}", number * 10);
            rows.push(name.as_bytes(), file(number));
            both.insert(name, number);
        }
        if commit_on(&store, &executor, rows).unwrap() {
            while compact_on(&store, &executor).unwrap() {}
        }
        assert_eq!(loaded(&store), both);
        assert_eq!(looked_up(&store, &executor), both);
    }
}

#[test]
fn a_load_that_races_with_a_compaction_reads_the_manifest_again() {
    let (store, executor, mut random) = (Memory::new(), small(), Rng::new(9));
    let mut model = Model::new();
    while !commit_on(&store, &executor, change(&mut random, &mut model, 60)).unwrap() {}
    // The manifest was read, and then the runs were merged.
    let stale = manifest(&store);
    while compact_on(&store, &executor).unwrap() {}
    let mut first = Some(stale);
    let read = || match first.take() {
        Some(stale) => load_manifest(&store, stale),
        None => load_dir(&store, DIR),
    };
    let Ok(StoreResult::Dir(found)) = while_runs_go(read) else { panic!("it is there") };
    assert_eq!(found.rows.len(), model.len());
}
