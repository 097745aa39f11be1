//! Files in a store without room.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::World;
use crate::mounts::{Mount, MountPoint, cluster, until};

/// A file system of a few MiB, unmounted when dropped.
pub(crate) struct Small(MountPoint);

impl Small {
    pub(crate) fn new() -> Self {
        let point = MountPoint::new();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(point.path());
        assert!(mount.status().unwrap().success(), "root may mount a tmpfs");
        Self(point)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A cluster whose store is here.
    pub(crate) fn world(&self) -> World {
        World::with(&["--store", &format!("dir:{}", self.path().join("store").display())])
    }

    /// A file that is removed to give a stuck server room.
    pub(crate) fn ballast(&self) -> PathBuf {
        let ballast = self.path().join("ballast");
        fs::write(&ballast, vec![1; 4 << 20]).unwrap();
        ballast
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Servers are on their way out.
        for _ in 0..1000 {
            if mount::unmount(self.0.path(), false).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let _ = mount::unmount(self.0.path(), true);
    }
}

#[test]
fn a_file_is_not_longer_for_what_could_not_be_written() {
    if cluster().is_none() {
        return;
    }
    let small = Small::new();
    let ballast = small.ballast();
    let world = small.world();
    let mount = Mount::new(&world);
    let mut file = File::create(mount.path("file")).unwrap();
    let piece: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    let mut written = 0;
    let error = loop {
        match file.write(&piece) {
            Ok(length) => written += length,
            Err(error) => break error,
        }
        assert!(written < 64 << 20, "there is no end");
    };
    let length = file.metadata().map(|found| found.len());
    // First of all: without room no server ends.
    fs::remove_file(&ballast).unwrap();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    // Accepted writes that are not in the store yet may be missing, too.
    assert!(length.as_ref().is_ok_and(|length| *length <= written as u64), "{length:?}");
    // The error stays until the program cuts off or repeats the lost writes, which may be more than
    // before: another write may fail until then.
    until("there is room", || {
        let length = file.metadata().map(|found| found.len());
        let cut = length.and_then(|length| file.set_len(length)).and_then(|()| file.sync_all());
        cut.inspect_err(|error| eprintln!("no room yet: {error}")).is_ok()
    });
    let length = file.metadata().unwrap().len();
    drop(file);
    let other = Mount::new(&world);
    let found = fs::read(other.path("file")).unwrap();
    assert!(length > 0 && length <= written as u64);
    assert_eq!(found.len() as u64, length);
    assert!(found.iter().zip(piece.iter().cycle()).all(|(found, written)| found == written));
    other.end();
    mount.end();
    drop(world);
}

/// Neither the content that it had before, nor zeros behind that.
#[test]
fn a_file_loses_nothing_by_what_could_not_be_written() {
    if cluster().is_none() {
        return;
    }
    let small = Small::new();
    let ballast = small.0.path().join("ballast");
    let store = format!("dir:{}", small.0.path().join("store").display());
    let world = World::with(&["--store", &store]);
    let mount = Mount::new(&world);
    // One in its inode, one in the store.
    let before: Vec<(&str, Vec<u8>)> = [("inline", 3000), ("striped", 300_000)]
        .map(|(name, length)| (name, vec![7; length]))
        .into();
    for (name, content) in &before {
        fs::write(mount.path(name), content).unwrap();
        File::open(mount.path(name)).unwrap().sync_all().unwrap();
    }
    let mut rest = File::create(&ballast).unwrap();
    while rest.write_all(&[1; 4096]).is_ok() {}
    drop(rest);
    let refused = before.iter().map(|(name, _)| {
        let mut file = File::options().append(true).open(mount.path(name)).unwrap();
        let written = file.write_all(&vec![9; 3 << 20]).and_then(|()| file.sync_all());
        written.map_err(|error| error.raw_os_error())
    });
    let refused: Vec<_> = refused.collect();
    // First of all: without room no server ends.
    fs::remove_file(&ballast).unwrap();
    assert_eq!(refused, [Err(Some(28)), Err(Some(28))]);
    let other = Mount::new(&world);
    for (name, content) in &before {
        until("the server takes changes again", || {
            let file = File::options().write(true).open(mount.path(name)).unwrap();
            file.set_len(1 << 20).is_ok() && file.sync_all().is_ok()
        });
        for found in [&mount, &other].map(|at| fs::read(at.path(name)).unwrap()) {
            assert_eq!(found.len(), 1 << 20, "{name}");
            let (old, new) = found.split_at(content.len());
            assert!(old == content.as_slice(), "{name} is not what it was");
            assert!(new.iter().all(|byte| *byte == 0), "{name} shows what was refused");
        }
    }
    other.end();
    mount.end();
    drop(world);
}
