//! What a mount remembers, and what happens to that.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};

/// What the metadata server has counted so far, as its last beacon says.
pub(crate) fn counted(world: &World, name: &str) -> u64 {
    // Beacons come twice a second.
    std::thread::sleep(Duration::from_millis(700));
    let status = world.run(&["--json", "status"]).done().out;
    let status: Value = serde_json::from_str(&status).unwrap();
    status["mds"][0]["counters"][name].as_u64().unwrap()
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A directory that the mount has made, and knows all about.
fn known_dir(mount: &Mount) -> std::path::PathBuf {
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    // The first answer that may be remembered comes when the server has noted who remembers.
    until("names are remembered", || {
        let _ = exists(&dir.join("nothing"));
        fs::write(dir.join("probe"), "").unwrap();
        fs::remove_file(dir.join("probe")).unwrap();
        exists(&dir)
    });
    dir
}

#[test]
fn a_mount_remembers_names_until_somebody_else_changes_them() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    let dir = known_dir(&one);
    let before = counted(&world, "lookups");
    for number in 0..500 {
        File::create(dir.join(format!("f{number}"))).unwrap();
    }
    for number in 0..500 {
        assert!(exists(&dir.join(format!("f{number}"))));
    }
    // One at a time is asked for when nothing was for a second.
    let lookups = counted(&world, "lookups") - before;
    assert!(lookups < 100, "{lookups} lookups for 500 files of a lone client");
    // In turn, and each sees at once what the other did.
    let both = [dir.as_path(), &two.path("d")];
    for number in 0..200 {
        let (mine, other) = (both[number % 2], both[(number + 1) % 2]);
        let (old, new) = (format!("f{number}"), format!("g{number}"));
        assert!(exists(&other.join(&old)) && !exists(&other.join(&new)));
        fs::rename(mine.join(&old), mine.join(&new)).unwrap();
        assert!(!exists(&other.join(&old)) && exists(&other.join(&new)), "{number}");
        assert!(!exists(&mine.join(&old)) && exists(&mine.join(&new)), "{number}");
    }
    assert!(counted(&world, "caps_revoked") > 0);
    two.end();
    one.end();
}

#[test]
fn a_mount_that_does_not_answer_holds_others_up_for_a_moment_only() {
    let Some(world) = cluster() else { return };
    let (mut one, two) = (Mount::new(&world), Mount::new(&world));
    let (dir, other) = (known_dir(&one), two.path("d"));
    File::create(dir.join("mine")).unwrap();
    let pid = Pid::from_raw(i32::try_from(one.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let start = Instant::now();
    File::create(other.join("theirs")).unwrap();
    fs::remove_file(other.join("mine")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    kill_process(pid, Signal::CONT).unwrap();
    // What it remembered it cannot say any more.
    assert!(exists(&dir.join("theirs")) && !exists(&dir.join("mine")));

    assert!(!exists(&dir.join("last")));
    one.kill();
    let start = Instant::now();
    File::create(other.join("last")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    two.end();
}

#[test]
fn what_a_lost_server_told_a_mount_is_not_remembered() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    let (dir, other) = (known_dir(&one), two.path("d"));
    for round in 0..3 {
        let name = format!("file{round}");
        assert!(!exists(&dir.join(&name)) && !exists(&other.join(&name)));
        world.crash();
        // It is another server that is asked for this.
        File::create(other.join(&name)).unwrap();
        assert!(exists(&dir.join(&name)), "round {round}");
    }
    two.end();
    one.end();
}
