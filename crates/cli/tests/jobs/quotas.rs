//! Quotas and decoupled subtrees.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::World;

const POLICY: &str = "consistency: append_client_journal+volatile_apply\n\
                      durability: local_persist\n";

/// `/users` with room for 100 inodes, and a directory for jobs in it.
fn world() -> World {
    let world = World::new();
    world.run(&["mkdir", "-p", "/users/job"]).done();
    world.run(&["quota", "set", "/users", "--inodes", "100"]).done();
    world
}

/// A policy file.
fn policy(world: &World, keys: &str) -> String {
    let path = world.path("policy.yaml");
    fs::write(&path, format!("{POLICY}{keys}")).unwrap();
    path.to_str().unwrap().to_owned()
}

fn quota(world: &World) -> Value {
    world.json(&["quota", "get", "/users"])["quotas"][0].clone()
}

/// A client with a decoupled subtree, and files in it that are not merged yet.
fn fill(world: &World, policy: &str, files: usize) -> cudele::Subtree {
    let monitor = cudele::Locator::monitor_of(&world.path("c"));
    let fs = cudele::Cluster::connect(&monitor).unwrap().mount().unwrap();
    let text = fs::read_to_string(policy).unwrap();
    let mut subtree =
        fs.decouple("/users/job", &cudele::Policy::parse(&text).unwrap().policy).unwrap();
    let root = subtree.root();
    for number in 0..files {
        subtree.create(root, format!("f{number}").as_bytes(), &cudele::NewFile::default()).unwrap();
    }
    subtree
}

#[test]
fn a_decoupled_subtree_pays_for_its_inodes_in_advance() {
    let world = world();
    let said = world.run(&["decouple", "/users/job", "batchfs"]);
    said.refused(&["EDQUOT", "/users", "allocated_inodes"]);
    let allowed = policy(&world, "allocated_inodes: 90\nlimit: hard\n");
    let mut subtree = fill(&world, &allowed, 90);
    let root = subtree.root();
    let error = subtree.create(root, b"f90", &cudele::NewFile::default()).unwrap_err();
    assert_eq!(error.errno, cudele::Errno::Quota, "its numbers are used up");
    assert_eq!(quota(&world)["reserved_inodes"], json!(90));
    for number in 0..9 {
        world.run(&["mkdir", &format!("/users/d{number}")]).done();
    }
    world.run(&["mkdir", "/users/d9"]).refused(&["EDQUOT"]);
    world.crash();
    // The next server knows what is reserved.
    world.run(&["stat", "/users"]).done();
    world.run(&["mkdir", "/users/d9"]).refused(&["EDQUOT"]);
    // The first attempt meets the connection to the killed server.
    let _ = subtree.merge().or_else(|_| subtree.merge()).unwrap();
    world.await_released();
    let told = quota(&world);
    assert_eq!((&told["inodes"]["used"], &told["reserved_inodes"]), (&json!(100), &json!(0)));
    assert_eq!(world.run(&["ls", "/users/job"]).done().out.lines().count(), 90);
}
