//! Trees that are removed at once: gone for all clients, kept for a while, and their room given
//! back, whatever is killed.

use std::sync::Arc;

use cudele::{Errno, Fs, NewFile};
use types::DirFragId;

use crate::cluster::{Cluster, eventually};

/// Bytes of a file that is never inline.
const CONTENT: usize = 100_000;
const DIRECTORIES: usize = 20;
const FILES: usize = 50;

/// Makes `/job` with directories, small files in each, and a file with content in the store.
fn make_tree(cluster: &Cluster, fs: &Arc<Fs>) -> usize {
    for number in 0..DIRECTORIES {
        let path = format!("/job/d{number:02}/deep");
        fs.make_dir(&path, 0o755).unwrap();
        let dir = fs.open_dir(&path).unwrap();
        for file in 0..FILES {
            dir.create(format!("f{file:02}"), &NewFile::default()).unwrap();
        }
        let attr = dir.create("large", &NewFile::default()).unwrap();
        let content = vec![7; CONTENT];
        let size = fs.write_large(attr.striped(), &content, &mut std::io::empty()).unwrap();
        dir.set_data(attr.ino, &[], size).unwrap();
    }
    fs.sync().unwrap();
    assert!(!cluster.objects("data/").is_empty());
    1 + DIRECTORIES * (2 + FILES + 1)
}

/// Checks that the store has no leak and no damage.
fn adds_up(cluster: &Cluster) {
    cluster.run(&["down"]);
    let found = cluster.json(&["fsck"]);
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found:#}");
    assert!(found["incomplete"].is_null(), "{found:#}");
}

fn removed_trees(cluster: &Cluster) -> usize {
    cluster.json(&["trash", "ls"]).as_array().unwrap().len()
}

#[test]
fn a_tree_removed_just_before_a_kill_stays_gone_and_its_room_is_given_back() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    make_tree(&cluster, &fs);
    let other = cluster.mount();
    let inside = other.open_dir("/job/d00/deep").unwrap();
    assert_eq!(cluster.json(&["rm", "-r", "/job"])["trees"], 1);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.names("/"), [""; 0]);
    for errno in [inside.lookup("f00").err(), inside.create("new", &NewFile::default()).err()] {
        let errno = errno.map(|error| error.errno);
        assert!(matches!(errno, Some(Errno::NotFound | Errno::Stale)), "{errno:?}");
    }
    eventually("the content is deleted", || cluster.objects("data/").is_empty());
    eventually("the trash is empty", || removed_trees(&cluster) == 0);
    drop((inside, other, fs));
    adds_up(&cluster);
    // A server that stops leaves its last list to the next one.
    cluster.start();
    eventually("the list of removed files is done", || cluster.objects("removed/").is_empty());
}

#[test]
fn reaping_survives_kills_in_the_middle() {
    let cluster =
        Cluster::up_with(&["--set", "segments_max=2", "--set", "segment_bytes_max=16384"]);
    let fs = cluster.mount();
    make_tree(&cluster, &fs);
    fs.make_dir("/stays", 0o755).unwrap();
    fs.open_dir("/stays").unwrap().create("file", &NewFile::default()).unwrap();
    fs.checkpoint().unwrap();
    assert!(fs.remove_tree("/job").unwrap(), "one request is enough");
    fs.sync().unwrap();
    for _ in 0..3 {
        cluster.kill("mds");
        cluster.start();
        assert_eq!(cluster.names("/"), ["stays"]);
    }
    eventually("the trash is empty", || removed_trees(&cluster) == 0);
    eventually("the content is deleted", || cluster.objects("data/").is_empty());
    assert_eq!(cluster.names("/stays"), ["file"]);
    drop(fs);
    adds_up(&cluster);
}

#[test]
fn a_kept_tree_is_restored_after_a_kill_with_all_that_it_had() {
    let cluster = Cluster::up();
    cluster.run_with_input(&["policy", "set", "/", "-"], b"trash: 1d\n");
    let fs = cluster.mount();
    let names = make_tree(&cluster, &fs);
    let before = cluster.json(&["du", "/job"]);
    cluster.run(&["rm", "-r", "/job"]);
    cluster.kill("mds");
    cluster.start();
    let listed = cluster.json(&["trash", "ls", "/"]);
    assert_eq!((listed[0]["path"].as_str(), listed[1].is_null()), (Some("/job"), true));
    assert!(cluster.say(&["trash", "ls"]).contains("/job"));
    assert_eq!(cluster.json(&["trash", "ls", "/other"]).as_array().map(Vec::len), Some(0));
    cluster.run(&["down"]);
    let found = cluster.json(&["fsck"]);
    assert_eq!(found["findings"].as_array().map(Vec::len), Some(0), "{found:#}");
    cluster.start();
    assert_eq!(cluster.say(&["trash", "restore", "/job"]), "/job is back\n");
    cluster.kill("mds");
    cluster.start();
    let after = cluster.json(&["du", "/job"]);
    assert_eq!(after, before);
    let count = |key: &str| usize::try_from(after[key].as_u64().unwrap()).unwrap();
    assert_eq!(count("files") + count("directories"), names);
    let file = fs.stat("/job/d07/deep/large").unwrap();
    assert_eq!(fs.read_at(file.striped(), 0, CONTENT).unwrap(), vec![7; CONTENT]);
    assert_eq!(removed_trees(&cluster), 0);
    drop(fs);
    adds_up(&cluster);
}

#[test]
fn the_trash_is_emptied_and_restored_elsewhere() {
    let cluster = Cluster::up();
    cluster.run_with_input(&["policy", "set", "/", "-"], b"trash: 1d\n");
    cluster.run(&["mkdir", "-p", "/a/b", "/a/c", "/to"]);
    cluster.run_with_input(&["cp", "-", "/a/b/file"], b"content");
    cluster.run(&["rm", "-r", "/a/b", "/a/c"]);
    let missing = cluster.fails(1, &["trash", "restore", "/a/d"]);
    assert!(missing.contains("no such tree is in the trash"), "{missing}");
    cluster.run(&["mkdir", "/a/b"]);
    let exists = cluster.fails(1, &["trash", "restore", "/a/b"]);
    assert!(exists.contains("EEXIST"), "{exists}");
    cluster.run(&["trash", "restore", "/a/b", "/to/again"]);
    assert_eq!(cluster.run(&["cp", "/to/again/file", "-"]), b"content");
    let entry = cluster.json(&["trash", "ls"])[0]["entry"].as_u64().unwrap().to_string();
    assert_eq!(cluster.json(&["trash", "empty", &entry])["emptied"][0].to_string(), entry);
    eventually("the trash is empty", || removed_trees(&cluster) == 0);
    let gone = cluster.fails(1, &["trash", "restore", &entry]);
    assert!(gone.contains("`cudele trash ls`"), "{gone}");
    assert_eq!(cluster.json(&["trash", "empty"])["emptied"].as_array().map(Vec::len), Some(0));
    adds_up(&cluster);
}

#[test]
fn a_tree_that_no_single_request_removes_is_removed_name_by_name() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    // Not even the number of the directory above fits beside such a name.
    let long = "n".repeat(250);
    let path = format!("/above/{long}");
    fs.make_dir(format!("{path}/deep"), 0o755).unwrap();
    fs.open_dir(format!("{path}/deep")).unwrap().create("file", &NewFile::default()).unwrap();
    assert!(!fs.remove_tree(&path).unwrap());
    assert_eq!(cluster.names("/above"), [""; 0]);
    // A policy without a journal.
    cluster.run(&["mkdir", "-p", "/volatile/x/y"]);
    cluster.run_with_input(
        &["policy", "set", "/volatile", "-"],
        b"consistency: rpcs\ndurability: none\n",
    );
    let removed = cluster.json(&["rm", "-r", "/volatile/x"]);
    assert_eq!((&removed["trees"], &removed["directories"]), (&0.into(), &2.into()));
    assert_eq!(cluster.names("/volatile"), [""; 0]);
    let file = fs.remove_tree("/above").map(|_| ());
    file.unwrap();
    assert_eq!(fs.remove_tree("/above").unwrap_err().errno, Errno::NotFound);
    let dir = fs.open_dir("/").unwrap();
    dir.create("file", &NewFile::default()).unwrap();
    assert_eq!(dir.remove_tree("file").unwrap_err().errno, Errno::NotDirectory);
}

#[test]
fn the_tree_of_a_job_is_removed_at_once_after_its_merge() {
    let cluster = Cluster::up();
    let source = tempfile::tempdir().unwrap();
    for dir in 0..20 {
        let dir = source.path().join(format!("dir{dir}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("small"), "content").unwrap();
        std::fs::write(dir.join("large"), [7; CONTENT]).unwrap();
    }
    let source = source.path().to_str().unwrap();
    cluster.run(&["ingest", "--policy", "batchfs", source, "/job"]);
    assert_eq!(cluster.json(&["rm", "-r", "/job"])["trees"], 1);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.names("/"), [""; 0]);
    eventually("the room is given back", || cluster.objects("data/").is_empty());
    adds_up(&cluster);
}

#[test]
fn directories_of_a_reaped_tree_leave_no_objects() {
    let cluster = Cluster::up();
    let fs = cluster.mount();
    make_tree(&cluster, &fs);
    let ino = fs.stat("/job/d03/deep").unwrap().ino;
    let manifest = metastore::manifest_name(DirFragId { ino, ..DirFragId::default() });
    fs.checkpoint().unwrap();
    assert!(cluster.objects("dirs/").contains(&manifest));
    cluster.run(&["rm", "-r", "/job"]);
    eventually("they are deleted", || !cluster.objects("dirs/").contains(&manifest));
    drop(fs);
    adds_up(&cluster);
}
