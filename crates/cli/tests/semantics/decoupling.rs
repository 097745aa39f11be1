//! Subtrees that belong to one client, and the inode numbers that it gets with them.

use std::collections::BTreeSet;

use cudele::{Errno, NewFile};
use serde_json::Value;

use crate::fixture::World;
use crate::tools::{TREE, append, decouple, eventually, ingest, mount, seen, tree};

/// The first number and the one behind the last, of every range that a client got.
fn ranges(owner: &Value) -> Vec<(u64, u64)> {
    serde_json::from_value(owner["inodes"].clone()).unwrap()
}

#[test]
fn appending_asks_nobody() {
    let world = World::new();
    let fs = mount(&world);
    world.run(&["mkdir", "-p", "/job/exists"]).done();
    let policy = "consistency: append_client_journal\nallocated_inodes: \"10000\"";
    let mut job = decouple(&fs, "/job", policy);
    let (root, before) = (job.root(), fs.requests());
    append(&mut job, &["exists", "twice", "twice"]);
    for number in 0..5_000 {
        job.create(root, format!("f{number}").as_bytes(), &NewFile::default()).unwrap();
    }
    assert_eq!(fs.requests(), before);
    job.merge().unwrap();
    assert_eq!(seen(&world, "/job").len(), 5_002);
}

#[test]
fn a_client_gets_a_hundred_inodes_unless_the_policy_says_otherwise() {
    let world = World::new();
    world.run(&["mkdir", "/hundred", "/many"]).done();
    for (path, policy, count) in
        [("/hundred", "invisible-local", 100), ("/many", "batchfs", 100_000)]
    {
        let owner = world.json(&["decouple", path, policy]);
        let [(start, end)] = ranges(&owner)[..] else { panic!("{owner}") };
        assert_eq!(end - start, count);
    }
}

#[test]
fn what_is_used_up_is_extended_without_a_word() {
    let world = World::new();
    let fs = mount(&world);
    let mut job = decouple(&fs, "/job", "invisible-none");
    let names: Vec<_> = (0..2_500).map(|number| format!("f{number}")).collect();
    let before = fs.requests();
    let inos = append(&mut job, &names.iter().map(String::as_str).collect::<Vec<_>>());
    assert!((1..5).contains(&(fs.requests() - before)));
    assert_eq!(inos.iter().collect::<BTreeSet<_>>().len(), 2_500);
    let report = job.merge().unwrap().merge.unwrap();
    assert_eq!((report.created, report.rejected), (2_500, 0));
}

#[test]
fn a_hard_limit_ends_with_edquot() {
    let world = World::new();
    let fs = mount(&world);
    let policy = "consistency: append_client_journal\nallocated_inodes: 3\nlimit: hard";
    let mut job = decouple(&fs, "/job", policy);
    append(&mut job, &["a", "b", "c"]);
    let refused = job.create(job.root(), b"d", &NewFile::default()).unwrap_err();
    assert_eq!(refused.errno, Errno::Quota, "{refused}");
    job.merge().unwrap();
    assert_eq!(seen(&world, "/job"), ["a", "b", "c"]);
}

#[test]
fn numbers_are_durable_before_they_are_given() {
    let world = World::new();
    let fs = mount(&world);
    let mut job = decouple(&fs, "/job", "invisible-none");
    world.crash();
    world.run(&["mkdir", "-p", "/1/2/3/4/5/6/7/8"]).done();
    world.run(&["ingest", tree(&world).to_str().unwrap(), "/copy"]).done();
    // They are this client's still, and nobody else has used them.
    let inos = append(&mut job, &["a", "b"]);
    if job.merge().is_err() {
        // The first attempt may find that the connection is gone.
        job.merge().unwrap();
    }
    let mut others = BTreeSet::new();
    for path in ["/1", "/1/2", "/1/2/3/4/5/6/7/8", "/copy/a", "/copy/b"] {
        others.insert(world.json(&["stat", path])["ino"].as_u64().unwrap());
    }
    for (name, ino) in ["/job/a", "/job/b"].into_iter().zip(inos) {
        assert_eq!(world.json(&["stat", name])["ino"], ino.0);
        assert!(!others.contains(&ino.0));
    }
}

#[test]
fn numbers_are_never_given_twice() {
    let world = World::new();
    world.run(&["mkdir", "/job"]).done();
    let mut given = Vec::new();
    let mut decouple = || {
        given.extend(ranges(&world.json(&["decouple", "/job", "invisible-local"])));
        let mut sorted = given.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{sorted:?}");
    };
    decouple();
    world.run(&["discard", "/job"]).done();
    decouple();
    world.run(&["merge", "/job"]).done();
    world.crash();
    decouple();
    world.crash();
    world.run(&["discard", "/job"]).done();
    decouple();
    world.run(&["down"]).done();
    world.run(&["up"]).done();
    world.run(&["merge", "/job"]).done();
    decouple();
    // Of all these none was used: they are skipped.
    world.run(&["mkdir", "/new"]).done();
    let new = world.json(&["stat", "/new"])["ino"].as_u64().unwrap();
    assert!(given.iter().all(|(start, end)| !(*start..*end).contains(&new)));
}

#[test]
fn a_subtree_stays_its_clients_through_crashes_and_renames() {
    let world = World::new();
    ingest(&world, "invisible-local", "/a");
    world.crash();
    world.run(&["mv", "/a", "/b"]).done();
    world.run_elsewhere(&["decouple", "/b", "batchfs"]).refused(&["EBUSY"]);
    world.run(&["down"]).done();
    world.run(&["up"]).done();
    world.run_elsewhere(&["decouple", "/b", "batchfs"]).refused(&["EBUSY"]);
    let held = || world.json(&["status"])["decoupled"][0]["path"] == "/b";
    eventually("the monitor has heard of it", held);
    world.run(&["merge", "/b"]).done();
    assert_eq!(seen(&world, "/b"), TREE);
}
