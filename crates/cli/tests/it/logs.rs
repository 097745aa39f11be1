//! The logs of the daemons.

use std::fs;
use std::path::Path;

use cudele::{Errno, NewFile};
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually};
use crate::full::Mount;

/// Whether a log has a line of this daemon with a time and these words.
fn has_line(log: &Path, daemon: &str, words: &[&str]) -> bool {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().any(|line| {
        let mut parts = line.splitn(3, ' ');
        let (time, name) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let rest = parts.next().unwrap_or("");
        let is_time = time.len() == 24 && time.starts_with("20") && time.ends_with('Z');
        is_time
            && name.starts_with(&format!("{daemon}["))
            && words.iter().all(|word| rest.contains(word))
    })
}

#[track_caller]
fn expect_line(log: &Path, daemon: &str, words: &[&str]) {
    if !has_line(log, daemon, words) {
        let text = fs::read_to_string(log).unwrap_or_default();
        panic!("{} has no line of {daemon} with {words:?}:\n{text}", log.display());
    }
}

#[test]
fn start_kill_take_over_and_stop_are_in_the_logs() {
    let cluster = Cluster::up_with(&["--standby", "1"]);
    let log = |name: &str| cluster.dir.join("log").join(name);
    expect_line(&log("mon.log"), "mon", &["started"]);
    expect_line(&log("mds.log"), "mds.0", &["started", "mds.0.sock"]);
    eventually("the first server is active", || {
        has_line(&log("mon.log"), "mon", &["mds.0 is active"])
    });
    expect_line(&log("mds.log"), "mds.0", &["active", "term 1"]);
    let pid = cluster.json(&["status"])["mds"][0]["pid"].as_i64().unwrap();
    Cluster::kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap());
    eventually("the standby has taken over", || {
        has_line(&log("standby.0.log"), "mds.0", &["active", "term 2"])
    });
    expect_line(&log("mon.log"), "mon", &["mds.0 has lost its server", &pid.to_string()]);
    cluster.run(&["down"]);
    expect_line(&log("mon.log"), "mon", &["stopping"]);
    expect_line(&log("mon.log"), "mon", &["ended"]);
    eventually("the server has ended", || has_line(&log("standby.0.log"), "mds.0", &["ended"]));
    // A restart keeps the lines before it.
    cluster.start();
    expect_line(&log("mon.log"), "mon", &["mds.0 has lost its server", &pid.to_string()]);
    cluster.run(&["down"]);
}

#[test]
fn a_full_store_is_in_the_log_of_the_server() {
    let place = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
    let Some(mount) = Mount::new(&place.path().join("m")) else { return };
    // The store alone is on the small file system: a full one would take no line of a log either.
    let store = format!("dir:{}", mount.path().join("store").display());
    let cluster = Cluster::down().with(&["--store", &store]);
    cluster.start();
    let ballast = mount.path().join("ballast");
    fs::write(&ballast, vec![1; 5 << 20]).unwrap();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();
    let data = [7; 4096];
    let new = NewFile { size: 4096, data: &data, ..NewFile::default() };
    let error = (0..).find_map(|number| dir.create(format!("f{number:05}"), &new).err()).unwrap();
    assert_eq!(error.errno, Errno::NoSpace, "{error}");
    let log = cluster.dir.join("log/mds.log");
    eventually("the log has it", || has_line(&log, "mds.0", &["the store is full", "ENOSPC"]));
    std::fs::remove_file(&ballast).unwrap();
    eventually("the log has its end", || has_line(&log, "mds.0", &["the store has room again"]));
    drop((dir, fs));
    cluster.run(&["down"]);
}

/// The lines of a log in JSON.
fn events(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn named(events: &[Value], name: &str) -> Vec<Value> {
    events.iter().filter(|event| event["event"] == name).cloned().collect()
}

#[test]
fn logs_in_json_have_events_with_levels_and_fields() {
    let cluster = Cluster::up_with(&[
        "--mds",
        "2",
        "--log-format",
        "json",
        "--log-level",
        "info,merge=warning",
    ]);
    cluster.run(&["mkdir", "/moved"]);
    cluster.run(&["mds", "pin", "/moved", "1"]);
    cluster.run(&["run", "--policy", "batchfs", "-C", "/job", "--", "true"]);
    let log = |name: &str| events(&cluster.dir.join("log").join(name));
    let gave = named(&log("mds.log"), "transfer.gave");
    let [gave] = &gave[..] else { panic!("one subtree went away: {gave:?}") };
    assert_eq!(
        (&gave["level"], &gave["daemon"], &gave["rank"]),
        (&json!("info"), &json!("mds.0"), &json!(1))
    );
    let took = named(&log("mds.1.log"), "transfer.took");
    assert_eq!((&took[0]["dir"], &took[0]["path"]), (&gave["dir"], &json!("/moved")));
    assert!(named(&log("mds.log"), "merge.done").is_empty(), "the level says that");
    let started = named(&log("mon.log"), "server.started");
    assert_eq!(started[0]["pid"].as_u64().map(|pid| pid > 1), Some(true));
    cluster.run(&["down"]);
    assert_eq!(named(&log("mon.log"), "server.ended").len(), 1);
}

#[test]
fn a_slow_request_and_a_merge_are_in_the_log() {
    let cluster = Cluster::up_with(&["--log-slow-ms", "1"]);
    let log = cluster.dir.join("log/mds.log");
    // Some request of a job waits for the disk, which takes a millisecond.
    eventually("a slow request is in the log", || {
        cluster.run(&["run", "--policy", "batchfs", "-C", "/job", "--", "mkdir", "-p", "made"]);
        has_line(&log, "mds.0", &["warning: a request of user", " ms: "])
    });
    expect_line(&log, "mds.0", &["is merged", "changes of"]);
    let refused = cluster.fails(2, &["up", "--log-level", "loud"]);
    assert!(refused.contains("`loud` is no level") && refused.contains("transfer"), "{refused}");
    cluster.run(&["down"]);
}
