//! The nine cells of the table: what other clients see, and which failures the work survives.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::fixture::World;
use crate::tools::{
    TREE, append, decouple, eventually, ingest, journal_objects, lose_the_client, mount, seen,
    start,
};

const NOTHING: [&str; 0] = [];

#[test]
fn invisible_and_none_is_kept_by_its_client_alone() {
    let world = World::new();
    let fs = mount(&world);
    let mut job = decouple(&fs, "/job", "invisible-none");
    append(&mut job, &TREE);
    job.complete().unwrap();
    assert_eq!(seen(&world, "/job"), NOTHING);
    world.crash();
    assert_eq!(seen(&world, "/job"), NOTHING);
    // The server does not keep it.
    if job.merge().is_err() {
        // The first attempt may find that the connection is gone.
        job.merge().unwrap();
    }
    assert_eq!(seen(&world, "/job"), TREE);

    // A process that ends takes it away, and leaves nothing.
    ingest(&world, "invisible-none", "/gone");
    assert_eq!(seen(&world, "/"), ["job"]);
    assert_eq!(journal_objects(&world), NOTHING);
    assert!(!world.path("state/subtrees").exists(), "nothing is kept on this machine");
}

#[test]
fn invisible_and_local_is_kept_by_its_clients_disk() {
    let world = World::new();
    ingest(&world, "invisible-local", "/job");
    ingest(&world, "invisible-local", "/lost");
    assert_eq!(seen(&world, "/job"), NOTHING);
    assert_eq!(journal_objects(&world), NOTHING);
    world.crash();
    // The process that made it has ended.
    world.run(&["merge", "/job"]).done();
    assert_eq!(seen(&world, "/job"), TREE);
    lose_the_client(&world);
    world.run(&["recover", "/lost"]).refused(&["ENOENT", "left no journal"]);
    assert_eq!(seen(&world, "/lost"), NOTHING);
}

#[test]
fn invisible_and_global_is_kept_by_the_store() {
    let world = World::new();
    ingest(&world, "invisible-global", "/job");
    assert_eq!(seen(&world, "/job"), NOTHING);
    lose_the_client(&world);
    world.crash();
    assert_eq!(seen(&world, "/job"), NOTHING);
    world.run(&["recover", "/job"]).done();
    world.run(&["merge", "/job"]).done();
    assert_eq!(seen(&world, "/job"), TREE);
}

#[test]
fn weak_and_none_is_seen_when_it_is_merged_and_lost_with_the_server() {
    let world = World::new();
    ingest(&world, "weak-none", "/job");
    assert_eq!(seen(&world, "/job"), TREE);
    assert_eq!(journal_objects(&world), NOTHING);
    world.crash();
    assert_eq!(seen(&world, "/job"), NOTHING);
}

#[test]
fn weak_and_local_is_merged_again_from_its_clients_disk() {
    let world = World::new();
    ingest(&world, "weak-local", "/job");
    assert_eq!(seen(&world, "/job"), TREE);
    world.crash();
    assert_eq!(seen(&world, "/job"), NOTHING);
    // Any next command of the same user on that machine.
    world.run(&["stat", "/"]).done();
    assert_eq!(seen(&world, "/job"), TREE);
    lose_the_client(&world);
    assert_eq!(seen(&world, "/job"), TREE);
}

#[test]
fn weak_and_global_is_merged_again_by_the_server() {
    let world = World::new();
    ingest(&world, "weak-global", "/job");
    assert_eq!(seen(&world, "/job"), TREE);
    lose_the_client(&world);
    world.crash();
    assert_eq!(seen(&world, "/job"), TREE);
}

#[test]
fn strong_and_none_is_seen_at_once_and_lost_with_the_server() {
    let world = World::new();
    world.run(&["mkdir", "/dir"]).done();
    world.run(&["policy", "set", "/dir", "strong-none"]).done();
    world.run(&["mkdir", "/dir/sub"]).done();
    // The client that made it has ended.
    assert_eq!(seen(&world, "/dir"), ["sub"]);
    world.crash();
    assert_eq!(seen(&world, "/dir"), NOTHING);
}

/// A tar archive of empty files without its end.
fn entries(names: std::ops::Range<u32>) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for number in names {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        archive.append_data(&mut header, format!("f{number:03}"), &b""[..]).unwrap();
    }
    archive.get_ref().clone()
}

#[test]
fn strong_and_local_is_seen_at_once_and_replayed_by_its_client() {
    let world = World::new();
    let policy = ["ingest", "--policy", "strong-local", "-", "/dir"];
    let mut client = start(&world, &policy, Stdio::piped());
    let mut input = client.stdin.take().unwrap();
    input.write_all(&entries(0..200)).unwrap();
    eventually("others see what the client does", || {
        let listed = world.run_elsewhere(&["ls", "/dir"]);
        listed.ok && listed.out.lines().count() >= 100
    });
    world.crash();
    input.write_all(&entries(200..300)).unwrap();
    input.write_all(&[0; 1024]).unwrap();
    drop(input);
    assert!(client.wait().unwrap().success());
    let names: Vec<_> = (0..300).map(|number| format!("f{number:03}")).collect();
    assert_eq!(seen(&world, "/dir"), names);
    assert!(fs::read_dir(world.path("state")).unwrap().next().is_some(), "the log is on its disk");
}

#[test]
fn strong_and_global_is_seen_at_once_and_kept() {
    let world = World::new();
    ingest(&world, "strong-global", "/dir");
    assert_eq!(seen(&world, "/dir"), TREE);
    lose_the_client(&world);
    world.crash();
    assert_eq!(seen(&world, "/dir"), TREE);
}
