use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tempfile::TempDir;
use types::{Errno, Error};

use crate::conformance::conformance;
use crate::{
    Action, Counting, DirStore, Expect, FaultRules, Faulty, Fencing, Memory, ObjectStore,
    Operation, PutOutcome, Rule, Store, SyncScope,
};

#[test]
fn memory_keeps_the_contract() {
    conformance(&|| Box::new(Memory::new()));
}

#[test]
fn dir_keeps_the_contract() {
    let directories = RefCell::new(Vec::new());
    conformance(&|| {
        let directory = TempDir::new().unwrap();
        let store = DirStore::open(directory.path(), true).unwrap();
        directories.borrow_mut().push(directory);
        Box::new(store)
    });
}

#[test]
fn wrappers_keep_the_contract() {
    conformance(&|| {
        let shared: Arc<dyn Store> = Arc::new(Memory::new());
        Box::new(Counting::new(Faulty::new(shared, FaultRules::default())))
    });
}

#[test]
fn every_operation_is_counted_with_its_bytes() {
    let store = Counting::new(Memory::new());
    let counters = store.counters();
    let _ = store.put("a", b"12345", Expect::Any).unwrap();
    let _ = store.put("a", b"12345", Expect::Absent).unwrap();
    store.append("a", b"678").unwrap();
    store.write_range("a", 0, b"x").unwrap();
    let before = counters.counts();
    store.get("a").unwrap();
    store.read_range("a", 6, 100).unwrap();
    assert!(store.stat("absent").is_err());
    store.list("").unwrap();
    store.sync(SyncScope::All).unwrap();
    drop(store.lock("l", "me").unwrap());
    assert!(store.delete("a").unwrap());

    let counts = counters.counts();
    let put = counts.of(Operation::Put);
    assert_eq!((put.calls, put.failures, put.bytes), (2, 0, 5), "a conflict writes nothing");
    let stat = counts.of(Operation::Stat);
    assert_eq!((stat.calls, stat.failures), (1, 1));
    assert_eq!((counts.bytes_written(), counts.bytes_read()), (9, 10));
    assert_eq!(counts.calls(), 11);
    let since = counts.since(&before);
    assert_eq!((since.calls(), since.bytes_written(), since.bytes_read()), (7, 0, 10));
}

#[test]
fn the_nth_matching_operation_fails() {
    let faults = FaultRules::default();
    let store = Faulty::new(Memory::new(), faults.clone());
    let full = Rule::new(Action::Fail(Errno::NoSpace));
    faults.add(full.on(Operation::Append).named("log/").after(1).times(2));
    store.append("log/0", b"1").unwrap();
    store.append("other", b"1").unwrap();
    for _ in 0..2 {
        let error = store.append("log/0", b"2").unwrap_err();
        assert_eq!(error.to_string(), "log/0: injected into append: no space left (ENOSPC)");
    }
    assert_eq!(store.append("log/0", b"2"), Ok(1));
    assert_eq!(faults.fired(), 2);

    faults.add(Rule::new(Action::Fail(Errno::Io)));
    assert_eq!(store.list("").unwrap_err().errno, Errno::Io);
    faults.clear();
    assert!(store.list("").is_ok());
}

#[test]
fn an_answer_can_be_lost_after_the_deed() {
    let faults = FaultRules::default();
    let store = Faulty::new(Memory::new(), faults.clone());
    faults.add(Rule::new(Action::FailAfter(Errno::TimedOut)).on(Operation::Put));
    assert_eq!(store.put("a", b"1", Expect::Any).unwrap_err().errno, Errno::TimedOut);
    assert_eq!(store.get("a").unwrap().0, b"1");
}

#[test]
fn a_delay_is_the_callers_closure() {
    let faults = FaultRules::default();
    let store = Faulty::new(Memory::new(), faults.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let (rules, inner) = (faults.clone(), Memory::new());
    faults.add(Rule::new(Action::Call(Arc::new(move |operation, name| {
        // Rules can be changed and stores used from inside: no lock is held.
        assert_eq!(rules.fired(), 1);
        inner.append("x", b"y").unwrap();
        log.lock().unwrap().push((operation, name.to_string()));
    }))));
    store.sync(SyncScope::Object("a")).unwrap();
    assert_eq!(*seen.lock().unwrap(), [(Operation::Sync, "a".to_string())]);
}

#[test]
fn a_lying_disk_loses_what_it_claimed_to_have_synced() {
    let (memory, faults) = (Memory::new(), FaultRules::default());
    let store = Faulty::new(memory.clone(), faults.clone());
    store.append("log", b"safe").unwrap();
    store.sync(SyncScope::All).unwrap();
    faults.add(Rule::new(Action::PretendSync));
    store.append("log", b" lost").unwrap();
    store.sync(SyncScope::Object("log")).unwrap();
    memory.crash(|_, _| 0);
    assert_eq!(store.get("log").unwrap().0, b"safe");
}

#[test]
fn addresses_name_one_store_or_none() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("made/on/demand");
    let path = path.to_str().unwrap();
    let errno = |result: Result<Arc<dyn Store>, Error>| result.unwrap_err().errno;

    assert_eq!(errno(crate::open_existing(path)), Errno::NotFound);
    let store = crate::open(&format!("dir:{path}")).unwrap();
    assert!(matches!(store.put("a", b"1", Expect::Any), Ok(PutOutcome::Done(_))));
    assert_eq!(crate::open_existing(path).unwrap().list("").unwrap(), ["a"]);
    let memory = crate::open("memory:").unwrap();
    assert!(memory.list("").unwrap().is_empty());
    for bad in ["", "dir:", "memory:x", "s3://bucket", "C:"] {
        assert_eq!(errno(crate::open(bad)), Errno::Invalid, "{bad}");
    }
    // Rejected before a search for Ceph.
    for bad in ["rados:", "rados:pool", "rados://", "rados://pool?size=3", "rados://pool?conf=x"] {
        assert_eq!(errno(crate::open(bad)), Errno::Invalid, "{bad}");
    }
    assert_eq!(crate::copies(path), Ok(1));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, Vec<u8>, bool),
    Append(u8, Vec<u8>),
    Write(u8, u64, Vec<u8>),
    Read(u8, u64, usize),
    Delete(u8),
    List(u8),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        (0u8..6, bytes(), any::<bool>()).prop_map(|(name, data, any)| Step::Put(name, data, any)),
        (0u8..6, bytes()).prop_map(|(name, data)| Step::Append(name, data)),
        (0u8..6, 0u64..60, bytes()).prop_map(|(name, at, data)| Step::Write(name, at, data)),
        (0u8..6, 0u64..60, 0usize..60).prop_map(|(name, at, length)| Step::Read(name, at, length)),
        (0u8..6).prop_map(Step::Delete),
        (0u8..6).prop_map(Step::List),
        Just(Step::Reopen),
    ]
}

/// The result of a step, as text, so that stores can be compared.
fn outcome(store: &dyn ObjectStore, step: &Step) -> String {
    let name = |index: &u8| ["a", "a/b", "a%/b", "a/b/c", "ab", "%"][usize::from(*index)];
    let plain = |error: Error| error.errno;
    match step {
        Step::Put(index, data, any) => {
            let expect = if *any { Expect::Any } else { Expect::Absent };
            format!("{:?}", store.put(name(index), data, expect).map_err(plain))
        }
        Step::Append(index, data) => {
            format!("{:?}", store.append(name(index), data).map_err(plain))
        }
        Step::Write(index, offset, data) => {
            format!("{:?}", store.write_range(name(index), *offset, data).map_err(plain))
        }
        Step::Read(index, offset, length) => {
            let read = store.read_range(name(index), *offset, *length).map_err(plain);
            format!("{read:?} {:?}", store.stat(name(index)).map_err(plain))
        }
        Step::Delete(index) => format!("{:?}", store.delete(name(index)).map_err(plain)),
        Step::List(index) => format!("{:?}", store.list(name(index)).map_err(plain)),
        Step::Reopen => String::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn dir_and_memory_behave_alike(steps in proptest::collection::vec(step(), 1..40)) {
        let directory = TempDir::new().unwrap();
        let mut dir = DirStore::open(directory.path(), true).unwrap();
        let memory = Memory::new();
        for step in &steps {
            if matches!(step, Step::Reopen) {
                dir = DirStore::open(directory.path(), false).unwrap();
            }
            prop_assert_eq!(outcome(&dir, step), outcome(&memory, step), "{:?}", step);
        }
        for name in memory.list("").unwrap() {
            prop_assert_eq!(dir.get(&name), memory.get(&name));
        }
    }
}

#[test]
fn a_store_beside_others_has_an_address() {
    assert_eq!(crate::beside("dir:/a/", "b"), "dir:/a/b");
    assert_eq!(crate::beside("/a", "b"), "/a/b");
    assert_eq!(crate::beside("memory:", "b"), "memory:");
    assert_eq!(crate::beside("rados://pool", "b"), "rados://pool?namespace=b");
    let (url, other) = ("rados://pool?namespace=a&conf=/c", "rados://pool?conf=/c&namespace=b");
    assert_eq!(crate::beside(url, "b"), other);
}
