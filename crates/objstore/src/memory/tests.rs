use proptest::prelude::*;

use crate::{Expect, Fencing, Memory, ObjectStore, PutOutcome, SyncScope};

fn content(store: &Memory, name: &str) -> Option<Vec<u8>> {
    store.get(name).ok().map(|(bytes, _)| bytes)
}

#[test]
fn a_crash_takes_what_was_not_synced() {
    let store = Memory::new();
    store.append("log", b"synced").unwrap();
    store.sync(SyncScope::Object("log")).unwrap();
    store.append("log", b" lost").unwrap();
    store.append("never-synced", b"gone").unwrap();
    store.crash(|_, _| 0);
    assert_eq!(content(&store, "log").unwrap(), b"synced");
    assert_eq!(content(&store, "never-synced"), None);
}

#[test]
fn a_prefix_is_synced_and_nothing_else() {
    let store = Memory::new();
    for name in ["a", "b/1", "b/2/3", "c"] {
        store.append(name, b"x").unwrap();
    }
    store.sync(SyncScope::Prefix("b/")).unwrap();
    store.crash(|_, _| 0);
    assert_eq!(store.list("").unwrap(), ["b/1", "b/2/3"]);
}

#[test]
fn a_crash_keeps_puts_and_deletes() {
    let store = Memory::new();
    assert!(matches!(store.put("a", b"1", Expect::Any), Ok(PutOutcome::Done(_))));
    assert!(matches!(store.put("b", b"2", Expect::Any), Ok(PutOutcome::Done(_))));
    assert!(store.delete("b").unwrap());
    store.crash(|_, _| 0);
    assert_eq!(store.list("").unwrap(), ["a"]);
}

#[test]
fn the_caller_chooses_where_a_write_tears() {
    let store = Memory::new();
    store.append("log", b"abc").unwrap();
    store.append("log", b"defg").unwrap();
    let mut asked = Vec::new();
    store.crash(|name, length| {
        asked.push((name.to_string(), length));
        if length == 3 { 1 } else { usize::MAX }
    });
    assert_eq!(asked, [("log".to_string(), 3), ("log".to_string(), 4)]);
    assert_eq!(content(&store, "log").unwrap(), b"a\0\0defg", "the lost part reads as zeros");
}

#[test]
fn an_overwrite_that_is_lost_brings_the_old_bytes_back() {
    let store = Memory::new();
    let _ = store.put("a", b"0123456789", Expect::Any).unwrap();
    store.write_range("a", 8, b"xyzw").unwrap();
    store.write_range("a", 2, b"--").unwrap();
    assert_eq!(content(&store, "a").unwrap(), b"01--4567xyzw");
    store.crash(|_, _| 0);
    assert_eq!(content(&store, "a").unwrap(), b"0123456789");
}

#[test]
fn a_lock_belongs_to_all_clones_and_ends_with_its_guard() {
    let store = Memory::new();
    let guard = store.lock("leader", "mon.a").unwrap();
    let error = store.clone().lock("leader", "mon.b").unwrap_err();
    assert_eq!(
        error.to_string(),
        "leader: the lock is held by mon.a (EBUSY); stop the holder, or wait until it is gone"
    );
    drop(guard);
    assert_eq!(store.lock("leader", "mon.b").unwrap().owner(), "mon.b");
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<u8>),
    Write(u64, Vec<u8>),
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(1u8.., 0..8);
    prop_oneof![
        3 => bytes().prop_map(Step::Append),
        3 => (0u64..20, bytes()).prop_map(|(offset, data)| Step::Write(offset, data)),
        1 => Just(Step::Sync),
    ]
}

fn apply(store: &Memory, step: &Step) {
    match step {
        Step::Append(data) => drop(store.append("o", data).unwrap()),
        Step::Write(offset, data) => store.write_range("o", *offset, data).unwrap(),
        Step::Sync => store.sync(SyncScope::Object("o")).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_crash_returns_exactly_to_the_last_sync(steps in proptest::collection::vec(step(), 0..20)) {
        let store = Memory::new();
        steps.iter().for_each(|step| apply(&store, step));
        store.crash(|_, _| 0);

        let synced = steps.iter().rposition(|step| matches!(step, Step::Sync)).unwrap_or(0);
        let reference = Memory::new();
        steps[..synced].iter().for_each(|step| apply(&reference, step));
        prop_assert_eq!(content(&store, "o"), content(&reference, "o"));
    }

    #[test]
    fn a_crash_that_keeps_everything_changes_nothing(
        steps in proptest::collection::vec(step(), 0..20),
    ) {
        let store = Memory::new();
        steps.iter().for_each(|step| apply(&store, step));
        let before = content(&store, "o").filter(|bytes| !bytes.is_empty());
        store.crash(|_, length| length);
        prop_assert_eq!(content(&store, "o").filter(|bytes| !bytes.is_empty()), before);
    }
}
