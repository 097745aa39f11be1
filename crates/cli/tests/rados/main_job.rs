//! The main job, and its result after crashes.

use std::fs;
use std::path::Path;

use cudele::NewFile;
use testceph::{OsdStore, Signal};

use crate::{OnCeph, up};

/// A tree with small files, a large one, and directories.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    for number in 0..200 {
        fs::write(root.join(format!("a/f{number:03}")), format!("content {number}")).unwrap();
    }
    let large: Vec<u8> = (0..2_500_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(root.join("a/b/large"), large).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
}

/// Compares a copy of the tree with the tree.
#[track_caller]
fn equals(on: &OnCeph, tree: &Path, copy: &str) {
    let names = on.cluster.say(&["find", copy]);
    assert_eq!(names.lines().count(), 1 + 2 + 200 + 2, "{copy}");
    let files = ["a/f000", "a/f199", "a/b/large", "empty"];
    for file in files {
        let content = on.cluster.run(&["cp", &format!("{copy}/{file}"), "-"]);
        assert!(content == fs::read(tree.join(file)).unwrap(), "{copy}/{file}");
    }
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn the_main_job_survives_a_kill_of_everything() {
    let Some(on) = up(&[], |settings| settings.store = OsdStore::File) else { return };
    let tree = on.cluster.home.join("tree");
    make_tree(&tree);
    let tree_text = tree.to_str().unwrap();
    for policy in ["posix", "batchfs", "weak-global"] {
        let to = format!("/{policy}");
        on.cluster.run(&["ingest", "--policy", policy, tree_text, &to]);
        equals(&on, &tree, &to);
    }
    let program = format!("cp -a {tree_text}/. $CUDELE_JOB/");
    on.cluster.run(&["run", "--policy", "batchfs", "/job", "--", "sh", "-c", &program]);
    equals(&on, &tree, "/job");
    on.cluster.run(&["mkdir", "/made"]);
    for daemon in ["mds", "mon"] {
        on.cluster.kill(daemon);
    }
    // Nothing of Ceph's ends in an orderly way, either.
    for daemon in ["osd.0", "mon.a"] {
        on.ceph.signal(daemon, Signal::KILL).unwrap();
    }
    for daemon in ["mon.a", "osd.0"] {
        on.ceph.start(daemon).unwrap();
    }
    on.cluster.start();
    // `batchfs` promises to outlive the job's machine or the server, not both: the client that
    // could merge again has ended. Work that was promised to be durable in the store is there.
    for copy in ["/posix", "/weak-global"] {
        equals(&on, &tree, copy);
    }
    assert!(on.cluster.names("/").contains(&"made".to_owned()));
    assert!(!on.cluster.dir.join("store").exists(), "nothing is in a directory");
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn synced_changes_survive_a_kill_of_server_and_client() {
    let late = ["--set", "commit_interval_ms=300", "--set", "commit_bytes=100000000"];
    let Some(on) = up(&late, |_| {}) else { return };
    let fs = on.cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    for number in 0..300 {
        dir.create(format!("f{number:03}"), &NewFile::default()).unwrap();
    }
    assert!(fs.unsafe_requests() > 0);
    fs.sync().unwrap();
    on.cluster.kill("mds");
    drop((dir, fs));
    on.cluster.start();
    assert_eq!(on.cluster.names("/").len(), 300);
    assert!(!on.store().list("journal/mds.0000/").unwrap().is_empty());
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn jobs_and_servers_outlive_a_killed_osd() {
    let two = |settings: &mut testceph::CephSettings| {
        (settings.osds, settings.copies, settings.store) = (2, 2, OsdStore::File);
    };
    let Some(on) = up(&[], two) else { return };
    let tree = on.cluster.home.join("tree");
    make_tree(&tree);
    let tree_text = tree.to_str().unwrap();
    on.cluster.run(&["ingest", "--policy", "invisible-global", tree_text, "/before"]);
    on.ceph.signal("osd.1", Signal::KILL).unwrap();
    // The job's journal and data are read from the copy that is left.
    on.cluster.run(&["merge", "/before"]);
    on.cluster.run(&["ingest", "--policy", "posix", tree_text, "/during"]);
    on.cluster.kill("mds");
    on.cluster.start();
    for copy in ["/before", "/during"] {
        equals(&on, &tree, copy);
    }
}
