//! A process that is killed in the middle of its work loses nothing that it acknowledged.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use objstore::{DirStore, Expect, Fencing, ObjectStore, PutOutcome, SyncScope};
use tempfile::TempDir;
use types::rng::Rng;

/// Where the child works; its presence makes this process a child.
const DIRECTORY: &str = "OBJSTORE_KILL_DIRECTORY";
/// The first number the child may use.
const START: &str = "OBJSTORE_KILL_START";

/// Some content that is recognisably number `number`, and recognisably whole.
fn content(number: u64) -> Vec<u8> {
    let repeats = 100 + usize::try_from(number * 7919 % 9_000).unwrap();
    number.to_le_bytes().repeat(repeats)
}

/// The number of some content; panics if it is torn.
fn number_of(data: &[u8]) -> u64 {
    let number = u64::from_le_bytes(*data.first_chunk().unwrap());
    assert!(data == content(number), "content {number} is torn");
    number
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1 + usize::try_from(number % 50).unwrap())
}

fn acknowledge(what: &str, number: u64) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "done {what} {number}").unwrap();
    output.flush().unwrap();
}

/// Not a test of its own: the child process runs this until it is killed.
#[test]
fn child_of_the_kill_test() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    println!(); // The test runner may have begun a line.
    let start: u64 = std::env::var(START).unwrap().parse().unwrap();
    let store = DirStore::open(Path::new(&directory), false).unwrap();
    let _lock = store.lock("writer", "the child").unwrap();
    let mut version = store.get("state").unwrap().1;
    for number in start..start + 1_000_000 {
        match store.put("state", &content(number), Expect::Is(version)).unwrap() {
            PutOutcome::Done(new) => version = new,
            PutOutcome::Conflict(current) => panic!("nobody else writes, but {current:?} is there"),
        }
        acknowledge("put", number);
        store.append("log/0", &record(number)).unwrap();
        store.sync(SyncScope::Object("log/0")).unwrap();
        acknowledge("append", number);
        store.put(&format!("new/{number}"), b"x", Expect::Absent).unwrap_done();
        acknowledge("create", number);
    }
}

trait UnwrapDone {
    fn unwrap_done(self);
}

impl UnwrapDone for types::Result<PutOutcome> {
    fn unwrap_done(self) {
        assert!(matches!(self, Ok(PutOutcome::Done(_))), "{self:?}");
    }
}

fn spawn(directory: &Path, start: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kill::child_of_the_kill_test", "--exact", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(START, start.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Lets a child work until it has acknowledged so many operations, kills it, and returns the last
/// number acknowledged of each kind.
fn run_and_kill(directory: &Path, start: u64, operations: u64) -> BTreeMap<String, u64> {
    let mut child = spawn(directory, start);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let mut seen = 0;
    let mut killed = false;
    // After the kill the pipe still holds the acknowledgements from before it.
    for line in lines {
        let line = line.unwrap();
        let Some((kind, number)) = line.strip_prefix("done ").and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        acknowledged.insert(kind.to_string(), number.parse().unwrap());
        seen += 1;
        if seen >= operations && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    let status = child.wait().unwrap();
    assert!(killed && !status.success(), "the child ended by itself: {status}");
    acknowledged
}

/// Checks the log: whole records of growing numbers, but for a torn end, and returns the last one.
fn last_record(mut log: &[u8]) -> u64 {
    let mut last = 0;
    while let Some(number) = log.first_chunk() {
        let number = u64::from_le_bytes(*number);
        let expected = record(number);
        if log.len() < expected.len() {
            assert!(expected.starts_with(log), "a torn record is a prefix");
            break;
        }
        assert!(number > last && log.starts_with(&expected), "record {number} is damaged");
        log = &log[expected.len()..];
        last = number;
    }
    last
}

#[test]
fn a_killed_process_loses_nothing_it_acknowledged() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    DirStore::open(path, true).unwrap().put("state", &content(0), Expect::Absent).unwrap_done();
    let mut random = Rng::new(0x9E37_79B9_7F4A_7C15);
    let mut start = 1;
    for round in 0..8 {
        let acknowledged = run_and_kill(path, start, 1 + random.below(100));

        let store = DirStore::open(path, false).unwrap();
        let last = |kind: &str| acknowledged.get(kind).copied().unwrap_or(start - 1);
        let state = number_of(&store.get("state").unwrap().0);
        assert!(state == last("put") || state == last("put") + 1, "round {round}: {state}");
        let log = store.get("log/0").map_or(Vec::new(), |(log, _)| log);
        assert!(last_record(&log) >= acknowledged.get("append").copied().unwrap_or(0));
        for number in start..=last("create") {
            assert_eq!(store.get(&format!("new/{number}")).unwrap().0, b"x", "round {round}");
        }
        assert!(store.lock("writer", "the parent").is_ok(), "the lock died with its holder");
        assert_eq!(std::fs::read_dir(path.join("tmp")).unwrap().count(), 0, "no leftovers");
        // A partial append of the killed process would be in the middle of the log from now on.
        let _ = store.delete("log/0").unwrap();
        start = state + 1;
    }
}
