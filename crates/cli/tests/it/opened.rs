//! Files that clients have open, or locked, while another metadata server comes to serve them.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Weak};
use std::time::Duration;

use cudele::{Cred, Errno, Fs, Ino, Lock, LockKind, LockMode, NewFile, ServerNotice};
use rustix::process::Pid;
use types::{Pool, Rank};

use crate::cluster::{Cluster, eventually};

const PATIENCE: Duration = Duration::from_secs(120);
const ALL: Lock = Lock {
    kind: LockKind::Posix,
    mode: LockMode::Write,
    owner: 1,
    pid: 77,
    start: 0,
    end: u64::MAX,
};

/// A client that writes a file back when another client wants it, and reports the recall.
fn writer(cluster: &Cluster, path: &'static str, data: &'static [u8]) -> (Arc<Fs>, Receiver<Ino>) {
    let fs = cluster.mount();
    let (told, heard) = mpsc::channel();
    let weak: Weak<Fs> = Arc::downgrade(&fs);
    fs.listen(move |notice| {
        let (ServerNotice::Recall { ino }, Some(fs)) = (notice, weak.upgrade()) else { return };
        let dir = fs.open_dir(path).unwrap();
        dir.set_data(ino, data, data.len() as u64).unwrap();
        fs.yield_file(ino).unwrap();
        let _ = told.send(ino);
    })
    .unwrap();
    (fs, heard)
}

/// `/a` and, in it, an empty file.
fn one_file(cluster: &Cluster) -> Ino {
    cluster.run(&["mkdir", "/a"]);
    cluster.run_with_input(&["cp", "-", "/a/f"], b"first");
    cluster.mount().stat("/a/f").unwrap().ino
}

fn pin(cluster: &Cluster, rank: u16) {
    cluster.run(&["mds", "pin", "/a", &rank.to_string()]);
}

fn kill(cluster: &Cluster, rank: u64) {
    let status = cluster.json(&["mds", "ls"]);
    let mut entries = status["ranks"].as_array().unwrap().iter();
    let entry = entries.find(|entry| entry["rank"] == rank).unwrap();
    let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
    Cluster::kill_process(Pid::from_raw(pid).unwrap());
}

fn object(fs: &Fs, ino: Ino) -> Option<Vec<u8>> {
    fs.store().get(&metastore::data_name(ino, Pool::USUAL, 0)).ok().map(|(bytes, _)| bytes)
}

#[test]
fn open_files_move_with_their_subtree() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    let ino = one_file(&cluster);
    let (one, recalled) = writer(&cluster, "/a", b"second");
    let (two, three) = (cluster.mount(), cluster.mount());
    assert!(!one.open_as(&Cred::root(), ino, true).unwrap().shared);
    pin(&cluster, 1);
    // It is still that client's alone, and the other server knows.
    two.stat("/a/f").unwrap();
    let opened = two.open_as(&Cred::root(), ino, false).unwrap();
    assert_eq!(recalled.recv_timeout(PATIENCE), Ok(ino));
    assert_eq!((opened.shared, opened.attr.size), (true, 6));
    assert_eq!(two.rank_of(ino), Rank(1));
    assert_eq!(object(&one, ino).as_deref(), Some(&b"second"[..]));
    // A shared file stays shared, and is closed on its new rank.
    two.listen(|_| {}).unwrap();
    pin(&cluster, 0);
    three.stat("/a/f").unwrap();
    assert!(three.open_as(&Cred::root(), ino, true).unwrap().shared);
    three.listen(|_| {}).unwrap();
    pin(&cluster, 1);
    for (fs, write) in [(&one, true), (&two, false), (&three, true)] {
        fs.close_file(ino, write);
    }
    eventually("nobody has it open", || {
        let is_shared = three.open_as(&Cred::root(), ino, true).unwrap().shared;
        three.close_file(ino, true);
        !is_shared
    });
    assert_eq!(cluster.run(&["cp", "/a/f", "-"]), b"second");
}

#[test]
fn an_open_file_is_not_deleted_on_its_new_rank() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    let ino = one_file(&cluster);
    let (one, two) = (cluster.mount(), cluster.mount());
    one.listen(|_| {}).unwrap();
    one.open_as(&Cred::root(), ino, false).unwrap();
    let name = metastore::data_name(ino, Pool::USUAL, 0);
    one.store().write_range(&name, 0, b"content").unwrap();
    one.grow_as(&Cred::root(), ino, 7).unwrap();
    pin(&cluster, 1);
    two.open_dir("/a").unwrap().unlink("f").unwrap();
    two.checkpoint().unwrap();
    // A file that was deleted since is gone.
    let dir = two.open_dir("/a").unwrap();
    let other = dir.create("other", &NewFile::default()).unwrap().ino;
    let other_name = metastore::data_name(other, Pool::USUAL, 0);
    two.store().write_range(&other_name, 0, b"more").unwrap();
    two.grow_as(&Cred::root(), other, 4).unwrap();
    dir.unlink("other").unwrap();
    eventually("what nobody has open is deleted", || {
        two.checkpoint().unwrap();
        object(&two, other).is_none()
    });
    assert_eq!(object(&two, ino).as_deref(), Some(&b"content"[..]));
    one.close_file(ino, false);
    eventually("it is deleted", || {
        two.checkpoint().unwrap();
        object(&two, ino).is_none()
    });
}

#[test]
fn locks_move_with_their_files() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    let ino = one_file(&cluster);
    let (one, two) = (cluster.mount(), cluster.mount());
    for fs in [&one, &two] {
        fs.listen(|_| {}).unwrap();
    }
    one.open_as(&Cred::root(), ino, true).unwrap();
    one.lock(ino, ALL, false).unwrap();
    assert_eq!(two.lock(ino, ALL, false).unwrap_err().errno, Errno::Again);
    pin(&cluster, 1);
    assert_eq!(two.lock(ino, ALL, false).unwrap_err().errno, Errno::Again);
    assert_eq!(two.get_lock(ino, ALL).unwrap(), Some((one.client(), ALL)));
    // A client that waits for a lock keeps waiting.
    let waits = {
        let two = two.clone();
        std::thread::spawn(move || two.lock(ino, ALL, true))
    };
    pin(&cluster, 0);
    assert!(!waits.is_finished());
    one.lock(ino, Lock { mode: LockMode::Unlock, ..ALL }, false).unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(one.lock(ino, ALL, false).unwrap_err().errno, Errno::Again);
    assert_eq!(one.get_lock(ino, ALL).unwrap(), Some((two.client(), ALL)));
}

#[test]
fn open_files_move_between_ranks_while_servers_are_killed() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    let ino = one_file(&cluster);
    let (one, recalled) = writer(&cluster, "/a", b"kept back");
    let two = cluster.mount();
    two.listen(|_| {}).unwrap();
    for round in 0..8u16 {
        assert!(!one.open_as(&Cred::root(), ino, true).unwrap().shared, "round {round}");
        one.lock(ino, ALL, false).unwrap();
        // The one that gives it away or the other one, later each time.
        std::thread::scope(|scope| {
            let moves = scope.spawn(|| {
                let to = ((round + 1) % 2).to_string();
                cluster.command(&["mds", "pin", "/a", &to]).output().unwrap()
            });
            for _ in 0..20 * round {
                // It may be moving, or its server just killed.
                let _ = two.stat("/a/f");
            }
            kill(&cluster, u64::from(round / 2 % 2));
            cluster.start();
            drop(moves.join().unwrap());
        });
        eventually("the server knows what is open", || {
            let known = two.stat("/a/f").and_then(|_| two.get_lock(ino, ALL));
            known.is_ok_and(|known| known == Some((one.client(), ALL)))
        });
        assert!(two.open_as(&Cred::root(), ino, false).unwrap().shared, "round {round}");
        assert_eq!(recalled.recv_timeout(PATIENCE), Ok(ino));
        one.lock(ino, Lock { mode: LockMode::Unlock, ..ALL }, false).unwrap();
        one.close_file(ino, true);
        two.close_file(ino, false);
        eventually("nobody has it open", || {
            let is_shared = two.open_as(&Cred::root(), ino, true).unwrap().shared;
            two.close_file(ino, true);
            !is_shared
        });
    }
    assert_eq!(cluster.run(&["cp", "/a/f", "-"]), b"kept back");
}
