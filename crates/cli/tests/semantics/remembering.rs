//! The cache of a mount, and its end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};
use crate::tools::policy_file;

/// The metadata server's count so far, from its last beacon.
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
    // The first answer that may be cached comes when the server has noted the client.
    until("names are remembered", || {
        let _ = exists(&dir.join("nothing"));
        fs::write(dir.join("probe"), "").unwrap();
        fs::remove_file(dir.join("probe")).unwrap();
        exists(&dir)
    });
    dir
}

#[test]
fn a_mount_caches_names_until_another_client_changes_them() {
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
    // In turn, and each sees the other's change at once.
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

/// How often each thread of a mount has waited: at least once for each request of the kernel.
fn waits(mount: &Mount) -> BTreeMap<OsString, u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", mount.pid())).unwrap();
    let waits = tasks.filter_map(|task| {
        let task = task.unwrap();
        // A thread may have ended.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some((task.file_name(), count?.trim().parse().unwrap()))
    });
    waits.collect()
}

/// Whether the kernel answers most questions about a path itself.
fn is_lent(mount: &Mount, path: &Path, is_there: bool) -> bool {
    const LOOKS: u64 = 2_000;
    let before = waits(mount);
    for _ in 0..LOOKS {
        assert_eq!(exists(path), is_there, "{}", path.display());
    }
    let after = waits(mount);
    let more = after.iter().filter_map(|(task, count)| Some(count - before.get(task)?));
    more.sum::<u64>() < LOOKS / 4
}

#[test]
fn the_kernel_of_a_mount_uses_answers_until_another_client_changes_them() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    for round in 0..4 {
        let (dir, name) = (format!("d{round}"), |name: &str| format!("d{round}/{name}"));
        fs::create_dir(two.path(&dir)).unwrap();
        fs::write(two.path(&name("old")), "content").unwrap();
        until("the kernel knows the file", || is_lent(&one, &one.path(&name("old")), true));
        until("the kernel knows that there is none", || {
            is_lent(&one, &one.path(&name("new")), false)
        });
        let _ = is_lent(&one, &one.path(&name("old")), true);
        match round {
            0 => fs::rename(two.path(&name("old")), two.path(&name("new"))).unwrap(),
            1 => fs::write(two.path(&name("new")), "more").unwrap(),
            2 => fs::remove_file(two.path(&name("old"))).unwrap(),
            _ => {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o711);
                fs::set_permissions(two.path(&dir), mode).unwrap();
            }
        }
        let (old, new) = (exists(&one.path(&name("old"))), exists(&one.path(&name("new"))));
        assert_eq!((old, new), [(false, true), (true, true), (false, false), (true, false)][round]);
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(one.path(&dir)).unwrap());
        assert_eq!(mode & 0o7777, if round == 3 { 0o711 } else { 0o755 }, "round {round}");
    }
    two.end();
    one.end();
}

#[test]
fn a_silent_mount_delays_other_clients_only_for_a_moment() {
    let Some(world) = cluster() else { return };
    // A mount that has a directory alone loses it later (`exclusive.rs`).
    let (mut one, two) = (Mount::with(&world, &["-o", "wsync"]), Mount::new(&world));
    let (dir, other) = (known_dir(&one), two.path("d"));
    File::create(dir.join("mine")).unwrap();
    let pid = Pid::from_raw(i32::try_from(one.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let start = Instant::now();
    File::create(other.join("theirs")).unwrap();
    fs::remove_file(other.join("mine")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    kill_process(pid, Signal::CONT).unwrap();
    // Its cache is not valid any more.
    assert!(exists(&dir.join("theirs")) && !exists(&dir.join("mine")));

    assert!(!exists(&dir.join("last")));
    one.kill();
    let start = Instant::now();
    File::create(other.join("last")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    two.end();
}

#[test]
fn a_mount_drops_the_cache_of_a_lost_server() {
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

#[test]
fn under_leases_a_change_waits_until_no_client_caches() {
    let Some(world) = cluster() else { return };
    let (one, two) = (Mount::new(&world), Mount::new(&world));
    fs::create_dir(one.path("d")).unwrap();
    let policy = policy_file(&world, "cache: lease\n");
    world.run(&["policy", "set", "/d", &policy]).done();
    let (mine, theirs) = (one.path("d"), two.path("d"));
    until("a lease is given", || {
        let _ = exists(&mine.join("nothing"));
        counted(&world, "leases") > 0
    });
    let before = counted(&world, "lookups");
    for _ in 0..500 {
        assert!(!exists(&mine.join("nothing")));
    }
    let lookups = counted(&world, "lookups") - before;
    assert!(lookups < 100, "{lookups} lookups of one name");
    for number in 0..4 {
        let (at_one, at_two) = (mine.join(format!("s{number}")), theirs.join(format!("s{number}")));
        assert!(!exists(&at_one));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let _ = exists(&at_one);
                }
                // The change was answered before this is asked.
                exists(&at_one)
            });
            let start = Instant::now();
            let made = fs::create_dir(&at_two);
            let waited = start.elapsed();
            done.store(true, Ordering::SeqCst);
            made.unwrap();
            assert!(waited < Duration::from_secs(20), "{waited:?}");
            assert!(looks.join().unwrap(), "round {number}: what was is seen after {waited:?}");
        });
        // In the other direction; also one's own look is a lease.
        assert!(exists(&at_two));
        fs::remove_dir(&at_one).unwrap();
        assert!(!exists(&at_two) && !exists(&at_one));
    }
    assert!(counted(&world, "lease_waits") > 0);
    two.end();
    one.end();
}
