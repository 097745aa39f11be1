//! `cudele mount` and `cudele umount`.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;

use crate::mounts::{Mount, MountPoint, cluster, until};

#[test]
fn mount_runs_in_the_background_until_umount() {
    let Some(world) = cluster() else { return };
    let point = MountPoint::new();
    let said = world.run(&["mount", point.text()]).done();
    assert!(said.out.contains("cudele umount"), "{}", said.out);
    fs::write(point.path().join("file"), "content").unwrap();
    assert_eq!(world.run(&["stat", "/file"]).done().code, 0);
    world.run(&["umount", point.text()]).done();
    assert!(!point.is_mounted());
    world.run(&["umount", point.text()]).refused(&["EINVAL", "nothing is mounted there"]);
}

/// The mount has the directories that it made alone. It gives them back when it ends: other clients
/// and the end of the cluster would wait for them.
#[test]
fn nothing_waits_for_a_mount_that_has_ended() {
    let Some(world) = cluster() else { return };
    let point = MountPoint::new();
    world.run(&["mount", point.text()]).done();
    for dir in 0..3000 {
        let dir = point.path().join(format!("dir{dir}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), [7; 8192]).unwrap();
    }
    world.run(&["umount", point.text()]).done();
    let counters = || world.json(&["status"])["mds"][0]["counters"].clone();
    until("the mount has no session", || counters()["sessions"] == 0);
    assert_eq!(counters()["caps_alone"], 0);
    world.run(&["down"]).done();
}

/// The server waits for the changes of a mount that was killed, and the monitor for the server.
#[test]
fn down_waits_until_a_killed_mount_counts_as_dead() {
    let Some(world) = cluster() else { return };
    let mut mount = Mount::new(&world);
    for dir in 0..50 {
        fs::create_dir(mount.path(&format!("dir{dir}"))).unwrap();
        fs::write(mount.path(&format!("dir{dir}/file")), "content").unwrap();
    }
    until("the mount has the directory alone", || {
        world.json(&["status"])["mds"][0]["counters"]["caps_alone"] != 0
    });
    mount.kill();
    world.run(&["down"]).done();
}

/// All processors of the machine are concerned, so the demand ends with the work.
#[test]
fn processors_are_kept_awake_only_while_programs_use_the_mount() {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let Some(world) = cluster() else { return };
    let demand = || {
        let mut bytes = [0; 4];
        File::open(DEVICE).and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
        Some(i32::from_ne_bytes(bytes))
    };
    let Some(before) = demand().filter(|demand| *demand != 0) else {
        eprintln!("skipped: {DEVICE} cannot be read, or another program keeps processors awake");
        return;
    };
    let mount = Mount::with(&world, &["-o", "latency=0"]);
    assert_eq!(demand(), Some(before), "nothing uses it");
    let mut names = (0..).map(|name| mount.path(&format!("missing{name}")));
    until("processors stay awake", || {
        names.by_ref().take(100).for_each(|name| drop(fs::metadata(name)));
        demand() == Some(0)
    });
    until("processors may sleep", || demand() == Some(before));
    mount.end();
    let point = MountPoint::new();
    let said = world.run_as(1000, &["mount", "-o", "latency=0", point.text()]);
    if let Some(said) = said {
        said.refused(&["latency=0", "EACCES", "only root"]);
    }
}

#[test]
fn umount_of_a_path_without_a_mount_fails() {
    let Some(world) = cluster() else { return };
    let point = MountPoint::new();
    let Some(said) = world.run_as(1000, &["umount", point.text()]) else { return };
    let said = said.refused(&["EINVAL", "nothing is mounted there"]);
    assert!(!said.err.contains("busy"), "{}", said.err);
    let missing = point.path().join("missing");
    let said = world.run_as(1000, &["umount", missing.to_str().unwrap()]).unwrap();
    said.refused(&["ENOENT"]);
}

/// The mount's process has no terminal: without a log the reason of its end would be lost.
#[test]
fn a_mount_writes_down_what_happens_to_it() {
    let Some(world) = cluster() else { return };
    let point = MountPoint::new();
    let value = world.json(&["mount", point.text()]);
    let log = value["log"].as_str().unwrap().to_owned();
    assert!(log.starts_with(world.path("state").to_str().unwrap()), "{log}");
    let has = |words: &str| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().any(|line| line.contains(" mount[") && line.contains(words))
    };
    assert!(has(&format!("/ is mounted on {}", point.text())));
    world.kill_server();
    until("the loss of the server is in the log", || has("lost the connection to mds.0"));
    world.run(&["up"]).done();
    until("the return of the server is in the log", || has("connected to mds.0 again"));
    world.run(&["umount", point.text()]).done();
    until("the end is in the log", || has(&format!("{} is unmounted", point.text())));
}

#[test]
fn a_mount_without_a_cluster_or_a_directory_says_so() {
    let Some(world) = cluster() else { return };
    world.run(&["mount", "/no/such/directory"]).refused(&["/no/such/directory"]);
    let point = MountPoint::new();
    world.run(&["mount", "--root", "/nowhere", point.text()]).refused(&["ENOENT"]);
    world.run(&["down"]).done();
    world.run(&["mount", point.text()]).refused(&[]);
    assert!(!point.is_mounted());
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(world) = cluster() else { return };
    let writable = Mount::new(&world);
    fs::write(writable.path("file"), "content").unwrap();
    let mount = Mount::with(&world, &["-o", "ro"]);
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"content");
    let refused = [
        fs::write(mount.path("file"), "other"),
        fs::write(mount.path("new"), "other"),
        fs::remove_file(mount.path("file")),
        fs::create_dir(mount.path("directory")),
        fs::rename(mount.path("file"), mount.path("new")),
        fs::set_permissions(
            mount.path("file"),
            fs::metadata(mount.path("file")).unwrap().permissions(),
        ),
    ];
    for result in refused {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    fs::write(writable.path("file"), "changed").unwrap();
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"changed");
    mount.end();
    writable.end();
}

/// The kernel caches for an hour the link count that it saw when it listed the directory above.
#[test]
fn an_unread_directory_hides_no_directories() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    for name in ["a/b/c", "a/b/d", "a/e"] {
        fs::create_dir_all(mount.path(name)).unwrap();
    }
    mount.end();
    world.run(&["down"]).done();
    world.run(&["up"]).done();
    let mount = Mount::with(&world, &["-o", "valid=3600"]);
    let links = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().nlink();
    assert_eq!(fs::read_dir(mount.at()).unwrap().count(), 1);
    assert_eq!(links("a"), 1, "nobody knows yet");
    let mut find = std::process::Command::new("find");
    let found = find.arg(mount.path("a")).args(["-type", "d", "-printf", "%P "]).output().unwrap();
    let mut found: Vec<_> = found.stdout.split(|byte| *byte == b' ').collect();
    found.sort_unstable();
    assert_eq!(found, [&b""[..], b"", b"b", b"b/c", b"b/d", b"e"]);
    mount.end();
    let mount = Mount::new(&world);
    let links = |name: &str| fs::symlink_metadata(mount.path(name)).unwrap().nlink();
    assert_eq!((links("a"), links("a/b"), links("a/b/c")), (4, 4, 2));
    mount.end();
}

#[test]
fn a_part_of_the_namespace_is_mounted() {
    let Some(world) = cluster() else { return };
    let whole = Mount::new(&world);
    fs::create_dir_all(whole.path("a/b")).unwrap();
    let part = Mount::with(&world, &["--root", "/a/b"]);
    fs::write(part.path("file"), "content").unwrap();
    assert_eq!(fs::read(whole.path("a/b/file")).unwrap(), b"content");
    assert_eq!(fs::metadata(part.path("..")).unwrap().dev(), fs::metadata("/tmp").unwrap().dev());
    // It shows the same directory, wherever that goes.
    fs::rename(whole.path("a"), whole.path("c")).unwrap();
    fs::write(part.path("other"), "content").unwrap();
    assert_eq!(fs::read(whole.path("c/b/other")).unwrap(), b"content");
    part.end();
    whole.end();
}

#[test]
fn options_are_those_of_fstab() {
    let Some(world) = cluster() else { return };
    let options = "rw,defaults,noatime,_netdev,nofail,x-systemd.automount,noexec,nosuid,nodev,\
                   valid=1,threads=2";
    let mount = Mount::with(&world, &["-o", options]);
    let shown = mount.point().options().unwrap();
    for option in ["rw", "noexec", "nosuid", "nodev"] {
        assert!(shown.split(',').any(|one| one == option), "{option} is not in {shown}");
    }
    mount.end();
    let point = MountPoint::new();
    world.run(&["mount", "-o", "rw,bogus", point.text()]).refused(&["bogus", "EINVAL"]);
    world.run(&["mount", "-o", "threads=0", point.text()]).refused(&["threads=0"]);
}

#[test]
fn a_mount_in_use_is_busy_unless_it_is_detached() {
    let Some(world) = cluster() else { return };
    let mount = Mount::new(&world);
    let at = mount.point().text().to_owned();
    let file = File::create(mount.path("file")).unwrap();
    world.run(&["umount", &at]).refused(&["EBUSY", "--lazy"]);
    assert!(mount.point().is_mounted());
    world.run(&["umount", "--lazy", &at]).done();
    assert!(!mount.point().is_mounted());
    // A program with an open file continues.
    std::os::unix::fs::FileExt::write_all_at(&file, b"late", 0).unwrap();
    drop(file);
    let again = Mount::new(&world);
    until("the late words are there", || fs::read(again.path("file")).unwrap() == b"late");
    again.end();
}
