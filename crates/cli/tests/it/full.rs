//! A store without room, on a tmpfs of eight MiB.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{Dir, Errno, Fs, NewFile};

use crate::cluster::{Cluster, eventually};

/// A small file system, unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    /// If mounting is not permitted, says so and returns `None`: the test is to end there.
    fn new(path: &Path) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        println!("skipped: may not mount a tmpfs");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = || {
            let mut command = Command::new("umount");
            command.arg(&self.0).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        if std::thread::panicking() {
            unmounted();
        } else {
            eventually("the file system is not used", unmounted);
        }
    }
}

/// Names of files that are in the journal when this returns, in a store that is full.
fn fill(fs: &Arc<Fs>) -> (Dir, Vec<String>) {
    let dir = fs.open_dir("/").unwrap();
    let data = [7; 4096];
    let new = NewFile { size: 4096, data: &data, ..NewFile::default() };
    let (mut made, mut synced) = (Vec::new(), Vec::new());
    loop {
        let name = format!("f{:05}", made.len());
        let created = dir.create(&name, &new).map(drop);
        made.push(name);
        let last = made.len().is_multiple_of(100);
        let result = if last { created.and_then(|()| fs.sync().map(drop)) } else { created };
        match result {
            Ok(()) if last => synced.clone_from(&made),
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.errno, Errno::NoSpace, "{error}");
                return (dir, synced);
            }
        }
    }
}

#[test]
fn who_stops_a_cluster_whose_store_is_full_is_told_so_and_loses_nothing() {
    let place = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
    let Some(mount) = Mount::new(&place.path().join("m")) else { return };
    let ballast = mount.0.join("ballast");
    // What the journal holds must be written once more.
    fs::write(&ballast, vec![1; 5 << 20]).unwrap();
    let cluster = Cluster::down_in(&mount.0.join("c"));
    cluster.start();
    let fs = cluster.mount();
    let (dir, synced) = fill(&fs);
    drop((dir, fs));
    let start = Instant::now();
    let said = cluster.fails(1, &["down"]);
    assert!(start.elapsed() < Duration::from_secs(120), "{said}");
    let store = mount.0.join("c/store").display().to_string();
    for words in ["is full", &store, "What was synced is in the journal", "make room", "(ENOSPC)"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    fs::remove_file(&ballast).unwrap();
    eventually("the cluster ends by itself", || {
        !cluster.command(&["status"]).output().unwrap().status.success()
    });
    cluster.start();
    let names = cluster.names("/");
    assert!(synced.iter().all(|name| names.binary_search(name).is_ok()));
    drop(cluster);
}

#[test]
fn a_full_store_refuses_changes_keeps_what_was_synced_and_recovers() {
    let place = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
    let Some(mount) = Mount::new(&place.path().join("m")) else { return };
    let ballast = mount.0.join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let cluster = Cluster::down_in(&mount.0.join("c"));
    cluster.start();
    let fs = cluster.mount();
    let dir = fs.open_dir("/").unwrap();

    let data = [7; 4096];
    let new = NewFile { size: 4096, data: &data, ..NewFile::default() };
    let mut synced = 0;
    let error = (0..10_000)
        .find_map(|number| {
            let made = dir.create(format!("f{number:05}"), &new).map(|_| ());
            let result = match made {
                Ok(()) if number % 100 == 99 => fs.sync().map(|_| synced = number + 1),
                result => result,
            };
            result.err()
        })
        .unwrap();
    assert_eq!(error.errno, Errno::NoSpace, "{error}");
    assert!(synced > 500, "{synced}");
    let said = cluster.fails(1, &["mkdir", "/refused"]);
    assert!(said.contains("store is full") && said.contains("(ENOSPC)"), "{said}");
    assert!(said.contains("reading goes on"), "{said}");

    // Reading goes on, also for those who come now.
    let listed = cluster.names("/");
    assert!(listed.len() >= synced);
    assert_eq!(cluster.run(&["cp", "/f00000", "-"]), data);

    // A restart without room either works or says why it does not.
    cluster.kill("mds");
    let output = cluster.command(&["up"]).output().unwrap();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("No space left") || said.contains("full"), "{said}");
    }
    fs::remove_file(&ballast).unwrap();
    cluster.start();
    eventually("the client works again", || dir.create("with room", &new).is_ok());
    fs.sync().unwrap();
    let names = cluster.names("/");
    for number in 0..synced {
        assert!(names.binary_search(&format!("f{number:05}")).is_ok(), "f{number:05}");
    }
    assert_eq!(cluster.run(&["cp", &format!("/f{:05}", synced - 1), "-"]), data);
    cluster.run(&["rm", "-r", "/f00000"]);
    drop((dir, fs));
    drop(cluster);
}
