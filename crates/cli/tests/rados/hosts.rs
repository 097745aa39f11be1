//! A Ceph cluster on a host of its own, as the store of servers on other hosts.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use testceph::{CephCluster, CephSettings, Running};

use crate::cluster::{eventually, text};
use crate::site::{Hosts, Site};

const ALICE: &str = "1000";

/// A Ceph cluster on a host; it listens at the address of the host only.
fn ceph_on(hosts: &Hosts, host: &str, dir: &Path) -> Option<Running> {
    let mut settings = CephSettings::new(dir);
    settings.address = hosts.address(host).parse().unwrap();
    let made = inside(hosts, host, || CephCluster::unless_skipped(&settings));
    made.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a function on a thread whose processes and sockets are those of a host.
fn inside<T: Send>(hosts: &Hosts, host: &str, act: impl FnOnce() -> T + Send) -> T {
    let namespace = Path::new("/run/netns").join(hosts.namespace(host));
    let namespace = std::fs::File::open(namespace).unwrap();
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            act()
        });
        inside.join().unwrap()
    })
}

#[test]
#[ignore = "needs Ceph: cargo xtask ci rados"]
fn hosts_work_with_a_store_in_ceph_on_a_host_of_its_own() {
    let names = ["head", "mds1", "node1", "login", "storage"];
    let Some(hosts) = Hosts::new(&names) else { return };
    let home = tempfile::Builder::new().prefix("cudele-rados.").tempdir().unwrap();
    let Some(ceph) = ceph_on(&hosts, "storage", &home.path().join("ceph")) else { return };
    let url = ceph.url("test");
    let mut site = Site::start_with(hosts, &["head", "mds1"], &[], &["--store", &url]);
    let owner = site.owners_key();
    site.run("head", &owner, &["balancer", "set", "static"]);
    for (dir, rank) in [("/a", "0"), ("/b", "1")] {
        site.run("head", &owner, &["mkdir", "-m", "1777", dir]);
        site.run("head", &owner, &["mds", "pin", dir, rank]);
    }
    let alice = site.key("alice", &["--user", ALICE]);
    let script = "head -c 300000 /dev/zero > $CUDELE_JOB/large && : > $CUDELE_JOB/small";
    let run = ["run", "--policy", "batchfs", "/a/job", "--", "sh", "-c", script];
    site.run("node1", &alice, &run);
    let stat = site.run("login", &alice, &["stat", "--json", "/a/job/large"]);
    let stat: Value = serde_json::from_str(&stat).unwrap();
    assert_eq!((&stat["size"], stat["uid"].to_string()), (&300_000.into(), ALICE.to_owned()));
    let copy = site.command("login", &alice, &["cp", "/a/job/large", "-"]).output().unwrap();
    assert!(copy.stdout == vec![0; 300_000], "{}", text(&copy.stderr));

    // The store is away for a while: a server that cannot write goes on when it is back.
    site.hosts.cut("storage");
    let waiting = site.command("login", &alice, &["mkdir", "/b/1"]).spawn().unwrap();
    site.hosts.mend("storage");
    assert!(waiting.wait_with_output().unwrap().status.success());

    // The host of a rank is lost: another one takes its journal from Ceph.
    site.hosts.cut("mds1");
    site.kill("mds.1");
    site.rank(1, "node1");
    site.await_state(1, "active");
    assert_eq!(site.run("login", &alice, &["ls", "/b"]), "1\n");
    site.run("head", &owner, &["down"]);
    for name in ["mon", "mds.0", "mds.1"] {
        eventually("all daemons have ended", || site.has_ended(name));
    }
    site.run("head", &owner, &["fsck", "--dir", site.cluster.dir.to_str().unwrap()]);
}
