//! The first steps of most tests.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{Cluster, Fs, Ino, Locator, NewFile, Policy, Subtree};
use rustix::process::Pid;

use crate::fixture::World;

/// Waits for a condition that other processes bring about.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A client in this process.
pub(crate) fn mount(world: &World) -> Arc<Fs> {
    Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap().mount().unwrap()
}

/// A subtree of this process's own, under a policy that leaves nothing on this machine's disk: its
/// user's state directory is not the test's.
pub(crate) fn decouple(fs: &Arc<Fs>, path: &str, policy: &str) -> Subtree {
    fs.make_dir(path, 0o755).unwrap();
    let policy = Policy::from_name_or_text(policy).unwrap().policy;
    assert!(!policy.persists());
    fs.decouple(path, &policy).unwrap()
}

/// Appends empty files to the root of a subtree.
pub(crate) fn append(subtree: &mut Subtree, names: &[&str]) -> Vec<Ino> {
    let root = subtree.root();
    let create = |name: &&str| subtree.create(root, name.as_bytes(), &NewFile::default()).unwrap();
    names.iter().map(create).collect()
}

/// The names that a user on another machine sees in a directory.
#[track_caller]
pub(crate) fn seen(world: &World, path: &str) -> Vec<String> {
    let said = world.run_elsewhere(&["ls", path]).done();
    said.out.lines().map(str::to_owned).collect()
}

/// The names in the tree that [`ingest`] brings in.
pub(crate) const TREE: [&str; 3] = ["a", "b", "c"];

/// A small tree on the local disk.
pub(crate) fn tree(world: &World) -> PathBuf {
    let tree = world.path("tree");
    fs::create_dir_all(&tree).unwrap();
    for name in TREE {
        fs::write(tree.join(name), name).unwrap();
    }
    tree
}

/// Starts a command that takes its time.
pub(crate) fn start(world: &World, arguments: &[&str], input: Stdio) -> Child {
    world.command(arguments).stdin(input).stdout(Stdio::null()).spawn().unwrap()
}

/// The process that is the metadata server.
pub(crate) fn server(world: &World) -> Pid {
    let pid = world.json(&["status"])["mds"][0]["pid"].as_i64().unwrap();
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Brings a small tree in: a process that decouples, appends, completes the policy and ends.
pub(crate) fn ingest(world: &World, policy: &str, path: &str) {
    let tree = tree(world);
    world.run(&["ingest", "--policy", policy, tree.to_str().unwrap(), path]).done();
}

/// A policy file with this text. Returns its path.
pub(crate) fn policy_file(world: &World, text: &str) -> String {
    let path = world.path("job.yml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The cell of the policy in force.
pub(crate) fn cell(world: &World, path: &str) -> String {
    world.json(&["policy", "get", path])["cell"].as_str().unwrap().to_owned()
}

/// The machine that has decoupled something and its disk are gone.
pub(crate) fn lose_the_client(world: &World) {
    fs::rename(world.path("state"), world.path("lost")).unwrap();
}

/// The journals of clients that the store has.
pub(crate) fn journal_objects(world: &World) -> Vec<String> {
    world.store().list("journal/client/").unwrap()
}

/// Nothing can be put where the store keeps the journals of clients, as long as this lives.
pub(crate) struct FullStore(PathBuf);

impl FullStore {
    pub(crate) fn new(world: &World) -> Self {
        let place = world.path("c/store/objects/journal%/client%");
        assert!(!place.exists(), "there is a journal");
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, b"in the way").unwrap();
        Self(place)
    }
}

impl Drop for FullStore {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
