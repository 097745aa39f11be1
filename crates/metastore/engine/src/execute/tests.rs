mod compaction;
mod values;

use metastore::{InodeRecord, RowValue, RunEnds, RunReader};
use types::Attr;

use super::*;
use objstore::Memory;

const DIR: Ino = Ino(500);
const OWN: InoRange = InoRange { start: 100, end: 1000 };

fn file(ino: u64) -> RowValue<'static> {
    let attr = Attr { ino: Ino(ino), mode: 0o100_644, nlink: 1, ..Attr::default() };
    RowValue::Inode(InodeRecord { attr, ..InodeRecord::default() })
}

fn rows(all: &[(&str, RowValue<'static>)]) -> Rows {
    let mut rows = Rows::new();
    all.iter().for_each(|(name, value)| rows.push(name.as_bytes(), *value));
    rows
}

/// A run that a client has put into the store.
fn clients_run(store: &Memory, all: &[(&str, RowValue<'static>)]) -> DirRun {
    let (id, bytes) = metastore::encode_clients_run(whole(DIR), Ino(100), &rows(all));
    let run = RunInfo::of(&RunReader::open(&bytes).unwrap());
    let _ = store.put(&run_name(whole(DIR), id), &bytes, Expect::Any).unwrap();
    DirRun { dir: DIR, run, ..DirRun::default() }
}

fn commit(store: &Memory, rows: Rows, position: u64, attach: Option<DirRun>) {
    let attach = attach.map(|run| Box::new((vec![run], vec![OWN])));
    let (counts, position, touched) = ((0, 0, false), Seq(position), Default::default());
    let op = StoreOp::CommitDir { ino: DIR, rows, counts, position, touched, attach };
    assert!(matches!(execute(store, op), Ok(StoreResult::Written { .. })));
}

fn attach(store: &Memory, run: DirRun) -> Result<()> {
    let op = StoreOp::AttachDirs { dirs: vec![run], position: Seq(3), ranges: vec![OWN] };
    execute(store, op).map(drop).map_err(|failure| failure.error)
}

fn names(store: &Memory) -> Result<Vec<String>> {
    let result = execute(store, StoreOp::LoadDir { ino: DIR });
    let StoreResult::Dir(loaded) = result.map_err(|failure| failure.error)? else {
        panic!("it has a manifest");
    };
    let name = |row: metastore::Row<'_>| String::from_utf8_lossy(row.name).into_owned();
    Ok(loaded.rows.iter().map(name).collect())
}

fn manifest(store: &Memory) -> Manifest {
    read_manifest(store, whole(DIR)).unwrap().unwrap().0
}

#[test]
fn a_directory_is_made_of_a_run_once() {
    let store = Memory::new();
    let run = clients_run(&store, &[("a", file(100)), ("b", file(101))]);
    attach(&store, run).unwrap();
    assert_eq!(names(&store).unwrap(), ["a", "b"]);
    commit(&store, rows(&[("a", RowValue::Removed)]), 5, None);
    attach(&store, run).unwrap();
    assert_eq!(names(&store).unwrap(), ["b"], "what was done since stays");
}

#[test]
fn an_attached_run_hides_rows_committed_with_it_also_on_a_retry() {
    let store = Memory::new();
    commit(&store, rows(&[("a", file(5)), ("old", file(6))]), 1, None);
    let run = clients_run(&store, &[("a", file(100))]);
    for _ in 0..2 {
        // The names that were there were removed before.
        let gone = rows(&[("a", RowValue::Removed), ("old", RowValue::Removed)]);
        commit(&store, gone, 4, Some(run));
        assert_eq!(names(&store).unwrap(), ["a"]);
        assert_eq!(manifest(&store).attached[0].position, Seq(4));
    }
    commit(&store, rows(&[("a", RowValue::Removed)]), 6, None);
    assert_eq!(names(&store).unwrap(), [""; 0]);
}

#[test]
fn a_run_is_rewritten_like_any_other_and_then_is_the_servers() {
    let store = Memory::new();
    let all = [("a", file(100)), ("theirs", file(5))];
    let run = clients_run(&store, &all);
    attach(&store, run).unwrap();
    for number in 0..8 {
        let name = format!("n{number}");
        commit(&store, rows(&[(name.as_str(), file(number))]), number, None);
    }
    let known = manifest(&store);
    assert!(known.attached.is_empty() && known.runs.iter().all(|run| !run.id.is_clients()));
    let all = names(&store).unwrap();
    assert!(all.contains(&"a".into()) && !all.contains(&"theirs".into()), "{all:?}");
    assert!(store.stat(&run_name(whole(DIR), run.run.id)).is_err(), "nothing lists it");
}

#[test]
fn a_missing_run_does_not_stop_commits_in_its_directory() {
    let store = Memory::new();
    let run = clients_run(&store, &[("a", file(100))]);
    attach(&store, run).unwrap();
    let object = run_name(whole(DIR), run.run.id);
    let (bytes, _) = store.get(&object).unwrap();
    store.delete(&object).unwrap();
    for number in 0..20u64 {
        let name = format!("n{number}");
        commit(&store, rows(&[(name.as_str(), file(number))]), number, None);
    }
    assert_eq!(names(&store).unwrap_err().errno, Errno::BadMessage);
    assert!(manifest(&store).runs.len() < 12, "what is above it is merged all the same");
    let _ = store.put(&object, &bytes, Expect::Any).unwrap();
    assert_eq!(names(&store).unwrap().len(), 21, "nothing was given up");
    let op = StoreOp::PurgeDir { ino: DIR };
    assert!(execute(&store, op).is_ok());
    assert_eq!(store.list("").unwrap(), [""; 0]);
}

#[test]
fn a_run_that_is_not_what_its_client_says_makes_no_directory() {
    let store = Memory::new();
    let run = clients_run(&store, &[("a", file(100))]);
    let bytes = store.get(&run_name(whole(DIR), run.run.id)).unwrap().0;
    let stated = |change: &dyn Fn(&mut RunInfo)| {
        let mut wrong = run;
        change(&mut wrong.run);
        attach(&store, wrong).unwrap_err().errno
    };
    assert_eq!(stated(&|run| run.rows += 1), Errno::BadMessage);
    assert_eq!(stated(&|run| run.removed += 1), Errno::BadMessage);
    assert_eq!(stated(&|run| run.bytes -= 1), Errno::BadMessage);
    assert_eq!(stated(&|run| run.id = RunId::of_client(Ino(101), 0)), Errno::NotFound);
    // Every byte of the ends; the bytes between are checked when they are read.
    let (header, tail) = (RunEnds::HEADER_BYTES, RunEnds::FOOTER_BYTES + 10);
    for at in (0..header).chain(bytes.len() - tail..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let _ = store.put(&run_name(whole(DIR), run.run.id), &damaged, Expect::Any).unwrap();
        assert_eq!(attach(&store, run).unwrap_err().errno, Errno::BadMessage, "byte {at}");
    }
    assert!(read_manifest(&store, whole(DIR)).unwrap().is_none());
}
