//! A disk that loses writes: whatever was written since the last flush is lost, kept or torn when
//! the power is cut, in any order.
//!
//! The disk is a file of a file system of this process (FUSE), with a loop device and a real file
//! system on top. A flush of that file system reaches the disk as `fsync` of the file. So a trial
//! has all layers below a program but the hardware: page cache, journal of the file system, block
//! layer. Invariant: dropping it unmounts; without power the disk answers with `EIO` only.

mod image;
mod served;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use cudele::{Errno, Error, Result};
use fuser::BackgroundSession;
use serde::{Deserialize, Serialize};
use terminal::io;
use types::rng::Rng;

pub(crate) use self::image::CutFigures;
use self::served::Disks;
use crate::harness::process;

/// A cut comes behind so many writes, or fewer.
const WRITES_MAX: u64 = 64;

/// The file system on a disk that loses writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DiskFormat {
    /// ext4, with its journal in ordered mode
    Ext4,
    /// XFS
    Xfs,
}

impl DiskFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The program that makes the file system on a file: without discards, which a new disk does
    /// not need.
    fn make(self) -> Command {
        let mut command = Command::new(format!("mkfs.{}", self.name()));
        command.args(match self {
            Self::Ext4 => ["-q", "-F", "-Enodiscard"],
            Self::Xfs => ["-q", "-f", "-K"],
        });
        command
    }

    /// The options of `mount`. The disk before a cut may still be mounted somewhere, under the same
    /// id.
    fn options(self) -> &'static str {
        match self {
            Self::Ext4 => "loop",
            Self::Xfs => "loop,nouuid",
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct LossyDisk {
    format: DiskFormat,
    /// Where the file system is mounted.
    at: PathBuf,
    /// Where the disks are files.
    below: PathBuf,
    disks: Disks,
    /// The number of the present disk: a new one after each cut.
    number: u64,
    session: Option<BackgroundSession>,
}

impl LossyDisk {
    /// Makes and mounts a file system on a disk of this size, at `at`. The caller has a mount
    /// namespace of its own.
    ///
    /// # Errors
    /// `EIO` with the words of `mkfs` or `mount`; those of the file system.
    pub(crate) fn new(at: &Path, format: DiskFormat, mebibytes: u64) -> Result<Self> {
        let mut below = at.as_os_str().to_owned();
        below.push(".disk");
        let below = PathBuf::from(below);
        for dir in [at, &below] {
            std::fs::create_dir_all(dir).map_err(|error| io(dir, &error))?;
        }
        let disks = Disks::new(mebibytes << 20);
        let session = Some(served::mount(&disks, &below)?);
        let disk = Self { format, at: at.to_owned(), below, disks, number: 0, session };
        finish(disk.format.make().arg(disk.file()))?;
        disk.mount()?;
        Ok(disk)
    }

    /// The file that is the present disk.
    fn file(&self) -> PathBuf {
        self.below.join(Disks::name(self.number))
    }

    fn mount(&self) -> Result<()> {
        let mut command = Command::new("mount");
        command.args(["-t", self.format.name(), "-o", self.format.options()]);
        finish(command.arg(self.file()).arg(&self.at))
    }

    /// Cuts the power of the disk and of these processes, which the machine runs, and gives the
    /// disk its power back: what survived is mounted.
    ///
    /// The moment of the cut is in the middle of work: behind some more writes, of which the last
    /// has no answer. From then on the disk answers nothing, so that no program learns of a write
    /// or a flush that the cut undoes; when the processes are killed, the disk fails with `EIO`.
    /// Without so many writes the moment comes after `patience`, which is also for the end of the
    /// processes.
    ///
    /// # Errors
    /// As [`LossyDisk::new`], if a process does not end, and if the file system does not survive.
    pub(crate) fn cut(
        &mut self,
        pids: &[u32],
        patience: Duration,
        random: &mut Rng,
    ) -> Result<CutFigures> {
        self.disks.freeze_after(random.between(1, WRITES_MAX), patience);
        let mut figures = CutFigures::default();
        process::kill_all(pids, patience, || figures = self.disks.cut(random))?;
        self.number += 1;
        // Other processes may still look at the disk without power.
        finish(Command::new("umount").arg("--lazy").arg(&self.at))?;
        self.mount()?;
        Ok(figures)
    }

    /// Where the file system is.
    pub(crate) fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for LossyDisk {
    fn drop(&mut self) {
        self.disks.power_off();
        // The mount namespace ends with this process, and its mounts with it.
        let mut command = Command::new("umount");
        let _ = command.arg("--lazy").arg(&self.at).stderr(Stdio::null()).status();
        drop(self.session.take());
        let _ = std::fs::remove_dir(&self.below);
    }
}

/// Runs a program of the system.
pub(crate) fn finish(command: &mut Command) -> Result<()> {
    let done = command.stdin(Stdio::null()).output();
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |cause: String| {
        Error::new(Errno::Io, name.clone(), cause)
            .remedy("it needs root, and the tools of the file system")
    };
    let done = done.map_err(|error| failed(error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}
