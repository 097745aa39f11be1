//! The file system of the store: a tmpfs of this run alone, which can be filled, and can refuse
//! the objects of directories.
//!
//! Invariant: dropping it unmounts. It exists in a mount namespace of this run, so that the machine
//! never sees it.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cudele::{Errno, Error, Result};
use terminal::io;

/// The variable by which the program knows that it runs in its own mount namespace.
const INSIDE: &str = "CUDELE_SOAK_INSIDE";

/// Starts this program again in a mount namespace of its own, in the same process. Returns whether
/// it already is in one; without the rights for that the run has no disk of its own.
pub(crate) fn own_namespace() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let Ok(program) = std::env::current_exe() else { return false };
    if !rustix::process::geteuid().is_root() || !permitted() {
        return false;
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(program).args(arguments);
    // It returns only if the program cannot be started.
    let _error = command.env(INSIDE, "1").exec();
    false
}

fn permitted() -> bool {
    let script = "mount -t tmpfs soak /mnt";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    quiet(&mut command)
}

fn quiet(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct StoreDisk {
    at: PathBuf,
    ballast: Option<File>,
    refusing: Option<PathBuf>,
}

impl StoreDisk {
    /// Mounts a file system of this size below a directory.
    pub(crate) fn new(dir: &Path, mebibytes: u64) -> Result<Self> {
        let at = dir.join("store");
        std::fs::create_dir_all(&at).map_err(|error| io(&at, &error))?;
        let size = format!("size={mebibytes}m,mode=0755");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "soak"]).arg(&at);
        finish(&mut command)?;
        Ok(Self { at, ballast: None, refusing: None })
    }

    /// The address of a store on it.
    pub(crate) fn url(&self) -> String {
        format!("dir:{}", self.at.display())
    }

    /// Leaves no room.
    pub(crate) fn fill(&mut self) -> Result<u64> {
        let path = self.at.join("ballast");
        let file = File::create(&path).map_err(|error| io(&path, &error))?;
        // The servers write at the same time, so that the free room is not known.
        let (mut length, mut step) = (0, STEP_MOST);
        while step >= STEP_LEAST {
            let flags = rustix::fs::FallocateFlags::empty();
            match rustix::fs::fallocate(&file, flags, length, step) {
                Ok(()) => length += step,
                Err(_) => step /= 2,
            }
        }
        self.ballast = Some(file);
        Ok(length)
    }

    /// Gives the room back.
    pub(crate) fn empty(&mut self) -> Result<()> {
        self.ballast = None;
        let path = self.at.join("ballast");
        std::fs::remove_file(&path).map_err(|error| io(&path, &error))
    }

    /// From now on the objects of directories cannot be written; the journal can.
    pub(crate) fn refuse(&mut self, store: &Path) -> Result<()> {
        let dir = store.join("objects").join("dirs%");
        finish(Command::new("mount").arg("--bind").arg(&dir).arg(&dir))?;
        self.refusing = Some(dir.clone());
        finish(Command::new("mount").args(["-o", "remount,ro,bind"]).arg(&dir))
    }

    /// The objects of directories can be written again.
    pub(crate) fn accept(&mut self) -> Result<()> {
        let Some(dir) = self.refusing.take() else { return Ok(()) };
        // A write that is being refused may hold it at this moment.
        finish(Command::new("umount").arg("--lazy").arg(&dir))
    }
}

/// The ballast grows by steps of these sizes.
const STEP_MOST: u64 = 16 << 20;
const STEP_LEAST: u64 = 4096;

fn finish(command: &mut Command) -> Result<()> {
    let done = command.stdin(Stdio::null()).output();
    let failed = |cause: String| {
        Error::new(Errno::Io, format!("{:?}", command.get_program()), cause)
            .remedy("`--only` leaves incidents out that need a disk of their own")
    };
    let done = done.map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}

impl Drop for StoreDisk {
    fn drop(&mut self) {
        // The mount namespace ends with this process, and its mounts with it.
        let _ = self.accept();
        let _ = quiet(Command::new("umount").arg("--lazy").arg(&self.at));
        let _ = std::fs::remove_dir(&self.at);
    }
}
