//! Killed metadata servers: promised changes exist afterwards.

use std::sync::atomic::{AtomicBool, Ordering};

use cudele::{Errno, Ino, NewFile, Policy, RenameFlags};

use crate::cluster::{Cluster, eventually};

/// A journal that is written late: much is unsafe at any time.
const LATE: [&str; 4] = ["--set", "commit_interval_ms=300", "--set", "commit_bytes=100000000"];

#[test]
fn synced_changes_survive_a_kill_of_server_and_client() {
    let cluster = Cluster::up_with(&LATE);
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let mut inos = Vec::new();
    for number in 0..300 {
        inos.push(dir.create(format!("f{number:03}"), &NewFile::default()).unwrap().ino);
    }
    dir.unlink("f000").unwrap();
    assert!(fs.unsafe_requests() > 0);
    fs.sync().unwrap();
    assert_eq!(fs.unsafe_requests(), 0);
    cluster.kill("mds");
    // The client is gone as well: nothing is sent again.
    drop((dir, fs));
    cluster.start();
    let rows = cluster.json(&["ls"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 299);
    for (row, ino) in rows.iter().zip(&inos[1..]) {
        assert_eq!(row["ino"].as_u64(), Some(ino.0));
    }
}

#[test]
fn commands_that_ended_are_durable() {
    let cluster = Cluster::up_with(&LATE);
    cluster.run(&["mkdir", "/made"]);
    cluster.run_with_input(&["cp", "-", "/made/file"], b"content");
    cluster.run(&["mv", "/made/file", "/made/moved"]);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.run(&["cp", "/made/moved", "-"]), b"content");
    cluster.run(&["rm", "-r", "/made"]);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.say(&["ls"]), "");
}

#[test]
fn a_living_client_loses_nothing_that_was_acknowledged() {
    let cluster = Cluster::up_with(&LATE);
    let fs = cluster.mount();
    let work = fs.open_dir("/").unwrap();
    let done = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut acknowledged: Vec<(String, Ino)> = Vec::new();
            for number in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let name = format!("f{number:06}");
                let attr = work.create(&name, &NewFile::default()).unwrap();
                if number % 3 == 1 {
                    let moved = format!("m{number:06}");
                    work.rename(&name, &work, &moved, RenameFlags::default()).unwrap();
                    acknowledged.push((moved, attr.ino));
                } else if number % 3 == 2 {
                    work.unlink(&name).unwrap();
                } else {
                    acknowledged.push((name, attr.ino));
                }
            }
            acknowledged
        });
        for _ in 0..3 {
            let before = fs.requests();
            eventually("there is something to lose", || {
                fs.requests() > before + 500 && fs.unsafe_requests() > 100
            });
            cluster.kill("mds");
            cluster.start();
        }
        let before = fs.requests();
        eventually("the client works again", || fs.requests() > before + 10);
        done.store(true, Ordering::Relaxed);
        worker.join().unwrap()
    });
    fs.sync().unwrap();

    let check = |cluster: &Cluster| {
        let fs = cluster.mount();
        let mut listed: Vec<_> = fs.open_dir("/").unwrap().list().unwrap();
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        let mut expected = acknowledged.clone();
        expected.sort();
        let found: Vec<(String, Ino)> = listed
            .into_iter()
            .map(|entry| (String::from_utf8(entry.name).unwrap(), entry.attr.ino))
            .collect();
        assert_eq!(found.len(), expected.len());
        assert!(found == expected, "every name has the inode that was acknowledged");
    };
    check(&cluster);
    cluster.kill("mds");
    cluster.start();
    check(&cluster);
}

#[test]
fn unsynced_changes_of_a_dead_client_are_lost_without_a_gap() {
    let cluster = Cluster::up_with(&LATE);
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    for number in 0..100 {
        dir.create(format!("f{number:03}"), &NewFile::default()).unwrap();
    }
    fs.sync().unwrap();
    for number in 100..200 {
        dir.create(format!("f{number:03}"), &NewFile::default()).unwrap();
    }
    cluster.kill("mds");
    drop((dir, fs));
    cluster.start();
    let names = cluster.names("/");
    assert!((100..=200).contains(&names.len()), "{}", names.len());
    for (at, name) in names.iter().enumerate() {
        assert_eq!(*name, format!("f{at:03}"), "a prefix of what was done");
    }
    // Clients continue to work, and no number is granted twice.
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let new = dir.create("new", &NewFile::default()).unwrap();
    let inos = dir.list().unwrap().into_iter().filter(|entry| entry.name != b"new");
    assert!(inos.into_iter().all(|entry| entry.attr.ino != new.ino));
}

#[test]
fn an_open_directory_works_on_after_a_restart() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    cluster.run(&["mkdir", "-p", "/a/b/c"]);
    let dir = fs.open_dir("/a/b/c").unwrap();
    dir.create("before", &NewFile::default()).unwrap();
    cluster.run(&["down"]);
    cluster.start();
    dir.create("after", &NewFile::default()).unwrap();
    let mut names: Vec<_> = dir.list().unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, [b"after".to_vec(), b"before".to_vec()]);
    cluster.run(&["rm", "-r", "/a"]);
    let gone = dir.create("late", &NewFile::default()).unwrap_err();
    assert!(matches!(gone.errno, Errno::NotFound | Errno::Stale), "{gone}");
}

#[test]
fn threads_that_share_a_client_lose_nothing_either() {
    let cluster = Cluster::up_with(&LATE);
    let fs = cluster.mount();
    let done = AtomicBool::new(false);
    let made: Vec<Vec<(Vec<u8>, Ino)>> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (fs, done) = (&fs, &done);
            move || {
                fs.make_dir(format!("/t{thread}"), 0o755).unwrap();
                let dir = fs.open_dir(format!("/t{thread}")).unwrap();
                let mut made = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    let name = format!("f{:06}", made.len()).into_bytes();
                    made.push((name.clone(), dir.create(&name, &NewFile::default()).unwrap().ino));
                }
                made
            }
        };
        let workers: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
        // Journals go over the same connection.
        let merged = scope.spawn(|| {
            let policy = Policy::from_name_or_text("batchfs").unwrap().policy;
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let path = format!("/m{round}");
                fs.make_dir(&path, 0o755).unwrap();
                // The library repeats neither if the server is killed during the call.
                let Ok(mut subtree) = fs.decouple(&path, &policy) else { continue };
                let root = subtree.root();
                for number in 0..20_000 {
                    let name = format!("some-longer-name-{number:06}");
                    subtree.create(root, name.as_bytes(), &NewFile::default()).unwrap();
                }
                let _ = subtree.complete();
            }
        });
        for _ in 0..2 {
            let before = fs.requests();
            eventually("there is something to lose", || {
                fs.requests() > before + 500 && fs.unsafe_requests() > 100
            });
            cluster.kill("mds");
            cluster.start();
        }
        let before = fs.requests();
        eventually("the client works again", || fs.requests() > before + 500);
        done.store(true, Ordering::Relaxed);
        merged.join().unwrap();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    fs.sync().unwrap();
    let other = cluster.mount();
    for (thread, mut made) in made.into_iter().enumerate() {
        let listed = other.open_dir(format!("/t{thread}")).unwrap().list().unwrap();
        let mut found: Vec<_> = listed.into_iter().map(|row| (row.name, row.attr.ino)).collect();
        found.sort();
        made.sort();
        assert!(found == made, "thread {thread}: {} made, {} found", made.len(), found.len());
    }
}
