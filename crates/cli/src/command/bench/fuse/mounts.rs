//! A mount for an experiment: a process of its own, and a directory.
//!
//! Invariant: dropping it unmounts, ends the process and removes the directory.

use std::path::PathBuf;

use cudele::Result;
use terminal::mount_point::MountPoint;

use crate::command::bench::cluster::TestCluster;
use crate::command::bench::crew::Crew;
use crate::command::bench::job::{Outcome, Served, Task};

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
    pub(crate) fn end(mut self) -> Result<Outcome> {
        match self.process.take() {
            Some(process) => process.go()?.first().cloned(),
            None => Ok(Outcome::default()),
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
