use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use tempfile::TempDir;
use types::{Errno, Result};

use super::handles::{HANDLES_MAX, Handle};
use super::place::{self, EntryMeaning};
use crate::{DirStore, Expect, Fencing, ObjectStore, PutOutcome, SyncScope};

fn put(store: &DirStore, name: &str, data: &[u8]) {
    assert!(matches!(store.put(name, data, Expect::Any), Ok(PutOutcome::Done(_))));
}

fn entries(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The store of a server that is not root's, in which a mount of root writes.
#[test]
fn what_root_writes_belongs_to_the_owner_of_the_store() {
    use std::os::unix::fs::{MetadataExt, chown};

    if !rustix::process::geteuid().is_root() {
        println!("left out: only root gives files away");
        return;
    }
    const OWNER: u32 = 4711;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("store");
    drop(DirStore::open(&root, true).unwrap());
    let parts = ["", "cudele-store", "locks", "objects", "tmp"];
    parts.iter().for_each(|part| chown(root.join(part), Some(OWNER), Some(OWNER)).unwrap());

    let store = DirStore::open(&root, false).unwrap();
    put(&store, "put/whole", b"x");
    store.write_range("data/7/0", 0, b"y").unwrap();
    store.append("journal/0/1", b"z").unwrap();
    let _lock = store.lock("mon/leader", "mon.a").unwrap();
    let (mut seen, mut left) = (0, vec![root]);
    while let Some(path) = left.pop() {
        let found = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (OWNER, OWNER), "{}", path.display());
        seen += 1;
        if found.is_dir() {
            left.extend(entries(&path).iter().map(|name| path.join(name)));
        }
    }
    assert!(seen > 14, "{seen}");
}

#[test]
fn a_copy_of_a_store_without_empty_directories_opens() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    put(&DirStore::open(root, true).unwrap(), "put/whole", b"x");
    std::fs::remove_dir_all(root.join("locks")).unwrap();
    std::fs::remove_dir(root.join("tmp")).unwrap();
    let store = DirStore::open(root, false).unwrap();
    assert_eq!(store.get("put/whole").unwrap().0, b"x");
    put(&store, "put/again", b"y");
    drop(store.lock("mon/leader", "mon.a").unwrap());
    drop(store);
    std::fs::rename(root.join("objects"), root.join("elsewhere")).unwrap();
    let error = DirStore::open(root, false).unwrap_err();
    assert_eq!(error.errno, Errno::BadMessage);
}

#[test]
fn root_gives_no_file_away_that_it_did_not_make() {
    use std::os::unix::fs::{MetadataExt, chown};

    if !rustix::process::geteuid().is_root() {
        println!("left out: only root gives files away");
        return;
    }
    let directory = TempDir::new().unwrap();
    let (root, other) = (directory.path().join("store"), directory.path().join("of-root"));
    let store = DirStore::open(&root, true).unwrap();
    drop(store.lock("mon/leader", "mon.a").unwrap());
    drop(store);
    std::fs::write(&other, b"x").unwrap();
    chown(root.join("locks"), Some(4711), Some(4711)).unwrap();
    // The owner of the store puts another name of a file of root where a lock is.
    let lock = root.join("locks/named/mon%/leader");
    std::fs::remove_file(&lock).unwrap();
    std::fs::hard_link(&other, &lock).unwrap();
    let store = DirStore::open(&root, false).unwrap();
    let _lock = store.lock("mon/leader", "mon.b").unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"mon.b", "the lock is this file");
    assert_eq!(std::fs::metadata(&other).unwrap().uid(), 0);
}

#[test]
fn the_layout_is_what_the_document_says() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    let store = DirStore::open(root, true).unwrap();
    assert_eq!(entries(root), ["cudele-store", "locks", "objects", "tmp"]);
    let marker = std::fs::read_to_string(root.join("cudele-store")).unwrap();
    assert_eq!(marker, format!("cudele-store 1\nid {}\n", store.id()));

    put(&store, "journal/0/1", b"x");
    put(&store, "100%", b"y");
    assert_eq!(std::fs::read(root.join("objects/journal%/0%/1")).unwrap(), b"x");
    assert_eq!(std::fs::read(root.join("objects/100%25")).unwrap(), b"y");
    let _lock = store.lock("mon/leader", "mon.a").unwrap();
    assert_eq!(std::fs::read(root.join("locks/named/mon%/leader")).unwrap(), b"mon.a");

    let id = store.id().to_string();
    drop(store);
    assert_eq!(DirStore::open(root, false).unwrap().id(), id);
    assert_eq!(entries(&root.join("tmp")), Vec::<String>::new());
}

#[test]
fn a_foreign_directory_is_refused_and_left_alone() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    std::fs::write(root.join("thesis.tex"), b"").unwrap();
    let error = DirStore::open(root, true).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "dir:{}: not a Cudele store, and not empty: it holds \"thesis.tex\" (EINVAL); \
             name an empty or a new directory",
            root.display()
        )
    );
    assert_eq!(entries(root), ["thesis.tex"]);
}

#[test]
fn a_store_is_made_only_when_asked_for() {
    let directory = TempDir::new().unwrap();
    assert_eq!(DirStore::open(directory.path(), false).unwrap_err().errno, Errno::NotFound);
    let missing = directory.path().join("missing");
    assert_eq!(DirStore::open(&missing, false).unwrap_err().errno, Errno::NotFound);
    assert!(!missing.exists());
    DirStore::open(&missing, true).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, b"").unwrap();
    assert!(DirStore::open(&file, true).is_err());
}

#[test]
fn an_initialisation_that_was_cut_off_is_finished() {
    let directory = TempDir::new().unwrap();
    for part in ["objects", "tmp", "lost+found"] {
        std::fs::create_dir(directory.path().join(part)).unwrap();
    }
    std::fs::write(directory.path().join("cudele-store.new"), b"cudele-st").unwrap();
    put(&DirStore::open(directory.path(), true).unwrap(), "a", b"1");

    let directory = TempDir::new().unwrap();
    std::fs::create_dir_all(directory.path().join("objects/data")).unwrap();
    assert_eq!(DirStore::open(directory.path(), true).unwrap_err().errno, Errno::Invalid);
}

#[test]
fn unknown_versions_and_damaged_markers_are_refused() {
    let directory = TempDir::new().unwrap();
    let marker = directory.path().join("cudele-store");
    drop(DirStore::open(directory.path(), true).unwrap());
    let good = std::fs::read(&marker).unwrap();

    let newer = String::from_utf8(good.clone()).unwrap().replace("store 1", "store 2");
    std::fs::write(&marker, newer).unwrap();
    let error = DirStore::open(directory.path(), true).unwrap_err();
    assert_eq!(error.errno, Errno::NotSupported);
    assert!(error.cause.contains("format 2; this program knows format 1"), "{error}");

    for length in 0..good.len() - 1 {
        std::fs::write(&marker, &good[..length]).unwrap();
        let error = DirStore::open(directory.path(), true).unwrap_err();
        assert_eq!(error.errno, Errno::BadMessage, "cut to {length} bytes");
    }
    std::fs::write(&marker, [0xff; 100]).unwrap();
    assert_eq!(DirStore::open(directory.path(), true).unwrap_err().errno, Errno::BadMessage);
}

#[test]
fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let directory = TempDir::new().unwrap();
    let tmp = directory.path().join("tmp");
    let living = DirStore::open(directory.path(), true).unwrap();
    put(&living, "a", b"1");
    let temporary = living.scratch().unwrap();
    let mut unplaced = temporary.write(b"half-way").unwrap();
    std::fs::create_dir(tmp.join("999999.0")).unwrap();
    std::fs::write(tmp.join("999999.0/7"), b"left by a killed process").unwrap();
    assert_eq!(entries(&tmp).len(), 2);

    let other = DirStore::open(directory.path(), false).unwrap();
    assert_eq!(entries(&tmp).len(), 1);
    unplaced.place(living.objects(), "b").unwrap();
    assert_eq!(other.get("b").unwrap().0, b"half-way");
}

#[test]
fn an_append_follows_the_object_when_another_process_replaces_it() {
    let directory = TempDir::new().unwrap();
    let one = DirStore::open(directory.path(), true).unwrap();
    let two = DirStore::open(directory.path(), false).unwrap();
    one.append("log", b"old").unwrap();
    put(&two, "log", b"replaced");
    assert_eq!(one.append("log", b"!"), Ok(8));
    assert_eq!(two.append("log", b"?"), Ok(9));
    assert!(two.delete("log").unwrap());
    one.write_range("log", 1, b"x").unwrap();
    one.sync(SyncScope::Object("log")).unwrap();
    assert_eq!(one.append("log", b"y"), Ok(2));
    assert_eq!(two.get("log").unwrap().0, b"\0xy");
    let held = one.lock("l", "one").unwrap();
    assert!(two.lock("l", "two").unwrap_err().cause.contains("one"));
    drop(held);
    assert!(two.lock("l", "two").is_ok());
}

#[test]
fn several_processes_lose_no_increment_and_no_append() {
    // Stores opened separately share nothing but the directory, like those of several processes.
    let directory = TempDir::new().unwrap();
    let first = DirStore::open(directory.path(), true).unwrap();
    put(&first, "counter", b"0");
    let increment = |store: &DirStore| loop {
        let (bytes, version) = store.get("counter").unwrap();
        let next = String::from_utf8(bytes).unwrap().parse::<u32>().unwrap() + 1;
        let swapped = store.put("counter", next.to_string().as_bytes(), Expect::Is(version));
        if let PutOutcome::Done(_) = swapped.unwrap() {
            return;
        }
    };
    std::thread::scope(|scope| {
        for process in 1u8..=4 {
            let store = DirStore::open(directory.path(), false).unwrap();
            scope.spawn(move || {
                for length in 1..=20 {
                    increment(&store);
                    let data = vec![process; length];
                    let offset = store.append("log", &data).unwrap();
                    assert_eq!(store.read_range("log", offset, length).unwrap(), data);
                }
            });
        }
    });
    assert_eq!(first.get("counter").unwrap().0, b"80");
    assert_eq!(first.stat("log").unwrap().size, 4 * 210);
}

#[test]
fn open_descriptors_are_bounded_and_the_oldest_goes_first() {
    let directory = TempDir::new().unwrap();
    let store = DirStore::open(directory.path(), true).unwrap();
    for round in 0..2 {
        for number in 0..HANDLES_MAX + 10 {
            assert_eq!(store.append(&format!("o/{number}"), b"x"), Ok(round));
            store.append("hot", b"x").unwrap();
        }
        assert_eq!(store.handles.len(), HANDLES_MAX);
        assert!(store.handles.find("hot").is_some());
        assert!(store.handles.find("o/1").is_none());
    }
    store.write_range("range/0", 0, b"x").unwrap();
    assert!(store.handles.find("range/0").is_none(), "file data does not displace journals");
}

/// Makes the next sync of an object fail as a broken disk would: its descriptor becomes one that
/// can be asked for the size but neither written nor synced.
fn break_sync(store: &DirStore, root: &Path, name: &str) {
    let path = root.join("objects").join(place::encode(name));
    let file = rustix::fs::openat(CWD, &path, OFlags::PATH, Mode::empty()).unwrap();
    store.handles.keep(name, &Arc::new(Handle::new(file, false)));
}

#[test]
fn after_a_failed_sync_the_object_is_not_trusted_until_it_is_replaced() {
    let directory = TempDir::new().unwrap();
    let store = DirStore::open(directory.path(), true).unwrap();
    for name in ["bad", "good"] {
        store.append(name, b"1").unwrap();
        store.sync(SyncScope::Object(name)).unwrap();
    }
    break_sync(&store, directory.path(), "bad");
    assert_eq!(store.sync(SyncScope::Object("bad")).unwrap_err().errno, Errno::Io);
    store.handles.forget("bad"); // A new descriptor would work, which proves nothing.

    let error = store.append("bad", b"2").unwrap_err();
    assert_eq!(error.errno, Errno::Io);
    assert!(error.cause.contains("an earlier sync failed"), "{error}");
    assert_eq!(store.write_range("bad", 0, b"2").unwrap_err().errno, Errno::Io);
    assert_eq!(store.sync(SyncScope::Object("bad")).unwrap_err().errno, Errno::Io);
    assert_eq!(store.sync(SyncScope::All).unwrap_err().errno, Errno::Io);
    assert_eq!(store.get("bad").unwrap().0, b"1");
    assert_eq!(store.append("good", b"2"), Ok(1));

    put(&store, "bad", b"new");
    assert_eq!(store.append("bad", b"2"), Ok(3));
    store.sync(SyncScope::All).unwrap();

    break_sync(&store, directory.path(), "bad");
    assert!(store.sync(SyncScope::Object("bad")).is_err());
    let reopened = DirStore::open(directory.path(), false).unwrap();
    assert_eq!(reopened.append("bad", b"3"), Ok(4));
}

#[test]
fn after_a_failed_sync_of_everything_only_puts_go_on() {
    let directory = TempDir::new().unwrap();
    let store = DirStore::open(directory.path(), true).unwrap();
    store.poison.add_all();
    assert_eq!(store.append("a", b"1").unwrap_err().errno, Errno::Io);
    assert_eq!(store.sync(SyncScope::All).unwrap_err().errno, Errno::Io);
    put(&store, "a", b"1");
    assert_eq!(store.append("a", b"1").unwrap_err().errno, Errno::Io);
}

#[test]
fn foreign_files_are_not_listed() {
    let directory = TempDir::new().unwrap();
    let store = DirStore::open(directory.path(), true).unwrap();
    put(&store, "a/b", b"");
    let objects = directory.path().join("objects");
    std::fs::create_dir(objects.join("lost+found")).unwrap();
    for foreign in ["%zz", "a\nb", "%", "c%"] {
        std::fs::write(objects.join(foreign), b"").unwrap();
    }
    std::os::unix::fs::symlink("/", objects.join("d%")).unwrap();
    assert_eq!(store.list("").unwrap(), ["a/b"]);
}

#[test]
fn no_symbolic_link_is_followed() {
    use std::os::unix::fs::symlink;
    let directory = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let precious = elsewhere.path().join("precious");
    std::fs::write(&precious, b"precious").unwrap();
    let store = DirStore::open(directory.path(), true).unwrap();
    let objects = directory.path().join("objects");
    symlink(&precious, objects.join("a")).unwrap();
    symlink(elsewhere.path(), objects.join("d%")).unwrap();
    let errno = |result: Result<()>| result.map_err(|error| error.errno);
    for name in ["a", "d/precious"] {
        assert_eq!(errno(store.append(name, b"x").map(drop)), Err(Errno::Loop), "{name}");
        assert_eq!(errno(store.write_range(name, 0, b"x")), Err(Errno::Loop), "{name}");
        assert_eq!(errno(store.get(name).map(drop)), Err(Errno::Loop), "{name}");
    }
    assert_eq!(errno(store.delete("d/precious").map(drop)), Err(Errno::Loop));
    assert_eq!(errno(store.put("d/precious", b"x", Expect::Any).map(drop)), Err(Errno::Loop));
    assert_eq!(errno(store.put("d/new/x", b"x", Expect::Any).map(drop)), Err(Errno::Loop));
    // An object that is replaced as a whole takes the place of the link.
    put(&store, "a", b"new");
    assert_eq!(store.get("a").unwrap().0, b"new");
    let lock = directory.path().join("locks/named");
    std::fs::create_dir_all(&lock).unwrap();
    symlink(&precious, lock.join(place::encode("mine"))).unwrap();
    assert_eq!(errno(store.lock("mine", "me").map(drop)), Err(Errno::Loop));
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 1);
    for part in ["tmp", "locks"] {
        let part = directory.path().join(part);
        std::fs::remove_dir_all(&part).unwrap();
        symlink(elsewhere.path(), &part).unwrap();
        assert_eq!(errno(DirStore::open(directory.path(), false).map(drop)), Err(Errno::Loop));
        std::fs::remove_file(&part).unwrap();
        std::fs::create_dir(&part).unwrap();
    }
}

#[test]
fn paths_are_as_documented() {
    assert_eq!(place::encode("a/b/c"), "a%/b%/c");
    assert_eq!(place::encode("50%/x"), "50%25%/x");
    let long = place::encode(&"x".repeat(500));
    assert_eq!(long, format!("{0}%+/{0}%+/{1}", "x".repeat(240), "x".repeat(20)));
    assert_eq!(place::encode(&".".repeat(242)), format!("{}%+/%2E.", ".".repeat(240)));
    let grows = "%".repeat(80) + "..";
    assert_eq!(place::encode(&grows), format!("{}%+/%2E.", "%25".repeat(80)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn every_name_has_one_path_and_every_path_one_name(
        name in "([ -.0-~]{1,6}|[%.]{1,300}|[a-c%.]{200,300})(/([ -.0-~]{1,6}|[%.]{230,260})){0,3}",
    ) {
        prop_assume!(crate::check_name(&name).is_ok());
        let path = place::encode(&name);
        let mut back = String::new();
        for part in path.split('/') {
            prop_assert!(part.len() <= 255 && part != "." && part != ".." && !part.is_empty());
            match place::decode(part.as_bytes(), FileType::Unknown) {
                Some(EntryMeaning::File(text) | EntryMeaning::Directory(text)) => back.push_str(&text),
                None => prop_assert!(false, "{part} does not decode"),
            }
        }
        prop_assert_eq!(back, name);
    }
}
