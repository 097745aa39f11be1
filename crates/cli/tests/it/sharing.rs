//! Files that several clients have open at the same time.

use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use cudele::{
    AttrChange, Cred, Dir, Errno, Fs, Ino, Lock, LockKind, LockMode, NewFile, ServerNotice,
};

use crate::cluster::{Cluster, eventually};

const PATIENCE: Duration = Duration::from_secs(120);

fn root() -> Cred {
    Cred::root()
}

/// A small file.
fn file(fs: &Arc<Fs>, name: &str, data: &[u8]) -> (Dir, Ino) {
    let dir = fs.open_dir("/").unwrap();
    let new = NewFile { data, size: data.len() as u64, ..NewFile::default() };
    let attr = dir.create(name, &new).unwrap();
    (dir, attr.ino)
}

/// Lets a client with unwritten content write it back when the file is recalled.
fn write_when_recalled(fs: &Arc<Fs>, data: &'static [u8]) -> mpsc::Receiver<Ino> {
    let (told, heard) = mpsc::channel();
    let weak: Weak<Fs> = Arc::downgrade(fs);
    fs.listen(move |notice| {
        let (ServerNotice::Recall { ino }, Some(fs)) = (notice, weak.upgrade()) else { return };
        let size = data.len() as u64;
        fs.open_dir("/").unwrap().set_data(ino, data, size).unwrap();
        fs.yield_file(ino).unwrap();
        let _ = told.send(ino);
    })
    .unwrap();
    heard
}

fn object(cluster: &Cluster, ino: Ino) -> Option<Vec<u8>> {
    let store = format!("dir:{}", cluster.dir.join("store").display());
    objstore::open_existing(&store)
        .unwrap()
        .get(&metastore::data_name(ino, types::Pool::USUAL, 0))
        .ok()
        .map(|(bytes, _)| bytes)
}

#[test]
fn an_open_that_conflicts_with_a_writer_shares_the_file() {
    let cluster = Cluster::up();
    let (one, two, three) = (cluster.mount(), cluster.mount(), cluster.mount());
    let (_dir, ino) = file(&one, "f", b"first");
    let opened = one.open_as(&root(), ino, true).unwrap();
    assert_eq!((opened.data.as_slice(), opened.shared), (&b"first"[..], false));
    let recalled = write_when_recalled(&one, b"second");
    // An idle client hears of it.
    let opened = two.open_as(&root(), ino, false).unwrap();
    assert!(opened.shared);
    assert_eq!((opened.data.as_slice(), opened.attr.size), (&b""[..], 6));
    assert_eq!(recalled.recv_timeout(PATIENCE), Ok(ino));
    assert_eq!(object(&cluster, ino).as_deref(), Some(&b"second"[..]));
    assert_eq!(one.stat("/f").unwrap().mtime, opened.attr.mtime);
    // Later opens need not wait.
    assert!(three.open_as(&root(), ino, true).unwrap().shared);
    for (fs, write) in [(&one, true), (&two, false), (&three, true)] {
        fs.close_file(ino, write);
        fs.send_pending();
    }
    eventually("nobody has it open", || {
        !three.open_as(&root(), ino, true).unwrap().shared || {
            three.close_file(ino, true);
            false
        }
    });
    // Nobody writes: nobody is disturbed.
    three.close_file(ino, true);
    for fs in [&one, &two, &three] {
        assert!(!fs.open_as(&root(), ino, false).unwrap().shared);
    }
}

#[test]
fn the_wait_for_the_answer_to_a_recall_is_bounded() {
    let cluster = Cluster::up_with(&["--set", "recall_ms=300"]);
    let (one, two) = (cluster.mount(), cluster.mount());
    let (_dir, ino) = file(&one, "f", b"first");
    assert!(!one.open_as(&root(), ino, true).unwrap().shared);
    let opened = two.open_as(&root(), ino, true).unwrap();
    assert_eq!(opened.data, b"first");
    assert!(!opened.shared, "the other one's session was closed");
}

#[test]
fn appends_of_several_clients_do_not_overlap() {
    let cluster = Cluster::up();
    let (one, two) = (cluster.mount(), cluster.mount());
    let (_dir, ino) = file(&one, "f", b"");
    let mut ends = Vec::new();
    for fs in [&one, &two] {
        // A client that listens is back in time, also when it asks for nothing.
        fs.listen(|_| {}).unwrap();
        fs.open_as(&root(), ino, false).unwrap();
    }
    std::thread::scope(|scope| {
        let append = |fs: &Arc<Fs>, length: u64| {
            let fs = fs.clone();
            move || -> Vec<(u64, u64)> {
                let appended = (0..300).map(|_| fs.append_as(&root(), ino, length).unwrap().size);
                appended.map(|end| (end - length, end)).collect()
            }
        };
        let threads = [scope.spawn(append(&one, 7)), scope.spawn(append(&two, 11))];
        ends.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
        cluster.kill("mds");
        cluster.start();
        let threads = [scope.spawn(append(&two, 5)), scope.spawn(append(&one, 3))];
        ends.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    ends.sort_unstable();
    assert!(ends.windows(2).all(|pair| pair[0].1 == pair[1].0), "one after the other");
    assert_eq!(one.stat("/f").unwrap().size, 300 * (7 + 11 + 5 + 3));
    assert_eq!(two.grow_as(&root(), ino, 10).unwrap().size, 7800, "it does not shrink");
    assert_eq!(two.grow_as(&root(), ino, 9000).unwrap().size, 9000);
}

#[test]
fn a_file_that_is_open_is_not_deleted() {
    let cluster = Cluster::up();
    let (one, two) = (cluster.mount(), cluster.mount());
    let (dir, ino) = file(&one, "f", b"");
    two.store()
        .write_range(&metastore::data_name(ino, types::Pool::USUAL, 0), 0, b"content")
        .unwrap();
    two.open_as(&root(), ino, false).unwrap();
    dir.unlink("f").unwrap();
    one.checkpoint().unwrap();
    let (_dir, other) = file(&one, "other", b"");
    one.store()
        .write_range(&metastore::data_name(other, types::Pool::USUAL, 0), 0, b"more")
        .unwrap();
    one.grow_as(&root(), other, 4).unwrap();
    dir.unlink("other").unwrap();
    one.checkpoint().unwrap();
    eventually("what nobody has open is deleted", || {
        one.checkpoint().unwrap();
        object(&cluster, other).is_none()
    });
    assert_eq!(object(&cluster, ino).as_deref(), Some(&b"content"[..]));
    // Its client ends without closing it.
    drop(two);
    eventually("it is deleted", || {
        one.checkpoint().unwrap();
        object(&cluster, ino).is_none()
    });
}

#[test]
fn clients_report_open_files_to_a_restarted_server() {
    let cluster = Cluster::up();
    let (one, two) = (cluster.mount(), cluster.mount());
    let (_dir, ino) = file(&one, "f", b"first");
    one.open_as(&root(), ino, true).unwrap();
    let recalled = write_when_recalled(&one, b"second");
    one.sync().unwrap();
    cluster.kill("mds");
    cluster.start();
    // The first client is idle, and answers on demand.
    eventually("it is known", || {
        let opened = two.stat("/f").and_then(|_| two.open_as(&root(), ino, false));
        match opened {
            Ok(opened) if opened.shared => true,
            Ok(_) => {
                two.close_file(ino, false);
                false
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::Stale, "{error}");
                false
            }
        }
    });
    assert_eq!(recalled.recv_timeout(PATIENCE), Ok(ino));
    assert_eq!(object(&cluster, ino).as_deref(), Some(&b"second"[..]));
}

fn range(mode: LockMode, start: u64, end: u64) -> Lock {
    Lock { kind: LockKind::Posix, mode, owner: 1, pid: 77, start, end }
}

#[test]
fn locks_of_several_clients_exclude_each_other_and_end_with_their_client() {
    let cluster = Cluster::up();
    let (one, two) = (cluster.mount(), cluster.mount());
    let (dir, ino) = file(&one, "f", b"");
    let (all, some) = (range(LockMode::Write, 0, u64::MAX), range(LockMode::Read, 5, 9));
    one.lock(ino, all, false).unwrap();
    assert_eq!(two.lock(ino, some, false).unwrap_err().errno, Errno::Again);
    assert_eq!(two.get_lock(ino, some).unwrap(), Some((one.client(), all)));
    one.lock(ino, range(LockMode::Unlock, 5, 9), false).unwrap();
    two.lock(ino, some, false).unwrap();
    assert_eq!(two.get_lock(ino, some).unwrap(), None);

    let whole = range(LockMode::Write, 0, 9);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| two.lock(ino, whole, true));
        // Callers on the same connection are not delayed.
        for _ in 0..100 {
            two.stat("/f").unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished());
        let wish = Lock { mode: LockMode::Write, ..some };
        let error = one.lock(ino, wish, true).map_err(|error| error.errno);
        assert_eq!(error, Err(Errno::Deadlock), "both would wait for each other");
        two.cancel_lock(ino, whole).unwrap();
        // It may not have been waiting yet.
        eventually("the wait is ended", || {
            two.cancel_lock(ino, whole).unwrap();
            waits.is_finished()
        });
        assert_eq!(waits.join().unwrap().unwrap_err().errno, Errno::Interrupted);

        let waits = scope.spawn(|| two.lock(ino, whole, true));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waits.is_finished());
        drop((dir, one));
        waits.join().unwrap().unwrap();
    });
}

#[test]
fn clients_report_locks_to_a_restarted_server() {
    let cluster = Cluster::up();
    let (one, two) = (cluster.mount(), cluster.mount());
    let (dir, ino) = file(&one, "f", b"");
    one.listen(|_| {}).unwrap();
    let lock = range(LockMode::Write, 0, 9);
    one.lock(ino, lock, false).unwrap();
    let flock = Lock { kind: LockKind::Flock, end: u64::MAX, ..lock };
    one.lock(ino, flock, false).unwrap();
    for _ in 0..2 {
        // The server waits for clients with known changes.
        dir.set_attr_of(ino, &AttrChange { mode: Some(0o600), ..AttrChange::default() }).unwrap();
        one.sync().unwrap();
        cluster.kill("mds");
        cluster.start();
        for lock in [lock, flock] {
            assert_eq!(two.lock(ino, lock, false).map_err(|error| error.errno), Err(Errno::Again));
        }
    }
    one.lock(ino, Lock { mode: LockMode::Unlock, ..lock }, false).unwrap();
    two.lock(ino, lock, false).unwrap();
}
