//! A directory to mount on, for the time of a command.

use std::path::{Path, PathBuf};

use cudele::Result;

use crate::io;

/// A new, empty directory to mount on.
#[derive(Debug)]
pub struct MountPoint(PathBuf);

impl MountPoint {
    /// Makes it in the directory for temporary files.
    ///
    /// # Errors
    /// The system's error about that directory.
    pub fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("cudele-").tempdir();
        let dir = dir.map_err(|error| io(&std::env::temp_dir(), &error))?;
        // A removal must spare the content of the directory: it may be mounted on.
        Ok(Self(dir.keep()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        // Refused while it is mounted on: an empty directory is left behind then.
        let _ = std::fs::remove_dir(&self.0);
    }
}
