use std::fs;

use serde_json::json;

use crate::fixture::{World, make_tree};
use crate::subtrees::journal_of;

#[test]
fn journals_are_shown_and_filtered_also_without_a_cluster() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", tree.to_str().unwrap(), "/in"]).done();
    let matching = |filter: &[&str]| -> u64 {
        let told = world.json(&[&["journal", "inspect"], filter].concat());
        told.as_array().unwrap().iter().map(|one| one["matching"].as_u64().unwrap()).sum()
    };
    // In the order of names `a/b/hard` comes first, and `a/file.000` is a link to it.
    assert_eq!(matching(&["--mds", "--type", "create", "--name", "file.*"]), 299);
    assert_eq!(matching(&["--type", "link"]), 2);
    assert_eq!(matching(&["--type", "link", "--name", "hard*"]), 1);
    assert_eq!(matching(&["--type", "unlink"]), 0);
    let list = world.run(&["journal", "inspect", "--output", "list", "--path", "/in/a/b"]).done();
    assert!(list.out.contains("/in/a/b/limit"), "{}", list.out);
    assert!(!list.out.contains("/in/a/file.000"), "{}", list.out);
    world.run(&["journal", "inspect", "--type", "nonsense"]).refused(&["nonsense"]);
    world.run(&["down"]).done();
    world.run(&["journal", "inspect", "--mds"]).done();
}

#[test]
fn any_damage_of_a_journal_file_is_found() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    world.run(&["ingest", "--policy", "deltafs", tree.to_str().unwrap(), "/in"]).done();
    let journal = journal_of(&world);
    let whole = fs::read(&journal).unwrap();
    let copy = world.path("copy");
    let inspect = |bytes: &[u8]| {
        fs::write(&copy, bytes).unwrap();
        world.run(&["journal", "inspect", "--output", "json", copy.to_str().unwrap()])
    };
    inspect(&whole).done();
    for keep in [0, 10, 52, 60, whole.len() / 2, whole.len() - 1] {
        let said = inspect(&whole[..keep]);
        // A header alone is a journal without events.
        assert_eq!(said.ok, keep == 52, "{keep}: {} {}", said.out, said.err);
    }
    for at in [0, 9, 50, 70, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x20;
        let said = inspect(&bytes);
        assert_eq!(said.code, 1, "{at}: {}", said.err);
        let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(value[0]["damaged"], json!(true));
    }
}
