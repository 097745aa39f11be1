//! Disks that can lose power: an ext4 in a file. A copy of the file at some moment is the state of
//! the disk after a power failure at that moment. Data that the kernel has not written yet is
//! missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::site::eventually;

/// No commit on the kernel's own initiative while the test runs.
const OPTIONS: &str = "loop,commit=600";
const BYTES: u64 = 24 << 20;

/// A mounted disk, unmounted when dropped.
pub(crate) struct Disk {
    mounted: bool,
    directory: TempDir,
    frozen: u32,
}

impl Disk {
    /// A new disk. Without the permission, prints so and returns None: the tests that need it are
    /// left out.
    pub(crate) fn new(what: &str) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let mut disk = Self { mounted: false, directory, frozen: 0 };
        std::fs::create_dir(disk.path()).unwrap();
        std::fs::File::create(disk.image(0)).unwrap().set_len(BYTES).unwrap();
        if !succeeds(Command::new("mkfs.ext4").arg("-q").arg(disk.image(0))) {
            println!("skipped: power cuts of the {what}, because mkfs.ext4 is not here");
            return None;
        }
        disk.mount();
        if !disk.mounted {
            println!("skipped: power cuts of the {what}, because mounting is not permitted");
            return None;
        }
        Some(disk)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn image(&self, generation: u32) -> PathBuf {
        self.directory.path().join(format!("image.{generation}"))
    }

    fn mount(&mut self) {
        let image = self.image(self.frozen);
        self.mounted =
            succeeds(Command::new("mount").args(["-o", OPTIONS]).arg(image).arg(self.path()));
    }

    fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            let path: &Path = &self.path();
            eventually("the disk is not used", || succeeds(Command::new("umount").arg(path)));
        }
    }

    /// The power fails now. Processes may use the disk until [`Disk::reboot`]; their writes are
    /// gone by then.
    pub(crate) fn freeze(&mut self) {
        std::fs::copy(self.image(self.frozen), self.image(self.frozen + 1)).unwrap();
    }

    /// The power is back. No process may use the disk at this time.
    pub(crate) fn reboot(&mut self) {
        self.unmount();
        std::fs::remove_file(self.image(self.frozen)).unwrap();
        self.frozen += 1;
        self.mount();
        assert!(self.mounted, "what was mounted once can be mounted again");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Whether a command exists and succeeds.
fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
