//! A merge of which its client hears that it failed, and that the server carries out all the same.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudele::{Cluster, Locator, NewFile, Policy, Subtree};

use crate::fixture::World;

/// Where the monitor is; its presence makes this process the client.
const MON: &str = "CUDELE_SEALED_MON";

/// Waits for the parent's word.
fn wait_at(place: &str) {
    println!("@{place}");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
}

fn append(subtree: &mut Subtree, names: &[&str]) {
    for name in names {
        subtree.create(subtree.root(), name.as_bytes(), &NewFile::default()).unwrap();
    }
}

/// Not a test of its own: the client process runs it.
#[test]
fn the_client() {
    let Ok(mon) = std::env::var(MON) else { return };
    println!(); // The test runner may have begun a line.
    let fs = Cluster::connect(&mon.parse().unwrap()).unwrap().mount().unwrap();
    fs.make_dir("/job", 0o755).unwrap();
    let policy = Policy::from_name_or_text("weak-global").unwrap().policy;
    // As after a lost answer: the later state has the numbers of the second one.
    drop(fs.decouple("/job", &policy).unwrap());
    let mut job = fs.decouple("/job", &policy).unwrap();
    append(&mut job, &["a", "b"]);
    let first = AtomicBool::new(true);
    fs.observe(Arc::new(move |progress| {
        if progress.to_string() == "global_persist:ended" && first.swap(false, Ordering::Relaxed) {
            wait_at("persisted");
        }
    }));
    let error = job.complete().unwrap_err();
    assert!(error.cause.contains("volatile_apply"), "{error}");
    assert_eq!((job.pending_events(), job.is_visible_now()), (2, false));
    wait_at("failed");
    append(&mut job, &["c", "d"]);
    assert_eq!(job.pending_events(), 4);
    job.persist().unwrap();
    assert_eq!(job.pending_events(), 4);
    wait_at("kept");
    job.complete().unwrap();
    assert_eq!((job.pending_events(), job.is_visible_now()), (0, true));
    job.merge().unwrap();
    job.forget().unwrap();
    println!("@done");
}

/// The client, and its output.
struct Client {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Client {
    fn start(world: &World) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["sealed::the_client", "--exact", "--nocapture"]);
        command.env("CUDELE_STATE", world.path("state")).env("HOME", world.path("home"));
        command.env(MON, Locator::monitor_of(&world.path("c")).to_string());
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program");
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Reads until it is at a place.
    fn at(&mut self, place: &str) {
        let mut line = String::new();
        while line.trim_end() != format!("@{place}") {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended before {place}");
        }
    }

    fn go_on(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The server's next segment cannot be put as long as this lives.
struct InTheWay(Vec<PathBuf>);

impl InTheWay {
    fn new(world: &World) -> Self {
        let names = world.store().list("journal/mds.0000/").unwrap();
        let last = names.last().and_then(|name| name.rsplit('/').next()).unwrap();
        let last = u64::from_str_radix(last, 16).unwrap();
        let place = world.path("c/store/objects/journal%/mds.0000%");
        let all: Vec<_> =
            (last + 1..last + 100).map(|index| place.join(format!("{index:016x}"))).collect();
        all.iter().for_each(|path| fs::create_dir(path).unwrap());
        Self(all)
    }
}

impl Drop for InTheWay {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(120), "not within two minutes: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A client with a failed merge that has appended and persisted more since; the server has merged,
/// stored and deleted its first journal object.
fn after_a_failed_merge(world: &World) -> Client {
    let mut client = Client::start(world);
    client.at("persisted");
    let in_the_way = InTheWay::new(world);
    client.go_on();
    client.at("failed");
    drop(in_the_way);
    eventually("the server has its journal", || world.run(&["mkdir", "/works"]).ok);
    // The next server knows from its journal that the merge is done.
    world.crash();
    client.go_on();
    client.at("kept");
    let mount = Cluster::connect(&Locator::monitor_of(&world.path("c"))).unwrap().mount().unwrap();
    let mut others = 0;
    eventually("the server deletes what it has stored", || {
        // The last segment of its journal may be needed.
        others += 1;
        mount.make_dir(format!("/other.{others}"), 0o755).unwrap();
        mount.checkpoint().unwrap();
        world.store().list("journal/client/").unwrap().len() == 1
    });
    client
}

fn seen(world: &World) -> Vec<String> {
    let said = world.run_elsewhere(&["ls", "/job"]).done();
    said.out.lines().map(str::to_owned).collect()
}

fn world() -> World {
    World::with(&["--set", "segment_bytes_max=200"])
}

#[test]
fn a_persist_after_a_failed_merge_outlives_client_and_server() {
    let world = world();
    drop(after_a_failed_merge(&world));
    fs::rename(world.path("state"), world.path("lost")).unwrap();
    world.crash();
    assert_eq!(seen(&world), ["a", "b"]);
    world.run(&["recover", "/job"]).done();
    world.run(&["merge", "/job"]).done();
    assert_eq!(seen(&world), ["a", "b", "c", "d"]);
}

#[test]
fn completing_after_a_failed_merge_merges_all_once() {
    let world = world();
    let mut client = after_a_failed_merge(&world);
    let before = world.json(&["stat", "/job/a"])["ino"].clone();
    client.go_on();
    client.at("done");
    world.crash();
    assert_eq!(seen(&world), ["a", "b", "c", "d"]);
    assert_eq!(world.json(&["stat", "/job/a"])["ino"], before);
}
