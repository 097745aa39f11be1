//! The file system of the store, of this run alone: a tmpfs, or one on a disk that loses writes. It
//! can be filled, and can refuse the objects of directories.
//!
//! Invariant: dropping it unmounts. It exists in a mount namespace of this run, so that the machine
//! never sees it.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cudele::{Errno, Error, Result};
use terminal::io;
use types::rng::Rng;

use crate::lossy::{CutFigures, DiskFormat, LossyDisk, finish};

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
    lossy: Option<LossyDisk>,
}

impl StoreDisk {
    /// Mounts a file system of this size below a directory: in memory, or of a format on a disk
    /// that loses writes.
    pub(crate) fn new(dir: &Path, mebibytes: u64, format: Option<DiskFormat>) -> Result<Self> {
        let at = dir.join("store");
        let lossy = format.map(|format| LossyDisk::new(&at, format, mebibytes)).transpose()?;
        if lossy.is_none() {
            std::fs::create_dir_all(&at).map_err(|error| io(&at, &error))?;
            let size = format!("size={mebibytes}m,mode=0755");
            finish(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "soak"]).arg(&at))?;
        }
        Ok(Self { at, ballast: None, refusing: None, lossy })
    }

    /// The address of a store on it: below the root, which may have names of the file system.
    pub(crate) fn url(&self) -> String {
        format!("dir:{}/cluster", self.at.display())
    }

    /// The power of the disk and of these processes is cut, and given back to the disk.
    pub(crate) fn cut_power(
        &mut self,
        pids: &[u32],
        patience: Duration,
        random: &mut Rng,
    ) -> Result<CutFigures> {
        let none = || Error::new(Errno::NotSupported, "power-cut", "the disk loses no writes");
        self.lossy.as_mut().ok_or_else(none)?.cut(pids, patience, random)
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

impl Drop for StoreDisk {
    fn drop(&mut self) {
        // The mount namespace ends with this process, and its mounts with it.
        let _ = self.accept();
        drop(self.lossy.take());
        let _ = quiet(Command::new("umount").arg("--lazy").arg(&self.at));
        let _ = std::fs::remove_dir(&self.at);
    }
}
