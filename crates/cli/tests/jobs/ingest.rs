use std::fs;

use serde_json::json;

use crate::fixture::{ENTRIES, World, make_tree};

/// Brings the tree in and compares it with the source by the demo's own proof.
fn brought_in(policy: Option<&str>) -> (World, serde_json::Value) {
    let world = World::new();
    let tree = world.path("tree");
    make_tree(&tree);
    let tree = tree.to_str().unwrap();
    let report = match policy {
        Some(policy) => world.json(&["ingest", "--policy", policy, tree, "/in"]),
        None => world.json(&["ingest", tree, "/in"]),
    };
    (world, report)
}

#[test]
fn a_tree_comes_in_with_one_request_per_entry() {
    let (world, report) = brought_in(None);
    assert_eq!(report["entries"], json!(ENTRIES), "{report:#}");
    assert_eq!(report["visible"], json!(true));
    assert_eq!(report["hard_links"], json!(2));
    let stat = world.json(&["stat", "/in/a/b/hard"]);
    let first = world.json(&["stat", "/in/a/file.000"]);
    assert_eq!(stat["ino"], first["ino"], "hard links name one inode: {stat:#}");
}

#[test]
fn a_decoupled_tree_is_merged_and_everybodys() {
    for policy in ["batchfs", "hdfs", "weak-none"] {
        let (world, report) = brought_in(Some(policy));
        assert_eq!(report["entries"], json!(ENTRIES), "{policy}: {report:#}");
        assert_eq!(report["visible"], json!(true));
        assert_eq!(report["rejected_in_merge"], json!(0));
        world.await_released();
        let stat = world.json(&["stat", "/in/a/b/hard"]);
        let first = world.json(&["stat", "/in/a/file.000"]);
        assert_eq!(stat["ino"], first["ino"], "{policy}");
    }
}

#[test]
fn an_invisible_tree_is_merged_by_a_later_process() {
    for policy in ["deltafs", "invisible-global"] {
        let (world, report) = brought_in(Some(policy));
        assert_eq!(report["visible"], json!(false), "{policy}: {report:#}");
        world.run(&["stat", "/in/a"]).refused(&[]);
        let planned = world.json(&["merge", "--dry-run", "/in"]);
        assert_eq!(planned["created"], json!(ENTRIES - 2), "{policy}: {planned:#}");
        world.run(&["stat", "/in/a"]).refused(&[]);
        let merged = world.json(&["merge", "/in"]);
        assert_eq!(merged["created"], json!(ENTRIES - 2), "{policy}: {merged:#}");
        assert_eq!(merged["rejected"], json!(0));
        world.run(&["stat", "/in/a/b/c/link"]).done();
        world.run(&["merge", "/in"]).refused(&["no decoupled subtree", "ENOENT"]);
    }
}

#[test]
fn what_a_policy_does_not_keep_is_gone_and_said() {
    let (world, report) = brought_in(Some("ramdisk"));
    assert_eq!(report["gone"], json!(true));
    world.await_released();
    let tree = world.path("tree");
    let said = world.run(&["ingest", "--policy", "ramdisk", tree.to_str().unwrap(), "/r"]).done();
    assert!(said.out.contains("keeps nothing"), "{}", said.out);
}

#[test]
fn a_dry_run_brings_nothing_in() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    let tree = tree.to_str().unwrap();
    let report = world.json(&["ingest", "--dry-run", "--policy", "batchfs", tree, "/in"]);
    assert_eq!(report["entries"], json!(ENTRIES));
    world.run(&["stat", "/in"]).refused(&["ENOENT"]);
}

#[test]
fn what_is_there_is_not_overwritten() {
    let world = World::new();
    make_tree(&world.path("tree"));
    fs::create_dir_all(world.path("other/new")).unwrap();
    fs::write(world.path("other/new/file"), b"x").unwrap();
    let (tree, other) = (world.path("tree"), world.path("other"));
    let (tree, other) = (tree.to_str().unwrap(), other.to_str().unwrap());
    world.run(&["ingest", other, "/in"]).done();
    world.run(&["ingest", "--policy", "batchfs", tree, "/in"]).done();
    world.run(&["stat", "/in/new/file"]).done();
    world.run(&["stat", "/in/a/file.000"]).done();
    let again = ["ingest", "--policy", "batchfs", tree, "/in"];
    world.run(&again).refused(&["EEXIST", "nothing was brought in"]);
    world.run(&["ingest", tree, "/in"]).refused(&["EEXIST", "brought in before"]);
    world.run(&["stat", "/in/a/file.000"]).done();
}

#[test]
fn the_demo_proves_that_both_copies_equal_the_source() {
    let world = World::new();
    make_tree(&world.path("tree"));
    fs::write(world.path("tree/new\nline"), b"a name is bytes").unwrap();
    let tree = world.path("tree");
    let dir = world.path("demo");
    let arguments = ["demo", tree.to_str().unwrap(), "--dir", dir.to_str().unwrap()];
    let value = world.json(&arguments);
    assert_eq!(value["equal"], json!(true), "{value:#}");
    let names: Vec<_> =
        value["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    for name in ["rpcs+stream", "append_client_journal", "local_persist", "volatile_apply"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(!dir.exists(), "the cluster is gone");
    let said = world.run(&arguments).done();
    assert!(said.out.contains("equals the source"), "{}", said.out);
}
