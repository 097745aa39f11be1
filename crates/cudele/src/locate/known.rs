//! The clusters that this user started on this machine: a small file for each in the state
//! directory.
//!
//! Invariant: a command that names no cluster gets the default only if no other known cluster is
//! alive. Otherwise `rm -r` in one shell could reach a cluster that another shell started.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use types::{Errno, Error, Result};

use super::Locator;
use crate::state::{StateDir, io_error, write_durably};

/// The content of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterFile {
    /// The cluster's directory.
    pub(super) dir: PathBuf,
    /// When it was started or stopped last, in nanoseconds since 1970.
    pub(super) changed: i64,
    /// It was stopped with `cudele down`.
    pub(super) stopped: bool,
}

impl ClusterFile {
    /// `running` or `stopped`, a space, the time, a newline, the directory.
    fn to_bytes(&self) -> Vec<u8> {
        let state = if self.stopped { "stopped" } else { "running" };
        let mut bytes = format!("{state} {}\n", self.changed).into_bytes();
        bytes.extend_from_slice(self.dir.as_os_str().as_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (state, changed) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(' ')?;
        let stopped = match state {
            "running" => false,
            "stopped" => true,
            _ => return None,
        };
        let dir = PathBuf::from(OsString::from_vec(bytes[end + 1..].to_vec()));
        Some(Self { dir, changed: changed.parse().ok()?, stopped })
    }
}

/// Records that the cluster in a directory was started or stopped.
///
/// # Errors
/// `EIO` if the state directory cannot be written.
pub(super) fn record(dir: &Path, stopped: bool) -> Result<()> {
    let Some(root) = StateDir::root() else { return Ok(()) };
    let known = ClusterFile { dir: dir.to_owned(), changed: crate::now().0, stopped };
    let name = format!("{:016x}", types::name_hash(dir.as_os_str().as_bytes()));
    write_durably(&root.join("clusters").join(name), &known.to_bytes())
}

/// All recorded clusters with a directory that still exists; the newest first.
fn all() -> Result<Vec<ClusterFile>> {
    let Some(root) = StateDir::root() else { return Ok(Vec::new()) };
    let dir = root.join("clusters");
    let mut all = Vec::new();
    match fs::read_dir(&dir) {
        Ok(entries) => {
            for entry in entries {
                let path = entry.map_err(|error| io_error(&dir, &error))?.path();
                all.extend(fs::read(path).ok().and_then(|bytes| ClusterFile::from_bytes(&bytes)));
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(&dir, &error)),
    }
    // Versions before 0.2 recorded only the newest.
    if let Ok(bytes) = fs::read(root.join("last")) {
        let dir = PathBuf::from(OsString::from_vec(bytes));
        if !all.iter().any(|known| known.dir == dir) {
            all.push(ClusterFile { dir, changed: 0, stopped: false });
        }
    }
    all.retain(|known| known.dir.is_dir());
    all.sort_by_key(|known| std::cmp::Reverse(known.changed));
    // One directory may have been named in several ways.
    let mut seen = BTreeSet::new();
    all.retain(|known| fs::canonicalize(&known.dir).is_ok_and(|dir| seen.insert(dir)));
    Ok(all)
}

/// The cluster that a command means that names none.
///
/// # Errors
/// `ENOENT` if none is known, `EINVAL` if it could be one of several.
pub(super) fn default() -> Result<PathBuf> {
    choose(&all()?, |known| Locator::monitor_of(&known.dir).is_served(&net::Keyring::default()))
}

/// The newest that was not stopped, if no other is alive; if all are stopped, the only one.
fn choose(all: &[ClusterFile], is_alive: impl Fn(&ClusterFile) -> bool) -> Result<PathBuf> {
    let remedy = "name one with --dir DIR or --mon ADDR, or set CUDELE_DIR or CUDELE_MON";
    let alive: Vec<_> = all.iter().filter(|known| is_alive(known)).collect();
    // A monitor that answers was started again by something else than `cudele up`.
    let newest = all.iter().find(|known| !known.stopped || alive.contains(known));
    let listed = |clusters: &[&ClusterFile]| {
        let dirs: Vec<_> = clusters.iter().map(|known| known.dir.display().to_string()).collect();
        dirs.join(", ")
    };
    let ambiguous = |cause| Error::new(Errno::Invalid, "cluster", cause).remedy(remedy);
    match (newest, all) {
        (None, []) => Err(Error::new(Errno::NotFound, "cluster", "no cluster is known")
            .remedy("start one with `cudele up`, or name one with --mon or --dir")),
        (None, [only]) => Ok(only.dir.clone()),
        (None, several) => {
            let dirs = listed(&several.iter().collect::<Vec<_>>());
            Err(ambiguous(format!("no cluster is named, and several are stopped: {dirs}")))
        }
        (Some(newest), _) if alive.iter().all(|known| *known == newest) => Ok(newest.dir.clone()),
        (Some(newest), _) if alive.contains(&newest) => {
            let dirs = listed(&alive);
            Err(ambiguous(format!("no cluster is named, and several are alive: {dirs}")))
        }
        (Some(newest), _) => {
            let (newest, dirs) = (newest.dir.display(), listed(&alive));
            let cause = format!(
                "no cluster is named; the one started last, {newest}, is not alive, but others are: \
                 {dirs}"
            );
            Err(ambiguous(cause))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(dir: &str, changed: i64, stopped: bool) -> ClusterFile {
        ClusterFile { dir: dir.into(), changed, stopped }
    }

    fn chosen(all: &[ClusterFile], alive: &[&str]) -> std::result::Result<String, String> {
        let chosen = choose(all, |known| alive.iter().any(|dir| known.dir == Path::new(dir)));
        chosen.map(|dir| dir.display().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = known("/srv/a\nb", 77, true);
        assert_eq!(ClusterFile::from_bytes(&record.to_bytes()), Some(record));
        for damaged in [&b""[..], b"running", b"running x\n/a", b"other 1\n/a"] {
            assert_eq!(ClusterFile::from_bytes(damaged), None);
        }
    }

    #[test]
    fn the_newest_counts_if_no_other_is_alive() {
        let all = [known("/b", 2, false), known("/a", 1, false)];
        assert_eq!(chosen(&all, &["/b"]), Ok("/b".into()));
        assert_eq!(chosen(&all, &[]), Ok("/b".into()), "its own error says what to do");
        for alive in [&["/a", "/b"][..], &["/a"]] {
            let said = chosen(&all, alive).unwrap_err();
            for word in ["/a", "/b", "--dir", "CUDELE_DIR", "EINVAL"] {
                assert!(said.contains(word), "{word}: {said}");
            }
        }
    }

    #[test]
    fn a_cluster_that_was_stopped_makes_room_for_the_one_that_runs() {
        let all = [known("/b", 2, true), known("/a", 1, false)];
        assert_eq!(chosen(&all, &["/a"]), Ok("/a".into()));
        assert!(chosen(&all, &["/a", "/b"]).unwrap_err().contains("several are alive"));
        let all = [known("/b", 2, true), known("/a", 1, true)];
        assert!(chosen(&all, &[]).unwrap_err().contains("several are stopped: /b, /a"));
        assert_eq!(chosen(&all[..1], &[]), Ok("/b".into()), "it can be checked and repaired");
        assert!(chosen(&[], &[]).unwrap_err().contains("no cluster is known"));
    }
}
