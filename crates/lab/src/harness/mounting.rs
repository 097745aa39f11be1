//! A mount for an experiment: a process of its own, and a directory.
//!
//! Invariant: dropping it unmounts, ends the process and removes the directory.

use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Result};
use terminal::mount_point::MountPoint;

use super::cluster::TestCluster;
use super::crew::Crew;
use super::job::{JobOutcome, Served, Task};
use super::lab::policy;

/// See the module documentation.
pub(crate) struct Mount {
    /// Before the directory: in this order they are dropped.
    process: Option<Crew>,
    at: MountPoint,
}

impl Mount {
    /// Mounts, and comes back when it is.
    pub(crate) fn new(cluster: &TestCluster, what: Served) -> Result<Self> {
        let mut mount = Self { process: None, at: MountPoint::new()? };
        let at = mount.at.path().to_owned();
        let process = Crew::ready(&[cluster.job(Task::Serve { at, what })], &cluster.state())?;
        mount.process = Some(process);
        Ok(mount)
    }

    /// Where a path of the namespace is in it.
    pub(crate) fn dir(&self, path: &str) -> PathBuf {
        self.at.path().join(path.trim_start_matches('/'))
    }

    /// The process behind it.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().and_then(Crew::pid).unwrap_or_default()
    }

    /// Unmounts, and returns the remaining work of the process.
    pub(crate) fn end(mut self) -> Result<JobOutcome> {
        match self.process.take() {
            Some(process) => process.go()?.first().cloned(),
            None => Ok(JobOutcome::default()),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.process.take().is_some() {
            // Its process is gone, and everything in it fails: the result has no reader.
            let _ = mount::unmount(self.at.path(), true);
        }
    }
}

/// Whether this machine can mount.
pub(crate) fn possible() -> Result<()> {
    let missing = |cause: &str| {
        Err(Error::new(Errno::NotSupported, "bench fuse", cause).remedy(
            "it needs /dev/fuse, and either root or fusermount3 (Debian's package fuse3); the \
             other experiments do without",
        ))
    };
    if !Path::new("/dev/fuse").exists() {
        return missing("this machine has no /dev/fuse");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper = std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists());
    if !rustix::process::geteuid().is_root() && !helper {
        return missing("only root can mount here: there is no fusermount3");
    }
    Ok(())
}

/// A new directory of the cluster, decoupled and mounted.
pub(crate) fn decoupled(
    cluster: &TestCluster,
    inodes: u64,
    merge: bool,
) -> Result<(Mount, PathBuf)> {
    let path = cluster.directory(None)?;
    let policy = policy("batchfs", inodes)?.to_yaml();
    let mount = Mount::new(cluster, Served::Decoupled { dir: path.clone(), policy, merge })?;
    let dir = mount.dir(&path);
    Ok((mount, dir))
}
