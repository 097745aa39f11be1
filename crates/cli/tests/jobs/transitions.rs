//! Policies that are changed while people work (P-16, F-04).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{World, make_tree};

fn cell(world: &World, path: &str) -> Value {
    world.json(&["policy", "get", path])["cell"].clone()
}

/// The journals of clients that the store has.
fn objects(world: &World) -> Vec<String> {
    let store = world.path("c/store/objects/journal%/client%");
    let Ok(entries) = std::fs::read_dir(store) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn ingest(world: &World, policy: &str) {
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", "--policy", policy, tree.to_str().unwrap(), "/in"]).done();
}

#[test]
fn a_change_to_strong_merges_pending_updates_first() {
    let world = World::new();
    ingest(&world, "invisible-local");
    world.run(&["stat", "/in/a"]).refused(&["ENOENT"]);
    let said = world.json(&["policy", "set", "/in", "posix"]);
    assert_eq!(said["change"]["state"], "in force");
    assert_eq!(cell(&world, "/in"), "strong-global");
    world.crash();
    // Merged updates are as durable as the new policy says.
    world.run(&["stat", "/in/a/file.007"]).done();
    world.run_elsewhere(&["mkdir", "/in/new"]).done();
}

#[test]
fn a_change_to_more_durability_stores_the_journal_first() {
    let world = World::new();
    ingest(&world, "invisible-local");
    assert_eq!(objects(&world), [""; 0]);
    let said = world.json(&["policy", "set", "/in", "weak-global"]);
    assert_eq!(said["change"]["steps"][0]["name"], "global_persist");
    assert_eq!(cell(&world, "/in"), "weak-global");
    assert_eq!(objects(&world).len(), 1);
    world.crash();
    world.run(&["merge", "/in"]).done();
    world.crash();
    world.run(&["stat", "/in/a/file.007"]).done();
}

#[test]
fn a_change_by_another_client_waits_for_the_owner() {
    let world = World::new();
    ingest(&world, "invisible-local");
    let said = world.run_elsewhere(&["--json", "policy", "set", "/in", "posix"]).done();
    let said: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(said["change"]["state"], "pending");
    for _ in 0..2 {
        assert_eq!(cell(&world, "/in"), "invisible-local", "the old policy is in force");
        world.run(&["stat", "/in/a"]).refused(&["ENOENT"]);
        let next = world.json(&["status"])["decoupled"][0]["next_policy"].clone();
        if next != Value::Null {
            assert!(next.as_str().unwrap().contains("stream"), "{next}");
        }
        world.crash();
    }
    world.run(&["merge", "/in"]).done();
    assert_eq!(cell(&world, "/in"), "strong-global");
    world.crash();
    assert_eq!(cell(&world, "/in"), "strong-global");
    world.run(&["stat", "/in/a/file.007"]).done();
    // The monitor hears of it with the server's next beacon.
    let start = Instant::now();
    while world.json(&["policy", "ls"])[0]["cell"] != json!("strong-global") {
        assert!(start.elapsed() < Duration::from_secs(120), "the map has the old policy");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn changes_in_the_servers_memory_are_stored_first() {
    for (from, kept) in [("posix-volatile", true), ("posix-volatile", false)] {
        let world = World::new();
        world.run(&["mkdir", "/d"]).done();
        world.run(&["policy", "set", "/d", from]).done();
        world.run(&["mkdir", "/d/sub"]).done();
        if kept {
            world.run(&["policy", "set", "/d", "posix"]).done();
        }
        world.crash();
        let said = world.run(&["stat", "/d/sub"]);
        if kept {
            said.done();
        } else {
            said.refused(&["ENOENT"]);
        }
    }
}

#[test]
fn stat_shows_where_the_changes_of_a_directory_are() {
    let world = World::new();
    let now = |path: &str| world.json(&["stat", path])["now"].clone();
    for (path, preset) in [("/v", "posix-volatile"), ("/p", "posix")] {
        world.run(&["mkdir", path]).done();
        world.run(&["policy", "set", path, preset]).done();
        world.run(&["mkdir", &format!("{path}/sub")]).done();
    }
    assert_eq!(now("/v")["kept"], "in the memory of the metadata server only");
    let strong = now("/p")["kept"].clone();
    assert!(strong.as_str().unwrap().contains("the journal"), "{strong}");
    // A clean stop writes everything down.
    world.run(&["down"]).done();
    world.run(&["up"]).done();
    for path in ["/v", "/p"] {
        assert_eq!(
            now(path),
            json!({
                "kept": "in the metadata store", "decoupled_by": null, "state": "complete",
            })
        );
    }
    ingest(&world, "invisible-local");
    assert_eq!(now("/in")["state"], "pending");
    world.run(&["merge", "/in"]).done();
    assert_eq!(now("/in")["state"], "complete");
}
