//! Power cuts, on an ext4 in a file: a copy of the file at some moment is the state of the disk
//! after a power cut at that moment. Data that the kernel has not written yet is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use objstore::{DirStore, Expect, ObjectStore, PutOutcome, SyncScope};
use tempfile::TempDir;

use crate::mount::{Mount, succeeds};

/// No commit on the kernel's own initiative while the test runs.
const OPTIONS: &str = "loop,commit=600";

/// Dropped in this order: a directory with a mount in it cannot be removed.
struct Machine {
    mount: Mount,
    directory: TempDir,
}

impl Machine {
    fn new() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let image = directory.path().join("disk");
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        if !succeeds(Command::new("mkfs.ext4").arg("-q").arg(&image)) {
            println!("skipped: no mkfs.ext4");
            return None;
        }
        let path = directory.path().join("running");
        let mount = Mount::new(&path, &["-o", OPTIONS, image.to_str().unwrap()])?;
        Some(Self { mount, directory })
    }

    /// Cuts the power, and looks at the store after the reboot. The machine itself runs on.
    fn cut(&self, look: impl FnOnce(&DirStore)) {
        let copy: PathBuf = self.directory.path().join("copy");
        std::fs::copy(self.directory.path().join("disk"), &copy).unwrap();
        let path: &Path = &self.directory.path().join("rebooted");
        let rebooted = Mount::new(path, &["-o", OPTIONS, copy.to_str().unwrap()]).unwrap();
        look(&DirStore::open(rebooted.path(), false).unwrap());
    }
}

fn put(store: &DirStore, name: &str, data: &[u8]) {
    assert!(matches!(store.put(name, data, Expect::Any), Ok(PutOutcome::Done(_))));
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    let Some(machine) = Machine::new() else { return };
    let store = DirStore::open(machine.mount.path(), true).unwrap();
    machine.cut(|rebooted| assert_eq!(rebooted.id(), store.id()));

    put(&store, "new/directories/down/to", b"here");
    machine.cut(|rebooted| assert_eq!(rebooted.get("new/directories/down/to").unwrap().0, b"here"));

    // The directories are made by something that is not durable, and relied on by a put that is.
    store.write_range("made/by/a/write", 0, b"x").unwrap();
    put(&store, "made/by/put", b"1");
    put(&store, "made/by/put", &[2; 100_000]);
    machine.cut(|rebooted| assert_eq!(rebooted.get("made/by/put").unwrap().0, [2; 100_000]));

    store.append("log/0", b"one").unwrap();
    store.sync(SyncScope::Object("log/0")).unwrap();
    machine.cut(|rebooted| assert_eq!(rebooted.get("log/0").unwrap().0, b"one"));
    store.append("log/0", b"two").unwrap();
    store.sync(SyncScope::Object("log/0")).unwrap();
    machine.cut(|rebooted| assert_eq!(rebooted.get("log/0").unwrap().0, b"onetwo"));

    assert!(store.delete("log/0").unwrap());
    store.sync(SyncScope::Object("log/0")).unwrap();
    machine.cut(|rebooted| assert!(rebooted.list("log/").unwrap().is_empty()));

    for number in 0..9 {
        store.append(&format!("log/{number}"), b"one").unwrap();
    }
    store.append("log/deeper/0", b"one").unwrap();
    store.sync(SyncScope::Prefix("log/")).unwrap();
    machine.cut(|rebooted| {
        assert_eq!(rebooted.list("log/").unwrap().len(), 10);
        assert_eq!(rebooted.get("log/deeper/0").unwrap().0, b"one");
    });
    assert!(store.delete("log/3").unwrap() && store.delete("log/deeper/0").unwrap());
    store.append("log/4", b"two").unwrap();
    store.sync(SyncScope::Prefix("log/")).unwrap();
    machine.cut(|rebooted| {
        assert_eq!(rebooted.list("log/").unwrap().len(), 8);
        assert_eq!(rebooted.get("log/4").unwrap().0, b"onetwo");
    });

    for number in 0..50 {
        store.write_range(&format!("data/{number}"), 0, &[number; 500]).unwrap();
    }
    store.sync(SyncScope::All).unwrap();
    machine.cut(|rebooted| {
        assert_eq!(rebooted.list("data/").unwrap().len(), 50);
        assert_eq!(rebooted.get("data/49").unwrap().0, [49; 500]);
    });

    // And it was a power cut: unsynced data is missing.
    store.append("unsynced", b"x").unwrap();
    put(&store, "made/by/put", b"3");
    store.append("unsynced", &[4; 100_000]).unwrap();
    machine.cut(|rebooted| {
        assert_eq!(rebooted.get("made/by/put").unwrap().0, b"3");
        let survived = rebooted.get("unsynced").map_or(0, |(data, _)| data.len());
        assert!(survived < 100_000);
    });
}
