//! Subtrees that belong to one client, and the inode numbers that it gets with them.

use std::collections::BTreeSet;

use cudele::{Errno, Ino, NewFile};
use serde_json::Value;

use crate::fixture::World;
use crate::tools::{TREE, append, decouple, eventually, ingest, mount, policy_file, seen, tree};

/// The first number and the one behind the last, of every range that a client got.
fn ranges(owner: &Value) -> Vec<(u64, u64)> {
    serde_json::from_value(owner["inodes"].clone()).unwrap()
}

#[test]
fn an_append_sends_no_request() {
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
fn a_used_up_inode_range_is_extended_automatically() {
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
    // They are this client's still, and no other client has used them.
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
    let mut used = BTreeSet::new();
    let mut note = |inos: Vec<Ino>| {
        for ino in inos {
            assert!(used.insert(ino), "{ino} names two files");
        }
    };
    for round in 0..6 {
        let fs = mount(&world);
        let mut job = decouple(&fs, "/job", "invisible-none");
        note(append(&mut job, &["a", "b", "c"]));
        match round {
            0 | 3 => job.discard().unwrap(),
            1 => world.crash(),
            2 | 4 => drop(job.merge().unwrap()),
            _ => {
                job.complete().unwrap();
                world.run(&["down"]).done();
                world.run(&["up"]).done();
            }
        }
        // No client continues the interrupted job.
        if matches!(round, 1 | 5) {
            world.run(&["discard", "--force", "/job"]).done();
        }
        world.run(&["mkdir", &format!("/new{round}")]).done();
        note(vec![ino(&world, &format!("/new{round}"))]);
    }
}

fn ino(world: &World, path: &str) -> Ino {
    Ino(world.json(&["stat", path])["ino"].as_u64().unwrap())
}

#[test]
fn numbers_that_were_not_used_are_given_again() {
    let world = World::new();
    let given = |path: &str, policy: &str| {
        world.run(&["mkdir", "-p", path]).done();
        let [range] = ranges(&world.json(&["decouple", path, policy]))[..] else {
            panic!("{path}")
        };
        range
    };
    let fs = mount(&world);
    let mut job = decouple(&fs, "/one", "invisible-none");
    let held = given("/held", "invisible-none");
    let last = append(&mut job, &["a", "b"])[1].0;
    job.merge().unwrap();
    // Every later client may have them, also after a crash.
    world.crash();
    let few = "consistency: append_client_journal\nallocated_inodes: 50";
    let few = policy_file(&world, few);
    assert_eq!(given("/two", &few), (last + 1, last + 51));
    world.run(&["discard", "/two"]).done();
    // The first is kept: there may be journals by that name.
    assert_eq!(given("/three", &few).0, last + 2);
    assert!(given("/more", "invisible-none").0 >= held.1, "so many in a row did not come back");
    // A process that continues another one's work knows as much.
    let four = given("/four", &few);
    world.run(&["merge", "/four"]).done();
    let five = given("/five", &few);
    assert_eq!(five, (four.0 + 1, four.1 + 1));
    // Root does not know which numbers the former client used.
    world.run_elsewhere(&["discard", "--force", "/five"]).done();
    assert!(given("/six", &few).0 >= five.1);
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
