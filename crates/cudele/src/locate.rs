//! Finding a cluster: `--mon`, `$CUDELE_MON`, `--dir` or `$CUDELE_DIR`, the last `cudele up`.

use std::path::{Path, PathBuf};

use net::Address;
use types::{Errno, Error, Result};

/// Where to look for a cluster. An empty one looks at the environment and at the last cluster
/// that this user started.
#[derive(Clone, Debug, Default)]
pub struct Locator {
    /// Address of the monitor.
    pub mon: Option<String>,
    /// Directory of a cluster started by `cudele up`.
    pub dir: Option<PathBuf>,
}

/// A cluster that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Address of its monitor.
    pub mon: Address,
    /// Its directory, if it was found by that.
    pub dir: Option<PathBuf>,
}

impl Locator {
    /// Looks.
    ///
    /// # Errors
    /// `EINVAL` for a malformed address, `ENOENT` if nothing says where a cluster is.
    pub fn find(&self) -> Result<Found> {
        let from_env = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let mon = self.mon.clone().or_else(|| from_env("CUDELE_MON")?.into_string().ok());
        if let Some(mon) = mon {
            return Ok(Found { mon: mon.parse()?, dir: self.dir.clone() });
        }
        let dir = self.dir.clone().or_else(|| from_env("CUDELE_DIR").map(PathBuf::from));
        let dir = dir.or_else(Self::last);
        match dir {
            Some(dir) => Ok(Found { mon: Self::monitor_of(&dir), dir: Some(dir) }),
            None => Err(Error::new(Errno::NotFound, "cluster", "no cluster is known")
                .remedy("start one with `cudele up`, or name one with --mon or --dir")),
        }
    }

    /// The monitor's address in the directory of a cluster.
    #[must_use]
    pub fn monitor_of(dir: &Path) -> Address {
        Address::Unix(dir.join("mon.sock"))
    }

    fn last_file() -> Option<PathBuf> {
        Some(crate::StateDir::root()?.join("last"))
    }

    /// The directory of the last cluster that this user started.
    #[must_use]
    pub fn last() -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let bytes = std::fs::read(Self::last_file()?).ok()?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// Remembers a cluster as the last one started.
    ///
    /// # Errors
    /// `EIO` if the state directory cannot be written.
    pub fn remember(dir: &Path) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let Some(file) = Self::last_file() else { return Ok(()) };
        crate::state::write_durably(&file, dir.as_os_str().as_bytes())
    }
}
