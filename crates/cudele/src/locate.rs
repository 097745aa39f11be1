//! Finding a cluster: `--mon`, `$CUDELE_MON`, `--dir` or `$CUDELE_DIR`, the only one of this user's
//! that is alive.

mod known;

use std::path::{Path, PathBuf};

use net::{Address, Keyring};
use types::Result;

/// Where to look for a cluster. An empty locator looks at the environment, and takes the cluster
/// that this user started last if no other cluster of this user is alive.
#[derive(Clone, Debug, Default)]
pub struct Locator {
    /// Address of the monitor.
    pub mon: Option<String>,
    /// Directory of a cluster started by `cudele up`.
    pub dir: Option<PathBuf>,
    /// File with the key for connections over TCP; else `$CUDELE_KEY`, or the key of the daemons in
    /// the directory of the cluster, where this user may read it.
    pub key: Option<PathBuf>,
}

/// A cluster that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCluster {
    /// Address of its monitor.
    pub mon: Address,
    /// Its directory, if it was found by that.
    pub dir: Option<PathBuf>,
    /// The key for connections over TCP.
    pub keys: Keyring,
}

impl Locator {
    /// Looks.
    ///
    /// # Errors
    /// `EINVAL` for a malformed address, or if the choice is among several clusters; `ENOENT` if no
    /// cluster is known.
    pub fn find(&self) -> Result<FoundCluster> {
        let from_env = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let mon = self.mon.clone().or_else(|| from_env("CUDELE_MON")?.into_string().ok());
        if let Some(mon) = mon {
            let keys = self.keys(self.dir.as_deref());
            return Ok(FoundCluster { mon: mon.parse()?, dir: self.dir.clone(), keys });
        }
        let dir = self.dir.clone().or_else(|| from_env("CUDELE_DIR").map(PathBuf::from));
        let dir = dir.map_or_else(known::default, Ok)?;
        let keys = self.keys(Some(&dir));
        Ok(FoundCluster { mon: Self::monitor_of(&dir), dir: Some(dir), keys })
    }

    /// The key for connections over TCP, for the cluster in this directory.
    #[must_use]
    pub fn keys(&self, dir: Option<&Path>) -> Keyring {
        let named = std::env::var_os("CUDELE_KEY").filter(|value| !value.is_empty());
        match self.key.clone().or_else(|| named.map(PathBuf::from)) {
            Some(file) => Keyring::of(&file),
            None => dir.map(Keyring::of_cluster).unwrap_or_default(),
        }
    }

    /// The monitor's address in the directory of a cluster.
    #[must_use]
    pub fn monitor_of(dir: &Path) -> Address {
        Address::Unix(dir.join("mon.sock"))
    }

    /// Remembers that the cluster in a directory was started: it may become the default of
    /// commands that name no cluster.
    ///
    /// # Errors
    /// `EIO` if the state directory cannot be written.
    pub fn remember(dir: &Path) -> Result<()> {
        known::record(dir, false)
    }

    /// Remembers that the cluster in a directory was stopped.
    ///
    /// # Errors
    /// As [`Locator::remember`].
    pub fn remember_stopped(dir: &Path) -> Result<()> {
        known::record(dir, true)
    }
}
