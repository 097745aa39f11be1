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
fn a_decoupled_tree_is_merged_and_open_to_all_clients() {
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
fn an_ingest_reports_that_its_policy_keeps_nothing() {
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
fn an_ingest_overwrites_no_existing_entry() {
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

/// A tar archive of a tree.
fn packed(world: &World, tree: &str) -> std::path::PathBuf {
    let archive = world.path("tree.tar");
    let mut tar = std::process::Command::new("tar");
    let done = tar.arg("cf").arg(&archive).arg("-C").arg(world.path(tree)).arg(".").status();
    assert!(done.unwrap().success());
    archive
}

#[test]
fn an_interrupted_ingest_is_resumed() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let archive = packed(&world, "tree");
    let whole = fs::read(&archive).unwrap();
    let part = world.path("part.tar");
    fs::write(&part, &whole[..whole.len() / 20]).unwrap();
    let said = world.run(&["ingest", part.to_str().unwrap(), "/in"]);
    said.refused(&["brought in before"]);
    let before = world.run(&["find", "/in"]).done().out.lines().count() as u64;
    assert!(before > 2 && before < ENTRIES, "{before}");
    let archive = archive.to_str().unwrap();
    world.run(&["ingest", archive, "/in"]).refused(&["EEXIST"]);
    let report = world.json(&["ingest", "--resume", archive, "/in"]);
    assert!(report["unchanged"].as_u64() > Some(0), "{report:#}");
    // A second time there is nothing to do but to look.
    let report = world.json(&["ingest", "--resume", archive, "/in"]);
    assert_eq!((&report["updated"], &report["files"]), (&json!(0), &json!(0)), "{report:#}");
    let tree = world.path("tree");
    world.run(&["ingest", tree.to_str().unwrap(), "/whole"]).done();
    let listed = |path: &str| world.run(&["find", path]).done().out.replace(path, "");
    assert_eq!(listed("/in"), listed("/whole"));
    for name in ["a/file.299", "a/b/over", "hard too"] {
        let content = world.run(&["cp", &format!("/in/{name}"), "-"]).done().out;
        assert!(content.as_bytes() == fs::read(tree.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn an_ingest_brings_in_what_has_changed_since() {
    let (world, _) = brought_in(None);
    let tree = world.path("tree");
    fs::write(tree.join("a/file.001"), "longer than before").unwrap();
    fs::write(tree.join("a/new"), "new").unwrap();
    fs::remove_file(tree.join("to-directory")).unwrap();
    std::os::unix::fs::symlink("empty", tree.join("to-directory")).unwrap();
    let text = tree.to_str().unwrap();
    for policy in [None, Some("batchfs")] {
        let options: &[&str] = policy.map_or(&[], |_| &["--policy", "batchfs"]);
        let arguments = [&["ingest", "--resume"], options, &[text, "/in"]].concat();
        let report = world.json(&arguments);
        let (updated, files) = if policy.is_none() { (2, 2) } else { (0, 0) };
        assert_eq!((&report["updated"], &report["files"]), (&json!(updated), &json!(files)));
    }
    assert_eq!(world.run(&["cp", "/in/a/file.001", "-"]).done().out, "longer than before");
    assert_eq!(world.json(&["stat", "/in/a/new"])["size"], json!(3));
    // The names of one file are still names of one file.
    let ino = |path: &str| world.json(&["stat", path])["ino"].clone();
    assert_eq!(ino("/in/a/b/hard"), ino("/in/a/file.000"));
}

#[test]
fn a_resumed_ingest_discards_the_subtree_of_the_killed_one() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let archive = packed(&world, "tree");
    // An archive that never ends.
    let mut command = world.command(&["ingest", "--policy", "batchfs", "-", "/in"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let start = std::time::Instant::now();
    while world.json(&["status"])["decoupled"] == json!([]) {
        assert!(start.elapsed().as_secs() < 20, "it is decoupled");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let archive = archive.to_str().unwrap();
    world.run(&["ingest", "--policy", "batchfs", archive, "/in"]).refused(&["EBUSY"]);
    let report = world.json(&["ingest", "--resume", "--policy", "batchfs", archive, "/in"]);
    assert_eq!(report["entries"], json!(ENTRIES), "{report:#}");
    world.run(&["stat", "/in/a/b/hard"]).done();
}
