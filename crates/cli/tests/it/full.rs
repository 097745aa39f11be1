//! A store without room, on a small tmpfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudele::{Dir, Errno, Error, Fs, NewFile};
use posix::{Caller, Files, Names, NewNode, OpenMode};
use types::{EntryName, StripedFile};
use vfs::{Vfs, VfsOptions};

use crate::cluster::{Cluster, eventually};

/// A small file system, unmounted when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// If mounting is not permitted, prints that and returns `None`: the test is to end there.
    pub(crate) fn new(path: &Path) -> Option<Self> {
        Self::of(path, 8)
    }

    fn of(path: &Path, mebibytes: u32) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mut mount = Command::new("mount");
        let size = format!("size={mebibytes}m");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        println!("skipped: may not mount a tmpfs");
        None
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
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

/// The file of another program on the same file system.
struct Ballast(PathBuf, fs::File);

impl Ballast {
    fn new(mount: &Mount) -> Self {
        let path = mount.0.join("ballast");
        Self(path.clone(), fs::File::create(path).unwrap())
    }

    fn available(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.0).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Leaves so many bytes free.
    fn leave(&self, free: u64) {
        loop {
            let (available, length) = (self.available(), self.1.metadata().unwrap().len());
            if available == free {
                return;
            }
            let wanted = (length + available).saturating_sub(free);
            if wanted < length {
                self.1.set_len(wanted).unwrap();
                return;
            }
            // A server may have taken a part of the free room since.
            let flags = rustix::fs::FallocateFlags::empty();
            if rustix::fs::fallocate(&self.1, flags, length, wanted - length).is_ok() {
                return;
            }
        }
    }
}

fn until_there_is_room<T>(mut act: impl FnMut() -> Result<T, Error>) -> T {
    let mut done = None;
    eventually("there is room", || {
        match act() {
            Ok(value) => done = Some(value),
            Err(error) => assert_eq!(error.errno, Errno::NoSpace, "{error}"),
        }
        done.is_some()
    });
    done.unwrap()
}

/// Different everywhere, and between files.
fn content(seed: u32, length: usize) -> Vec<u8> {
    (0_u32..)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) ^ seed)
        .flat_map(u32::to_le_bytes)
        .take(length)
        .collect()
}

/// A program that repeats rejected writes gets a successful sync only if the file is complete.
/// Content of an earlier sync never changes.
#[test]
fn synced_content_is_complete_wherever_the_disk_fills_up() {
    const SYNCED: usize = 100_000;
    const LENGTH: usize = 2_600_000;
    const CHUNK: usize = 190_000;
    const ROOM: u64 = 8 << 20;
    let place = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
    let Some(mount) = Mount::of(&place.path().join("m"), 96) else { return };
    let cluster = Cluster::down_in(&mount.0.join("c"));
    cluster.start();
    let ballast = Ballast::new(&mount);
    let root = cudele::Path::root();
    let vfs = Vfs::new(cluster.mount(), &root, VfsOptions::default()).unwrap();
    let others = cluster.mount();
    let near_pieces =
        (1..3).flat_map(|piece| (0..3).map(move |page| (piece << 20) - 4096 + page * 4096));
    let budgets = (0..16).map(|step| step * (168 << 10)).chain(near_pieces);
    let mut unsynced = 0;
    for (number, budget) in (0_u32..).zip(budgets) {
        ballast.leave(ROOM);
        let name = format!("f{number}");
        let open = OpenMode { write: true, ..OpenMode::default() };
        let place = EntryName::new(vfs.root(), name.as_bytes());
        let make = || vfs.create(&Caller::SELF, place, &NewNode::of(0o644), open);
        let ino = until_there_is_room(make).0.attr.ino;
        let data = content(number, LENGTH);
        until_there_is_room(|| {
            vfs.write(ino, 0, &data[..SYNCED], false).and_then(|()| vfs.sync(ino))
        });
        let whole = |length: usize| {
            let mut read = vec![0; length];
            assert_eq!(vfs.read(ino, 0, &mut read).unwrap(), length, "{budget}");
            assert!(read == data[..length], "{budget}: what this client reads");
            let attr = others.stat(format!("/{name}")).unwrap();
            assert!(attr.size >= length as u64, "{budget}: {attr:?}");
            let read = others.read_at(StripedFile::new(ino, attr.stripe), 0, length).unwrap();
            assert!(read == data[..length], "{budget}: what others read");
        };
        ballast.leave(budget);
        let mut at = SYNCED;
        while at < LENGTH {
            let now = &data[at..LENGTH.min(at + CHUNK)];
            if let Err(error) = vfs.write(ino, at as u64, now, false) {
                assert_eq!(error.errno, Errno::NoSpace, "{error}");
                ballast.leave(ROOM);
                until_there_is_room(|| vfs.write(ino, at as u64, now, false));
            }
            at += now.len();
        }
        if let Err(error) = vfs.sync(ino) {
            assert_eq!(error.errno, Errno::NoSpace, "{error}");
            unsynced += 1;
            whole(SYNCED);
            assert!(vfs.sync(ino).is_err(), "{budget}: it is still not whole");
            ballast.leave(ROOM);
            until_there_is_room(|| {
                let rest = &data[SYNCED..];
                vfs.write(ino, SYNCED as u64, rest, false).and_then(|()| vfs.sync(ino))
            });
        }
        whole(LENGTH);
        vfs.close(ino, true).unwrap();
        vfs.unlink(&Caller::SELF, vfs.root(), name.as_bytes()).unwrap();
    }
    assert!(unsynced > 10, "{unsynced} syncs were refused");
    drop((vfs, others, cluster));
}

#[test]
fn a_store_that_others_filled_to_the_last_byte_can_be_emptied_stopped_started_and_checked() {
    let place = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
    let Some(mount) = Mount::of(&place.path().join("m"), 48) else { return };
    let ballast = Ballast::new(&mount);
    let cluster = Cluster::down_in(&mount.0.join("c"));
    cluster.start();
    for number in 0..3 {
        let path = format!("/large{number}");
        cluster.run_with_input(&["cp", "-", &path], &content(0, 8 << 20));
    }
    ballast.leave(0);
    eventually("health says so", || cluster.has_condition("STORE_FULL"));
    assert_eq!(cluster.health().1, 2);
    let said = cluster.fails(1, &["mkdir", "/refused"]);
    assert!(said.contains("(ENOSPC)"), "{said}");
    // A removed file gives its room back.
    cluster.run(&["rm", "/large0"]);
    let start = Instant::now();
    eventually("the room is free", || ballast.available() >= 4 << 20);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    eventually("health has it", || !cluster.has_condition("STORE_FULL"));
    assert_ne!(cluster.health().1, 2);
    cluster.run(&["mkdir", "/accepted"]);

    // Stopping and starting, without a byte.
    for round in 0..3 {
        ballast.leave(0);
        cluster.run(&["down"]);
        ballast.leave(0);
        cluster.run(&["fsck"]);
        cluster.run(&["fsck", "--repair"]);
        ballast.leave(0);
        cluster.start();
        assert_eq!(cluster.run(&["cp", "/large1", "-"]), content(0, 8 << 20), "{round}");
        if round == 1 {
            cluster.kill("mds");
            ballast.leave(0);
            cluster.start();
        }
    }
    cluster.run(&["rm", "/large1"]);
    eventually("the room is free", || ballast.available() >= 4 << 20);
    assert_eq!(cluster.names("/"), ["accepted", "large2"]);
    drop(cluster);
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
fn down_reports_a_full_store_and_loses_nothing() {
    let place = tempfile::Builder::new().prefix("cudele-it.").tempdir().unwrap();
    let Some(mount) = Mount::new(&place.path().join("m")) else { return };
    let ballast = mount.0.join("ballast");
    // The changes of the journal must be written again.
    fs::write(&ballast, vec![1; 5 << 20]).unwrap();
    let cluster = Cluster::down_in(&mount.0.join("c")).with(&["--set", "reserve_bytes=0"]);
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

    // Reads continue, also for new clients.
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
