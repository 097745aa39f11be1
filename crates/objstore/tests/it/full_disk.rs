//! A full disk and a read-only one, on a tmpfs of one MiB.

use objstore::{Capacity, DirStore, Expect, Fencing, ObjectStore, PutOutcome, SyncScope};
use tempfile::TempDir;
use types::Errno;

use crate::mount::{Mount, eventually};

#[test]
fn a_full_disk_is_reported_and_nothing_acknowledged_is_lost() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("full");
    let Some(mount) = Mount::new(&path, &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]) else { return };
    let store = DirStore::open(mount.path(), true).unwrap();
    assert!(matches!(store.put("kept", b"safe", Expect::Any), Ok(PutOutcome::Done(_))));

    let piece: Vec<u8> = (0..60_000u32).map(|at| (at % 251).to_le_bytes()[0]).collect();
    let mut acknowledged = 0;
    let error = loop {
        match store.append("log", &piece) {
            Ok(offset) => assert_eq!(offset, acknowledged * piece.len() as u64),
            Err(error) => break error,
        }
        store.sync(SyncScope::Object("log")).unwrap();
        acknowledged += 1;
    };
    assert!(acknowledged > 5);
    let expected = format!(
        "object log in dir:{}: cannot append: No space left on device (os error 28) (ENOSPC); \
         free space on the file system that holds the store, or enlarge it",
        path.display()
    );
    assert_eq!(error.to_string(), expected);

    let errno = |result: types::Result<PutOutcome>| result.unwrap_err().errno;
    let whole: Vec<u8> = piece.repeat(usize::try_from(acknowledged).unwrap());
    for store in [&store, &DirStore::open(mount.path(), false).unwrap()] {
        assert!(store.get("log").unwrap().0 == whole, "the append that failed left no trace");
        assert_eq!(errno(store.put("kept", &piece, Expect::Any)), Errno::NoSpace);
        assert_eq!(store.get("kept").unwrap().0, b"safe");
        assert_eq!(store.append("new/log", &piece).unwrap_err().errno, Errno::NoSpace);
        assert_eq!(store.stat("new/log").unwrap_err().errno, Errno::NotFound);
        assert_eq!(store.write_range("data", 0, &piece).unwrap_err().errno, Errno::NoSpace);
    }

    // Room made, it continues where it stopped; the temporary files of failed puts take none.
    store.delete("data").unwrap();
    assert!(store.delete("log").unwrap());
    eventually("the deleted objects take no space", || {
        let state = rustix::fs::statvfs(mount.path()).unwrap();
        state.f_bavail * state.f_frsize >= acknowledged * piece.len() as u64
    });
    for number in 0..acknowledged {
        assert_eq!(store.append("log", &piece), Ok(number * piece.len() as u64));
    }
}

#[test]
fn a_server_works_on_a_disk_that_others_filled_to_the_last_byte() {
    const RESERVE: u64 = 1 << 20;
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("full");
    let Some(mount) = Mount::new(&path, &["-t", "tmpfs", "-o", "size=32m", "tmpfs"]) else {
        return;
    };
    let server = DirStore::open(mount.path(), true).unwrap();
    server.allow_reserve();
    let whole = server.reserve(RESERVE).unwrap();
    assert_eq!((whole.wanted, whole.held), (RESERVE, RESERVE));
    assert!(matches!(server.put("kept", b"safe", Expect::Any), Ok(PutOutcome::Done(_))));
    let data: Vec<u8> = vec![7; 100_000];
    server.write_range("data", 0, &data).unwrap();
    let client = DirStore::open(mount.path(), false).unwrap();

    let free = || {
        let state = rustix::fs::statvfs(mount.path()).unwrap();
        state.f_bavail * state.f_frsize
    };
    let ballast = std::fs::File::create(mount.path().join("ballast")).unwrap();
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, free()).unwrap();
    assert_eq!(free(), 0);

    // A disk that is full for clients is not for a server, as long as the reserve has room.
    assert_eq!(client.append("client", b"x").unwrap_err().errno, Errno::NoSpace);
    assert!(!server.is_short());
    let mut appended = 0;
    let error = loop {
        match server.append("log", &data) {
            Ok(_) => appended += 1,
            Err(error) => break error,
        }
        assert!(server.is_short());
        if appended == 2 {
            // An unused part of the reserve is not for clients.
            assert!(free() > 0);
            for refused in [
                client.append("client", b"x").unwrap_err(),
                client.put("kept", b"x", Expect::Any).unwrap_err(),
                client.write_range("data", 100_000, b"x").unwrap_err(),
                client.write_range("new", 0, b"x").unwrap_err(),
            ] {
                assert_eq!(refused.errno, Errno::NoSpace, "{refused}");
            }
            client.write_range("data", 1000, b"replaced").unwrap();
            assert!(matches!(server.put("kept", b"new", Expect::Any), Ok(PutOutcome::Done(_))));
            drop(server.lock("rank/1", "me").unwrap());
        }
    };
    assert_eq!(error.errno, Errno::NoSpace);
    assert!(appended >= 8, "{appended}");
    assert_eq!(server.get("log").unwrap().0, data.repeat(appended));
    assert_eq!(client.get("kept").unwrap().0, b"new");
    assert_eq!(&client.read_range("data", 999, 10).unwrap()[1..9], b"replaced");

    // The reserve is filled again before clients get anything.
    assert!(server.reserve(RESERVE).unwrap().is_short());
    ballast.set_len(0).unwrap();
    assert!(!server.reserve(RESERVE).unwrap().is_short());
    assert!(!server.is_short());
    client.append("client", b"x").unwrap();
    // Less, or none, is wanted.
    let before = free();
    assert_eq!(server.reserve(0).unwrap(), objstore::Reserved::default());
    assert_eq!(free(), before + RESERVE);
}

#[test]
fn a_read_only_store_can_be_read_and_says_why_it_cannot_be_written() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("read-only");
    let Some(mount) = Mount::new(&path, &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]) else { return };
    let store = DirStore::open(mount.path(), true).unwrap();
    assert!(matches!(store.put("a/b", b"content", Expect::Any), Ok(PutOutcome::Done(_))));
    drop(store);
    mount.make_read_only();

    let store = DirStore::open(mount.path(), true).unwrap();
    assert_eq!(store.get("a/b").unwrap().0, b"content");
    assert_eq!(store.list("").unwrap(), ["a/b"]);
    let errors = [
        store.put("a/b", b"", Expect::Any).err(),
        store.append("a/b", b"").err(),
        store.append("new", b"").err(),
        store.write_range("a/b", 0, b"x").err(),
        store.delete("a/b").err(),
        store.lock("l", "me").err(),
        store.reserve(1 << 20).err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(error.errno, Errno::ReadOnly, "{error}");
        assert_eq!(error.remedy, "mount the file system that holds the store writable");
    }
}
