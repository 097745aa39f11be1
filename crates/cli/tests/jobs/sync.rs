//! Namespace sync (U-03): other clients see a job's work grow, and each update once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudele::{Cluster, EntryName, Locator, NewFile, Policy, RenameFlags, Subtree};

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
        let from = EntryName::new(root, temporary.as_bytes());
        let to = EntryName::new(root, result.as_bytes());
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

#[test]
fn each_trigger_shows_the_work_when_it_says() {
    let world = World::new();
    let cluster = connect(&world);
    let fs = cluster.mount().unwrap();
    fs.make_dir("/job", 0o755).unwrap();
    let seen = || fs.open_dir("/job").unwrap().list().unwrap().len() as u64;
    let create = |subtree: &mut Subtree, names: std::ops::Range<u64>| {
        let root = subtree.root();
        for number in names {
            let name = format!("f{number:06}");
            subtree.create(root, name.as_bytes(), &NewFile::default()).unwrap();
        }
    };
    // When the client is done.
    let mut subtree = decouple(&cluster, "merge: at_end");
    create(&mut subtree, 0..3000);
    assert_eq!(seen(), 0);
    subtree.merge().unwrap();
    assert_eq!(seen(), 3000);
    subtree.forget().unwrap();
    // When there are so many updates, and not before.
    let mut subtree = decouple(&cluster, "merge: at 400 updates");
    create(&mut subtree, 3000..3390);
    assert_eq!(seen(), 3000);
    let mut next = 3390;
    while seen() == 3000 {
        create(&mut subtree, next..next + 1);
        next += 1;
        assert!(next < 100_000, "nobody sees anything");
    }
    assert!(next >= 3400, "{next} were enough");
    subtree.merge().unwrap();
    assert_eq!(seen(), next);
    subtree.forget().unwrap();
    // When nothing else is being merged: at once, again and again.
    let mut subtree = decouple(&cluster, "merge: idle");
    let before = seen();
    let made = work(&mut subtree, &|| seen() > before);
    subtree.merge().unwrap();
    assert_eq!(seen(), before + made);
}

#[test]
fn merges_that_are_asked_for_together_give_what_they_give_in_turn() {
    const CLIENTS: u64 = 4;
    const FILES: u64 = 2000;
    let world = World::new();
    let cluster = connect(&world);
    let start = std::sync::Barrier::new(usize::try_from(CLIENTS).unwrap());
    let job = &|number: u64| {
        let fs = cluster.mount().unwrap();
        let path = format!("/job{number}");
        fs.make_dir(&path, 0o755).unwrap();
        let text = "consistency: append_client_journal+volatile_apply\nallocated_inodes: 5000\n";
        let policy = Policy::parse(text).unwrap().policy;
        let mut subtree = fs.decouple(&path, &policy).unwrap();
        let root = subtree.root();
        let dir = subtree.create(root, b"dir", &NewFile::directory()).unwrap();
        for file in 0..FILES {
            let home = if file % 2 == 0 { root } else { dir };
            subtree.create(home, format!("f{file}").as_bytes(), &NewFile::default()).unwrap();
        }
        subtree.unlink(root, b"f0").unwrap();
        start.wait();
        let report = subtree.merge().unwrap().merge.unwrap();
        assert_eq!((report.replaced, report.rejected), (0, 0), "{path}");
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || job(number))).collect();
        jobs.into_iter().for_each(|job| job.join().unwrap());
    });
    for number in 0..CLIENTS {
        let size = |path: String| world.json(&["stat", &path])["size"].as_u64().unwrap();
        assert_eq!(size(format!("/job{number}")), FILES / 2, "one went, and a directory came");
        assert_eq!(size(format!("/job{number}/dir")), FILES / 2);
    }
}
