//! A server that was taken for dead can do no harm.

use std::time::Instant;

use rustix::process::{Signal, kill_process};

use crate::cluster::{eventually, text};
use crate::up;

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_server_that_slept_through_a_takeover_ends() {
    let Some(on) = up(&[], |_| {}) else { return };
    let cluster = &on.cluster;
    cluster.run(&["mkdir", "/before"]);
    let [old] = cluster.daemons("mds")[..] else { panic!("one server runs") };
    kill_process(old, Signal::STOP).unwrap();
    let stat = format!("/proc/{}/stat", old.as_raw_nonzero());
    eventually("the server stands still", || {
        std::fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    // The next one takes its socket as well.
    std::fs::remove_file(cluster.dir.join("mds.0.sock")).unwrap();
    let start = Instant::now();
    cluster.start();
    println!("a new server serves after {:?}", start.elapsed());
    let servers = cluster.daemons("mds");
    assert_eq!(servers.len(), 2, "the old one still sleeps");
    cluster.run(&["mkdir", "/after"]);
    kill_process(old, Signal::CONT).unwrap();
    eventually("the old server has ended", || !cluster.daemons("mds").contains(&old));
    let log = std::fs::read(cluster.dir.join("log/mds.log")).unwrap();
    println!("{}", text(&log));
    // Its leftovers obstruct no other process.
    assert_eq!(cluster.names("/"), ["after", "before"]);
    cluster.kill("mds");
    cluster.start();
    assert_eq!(cluster.names("/"), ["after", "before"]);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_killed_server_is_replaced_within_seconds() {
    let Some(on) = up(&[], |_| {}) else { return };
    on.cluster.run(&["mkdir", "/before"]);
    on.cluster.kill("mds");
    let start = Instant::now();
    on.cluster.start();
    println!("a new server serves after {:?}", start.elapsed());
    assert_eq!(on.cluster.names("/"), ["before"]);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_store_that_cannot_be_opened_is_explained() {
    let Some(on) = up(&[], |_| {}) else { return };
    let other = crate::Cluster::down();
    let url = on.ceph.url("none");
    let said = other.fails(1, &["up", "--store", &url]);
    assert!(said.contains("the cluster has no pool named none (ENOENT)"), "{said}");
    assert!(said.contains("ceph osd pool create none"), "{said}");
    let said = other.fails(1, &["up", "--store", "rados://test?conf=/no/such"]);
    assert!(said.contains("no configuration file /no/such"), "{said}");
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_client_whose_subtree_was_taken_over_writes_nothing_any_more() {
    let Some(on) = up(&[], |_| {}) else { return };
    let cluster = &on.cluster;
    let fs = cluster.mount();
    fs.make_dir("/job", 0o755).unwrap();
    let policy = "consistency: append_client_journal+volatile_apply\ndurability: global_persist";
    let policy = cudele::Policy::from_name_or_text(policy).unwrap().policy;
    let mut job = fs.decouple("/job", &policy).unwrap();
    let large = vec![7; 100_000];
    let mut source = &large[..];
    let new = cudele::NewFile::default();
    job.create_file(job.root(), b"large", &new, &mut source).unwrap();
    job.create(job.root(), b"small", &new).unwrap();
    job.persist().unwrap();
    // The job lives, but a user takes it for dead.
    cluster.run(&["recover", "/job"]);
    cluster.run(&["merge", "/job"]);
    assert_eq!(cluster.names("/job"), ["large", "small"]);
    let objects = || {
        let mut names = on.store().list("").unwrap();
        names.retain(|name| name.starts_with("data/") || name.starts_with("journal/client"));
        names
    };
    let before = objects();
    job.create(job.root(), b"late", &new).unwrap();
    let late = job.persist().unwrap_err();
    assert_eq!(late.errno, cudele::Errno::Stale, "{late}");
    let attr = cluster.mount().stat("/job/large").unwrap();
    let overwrite = fs.write_at(attr.striped(), 0, b"late").unwrap_err();
    assert_eq!(overwrite.errno, cudele::Errno::Stale, "{overwrite}");
    assert_eq!(objects(), before);
    assert!(cluster.run(&["cp", "/job/large", "-"]) == large);
    assert_eq!(cluster.names("/job"), ["large", "small"]);
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn a_client_whose_subtree_was_given_up_by_force_writes_nothing_any_more() {
    let Some(on) = up(&[], |_| {}) else { return };
    let cluster = &on.cluster;
    let fs = cluster.mount();
    fs.make_dir("/job", 0o755).unwrap();
    let policy = "consistency: append_client_journal+volatile_apply\ndurability: global_persist";
    let policy = cudele::Policy::from_name_or_text(policy).unwrap().policy;
    let mut job = fs.decouple("/job", &policy).unwrap();
    let new = cudele::NewFile::default();
    job.create(job.root(), b"small", &new).unwrap();
    job.persist().unwrap();
    cluster.run(&["discard", "--force", "/job"]);
    job.create(job.root(), b"late", &new).unwrap();
    let late = job.persist().unwrap_err();
    assert_eq!(late.errno, cudele::Errno::Stale, "{late}");
    assert!(cluster.names("/job").is_empty(), "nothing was merged");
}
