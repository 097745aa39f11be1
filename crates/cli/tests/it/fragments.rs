//! Directories that are split: fragments on several ranks, clients that create in one directory,
//! and servers that are killed during that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudele::{Errno, Fs, Ino, NewFile, RenameFlags};
use rustix::process::{Pid, Signal, kill_process};
use types::{Frag, Rank, name_hash};

use crate::cluster::{Cluster, eventually};

fn names(fs: &Arc<Fs>, path: &str) -> BTreeMap<Vec<u8>, Ino> {
    let entries = fs.open_dir(path).unwrap().list().unwrap();
    let names: BTreeMap<_, _> =
        entries.iter().map(|entry| (entry.name.clone(), entry.attr.ino)).collect();
    assert_eq!(names.len(), entries.len(), "a name is listed twice");
    names
}

#[test]
fn a_directory_that_is_split_looks_the_same_and_each_name_is_in_its_fragment() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/d"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/d").unwrap();
    for number in 0..40 {
        dir.create(format!("f{number}"), &NewFile::default()).unwrap();
    }
    dir.create("sub", &NewFile::directory()).unwrap();
    let (before, listed) = (fs.stat("/d").unwrap(), names(&fs, "/d"));
    cluster.run(&["mds", "split", "/d", "--ranks", "0,1"]);
    let ls = cluster.json(&["mds", "ls"]);
    for rank in 0..2 {
        let fragments = ls["ranks"][rank]["subtrees"].as_array().unwrap();
        assert_eq!(fragments.len(), 4, "{ls}");
        assert!(fragments.iter().all(|it| it["path"] == "/d" && it["fragment"]["bits"] == 3));
    }
    // One client knew the directory, another one does not.
    let other = cluster.mount();
    for fs in [&fs, &other] {
        assert_eq!(fs.stat("/d").unwrap(), before);
        assert_eq!(names(fs, "/d"), listed);
        assert_eq!(fs.stat("/d/f7").unwrap().ino, listed[&b"f7".to_vec()]);
        assert_eq!(fs.stat("/d/none").unwrap_err().errno, Errno::NotFound);
    }
    let parent = fs.open_dir("/").unwrap().list().unwrap();
    assert_eq!(parent[0].attr, before, "a listing of the directory above shows it whole");
    // Names come and go, in all fragments.
    let dir = other.open_dir("/d").unwrap();
    for number in 40..80 {
        dir.create(format!("f{number}"), &NewFile::default()).unwrap();
        dir.unlink(format!("f{}", number - 40)).unwrap();
    }
    assert_eq!(dir.create("f50", &NewFile::default()).unwrap_err().errno, Errno::Exists);
    dir.create("sub2", &NewFile::directory()).unwrap();
    let attr = fs.stat("/d").unwrap();
    assert_eq!((attr.size, attr.nlink), (42, 4));
    assert!(attr.mtime > before.mtime);
    let wanted: BTreeSet<Vec<u8>> = (40..80)
        .map(|number| format!("f{number}").into_bytes())
        .chain([b"sub".to_vec(), b"sub2".to_vec()])
        .collect();
    assert_eq!(names(&fs, "/d").into_keys().collect::<BTreeSet<_>>(), wanted);
    assert!(other.redirected() > 0);
    // It is so after a clean stop.
    cluster.run(&["down"]);
    cluster.run(&["fsck"]);
    cluster.start();
    let fs = cluster.mount();
    let dir = fs.open_dir("/d").unwrap();
    assert_eq!(names(&fs, "/d").into_keys().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(fs.stat("/d").unwrap().size, 42);
    // An operation on the whole directory needs it in one piece, and its error explains that.
    let said = cluster.fails(1, &["decouple", "/d", "batchfs"]);
    assert!(said.contains("mds join"), "{said}");
    let refused = fs.open_dir("/").unwrap().rmdir("d").unwrap_err();
    assert_eq!(refused.errno, Errno::NotEmpty);
    cluster.run(&["mds", "join", "/d"]);
    assert_eq!(names(&fs, "/d").into_keys().collect::<BTreeSet<_>>(), wanted);
    assert_eq!(fs.stat("/d").unwrap().size, 42);
    let ls = cluster.json(&["mds", "ls"]);
    assert!(ls["ranks"].as_array().unwrap().iter().all(|it| it["subtrees"][0].is_null()), "{ls}");
    fs.open_dir("/d").unwrap().rename(b"f40", &dir, b"f41", RenameFlags::default()).unwrap();
}

#[test]
fn an_empty_directory_that_is_split_is_removed_with_its_fragments() {
    let cluster = Cluster::by_hand(&["--mds", "2"]);
    cluster.run(&["mkdir", "/d"]);
    cluster.run(&["mds", "split", "/d", "--ranks", "1"]);
    let fs = cluster.mount();
    let top = fs.open_dir("/").unwrap();
    let dir = fs.open_dir("/d").unwrap();
    dir.create("one", &NewFile::default()).unwrap();
    assert_eq!(top.rmdir("d").unwrap_err().errno, Errno::NotEmpty);
    dir.unlink("one").unwrap();
    top.rmdir("d").unwrap();
    assert_eq!(fs.stat("/d").unwrap_err().errno, Errno::NotFound);
    eventually("no rank has a fragment", || {
        let ls = cluster.json(&["mds", "ls"]);
        ls["ranks"].as_array().unwrap().iter().all(|it| it["subtrees"][0].is_null())
    });
}

#[test]
fn a_directory_is_split_when_it_is_large() {
    let cluster = Cluster::by_hand(&["--mds", "2", "--set", "split_entries=100"]);
    cluster.run(&["mkdir", "/d"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/d").unwrap();
    for number in 0..100 {
        dir.create(format!("f{number}"), &NewFile::default()).unwrap();
    }
    assert!(fs.fragments(dir.ino()).unwrap().is_empty());
    dir.create("f100", &NewFile::default()).unwrap();
    eventually("it is split", || fs.fragments(dir.ino()).unwrap().len() == 8);
    // All fragments are where the directory is: names are moved from one to the other.
    for number in 0..100 {
        let (from, to) = (format!("f{number}"), format!("g{number}"));
        dir.rename(from.as_bytes(), &dir, to.as_bytes(), RenameFlags::default()).unwrap();
    }
    assert_eq!(names(&fs, "/d").len(), 101);
    // So are its fragments, and clients see no difference.
    for number in 100..900 {
        dir.create(format!("g{number}"), &NewFile::default()).unwrap();
    }
    let parts = fs.fragments(dir.ino()).unwrap();
    eventually("a fragment is split", || {
        parts.iter().any(|(part, _)| !fs.fragments(*part).unwrap().is_empty())
    });
    let other = cluster.mount();
    for fs in [&fs, &other] {
        assert_eq!((names(fs, "/d").len(), fs.stat("/d").unwrap().size), (901, 901));
        assert_eq!(fs.stat("/d/g899").unwrap().ino, names(fs, "/d")[&b"g899".to_vec()]);
    }
}

#[test]
fn a_large_directory_of_another_rank_is_split_and_put_together_when_it_shrinks() {
    let cluster = Cluster::by_hand(&["--mds", "2", "--set", "split_entries=100"]);
    cluster.run(&["mkdir", "/d"]);
    cluster.run(&["mds", "pin", "/d", "1"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/d").unwrap();
    let create = |names: std::ops::Range<u32>| {
        for number in names {
            dir.create(format!("f{number}"), &NewFile::default()).unwrap();
        }
    };
    // An administrator pinned it there.
    create(0..150);
    assert!(fs.fragments(dir.ino()).unwrap().is_empty());
    cluster.run(&["mds", "unpin", "/d"]);
    create(150..151);
    eventually("it is split", || fs.fragments(dir.ino()).unwrap().len() == 8);
    let (part, _) = fs.fragments(dir.ino()).unwrap()[3];
    fs.pin(part, Rank(1)).unwrap();
    for number in 10..151 {
        dir.unlink(format!("f{number}")).unwrap();
    }
    assert_eq!(names(&fs, "/d").len(), 10);
    assert_eq!(fs.fragments(dir.ino()).unwrap()[3], (part, Rank(1)));
    fs.unpin(part).unwrap();
    eventually("it is in one piece", || fs.fragments(dir.ino()).unwrap().is_empty());
    assert_eq!((names(&fs, "/d").len(), fs.stat("/d").unwrap().size), (10, 10));
    create(10..60);
    assert_eq!(names(&cluster.mount(), "/d").len(), 60);
}

fn kill(cluster: &Cluster, rank: u64) {
    let ranks = cluster.json(&["mds", "ls"])["ranks"].as_array().unwrap().clone();
    let entry = ranks.into_iter().find(|entry| entry["rank"] == rank).unwrap();
    let pid = Pid::from_raw(i32::try_from(entry["pid"].as_i64().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("the server is gone", || rustix::process::test_kill_process(pid).is_err());
}

#[test]
fn a_large_fragment_of_another_rank_is_split_and_its_fragments_are_served_by_several() {
    let cluster = Cluster::by_hand(&["--mds", "3", "--set", "split_entries=100"]);
    cluster.run(&["mkdir", "/d"]);
    let fs = cluster.mount();
    let dir = fs.open_dir("/d").unwrap();
    fs.split(dir.ino(), &[Rank(1)]).unwrap();
    let (part, at) = fs.fragments(dir.ino()).unwrap()[0];
    assert_eq!(at, Rank(1));
    for number in 0..1200 {
        dir.create(format!("f{number}"), &NewFile::default()).unwrap();
    }
    // An administrator pinned it there.
    assert!(fs.fragments(part).unwrap().is_empty());
    fs.unpin(part).unwrap();
    dir.create("more", &NewFile::default()).unwrap();
    let in_first = |name: &String| Frag::WHOLE.place_of(name_hash(name.as_bytes())) == 0;
    let name = (0..).map(|number| format!("g{number}")).find(in_first).unwrap();
    dir.create(name, &NewFile::default()).unwrap();
    eventually("the fragment is split", || fs.fragments(part).unwrap().len() == 8);
    cluster.run(&["mds", "split", "/d", "--ranks", "1,2,0"]);
    let ranks = fs.fragments(part).unwrap().into_iter().map(|(_, rank)| rank.0);
    assert_eq!(ranks.collect::<Vec<_>>(), [1, 2, 0, 1, 2, 0, 1, 2]);
    let check = |files: usize| {
        for fs in [&fs, &cluster.mount()] {
            let names = names(fs, "/d");
            assert_eq!((names.len(), fs.stat("/d").unwrap().size), (files, files as u64));
            for (name, ino) in names.iter().step_by(20) {
                let path = format!("/d/{}", String::from_utf8_lossy(name));
                assert_eq!(fs.stat(&path).unwrap().ino, *ino);
            }
        }
    };
    check(1202);
    for (at, rank) in [2, 0, 1].into_iter().enumerate() {
        kill(&cluster, rank);
        cluster.start();
        for number in 0..400 {
            dir.unlink(format!("f{}", 400 * at + number)).unwrap();
        }
        check(1202 - 400 * (at + 1));
    }
    // They come back, however deep they are.
    cluster.run(&["mds", "join", "/d"]);
    check(2);
    cluster.run(&["down"]);
    cluster.run(&["fsck"]);
}

/// Creates files in one directory until the test ends it.
fn create(
    fs: &Arc<Fs>,
    client: usize,
    done: &AtomicBool,
    made: &AtomicU64,
) -> BTreeMap<Vec<u8>, Ino> {
    let dir = fs.open_dir("/d").unwrap();
    let mut files = BTreeMap::new();
    while !done.load(Ordering::Acquire) {
        let name = format!("c{client}.{}", files.len()).into_bytes();
        let file = dir.create(&name, &NewFile::default()).unwrap();
        files.insert(name, file.ino);
        made.fetch_add(1, Ordering::Release);
        // However slow the machine is, there are not too many to move.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    files
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn clients_create_in_one_directory_while_its_fragments_move_and_servers_are_killed() {
    let cluster = Cluster::by_hand(&["--mds", "3"]);
    cluster.run(&["mkdir", "/d"]);
    let (done, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let clients = [cluster.mount(), cluster.mount(), cluster.mount()];
    let files: BTreeMap<Vec<u8>, Ino> = std::thread::scope(|scope| {
        let (done, made) = (&done, &made);
        // Also if something fails.
        let end = End(done);
        let workers: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(number, fs)| scope.spawn(move || create(fs, number, done, made)))
            .collect();
        let progress = || {
            let so_far = made.load(Ordering::Acquire);
            eventually("clients go on", || made.load(Ordering::Acquire) > so_far + 100);
        };
        progress();
        cluster.run(&["mds", "split", "/d", "--ranks", "0,1,2"]);
        progress();
        for rank in [1, 0] {
            kill(&cluster, rank);
            cluster.start();
            progress();
        }
        cluster.run(&["mds", "join", "/d"]);
        progress();
        cluster.run(&["mds", "split", "/d", "--ranks", "2,1"]);
        progress();
        drop(end);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    for fs in &clients {
        fs.sync().unwrap();
    }
    let fresh = cluster.mount();
    assert_eq!(names(&fresh, "/d"), files);
    assert_eq!(fresh.stat("/d").unwrap().size, files.len() as u64);
    assert!(clients.iter().any(|fs| fs.redirected() > 0), "somebody had to learn");
}
