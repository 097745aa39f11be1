//! Namespace sync (U-03): others see a job's work grow, and each update once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudele::{Cluster, Locator, NewFile, Policy, RenameFlags, Subtree};

use crate::fixture::{World, make_tree};

const INTERVAL: Duration = Duration::from_millis(20);

fn connect(world: &World) -> Arc<Cluster> {
    Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap()
}

fn decouple(cluster: &Arc<Cluster>, extra: &str) -> Subtree {
    let fs = cluster.mount().unwrap();
    fs.make_dir("/job", 0o755).unwrap();
    let text = format!("consistency: append_client_journal+volatile_apply\n{extra}");
    let policy = Policy::parse(&text).unwrap().policy;
    fs.decouple("/job", &policy).unwrap()
}

/// Lists the job's directory again and again; hands every listing to a check, and the number of
/// different listings back.
fn observe(
    cluster: Arc<Cluster>,
    end: Arc<AtomicBool>,
    mut check: impl FnMut(&BTreeSet<String>) + Send + 'static,
) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let fs = cluster.mount().unwrap();
        let dir = fs.open_dir("/job").unwrap();
        let mut sizes = BTreeSet::new();
        while !end.load(Ordering::Acquire) {
            let names = dir.list().unwrap().into_iter();
            let names = names.map(|entry| String::from_utf8(entry.name).unwrap()).collect();
            check(&names);
            sizes.insert(names.len());
        }
        sizes.len()
    })
}

/// Appends until at least so many parts were merged, as far as the observer can tell.
fn work(subtree: &mut Subtree, merged: &dyn Fn() -> bool) -> u64 {
    let (root, mut files) = (subtree.root(), 0);
    while !merged() {
        for _ in 0..64 {
            let name = format!("f{files}");
            subtree.create(root, name.as_bytes(), &NewFile::default()).unwrap();
            files += 1;
        }
        // The pace of a job that also computes.
        std::thread::sleep(Duration::from_micros(500));
    }
    files
}

#[test]
fn an_observer_sees_the_work_grow_and_nothing_twice() {
    let world = World::new();
    let cluster = connect(&world);
    let mut subtree = decouple(&cluster, "durability: none");
    subtree.sync_every(INTERVAL).unwrap();
    let (end, grown) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut before = BTreeSet::new();
    let mut steps = 0;
    let seen = grown.clone();
    let observer = observe(cluster, end.clone(), move |names| {
        assert!(before.is_subset(names), "something that was there is gone");
        steps += usize::from(names.len() > before.len());
        before.clone_from(names);
        seen.store(steps >= 5, Ordering::Release);
    });
    let files = work(&mut subtree, &|| grown.load(Ordering::Acquire));
    let done = subtree.merge().unwrap();
    end.store(true, Ordering::Release);
    observer.join().unwrap();
    let report = done.merge.unwrap();
    assert_eq!((report.events, report.created), (files, files));
    assert_eq!((report.replaced, report.rejected), (0, 0));
    assert_eq!(world.json(&["stat", "/job"])["size"], files);
}

#[test]
fn results_are_complete_when_done_is_there() {
    let world = World::new();
    let cluster = connect(&world);
    let mut subtree = decouple(&cluster, "durability: none");
    subtree.sync_every(INTERVAL).unwrap();
    let end = Arc::new(AtomicBool::new(false));
    const RESULTS: u64 = 2_000;
    let observer = observe(cluster, end.clone(), |names| {
        let results = names.iter().filter(|name| name.starts_with("out.")).count();
        assert!(!names.contains("DONE") || results as u64 == RESULTS, "DONE, and {results}");
    });
    let root = subtree.root();
    for number in 0..RESULTS {
        let (temporary, result) = (format!("tmp.{number}"), format!("out.{number}"));
        subtree.create(root, temporary.as_bytes(), &NewFile::default()).unwrap();
        let (from, to) = ((root, temporary.as_bytes()), (root, result.as_bytes()));
        subtree.rename(from, to, RenameFlags::default()).unwrap();
    }
    subtree.create(root, b"DONE", &NewFile::default()).unwrap();
    subtree.merge().unwrap();
    end.store(true, Ordering::Release);
    observer.join().unwrap();
    assert_eq!(world.json(&["stat", "/job"])["size"], RESULTS + 1);
}

#[test]
fn a_crash_of_the_server_between_parts_loses_nothing_that_is_kept() {
    let world = World::new();
    let cluster = connect(&world);
    let mut subtree = decouple(&cluster, "durability: global_persist\nmerge: at 500 updates");
    let root = subtree.root();
    for number in 0..5_000 {
        if number == 2_500 {
            world.crash();
        }
        let name = format!("f{number}");
        subtree.create(root, name.as_bytes(), &NewFile::default()).unwrap();
    }
    subtree.merge().unwrap();
    world.crash();
    assert_eq!(world.json(&["stat", "/job"])["size"], 5_000);
}

#[test]
fn syncing_keeps_the_subtree() {
    let world = World::new();
    make_tree(&world.path("tree"));
    let tree = world.path("tree");
    let tree = tree.to_str().unwrap();
    world.run(&["ingest", "--policy", "invisible-local", tree, "/in"]).done();
    world.run(&["stat", "/in/a"]).refused(&["ENOENT"]);
    let said = world.json(&["sync", "/in"]);
    assert!(said["created"].as_u64().unwrap() > 300, "{said}");
    world.run(&["stat", "/in/a/file.007"]).done();
    world.run_elsewhere(&["decouple", "/in", "batchfs"]).refused(&["EBUSY"]);
    world.run(&["merge", "/in"]).done();
    world.run_elsewhere(&["decouple", "/in", "batchfs"]).done();
}
