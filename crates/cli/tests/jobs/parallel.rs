//! Compositions with `||` (P-10): members really run at the same time, and all of them count.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cudele::{AttrChange, Cluster, Locator, Mechanism, NewFile, Policy, Stage};

use crate::fixture::{World, make_tree};

const POLICY: &str = "consistency: append_client_journal\n\
                      durability: local_persist || global_persist\n\
                      allocated_inodes: 1000\n";

#[test]
fn members_run_at_the_same_time() {
    let world = World::new();
    let cluster = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap();
    let client = cluster.mount().unwrap();
    client.make_dir("/job", 0o755).unwrap();
    let mut policy = Policy::parse(POLICY).unwrap().policy;
    policy.durability = policy::Composition::parse("global_persist || global_persist").unwrap();
    let mut subtree = client.decouple("/job", &policy).unwrap();
    // Each member waits for the other to begin: one after the other they would wait in vain.
    let begun = Arc::new((Mutex::new(0), Condvar::new()));
    let met = Arc::new(Mutex::new(0));
    let (count, meetings) = (begun, met.clone());
    client.observe(Arc::new(move |progress| {
        if progress.mechanism != Mechanism::GlobalPersist || progress.stage != Stage::Begun {
            return;
        }
        let mut known = count.0.lock().unwrap();
        *known += 1;
        count.1.notify_all();
        let both = Duration::from_secs(20);
        let (known, _) = count.1.wait_timeout_while(known, both, |known| *known < 2).unwrap();
        *meetings.lock().unwrap() += usize::from(*known >= 2);
    }));
    let root = subtree.root();
    subtree.create(root, b"file", &NewFile::default()).unwrap();
    subtree.complete().unwrap();
    assert_eq!(*met.lock().unwrap(), 2);
    subtree.discard().unwrap();
}

#[test]
fn one_that_fails_keeps_the_whole_from_being_complete() {
    let world = World::new();
    let (policy, tree) = (world.path("job.yml"), world.path("tree"));
    fs::write(&policy, POLICY).unwrap();
    make_tree(&tree);
    world.run(&["policy", "check", policy.to_str().unwrap()]).done();
    // Where the state of subtrees should be is a file: nothing can be persisted locally.
    fs::write(world.path("state/subtrees"), b"in the way").unwrap();
    let arguments = ["ingest", "--policy", policy.to_str().unwrap(), tree.to_str().unwrap(), "/in"];
    world.run(&arguments).refused(&[]);
    fs::remove_file(world.path("state/subtrees")).unwrap();
    world.run(&["stat", "/in/a"]).refused(&["ENOENT"]);
    let names = |path: &str| -> BTreeSet<String> {
        world.run(&["find", path]).out.lines().map(str::to_owned).collect()
    };
    assert!(names("/in").len() <= 1, "nothing of it is visible");
    let again = ["ingest", "--policy", policy.to_str().unwrap(), tree.to_str().unwrap(), "/again"];
    world.run(&again).done();
    world.run(&["merge", "/again"]).done();
    assert!(names("/again").len() > 300);
}

/// Without a free thread, the caller does the threads' work itself.
#[test]
fn parallel_work_succeeds_without_free_threads() {
    const USER: u32 = 47_113;
    let world = World::new();
    let cluster = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap();
    let client = cluster.mount().unwrap();
    client.make_dir("/theirs", 0o777).unwrap();
    let to_user = AttrChange { mode: Some(0o777), ..AttrChange::default() };
    client.set_attr(client.stat("/theirs").unwrap().ino, &to_user).unwrap();
    let (policy, tree) = (world.path("job.yml"), world.path("tree"));
    fs::write(&policy, POLICY).unwrap();
    fs::create_dir(&tree).unwrap();
    // Of several objects, which are synced at the same time.
    fs::write(tree.join("large"), vec![7; 20 << 20]).unwrap();
    let [policy, tree] = [&policy, &tree].map(|path| path.to_str().unwrap());
    let job = ["ingest", "--policy", policy, tree, "/theirs/job"];
    let Some(said) = world.run_alone_as(USER, &job) else { return };
    said.done();
    world.run_as(USER, &["merge", "/theirs/job"]).unwrap().done();
    let copy = ["cp", &format!("local:{tree}/large"), "/theirs/copy"];
    world.run_alone_as(USER, &copy).unwrap().done();
    for path in ["/theirs/job/large", "/theirs/copy"] {
        assert_eq!(client.stat(path).unwrap().size, 20 << 20, "{path}");
    }
}

#[test]
fn a_failure_says_what_holds_all_the_same() {
    let world = World::new();
    let cluster = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap();
    let client = cluster.mount().unwrap();
    client.make_dir("/job", 0o755).unwrap();
    let policy = policy::policy_named("weak-global").unwrap();
    let mut subtree = client.decouple("/job", &policy).unwrap();
    let root = subtree.root();
    subtree.create(root, b"file", &NewFile::default()).unwrap();
    // Another process gives the subtree up for this client: the journal is stored, and cannot be
    // merged.
    client.release(root).unwrap();
    let error = subtree.complete().unwrap_err();
    for words in ["volatile_apply did not complete", "what holds", "invisible-global"] {
        assert!(error.cause.contains(words), "{words} is not in {}", error.cause);
    }
}
