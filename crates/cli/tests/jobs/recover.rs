//! The work of a client that is gone (F-19).

use std::fs;

use crate::fixture::{World, make_tree};

fn ingest(world: &World, policy: &str) {
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", "--policy", policy, tree.to_str().unwrap(), "/in"]).done();
}

/// The machine that has the subtree and its disk are gone.
fn lose(world: &World) {
    fs::rename(world.path("state"), world.path("lost")).unwrap();
}

#[test]
fn any_machine_recovers_a_journal_in_the_store() {
    let world = World::new();
    ingest(&world, "invisible-global");
    lose(&world);
    world.run(&["merge", "/in"]).refused(&["EBUSY"]);
    let planned = world.json(&["recover", "--dry-run", "/in"]);
    assert!(planned["events"].as_u64().unwrap() > 300, "{planned}");
    assert_eq!(planned["journals"][0]["stored"], true);
    let done = world.json(&["recover", "/in"]);
    assert_eq!(done["events"], planned["events"]);
    assert_eq!(done["from"], planned["from"]);
    assert_ne!(done["client"], done["from"]);
    world.crash();
    world.run(&["merge", "/in"]).done();
    world.run(&["stat", "/in/a/b/hard"]).done();
    let name = planned["journals"][0]["name"].as_str().unwrap();
    let name = name.strip_prefix("journal/client/").unwrap();
    let object = world.path("c/store/objects/journal%/client%").join(name);
    assert!(!object.exists(), "the journal that was taken over is not needed any more");
    world.run_elsewhere(&["decouple", "/in", "batchfs"]).done();
}

#[test]
fn the_machine_with_the_disk_recovers_a_local_journal() {
    let world = World::new();
    ingest(&world, "invisible-local");
    lose(&world);
    world.run(&["recover", "/in"]).refused(&["ENOENT", "left no journal"]);
    let disk = world.path("lost");
    let disk = disk.to_str().unwrap();
    world.run(&["recover", "--from", disk, "/in"]).done();
    world.run(&["merge", "/in"]).done();
    world.run(&["stat", "/in/a/file.007"]).done();
}

#[test]
fn a_client_that_was_taken_over_is_fenced() {
    let world = World::new();
    ingest(&world, "invisible-global");
    world.run_elsewhere(&["recover", "/in"]).done();
    // The client was not dead after all.
    world.run(&["merge", "/in"]).refused(&[]);
    world.crash();
    world.run(&["merge", "/in"]).refused(&[]);
    world.run(&["stat", "/in/a/file.007"]).refused(&["ENOENT"]);
    world.run_elsewhere(&["merge", "/in"]).done();
    world.run(&["stat", "/in/a/file.007"]).done();
}

#[test]
fn taking_over_twice_is_harmless() {
    let world = World::new();
    ingest(&world, "weak-global");
    // It is merged and released; the monitor may not have heard of that.
    world.run(&["recover", "/in"]).refused(&[]);
    world.run(&["discard", "--force", "/in"]).refused(&[]);
    ingest_again(&world);
    lose(&world);
    world.run_elsewhere(&["recover", "/job"]).done();
    // That machine is lost, too.
    fs::remove_dir_all(world.path("elsewhere")).unwrap();
    world.run(&["recover", "/job"]).done();
    world.run(&["merge", "/job"]).done();
    world.run(&["stat", "/job/a/file.007"]).done();
}

fn ingest_again(world: &World) {
    let tree = world.path("tree");
    let tree = tree.to_str().unwrap();
    world.run(&["ingest", "--policy", "invisible-global", tree, "/job"]).done();
}

#[test]
fn a_job_that_did_nothing_leaves_nothing_that_is_missed() {
    let world = World::new();
    fs::create_dir(world.path("tree")).unwrap();
    world.run(&["mkdir", "/job"]).done();
    let tree = world.path("tree");
    let arguments = ["ingest", "--policy", "invisible-global", tree.to_str().unwrap(), "/job"];
    world.run(&arguments).done();
    world.run(&["merge", "/job"]).done();
    world.run_elsewhere(&["decouple", "/job", "batchfs"]).done();
}
