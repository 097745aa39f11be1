//! A cluster on several hosts: users, jobs, partitions, lost hosts and wrong clocks.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cluster::{eventually, text};
use crate::site::{Hosts, Site};

/// Two users.
const ALICE: &str = "1000";
const BOB: &str = "2000";

/// A job that makes files, makes a file `begun`, waits for a file `go`, and makes more files.
const JOB: &str = "cd $CUDELE_JOB && for i in $(seq 200); do : > a$i; done && : > $0.begun && \
                   while [ ! -e $0.go ]; do sleep 0.02; done && \
                   for i in $(seq 200); do : > b$i; done && chown 0:0 a7 && : > $0.done";

#[test]
fn a_site_works_on_through_partitions_and_the_loss_of_a_host() {
    let names = ["head", "mds1", "mds2", "node1", "node2", "login"];
    let Some(hosts) = Hosts::new(&names) else { return };
    let mut site = Site::start(hosts, &["head", "mds1", "mds2"]);
    let owner = site.owners_key();
    site.run("head", &owner, &["balancer", "set", "static"]);
    for (dir, rank) in [("/a", "0"), ("/b", "1"), ("/c", "2")] {
        site.run("head", &owner, &["mkdir", "-m", "1777", dir]);
        site.run("head", &owner, &["mds", "pin", dir, rank]);
    }
    let alice = site.key("alice", &["--user", ALICE, "--from", "10.203.0.0/24"]);
    let login = format!("{}/32", site.hosts.address("login"));
    let bob = site.key("bob", &["--user", BOB, "--from", &login]);

    // Alice narrows her key for the job, and is on a batch node; bob's key is for the login host.
    let job_key = site.cluster.home.join("job.pem");
    let out = job_key.to_str().unwrap();
    let allow = ["--allow", "read,write,decouple,merge:/a"];
    let narrow = [&["auth", "narrow", alice.to_str().unwrap(), "--out", out][..], &allow].concat();
    site.run("node1", &alice, &narrow);
    let refused = site.command("node1", &bob, &["ls", "/a"]).output().unwrap();
    assert!(text(&refused.stderr).contains("not for the network"), "{}", text(&refused.stderr));
    let word = site.cluster.home.join("job");
    let file = |end: &str| word.with_extension(end);
    let run = ["run", "--policy", "batchfs", "/a/job", "--", "sh", "-c", JOB];
    let run = [&run[..], &[word.to_str().unwrap()]].concat();
    let mut job = site.command("node1", &job_key, &run).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the job has begun, or failed", || {
        file("begun").exists() || job.try_wait().is_ok_and(|status| status.is_some())
    });
    if !file("begun").exists() {
        let output = job.wait_with_output().unwrap();
        panic!("{}: {}", output.status, text(&output.stderr));
    }

    // The node of the job is cut off: the job and the other hosts work on.
    site.hosts.cut("node1");
    fs::write(file("go"), "").unwrap();
    for dir in ["/a/1", "/b/1", "/c/1"] {
        site.run("login", &bob, &["mkdir", dir]);
    }
    eventually("the job is done", || file("done").exists());
    site.hosts.mend("node1");
    let ended = job.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let merged = site.run("login", &bob, &["ls", "/a/job"]);
    assert_eq!(merged.lines().count(), 400, "{merged}: {}", text(&ended.stderr));
    // The job is root's on its node, and alice's by its key.
    for file in ["/a/job/a7", "/a/job/b7"] {
        let made = site.run("login", &bob, &["stat", "--json", file]);
        let made: Value = serde_json::from_str(&made).unwrap();
        assert_eq!(made["uid"].to_string(), ALICE, "{made}");
    }

    lose_a_rank_for_a_while(&mut site, &bob);
    lose_a_host(&mut site, &bob);

    // The store is whole.
    site.run("head", &owner, &["down"]);
    for name in ["mon", "mds.0", "standby", "mds.2"] {
        eventually("all daemons have ended", || site.has_ended(name));
    }
    site.cluster.run(&["fsck"]);
}

/// A rank is cut off: what the others have is served, and a request for it waits.
fn lose_a_rank_for_a_while(site: &mut Site, bob: &Path) {
    site.hosts.cut("mds2");
    eventually("the monitor misses the rank", || site.state(2) != "active");
    for dir in ["/a/2", "/b/2"] {
        site.run("login", bob, &["mkdir", dir]);
    }
    let waiting = site.command("login", bob, &["mkdir", "/c/2"]).stderr(Stdio::piped()).spawn();
    site.hosts.mend("mds2");
    // Its service manager starts it again if it ended.
    eventually("the rank is back", || {
        if site.has_ended("mds.2") {
            site.rank(2, "mds2");
        }
        site.state(2) == "active"
    });
    let waited = waiting.unwrap().wait_with_output().unwrap();
    assert!(waited.status.success(), "{}", text(&waited.stderr));
}

/// A host is lost, and a standby on another host takes its rank over.
fn lose_a_host(site: &mut Site, bob: &Path) {
    site.standby("node2");
    site.hosts.cut("mds1");
    site.kill("mds.1");

    eventually("the rank serves from the other host", || {
        let made = site.command("login", bob, &["mkdir", "/b/3"]).output().unwrap();
        made.status.success()
    });
    site.await_state(1, "active");
    assert_eq!(site.run("login", bob, &["ls", "/a/job"]).lines().count(), 400);
    let listed = ["/a", "/b", "/c"].map(|dir| site.run("login", bob, &["ls", dir]));
    assert_eq!(listed, ["1\n2\njob\n", "1\n2\n3\n", "1\n2\n"]);
}

#[test]
#[ignore = "needs faketime: cargo test -p cli --test it hosts::clocks -- --ignored"]
fn clocks_that_are_wrong_by_an_hour_stop_nobody() {
    assert!(has_program("faketime"), "faketime is installed");
    let Some(hosts) = Hosts::new(&["head", "mds1", "node1", "login"]) else { return };
    let clocks = [("mds1", "+1h"), ("node1", "-1h")];
    let mut site = Site::start_with(hosts, &["head", "mds1"], &clocks, &[]);
    let owner = site.owners_key();
    site.run("head", &owner, &["balancer", "set", "static"]);
    for (dir, rank) in [("/a", "0"), ("/b", "1")] {
        site.run("head", &owner, &["mkdir", "-m", "1777", dir]);
        site.run("head", &owner, &["mds", "pin", dir, rank]);
    }
    // A key that was made at the right time is good on all hosts, and so is one that is narrowed
    // where it is an hour earlier.
    let alice = site.key("alice", &["--user", ALICE, "--days", "1"]);
    let job_key = site.cluster.home.join("job.pem");
    let out = job_key.to_str().unwrap();
    let allow = ["--allow", "read,write,decouple,merge:/a", "--hours", "2"];
    let narrow = [&["auth", "narrow", alice.to_str().unwrap(), "--out", out][..], &allow].concat();
    site.run("node1", &alice, &narrow);
    let script = "for i in $(seq 100); do : > $CUDELE_JOB/f$i; done";
    let run = ["run", "--policy", "batchfs", "/a/job", "--", "sh", "-c", script];
    site.run("node1", &job_key, &run);
    assert_eq!(site.run("login", &alice, &["ls", "/a/job"]).lines().count(), 100);

    // Times are those of the clock by which the change was made, here the node's.
    let seconds = |arguments: &[&str]| {
        let output = Command::new("date").args(arguments).arg("+%s").output().unwrap();
        text(&output.stdout).trim().parse::<i64>().unwrap()
    };
    for (path, behind) in [("/a/job/f1", 3600), ("/a", 0)] {
        let stat = site.run("login", &alice, &["stat", "--json", path]);
        let stat: Value = serde_json::from_str(&stat).unwrap();
        let made = seconds(&["-d", stat["btime"].as_str().unwrap()]);
        let off = seconds(&[]) - made - behind;
        assert!((0..600).contains(&off), "{path} is {off} seconds off: {stat}");
    }

    // A server whose clock is right takes over from one whose clock is an hour ahead, and what is
    // made then is not older than what was there.
    site.run("login", &alice, &["mkdir", "/b/before"]);
    site.kill("mds.1");
    site.rank(1, "login");
    site.await_state(1, "active");
    site.run("login", &alice, &["mkdir", "/b/after"]);
    assert_eq!(site.run("node1", &alice, &["ls", "/b"]), "after\nbefore\n");
    site.run("head", &owner, &["down"]);
    for name in ["mon", "mds.0", "mds.1"] {
        eventually("all daemons have ended", || site.has_ended(name));
    }
    site.cluster.run(&["fsck"]);
}

fn has_program(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}
