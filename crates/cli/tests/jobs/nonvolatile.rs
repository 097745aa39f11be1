//! Nonvolatile Apply (M-05): through the object store, onto the metadata store, with the metadata
//! server running.

use std::fs;

use serde_json::Value;

use crate::fixture::{ENTRIES, World, make_tree};

const POLICY: &str = "consistency: append_client_journal + nonvolatile_apply\ndurability: none\n";

fn counter(world: &World, name: &str) -> u64 {
    let status = world.json(&["status"]);
    let counters: &Value = &status["mds"][0]["counters"];
    counters[name].as_u64().unwrap_or_else(|| panic!("no counter {name} in {status}"))
}

/// The number of directories that the server wrote since, once it has reported at least so many to
/// the monitor: it reports twice a second.
fn written_since(world: &World, before: u64, least: u64) -> u64 {
    let start = std::time::Instant::now();
    loop {
        let written = counter(world, "commits") - before;
        if written >= least {
            return written;
        }
        assert!(start.elapsed().as_secs() < 20, "{written} directories were written");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn nonvolatile_apply_writes_the_metadata_store() {
    let world = World::new();
    let (policy, tree) = (world.path("job.yml"), world.path("tree"));
    fs::write(&policy, POLICY).unwrap();
    make_tree(&tree);
    let written = counter(&world, "commits");
    let (policy, tree) = (policy.to_str().unwrap(), tree.to_str().unwrap());
    world.run(&["ingest", "--policy", policy, tree, "/in"]).done();
    // The five directories of the tree, the one with inodes of several names, and the root of the
    // namespace: each was written once, for any number of events.
    let written = written_since(&world, written, 5);
    assert!(written <= 7, "{written} directories were written");
    let before = world.run(&["find", "/in"]).done().out;
    assert_eq!(before.lines().count() as u64, ENTRIES + 1, "{before}");
    world.crash();
    assert_eq!(world.run(&["find", "/in"]).done().out, before);
    assert_eq!(counter(&world, "merges"), 0, "nothing had to be merged again");
    world.run(&["stat", "/in/a/b/hard"]).done();
    assert_eq!(world.json(&["stat", "/in/a/file.000"])["nlink"], 3);
}

#[test]
fn a_repeated_nonvolatile_apply_changes_nothing() {
    let world = World::new();
    let policy = world.path("job.yml");
    fs::write(&policy, POLICY).unwrap();
    world.run(&["mkdir", "/job"]).done();
    for _ in 0..2 {
        world.run(&["decouple", "/job", policy.to_str().unwrap()]).done();
        world.run(&["merge", "/job"]).done();
        world.crash();
        assert_eq!(world.json(&["stat", "/job"])["size"], 0);
    }
}
