use std::fs;

use serde_json::json;

use crate::fixture::{World, make_tree};

#[test]
fn a_subtree_belongs_to_one_machine() {
    let world = World::new();
    world.run(&["mkdir", "/job"]).done();
    let owner = world.json(&["decouple", "/job", "batchfs"]);
    assert_eq!(owner["path"], json!("/job"));
    let again = world.json(&["decouple", "/job", "batchfs"]);
    assert_eq!(owner["client"], again["client"], "the same client asked again");
    world.run_elsewhere(&["decouple", "/job", "batchfs"]).refused(&["EBUSY", "decoupled by"]);
    world.run(&["mkdir", "/job/in"]).refused(&["EBUSY"]);
    world.run_elsewhere(&["decouple", "/", "batchfs"]).refused(&["EBUSY", "decoupled by"]);
    world.run_elsewhere(&["merge", "/job"]).refused(&["EBUSY", "on the machine that decoupled it"]);
    world.run_elsewhere(&["discard", "/job"]).refused(&["EBUSY"]);
    world.run(&["decouple", "/none", "batchfs"]).refused(&["ENOENT"]);
    world.run(&["decouple", "/job", "posix"]).refused(&["does not decouple"]);
    world.run(&["merge", "/job"]).done();
    world.run_elsewhere(&["decouple", "/job", "batchfs"]).done();
}

#[test]
fn the_policy_in_force_decouples_where_none_is_named() {
    let world = World::new();
    world.run(&["mkdir", "/job"]).done();
    world.run(&["decouple", "/job"]).refused(&["does not decouple"]);
    world.run(&["policy", "set", "/job", "deltafs"]).done();
    world.run(&["decouple", "/job"]).done();
    world.run(&["discard", "/job"]).done();
    world.await_released();
}

#[test]
fn a_discard_drops_the_unmerged_updates() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", "--policy", "deltafs", tree.to_str().unwrap(), "/in"]).done();
    let diff = world.run(&["diff", "/in"]).done();
    for words in ["/in/a/file.007", "/in/a/b/hard", "create", "link", "would do this"] {
        assert!(diff.out.contains(words), "{words} is not in {}", diff.out);
    }
    let planned = world.json(&["discard", "--dry-run", "/in"]);
    assert!(planned["events"].as_u64().unwrap() > 300);
    world.run(&["diff", "/in"]).done();
    world.run(&["discard", "/in"]).done();
    world.run(&["merge", "/in"]).refused(&["ENOENT"]);
    world.run(&["stat", "/in/a"]).refused(&["ENOENT"]);
    world.await_released();
}

#[test]
fn root_frees_the_subtree_of_a_dead_client() {
    let world = World::new();
    world.run(&["mkdir", "/job"]).done();
    world.run_elsewhere(&["decouple", "/job", "batchfs"]).done();
    world.run(&["discard", "/job"]).refused(&["EBUSY", "--force"]);
    let forced = world.run(&["discard", "--force", "/job"]);
    if rustix::process::getuid().is_root() {
        forced.done();
        world.run(&["decouple", "/job", "batchfs"]).done();
    } else {
        forced.refused(&["only root"]);
    }
}

#[test]
fn a_forced_discard_does_not_block_the_next_decoupling() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", "--policy", "deltafs", tree.to_str().unwrap(), "/in"]).done();
    world.run_elsewhere(&["discard", "--force", "/in"]).done();
    // The journal on this disk has numbers without an owner by now.
    world.run(&["decouple", "/in", "deltafs"]).done();
    world.run(&["merge", "/in"]).done();
    world.run(&["stat", "/in/a"]).refused(&["ENOENT"]);
}

#[test]
fn a_damaged_journal_is_not_merged() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", "--policy", "deltafs", tree.to_str().unwrap(), "/in"]).done();
    let journal = journal_of(&world);
    let mut bytes = fs::read(&journal).unwrap();
    bytes[100] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    let said = world.run(&["journal", "inspect", "--subtree", "/in"]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("DAMAGED"), "{}", said.out);
    world.run(&["merge", "/in"]).refused(&["EBADMSG"]);
    world.run(&["stat", "/in/a"]).refused(&["EBUSY"]);
    bytes[100] ^= 1;
    fs::write(&journal, &bytes).unwrap();
    world.run(&["merge", "/in"]).done();
    world.run(&["stat", "/in/a/file.000"]).done();
}

/// The one local journal.
pub(crate) fn journal_of(world: &World) -> std::path::PathBuf {
    let mut pending = vec![world.path("state/subtrees")];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with("journal.") {
                return entry.path();
            }
        }
    }
    panic!("there is no journal");
}
