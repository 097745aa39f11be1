//! The contract of [`Store`] as a suite that every back end passes.
//!
//! Each clause is a function that gets a store of its own, empty. Clauses check the guarantees that
//! callers rely on, and leave free all behaviour in which back ends may differ. Crashes are not
//! here: the way to cause one differs from back end to back end.
//!
//! Test support: a broken clause panics, and names itself and the expected result.
//!
//! Invariant: a clause depends on no other and leaves no thread behind.

use std::sync::atomic::{AtomicU64, Ordering};

use types::{Errno, Result};

use crate::{Expect, OBJECT_BYTES_MAX, PutOutcome, Store, SyncScope, Version};

/// One clause: its name and its check.
pub type Clause = (&'static str, fn(&dyn Store));

macro_rules! clauses {
    ($($clause:ident),* $(,)?) => { &[$((stringify!($clause), $clause)),*] };
}

/// All clauses, from the simple to the concurrent.
pub const CLAUSES: &[Clause] = clauses![
    a_get_returns_the_bytes_of_the_put,
    put_replaces_the_whole_object,
    put_if_absent_does_not_replace,
    compare_and_swap_follows_the_content,
    append_returns_the_offset_of_the_data,
    append_goes_after_ranges_and_puts,
    write_range_overwrites_and_fills_gaps_with_zeros,
    read_range_stops_at_the_end,
    absent_objects_are_not_found,
    delete_says_whether_it_was_there,
    a_deleted_object_starts_afresh,
    list_is_sorted_and_complete,
    list_takes_any_prefix,
    an_object_may_be_named_like_a_directory,
    odd_names_are_names,
    bad_names_are_refused,
    empty_objects_exist,
    large_objects_are_whole,
    too_large_objects_are_refused,
    sync_accepts_every_scope,
    a_lock_has_one_holder,
    locks_are_independent_of_objects,
    concurrent_swaps_lose_no_increment,
    put_if_absent_has_one_winner,
    data_in_several_places_is_written_as_one,
    concurrent_appends_do_not_overlap,
    readers_never_see_half_a_put,
];

/// Runs every clause against a new store; `open` returns an empty one each time.
///
/// # Panics
/// If a clause does not hold.
pub fn conformance(open: &dyn Fn() -> Box<dyn Store>) {
    for (name, clause) in CLAUSES {
        let store = open();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clause(&*store)));
        assert!(outcome.is_ok(), "{store:?} breaks the clause {name}; the reason is printed above");
    }
}

fn done(outcome: Result<PutOutcome>) -> Version {
    match outcome.expect("a put succeeds") {
        PutOutcome::Done(version) => version,
        PutOutcome::Conflict(current) => panic!("unexpected conflict with {current:?}"),
    }
}

fn put(store: &dyn Store, name: &str, data: &[u8]) -> Version {
    done(store.put(name, data, Expect::Any))
}

fn get(store: &dyn Store, name: &str) -> Vec<u8> {
    store.get(name).expect("the object is there").0
}

fn list(store: &dyn Store, prefix: &str) -> Vec<String> {
    store.list(prefix).expect("a list succeeds")
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno)
}

fn a_get_returns_the_bytes_of_the_put(store: &dyn Store) {
    let version = put(store, "a/b/c", b"content");
    assert_eq!(store.get("a/b/c"), Ok((b"content".to_vec(), version)));
    assert_eq!(store.stat("a/b/c").map(|stat| stat.size), Ok(7));
    assert_eq!(store.read_range("a/b/c", 0, 7), Ok(b"content".to_vec()));
}

fn put_replaces_the_whole_object(store: &dyn Store) {
    let long = put(store, "a", b"something long");
    let short = put(store, "a", b"short");
    assert_ne!(long, short);
    assert_eq!(store.get("a"), Ok((b"short".to_vec(), short)));
}

fn data_in_several_places_is_written_as_one(store: &dyn Store) {
    // Longer than any store's largest request or piece, and aligned to neither.
    let parts: Vec<Vec<u8>> = (0..23_u8).map(|n| vec![n; 700_000 * usize::from(n % 3)]).collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let mut whole = parts.concat();
    store.write_gathered("a", 0, &slices).expect("the store has room");
    assert!(get(store, "a") == whole, "the parts follow one another");
    store.write_gathered("a", 5_000_001, &slices[..3]).expect("the store has room");
    let within = slices[..3].concat();
    whole[5_000_001..5_000_001 + within.len()].copy_from_slice(&within);
    assert!(get(store, "a") == whole, "what is around stays");
    store.write_gathered("b", 3, &[]).expect("nothing can be written");
    assert_eq!(get(store, "b"), b"");
}

fn put_if_absent_does_not_replace(store: &dyn Store) {
    let first = done(store.put("a", b"first", Expect::Absent));
    let second = store.put("a", b"second", Expect::Absent);
    assert_eq!(second, Ok(PutOutcome::Conflict(Some(first))));
    assert_eq!(get(store, "a"), b"first");
    let is = store.put("b", b"second", Expect::Is(first));
    assert_eq!(is, Ok(PutOutcome::Conflict(None)), "nothing to compare with");
    assert_eq!(errno(store.get("b")), Some(Errno::NotFound));
}

fn compare_and_swap_follows_the_content(store: &dyn Store) {
    let one = put(store, "a", b"1");
    let two = done(store.put("a", b"2", Expect::Is(one)));
    assert_eq!(store.put("a", b"3", Expect::Is(one)), Ok(PutOutcome::Conflict(Some(two))));
    assert_eq!(get(store, "a"), b"2");
    // Any change of the content changes the version, whichever method made it.
    store.append("a", b"+").expect("an append succeeds");
    let appended = store.get("a").expect("it is there").1;
    assert_eq!(store.put("a", b"3", Expect::Is(two)), Ok(PutOutcome::Conflict(Some(appended))));
    let three = done(store.put("a", b"3", Expect::Is(appended)));
    assert_eq!(store.get("a"), Ok((b"3".to_vec(), three)));
}

fn append_returns_the_offset_of_the_data(store: &dyn Store) {
    assert_eq!(store.append("log/0", b"abc"), Ok(0));
    assert_eq!(store.append("log/0", b""), Ok(3));
    assert_eq!(store.append("log/0", b"defg"), Ok(3));
    assert_eq!(get(store, "log/0"), b"abcdefg");
}

fn append_goes_after_ranges_and_puts(store: &dyn Store) {
    store.append("a", b"0").expect("an append succeeds");
    store.write_range("a", 4, b"4").expect("a write succeeds");
    assert_eq!(store.append("a", b"5"), Ok(5));
    assert_eq!(get(store, "a"), b"0\0\0\x0045");
    put(store, "a", b"new");
    assert_eq!(store.append("a", b"er"), Ok(3));
    assert_eq!(get(store, "a"), b"newer");
    store.write_range("a", 0, b"N").expect("a write succeeds");
    assert_eq!(get(store, "a"), b"Newer");
}

fn write_range_overwrites_and_fills_gaps_with_zeros(store: &dyn Store) {
    store.write_range("a", 3, b"def").expect("a write succeeds");
    assert_eq!(get(store, "a"), b"\0\0\0def");
    store.write_range("a", 1, b"bcd").expect("a write succeeds");
    assert_eq!(get(store, "a"), b"\0bcdef");
    store.write_range("a", 9, b"").expect("a write succeeds");
    assert_eq!(get(store, "a"), b"\0bcdef", "no data extends nothing");
}

fn read_range_stops_at_the_end(store: &dyn Store) {
    put(store, "a", b"0123456789");
    assert_eq!(store.read_range("a", 2, 3), Ok(b"234".to_vec()));
    assert_eq!(store.read_range("a", 8, 100), Ok(b"89".to_vec()));
    assert_eq!(store.read_range("a", 8, usize::MAX), Ok(b"89".to_vec()));
    assert_eq!(store.read_range("a", 10, 1), Ok(Vec::new()));
    assert_eq!(store.read_range("a", u64::MAX, 1), Ok(Vec::new()));
    assert_eq!(store.read_range("a", 0, 0), Ok(Vec::new()));
}

fn absent_objects_are_not_found(store: &dyn Store) {
    put(store, "dir/present", b"");
    for name in ["absent", "dir", "dir/absent", "dir/present/absent", "a/b/c/d"] {
        assert_eq!(errno(store.get(name)), Some(Errno::NotFound), "get {name}");
        assert_eq!(errno(store.read_range(name, 0, 1)), Some(Errno::NotFound), "read {name}");
        assert_eq!(errno(store.stat(name)), Some(Errno::NotFound), "stat {name}");
    }
}

fn delete_says_whether_it_was_there(store: &dyn Store) {
    put(store, "a/b", b"x");
    assert_eq!(store.delete("a"), Ok(false));
    assert_eq!(store.delete("a/b"), Ok(true));
    assert_eq!(store.delete("a/b"), Ok(false));
    assert_eq!(errno(store.stat("a/b")), Some(Errno::NotFound));
    assert_eq!(list(store, ""), Vec::<String>::new());
}

fn a_deleted_object_starts_afresh(store: &dyn Store) {
    store.append("a", b"old").expect("an append succeeds");
    assert_eq!(store.delete("a"), Ok(true));
    assert_eq!(store.append("a", b"new"), Ok(0));
    assert_eq!(get(store, "a"), b"new");
    assert_eq!(store.delete("a"), Ok(true));
    done(store.put("a", b"again", Expect::Absent));
}

fn list_is_sorted_and_complete(store: &dyn Store) {
    let mut names: Vec<String> =
        (0..300).map(|number| format!("{}/{number}", number % 7)).collect();
    names.push("0!".to_string()); // `!` sorts before `/`, a directory's entries after it
    for name in &names {
        store.write_range(name, 0, b"x").expect("a write succeeds");
    }
    names.sort();
    assert_eq!(list(store, ""), names);
}

fn list_takes_any_prefix(store: &dyn Store) {
    for name in ["ab", "abc/d", "abc/de/f", "abd", "b"] {
        put(store, name, b"");
    }
    assert_eq!(list(store, "ab"), ["ab", "abc/d", "abc/de/f", "abd"]);
    assert_eq!(list(store, "abc/"), ["abc/d", "abc/de/f"]);
    assert_eq!(list(store, "abc/d"), ["abc/d", "abc/de/f"]);
    assert_eq!(list(store, "abc/de/f"), ["abc/de/f"]);
    for nothing in ["c", "ab/", "abc/de/f/", "/", "//", "..", "../", "a\0", "\n", "é"] {
        assert_eq!(list(store, nothing), Vec::<String>::new(), "list {nothing:?}");
    }
    assert_eq!(list(store, &"x/".repeat(400)), Vec::<String>::new());
}

fn an_object_may_be_named_like_a_directory(store: &dyn Store) {
    put(store, "a/b/c", b"3");
    put(store, "a/b", b"2");
    put(store, "a", b"1");
    assert_eq!(list(store, "a"), ["a", "a/b", "a/b/c"]);
    assert_eq!(store.delete("a/b"), Ok(true));
    assert_eq!((get(store, "a"), get(store, "a/b/c")), (b"1".to_vec(), b"3".to_vec()));
}

fn odd_names_are_names(store: &dyn Store) {
    let mut names = [
        " ",
        "...",
        ".hidden",
        "a.",
        "a b",
        "%",
        "%%/%",
        "%25",
        "%+",
        "a%",
        "a%/b",
        "a%+/b",
        "*?[x]",
        "\\",
        "'\"`$&;|<>~#",
        "-rf",
        "A",
        "a",
        "cudele-store",
        "tmp/x",
        "locks",
        "con:nul",
    ]
    .map(str::to_string)
    .to_vec();
    names.push("x".repeat(512));
    names.push("%".repeat(512));
    names.push(".".repeat(512));
    names.push(".".repeat(242));
    names.push(format!("{}/{}", "y".repeat(255), "z".repeat(256)));
    names.push("d/".repeat(255) + "dd");
    for name in &names {
        put(store, name, name.as_bytes());
    }
    for name in &names {
        assert_eq!(get(store, name), name.as_bytes(), "get {name:?}");
    }
    names.sort();
    assert_eq!(list(store, ""), names);
    assert_eq!(list(store, &"x".repeat(500)), ["x".repeat(512)]);
}

fn bad_names_are_refused(store: &dyn Store) {
    let long = "x".repeat(513);
    let bad = ["", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "../a", "a\0b", "a\n", "é", &long];
    for name in bad {
        let results = [
            errno(store.put(name, b"", Expect::Any)),
            errno(store.append(name, b"")),
            errno(store.write_range(name, 0, b"")),
            errno(store.get(name)),
            errno(store.read_range(name, 0, 0)),
            errno(store.stat(name)),
            errno(store.delete(name)),
            errno(store.sync(SyncScope::Object(name))),
            errno(store.lock(name, "owner")),
        ];
        assert_eq!(results, [Some(Errno::Invalid); 9], "{name:?}");
    }
    assert_eq!(list(store, ""), Vec::<String>::new());
}

fn empty_objects_exist(store: &dyn Store) {
    put(store, "put", b"");
    assert_eq!(store.append("append", b""), Ok(0));
    store.write_range("write", 0, b"").expect("a write succeeds");
    for name in ["put", "append", "write"] {
        assert_eq!(store.get(name), Ok((Vec::new(), Version::of(b""))), "{name}");
        assert_eq!(store.stat(name).map(|stat| stat.size), Ok(0), "{name}");
    }
}

fn large_objects_are_whole(store: &dyn Store) {
    let data: Vec<u8> = (0..5u32 << 20).map(|at| (at ^ (at >> 9)).to_le_bytes()[0]).collect();
    put(store, "put", &data);
    assert!(get(store, "put") == data);
    for piece in data.chunks(1 << 20) {
        store.append("append", piece).expect("an append succeeds");
    }
    assert!(get(store, "append") == data);
    assert!(
        store.read_range("append", 1_048_570, 12).as_deref() == Ok(&data[1_048_570..1_048_582])
    );
}

fn too_large_objects_are_refused(store: &dyn Store) {
    for offset in [OBJECT_BYTES_MAX, u64::MAX] {
        assert_eq!(errno(store.write_range("a", offset, b"x")), Some(Errno::TooBig), "{offset}");
    }
    assert_eq!(list(store, ""), Vec::<String>::new());
}

fn sync_accepts_every_scope(store: &dyn Store) {
    store.sync(SyncScope::All).expect("syncing nothing succeeds");
    store.sync(SyncScope::Object("absent")).expect("absence can be synced");
    store.sync(SyncScope::Object("absent/deep/down")).expect("absence can be synced");
    store.append("a/b", b"1").expect("an append succeeds");
    store.sync(SyncScope::Object("a/b")).expect("a sync succeeds");
    store.append("a/b", b"2").expect("an append succeeds");
    store.write_range("c", 0, b"3").expect("a write succeeds");
    store.sync(SyncScope::Object("a/b")).expect("a sync succeeds");
    store.sync(SyncScope::Object("c")).expect("a sync succeeds");
    assert_eq!(store.delete("a/b"), Ok(true));
    store.sync(SyncScope::Object("a/b")).expect("a deletion can be synced");
    store.sync(SyncScope::Prefix("a/")).expect("what is gone can be synced with the rest");
    store.sync(SyncScope::Prefix("absent/deep/")).expect("absence can be synced");
    store.sync(SyncScope::Prefix("\n")).expect("no name starts so");
    store.sync(SyncScope::All).expect("a sync succeeds");
    assert_eq!(list(store, ""), ["c"]);
}

fn a_lock_has_one_holder(store: &dyn Store) {
    let guard = store.lock("mon/leader", "mon.a with a long name").expect("the lock is free");
    assert_eq!(guard.owner(), "mon.a with a long name");
    let error = store.lock("mon/leader", "mon.b").expect_err("the lock is held");
    assert_eq!(error.errno, Errno::Busy);
    assert!(error.to_string().contains("mon.a with a long name"), "{error}");
    let other = store.lock("mon", "mon.c").expect("another lock is free");
    drop(guard);
    let guard = store.lock("mon/leader", "b").expect("the lock is free again");
    let error = store.lock("mon/leader", "mon.a").expect_err("the lock is held");
    assert!(error.to_string().contains("held by b "), "nothing of the longer name stays: {error}");
    drop((guard, other));
}

fn locks_are_independent_of_objects(store: &dyn Store) {
    put(store, "a", b"object");
    let guard = store.lock("a", "owner").expect("the lock is free");
    assert_eq!(get(store, "a"), b"object");
    put(store, "a", b"still writable");
    assert_eq!(list(store, ""), ["a"]);
    drop(guard);
    assert_eq!(get(store, "a"), b"still writable");
}

const THREADS: u64 = 8;

/// Runs `act` in eight threads, with numbers from 0 on.
fn in_threads(act: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let act = &act;
            scope.spawn(move || act(thread));
        }
    });
}

fn concurrent_swaps_lose_no_increment(store: &dyn Store) {
    const INCREMENTS: u64 = 10;
    put(store, "counter", b"0");
    in_threads(|_| {
        for _ in 0..INCREMENTS {
            loop {
                let (bytes, version) = store.get("counter").expect("the counter is there");
                let text = String::from_utf8(bytes).expect("the counter is a number");
                let next = text.parse::<u64>().expect("the counter is a number") + 1;
                match store.put("counter", next.to_string().as_bytes(), Expect::Is(version)) {
                    Ok(PutOutcome::Done(_)) => break,
                    Ok(PutOutcome::Conflict(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    assert_eq!(get(store, "counter"), (THREADS * INCREMENTS).to_string().as_bytes());
}

fn put_if_absent_has_one_winner(store: &dyn Store) {
    for round in 0..8 {
        let name = format!("round/{round}");
        let winners = AtomicU64::new(0);
        in_threads(|thread| {
            match store.put(&name, &thread.to_le_bytes(), Expect::Absent) {
                Ok(PutOutcome::Done(_)) => winners.fetch_add(1 << (8 * thread), Ordering::SeqCst),
                Ok(PutOutcome::Conflict(Some(_))) => 0,
                other => panic!("{other:?}"),
            };
        });
        let content = get(store, &name);
        let winner = u64::from_le_bytes(content.try_into().expect("one of the contents"));
        assert_eq!(winners.into_inner(), 1 << (8 * winner), "exactly the one whose content stays");
    }
}

fn concurrent_appends_do_not_overlap(store: &dyn Store) {
    in_threads(|thread| {
        let letter = b'a' + u8::try_from(thread).expect("few threads");
        for length in 1..=20 {
            let data = vec![letter; length];
            let offset = store.append("log", &data).expect("an append succeeds");
            assert_eq!(store.read_range("log", offset, length), Ok(data), "it is where it landed");
        }
    });
    assert_eq!(store.stat("log").map(|stat| stat.size), Ok(THREADS * 210));
}

fn readers_never_see_half_a_put(store: &dyn Store) {
    put(store, "a", &[0; 10_000]);
    in_threads(|thread| {
        let byte = u8::try_from(thread).expect("few threads");
        for round in 0..10 {
            if thread < 2 {
                put(store, "a", &vec![byte; 10_000 + round]);
            } else {
                let content = get(store, "a");
                assert!(content.len() >= 10_000 && content.iter().all(|at| *at == content[0]));
            }
        }
    });
}
