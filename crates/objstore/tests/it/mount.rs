//! Small file systems of a test's own, for users that may mount.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A mounted file system, unmounted when dropped.
pub(crate) struct Mount {
    path: PathBuf,
}

impl Mount {
    /// Mounts with these arguments of `mount` on a new directory. If that is not permitted, prints
    /// so and returns `None`: the test is to end there.
    pub(crate) fn new(path: &Path, arguments: &[&str]) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        if !succeeds(Command::new("mount").args(arguments).arg(path)) {
            println!("skipped: may not mount {arguments:?}");
            return None;
        }
        Some(Self { path: path.to_path_buf() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it read-only; nothing on it may be open for writing.
    pub(crate) fn make_read_only(&self) {
        eventually("the file system is not written to", || {
            succeeds(Command::new("mount").args(["-o", "remount,ro"]).arg(&self.path))
        });
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        eventually("the file system is not used", || {
            succeeds(Command::new("umount").arg(&self.path))
        });
    }
}

/// Waits for a condition that another process delays for a moment: between its start and the
/// execution of its program, a child of any test here has copies of all descriptors, so that a file
/// which this test has closed is still open.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        let patience = start.elapsed() < Duration::from_secs(10);
        assert!(patience || std::thread::panicking(), "waited in vain until {what}");
        if !patience {
            return;
        }
        std::thread::yield_now();
    }
}

/// Whether a command exists and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
