//! The trunk takes branches in.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, eventually};
use crate::{branch, branch_fails, put, tree, write};

/// A running cluster with a branch `b` of its `/proj`.
fn running() -> Cluster {
    let cluster = Cluster::up();
    cluster.run(&["mkdir", "-p", "/proj/dir", "/proj/empty"]);
    for name in ["kept", "by-branch", "by-trunk", "by-both", "gone"] {
        write(&cluster, &format!("/proj/dir/{name}"), "base");
    }
    cluster.run(&["branch", "create", "b", "/proj"]);
    cluster
}

fn publish(cluster: &Cluster, name: &str) {
    cluster.run(&["publish", name]);
}

fn merge(cluster: &Cluster, arguments: &[&str]) -> Value {
    cluster.json(&[&["branch", "merge"], arguments].concat())
}

fn content(cluster: &Cluster, path: &str) -> String {
    cluster.say(&["cp", path, "-"])
}

fn namespace(cluster: &Cluster) -> Vec<String> {
    cluster.say(&["find", "/proj"]).lines().map(str::to_owned).collect()
}

#[test]
fn a_published_branch_is_merged_as_a_whole() {
    let cluster = running();
    let large = "0123456789abcdef".repeat(100_000);
    put(&cluster, "b", "/proj/dir/by-branch", "branch");
    put(&cluster, "b", "/proj/large", &large);
    branch(&cluster, &["mkdir", "-p", "b", "/proj/new/below"]);
    branch(&cluster, &["mv", "b", "/proj/dir/kept", "/proj/new/moved"]);
    branch(&cluster, &["rm", "-r", "b", "/proj/empty", "/proj/dir/gone"]);
    let wanted = tree(&cluster, "b");
    let before = namespace(&cluster);
    let said = cluster.fails(2, &["branch", "merge", "b"]);
    assert!(said.contains("publish it first"), "{said}");
    publish(&cluster, "b");
    publish(&cluster, "b");
    assert_eq!(namespace(&cluster), before, "publishing shows nothing");
    let said = branch_fails(&cluster, 2, &["mkdir", "b", "/proj/late"]);
    assert!(said.contains("the branch is published"), "{said}");
    let dry = merge(&cluster, &["--dry-run"]);
    assert_eq!((&dry["merged"], &dry["created"]), (&false.into(), &4.into()));
    assert_eq!(namespace(&cluster), before, "a dry run changes nothing");
    let done = merge(&cluster, &["b"]);
    assert_eq!(
        (&done["merged"], &done["created"], &done["rejected"]),
        (&true.into(), &4.into(), &0.into())
    );
    assert_eq!(namespace(&cluster), wanted);
    assert!(content(&cluster, "/proj/large") == large);
    assert_eq!(content(&cluster, "/proj/dir/by-branch"), "branch");
    assert_eq!(content(&cluster, "/proj/new/moved"), "base");
    // It is in the metadata store, the directory is shared, and one merge is enough.
    cluster.kill("mds");
    cluster.start();
    assert_eq!(namespace(&cluster), wanted);
    cluster.run(&["rm", "/proj/large"]);
    let again = merge(&cluster, &["b"]);
    assert_eq!((&again["merged"], &again["events"]), (&true.into(), &0.into()));
    assert_eq!(cluster.json(&["branch", "show", "b"])["state"], "merged");
    assert!(
        !namespace(&cluster).contains(&"/proj/large".into()),
        "what was removed since stays so"
    );
    cluster.run(&["mkdir", "/proj/everybodys"]);
}

/// The changes of both to the names of [`running`].
fn quarrel(cluster: &Cluster) {
    for name in ["by-branch", "by-both"] {
        put(cluster, "b", &format!("/proj/dir/{name}"), "branch");
    }
    branch(cluster, &["rm", "b", "/proj/dir/gone"]);
    branch(cluster, &["mkdir", "b", "/proj/both-made"]);
    put(cluster, "b", "/proj/both-made/of-branch", "branch");
    put(cluster, "b", "/proj/both-made/same", "branch");
    put(cluster, "b", "/proj/new", "branch");
    for name in ["by-trunk", "by-both"] {
        write(cluster, &format!("/proj/dir/{name}"), "trunk");
    }
    cluster.run(&["mkdir", "/proj/both-made"]);
    write(cluster, "/proj/both-made/of-trunk", "trunk");
    write(cluster, "/proj/both-made/same", "trunk");
    publish(cluster, "b");
}

fn contents(cluster: &Cluster) -> Vec<String> {
    let names = [
        "dir/kept",
        "dir/by-branch",
        "dir/by-trunk",
        "dir/by-both",
        "both-made/of-branch",
        "both-made/of-trunk",
        "both-made/same",
        "new",
    ];
    names.iter().map(|name| content(cluster, &format!("/proj/{name}"))).collect()
}

#[test]
fn where_both_changed_a_name_the_branch_wins() {
    let cluster = running();
    quarrel(&cluster);
    let done = merge(&cluster, &[]);
    assert_eq!(done["merged"], true);
    let expected = ["base", "branch", "trunk", "branch", "branch", "trunk", "branch", "branch"];
    assert_eq!(contents(&cluster), expected);
    assert!(!namespace(&cluster).contains(&"/proj/dir/gone".into()));
}

#[test]
fn with_conflict_trunk_the_trunk_wins() {
    let cluster = running();
    quarrel(&cluster);
    let both = ["/proj/dir/by-both", "/proj/both-made/same"];
    let dry = merge(&cluster, &["--conflict", "trunk", "--dry-run"]);
    assert_eq!(dry["changed_by_both"], serde_json::json!(both));
    let done = merge(&cluster, &["--conflict", "trunk"]);
    assert_eq!(
        (&done["merged"], &done["changed_by_both"]),
        (&true.into(), &serde_json::json!(both))
    );
    assert_eq!(done["created"], dry["created"]);
    let expected = ["base", "branch", "trunk", "trunk", "branch", "trunk", "trunk", "branch"];
    assert_eq!(contents(&cluster), expected);
    assert!(!namespace(&cluster).contains(&"/proj/dir/gone".into()));
}

#[test]
fn with_conflict_fail_nothing_is_merged() {
    let cluster = running();
    quarrel(&cluster);
    let before = namespace(&cluster);
    let said = cluster.fails(1, &["branch", "merge", "--conflict", "fail"]);
    assert!(said.contains("2 names were changed by the namespace, too"), "{said}");
    assert_eq!(
        (namespace(&cluster), content(&cluster, "/proj/dir/by-both")),
        (before, "trunk".into())
    );
    cluster.run(&["mkdir", "/proj/everybodys"]);
    assert_eq!(cluster.json(&["branch", "show", "b"])["state"], "published");
    // Without the obstacle it is merged by the same rule.
    cluster.run(&["branch", "create", "c", "/proj"]);
    put(&cluster, "c", "/proj/c", "c");
    publish(&cluster, "c");
    let done = merge(&cluster, &["c", "--conflict", "fail"]);
    assert_eq!((&done["merged"], content(&cluster, "/proj/c")), (&true.into(), "c".into()));
}

#[test]
fn a_branch_of_a_merged_branch_merges_only_its_own_changes() {
    let cluster = running();
    put(&cluster, "b", "/proj/one", "one");
    branch(&cluster, &["create", "c", "--from", "b"]);
    put(&cluster, "c", "/proj/two", "two");
    publish(&cluster, "b");
    merge(&cluster, &["b"]);
    write(&cluster, "/proj/one", "changed since");
    publish(&cluster, "c");
    let done = merge(&cluster, &["c", "--conflict", "fail"]);
    assert_eq!((&done["merged"], &done["created"]), (&true.into(), &1.into()));
    assert_eq!(content(&cluster, "/proj/one"), "changed since");
    assert_eq!(content(&cluster, "/proj/two"), "two");
}

#[test]
fn published_branches_are_merged_as_they_come() {
    let cluster = running();
    let watch = ["branch", "merge", "--watch", "1"];
    let mut watcher = cluster.command(&watch).stdout(Stdio::null()).spawn().unwrap();
    for name in ["b", "c", "d"] {
        if name != "b" {
            cluster.run(&["branch", "create", name, "/proj"]);
        }
        put(&cluster, name, &format!("/proj/by-{name}"), name);
        publish(&cluster, name);
        let path = format!("/proj/by-{name}");
        eventually("it is merged", || namespace(&cluster).contains(&path));
    }
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

#[test]
fn a_merge_that_is_interrupted_is_finished_by_the_next() {
    let cluster = running();
    let local = cluster.home.join("tree");
    std::fs::create_dir_all(&local).unwrap();
    for file in 0..300 {
        std::fs::write(local.join(format!("f{file:03}")), "x").unwrap();
    }
    let mut interrupted = 0;
    for round in 0..16u64 {
        let (name, dest) = (format!("r{round}"), format!("/proj/r{round}"));
        cluster.run(&["branch", "create", &name, "/proj"]);
        branch(&cluster, &["put", &name, local.to_str().unwrap(), &dest]);
        publish(&cluster, &name);
        let mut child = cluster
            .command(&[
                "branch",
                "merge",
                &name,
                "--conflict",
                ["branch", "trunk"][(round % 2) as usize],
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let shown =
            || cluster.objects("branches/named/").len() + cluster.objects("journal/client/").len();
        let state =
            || cluster.json(&["branch", "show", &name])["state"].as_str().unwrap().to_owned();
        let start = shown();
        eventually("it has begun", || match round % 4 {
            0 => true,
            1 => state() != "published",
            2 => shown() > start || child.try_wait().unwrap().is_some(),
            _ => state() == "merging" || child.try_wait().unwrap().is_some(),
        });
        if round % 4 == 3 {
            // The server, too.
            cluster.kill("mds");
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let _ = kill_process(pid, Signal::KILL);
        child.wait().unwrap();
        if round % 4 == 3 {
            cluster.start();
        }
        interrupted += u64::from(state() != "merged");
        let done = merge(&cluster, &[&name]);
        assert_eq!(done["merged"], true, "round {round}: {done}");
        let count =
            |all: Vec<String>| all.iter().filter(|it| it.starts_with(&format!("{dest}/"))).count();
        assert_eq!(count(namespace(&cluster)), 300, "round {round}");
        assert_eq!(state(), "merged");
        // All clients may work there again.
        cluster.run(&["mkdir", &format!("/proj/after{round}")]);
    }
    println!("{interrupted} of 16 were interrupted");
    // Nothing else is left of it: no policy, no owner, no journal that a process waits for.
    assert_eq!(cluster.json(&["policy", "ls"]), serde_json::json!([]));
    // The server reports this at intervals.
    eventually("nobody has a subtree", || {
        cluster.json(&["status"])["decoupled"] == serde_json::json!([])
    });
    assert!(interrupted > 0);
}
