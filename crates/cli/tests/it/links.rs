//! Names of one file in directories of several metadata servers.

use std::sync::Arc;

use cudele::{Errno, Fs, Ino};
use rustix::process::Pid;
use types::Rank;

use crate::cluster::Cluster;

fn kill_all(cluster: &Cluster) {
    let status = cluster.json(&["mds", "ls"]);
    for entry in status["ranks"].as_array().unwrap() {
        let pid = i32::try_from(entry["pid"].as_i64().unwrap()).unwrap();
        Cluster::kill_process(Pid::from_raw(pid).unwrap());
    }
}

/// `/zero` and `/one` on the ranks that they are called by, which nobody wants there.
fn two_directories(cluster: &Cluster) {
    for path in ["/zero", "/one"] {
        cluster.run(&["mkdir", path]);
    }
    cluster.run(&["mds", "pin", "/one", "1"]);
    cluster.run(&["mds", "unpin", "/one"]);
    cluster.run_with_input(&["cp", "-", "/one/file"], b"content");
}

fn rank_of(cluster: &Cluster, path: &str) -> u64 {
    cluster.json(&["stat", path])["rank"].as_u64().unwrap()
}

/// Both names are those of one file.
fn are_one(cluster: &Cluster, [one, other]: [&str; 2]) {
    let [a, b] = [one, other].map(|path| cluster.json(&["stat", path]));
    assert_eq!((&a["ino"], &a["nlink"], &a["rank"]), (&b["ino"], &2.into(), &b["rank"]));
    assert_eq!(a["nlink"], b["nlink"]);
    for path in [one, other] {
        assert_eq!(cluster.run(&["cp", path, "-"]), b"content");
    }
}

fn adds_up(cluster: &Cluster) {
    cluster.run(&["down"]);
    let said = cluster.say(&["fsck"]);
    assert!(said.contains("Everything adds up"), "{said}");
}

fn link(fs: &Arc<Fs>, file: &str, dir: &str, name: &str) -> cudele::Result<Ino> {
    let ino = fs.stat(file)?.ino;
    fs.open_dir(dir)?.link(ino, name)?;
    Ok(ino)
}

#[test]
fn a_directory_comes_to_a_file_that_is_to_have_a_name_there() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mkdir", "/zero/below"]);
    let fs = cluster.mount();
    let ino = link(&fs, "/one/file", "/zero/below", "second").unwrap();
    // Only that one went, and nobody has pinned it.
    assert_eq!((rank_of(&cluster, "/zero"), rank_of(&cluster, "/zero/below")), (0, 1));
    let listed = cluster.json(&["mds", "ls"]);
    assert_eq!(listed["ranks"][1]["subtrees"].as_array().unwrap().len(), 2, "{listed}");
    let names = ["/one/file", "/zero/below/second"];
    are_one(&cluster, names);
    fs.sync().unwrap();
    kill_all(&cluster);
    cluster.start();
    are_one(&cluster, names);
    // With a name in it that another directory has, too, it stays there.
    let said = cluster.fails(1, &["mds", "pin", "/zero/below", "0"]);
    assert!(said.contains("several names"), "{said}");
    // What cannot be moves nothing.
    cluster.run(&["mkdir", "/zero/other"]);
    cluster.run(&["mkdir", "/zero/other/second"]);
    let other = fs.open_dir("/zero/other").unwrap();
    assert_eq!(other.link(ino, "second").unwrap_err().errno, Errno::Exists);
    let dir = fs.stat("/one").unwrap().ino;
    assert_eq!(other.link(dir, "third").unwrap_err().errno, Errno::NotPermitted);
    assert_eq!(rank_of(&cluster, "/zero/other"), 0);
    cluster.run(&["rm", "/one/file"]);
    let last = cluster.json(&["stat", names[1]]);
    assert_eq!((&last["ino"], &last["nlink"]), (&ino.0.into(), &1.into()));
    cluster.run(&["rm", names[1]]);
    // It is nobody's business where it is: it is renamed and removed as others are.
    assert_eq!(rank_of(&cluster, "/zero/below"), 1);
    cluster.run(&["mv", "/zero/below", "/zero/renamed"]);
    assert_eq!(rank_of(&cluster, "/zero/renamed"), 0);
    cluster.run_with_input(&["cp", "-", "/one/file"], b"content");
    link(&fs, "/one/file", "/zero/renamed", "second").unwrap();
    assert_eq!(rank_of(&cluster, "/zero/renamed"), 1);
    cluster.run(&["rm", "-r", "/zero"]);
    adds_up(&cluster);
}

#[test]
fn a_file_comes_with_its_directory_if_the_other_one_is_pinned() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mds", "pin", "/zero", "0"]);
    let fs = cluster.mount();
    link(&fs, "/one/file", "/zero", "second").unwrap();
    assert_eq!((rank_of(&cluster, "/zero"), rank_of(&cluster, "/one")), (0, 0));
    let names = ["/one/file", "/zero/second"];
    are_one(&cluster, names);
    fs.sync().unwrap();
    kill_all(&cluster);
    cluster.start();
    are_one(&cluster, names);
    // Everything is on one rank again: what is made then needs nobody else.
    cluster.run(&["rm", "/zero/second"]);
    assert_eq!(cluster.json(&["stat", "/one/file"])["nlink"], 1);
    cluster.run(&["rm", "/one/file"]);
    adds_up(&cluster);
}

#[test]
fn a_name_that_neither_directory_can_go_for_is_refused_with_the_reasons() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mkdir", "/zero/below"]);
    cluster.run(&["mds", "pin", "/zero", "0"]);
    let fs = cluster.mount();
    link(&fs, "/one/file", "/one", "second").unwrap();
    let error = link(&fs, "/one/file", "/zero/below", "third").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    // What is in a directory that is pinned stays, too.
    assert!(error.to_string().contains("/zero is pinned"), "{error}");
    assert!(error.to_string().contains("several names already"), "{error}");
    // The other way round it is the same, and the root stays where it is.
    cluster.run(&["mds", "pin", "/one", "1"]);
    cluster.run_with_input(&["cp", "-", "/top"], b"content");
    let error = link(&fs, "/top", "/one", "third").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    assert!(error.to_string().contains("/one is pinned"), "{error}");
    assert!(error.to_string().contains("the root of the namespace"), "{error}");
    assert_eq!((rank_of(&cluster, "/zero/below"), rank_of(&cluster, "/one")), (0, 1));
    assert_eq!(fs.rank_of(fs.stat("/one").unwrap().ino), Rank(1));
}

#[test]
fn only_who_may_make_names_in_a_directory_has_it_go() {
    let cluster = Cluster::up_with(&["--mds", "2"]);
    two_directories(&cluster);
    cluster.run(&["mds", "pin", "/zero", "0"]);
    let fs = cluster.mount();
    let ino = fs.stat("/one/file").unwrap().ino;
    let zero = fs.stat("/zero").unwrap().ino;
    let open = cudele::AttrChange { mode: Some(0o777), ..cudele::AttrChange::default() };
    fs.set_attr(zero, &open).unwrap();
    let closed = cudele::AttrChange { mode: Some(0o755), ..cudele::AttrChange::default() };
    fs.set_attr(fs.stat("/one").unwrap().ino, &closed).unwrap();
    let other = cudele::Cred { uid: 12345, gid: 12345, groups: Vec::new() };
    let error = fs.as_user(&other).link(ino, zero, b"second").unwrap_err();
    assert_eq!(error.errno, Errno::CrossDevice, "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");
    assert_eq!(rank_of(&cluster, "/one"), 1);
}
