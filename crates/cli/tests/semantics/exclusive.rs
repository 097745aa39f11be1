//! A mount's changes in directories that it has alone, before the metadata server receives them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::World;
use crate::mounts::{Mount, cluster, until};
use crate::remembering::counted;

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// A mount that answers by itself where it can, and a directory that it has alone: the server
/// counts the changes that it receives later.
fn exclusive_dir(world: &World) -> (Mount, PathBuf) {
    let mount = Mount::new(world);
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    have(world, &dir);
    (mount, dir)
}

/// Works in a directory until a mount has it alone: for a moment after a look of another client no
/// client gets it.
fn have(world: &World, dir: &Path) {
    let before = counted(world, "ahead");
    until("the directory is the mount's alone", || {
        for number in 0..20 {
            fs::write(dir.join(format!("probe{number}")), "").unwrap();
            fs::remove_file(dir.join(format!("probe{number}"))).unwrap();
        }
        counted(world, "ahead") > before
    });
}

fn pid(mount: &Mount) -> Pid {
    Pid::from_raw(i32::try_from(mount.pid()).unwrap()).unwrap()
}

#[test]
fn a_lookup_sees_the_asynchronous_changes_of_another_mount() {
    let Some(world) = cluster() else { return };
    let (one, dir) = exclusive_dir(&world);
    let two = Mount::new(&world);
    let other = two.path("d");
    for round in 0..5 {
        have(&world, &dir);
        let before = counted(&world, "ahead");
        // Other clients look in the moment after the last answer.
        for number in 0..200 {
            let (name, to) = (format!("{round}.{number}"), format!("{round}.{number}.done"));
            fs::write(dir.join(&name), format!("content {number}")).unwrap();
            fs::rename(dir.join(&name), dir.join(&to)).unwrap();
        }
        fs::create_dir(dir.join(format!("{round}"))).unwrap();
        File::create(dir.join(format!("{round}/in"))).unwrap();
        assert!(exists(&other.join(format!("{round}/in"))));
        let last = other.join(format!("{round}.199.done"));
        assert_eq!(fs::read_to_string(last).unwrap(), "content 199");
        assert!(!exists(&other.join(format!("{round}.199"))));
        let count = fs::read_dir(&other).unwrap().count();
        assert_eq!(count, (round + 1) * 201, "round {round}");
        assert!(counted(&world, "ahead") > before, "nothing was told later in round {round}");
        // And the other way round, also by number: the file is open here.
        let file = File::options().write(true).open(other.join(format!("{round}/in"))).unwrap();
        file.set_len(7).unwrap();
        drop(file);
        assert_eq!(fs::metadata(dir.join(format!("{round}/in"))).unwrap().len(), 7);
    }
    assert_eq!(counted(&world, "ahead_refused"), 0);
    two.end();
    one.end();
}

#[test]
fn synced_asynchronous_changes_survive_a_crash() {
    let Some(world) = cluster() else { return };
    let (mut one, dir) = exclusive_dir(&world);
    for number in 0..300 {
        fs::write(dir.join(format!("f{number}")), "").unwrap();
    }
    File::open(&dir).unwrap().sync_all().unwrap();
    // The server dies with the changes that it received since, and without the rest.
    for number in 300..600 {
        fs::write(dir.join(format!("f{number}")), "").unwrap();
        if number == 500 {
            world.crash();
        }
    }
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 600);
    File::open(&dir).unwrap().sync_all().unwrap();
    for number in 600..900 {
        fs::write(dir.join(format!("f{number}")), "").unwrap();
    }
    // Now the mount: the surviving changes are a prefix of all changes.
    one.kill();
    let two = Mount::new(&world);
    let other = two.path("d");
    let there: Vec<bool> =
        (0..900).map(|number| exists(&other.join(format!("f{number}")))).collect();
    assert!(there[..600].iter().all(|there| *there), "what was synced is there");
    let end = there.iter().position(|there| !there).unwrap_or(900);
    assert!(there[end..].iter().all(|there| !there), "{end} are there, and then others");
    assert_eq!(fs::read_dir(&other).unwrap().count(), end);
    two.end();
}

#[test]
fn a_stopped_mount_loses_its_exclusive_directory() {
    let Some(world) = cluster() else { return };
    let (one, dir) = exclusive_dir(&world);
    let two = Mount::new(&world);
    kill_process(pid(&one), Signal::STOP).unwrap();
    let start = Instant::now();
    assert!(!exists(&two.path("d/new")));
    File::create(two.path("d/new")).unwrap();
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    kill_process(pid(&one), Signal::CONT).unwrap();
    // The mount adopts the present state, and continues.
    until("the mount sees it", || exists(&dir.join("new")));
    File::create(dir.join("mine")).unwrap();
    assert!(exists(&two.path("d/mine")));
    two.end();
    one.end();
}
