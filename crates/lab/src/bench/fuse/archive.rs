//! The archive that is unpacked: `--archive`, or a part of this machine's files packed for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use cudele::{Errno, Error, Result};
use tempfile::TempDir;
use terminal::io;
use walkdir::WalkDir;

use crate::harness::lab::Lab;

/// Source trees that machines have, the most typical first.
const SOURCES: [&str; 3] = ["/usr/include", "/usr/share/doc", "/usr/share"];
/// Entries that are packed, and for `--quick`.
const ENTRIES_MAX: usize = 20_000;
const ENTRIES_MAX_QUICK: usize = 300;
/// A smaller archive does not represent a source tree.
const ENTRIES_MIN: usize = 200;

/// See the module documentation.
pub(super) struct Archive {
    path: PathBuf,
    entries: u64,
    /// Removed with it.
    _home: Option<TempDir>,
}

fn failed(cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, "tar", cause.into())
}

impl Archive {
    /// The archive for an experiment.
    pub(super) fn of(lab: &Lab) -> Result<Self> {
        let Some(path) = &lab.archive else { return Self::pack(lab) };
        let path = std::path::absolute(path).map_err(|error| io(path, &error))?;
        Ok(Self { entries: count(&path)?, path, _home: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Files, directories and links in it.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    fn pack(lab: &Lab) -> Result<Self> {
        let limit = if lab.quick { ENTRIES_MAX_QUICK } else { ENTRIES_MAX };
        let names = |source: &str| {
            let walk = WalkDir::new(source).sort_by_file_name().into_iter();
            let found = walk.filter_map(std::result::Result::ok).map(walkdir::DirEntry::into_path);
            found.take(limit).collect::<Vec<_>>()
        };
        let found = SOURCES.into_iter().map(names);
        let found =
            found.into_iter().find(|names| names.len() >= ENTRIES_MIN).ok_or_else(|| {
                failed("this machine has no tree to pack").remedy("name one with --archive")
            })?;
        let parent = &lab.place.parent;
        let home = tempfile::tempdir_in(parent).map_err(|error| io(parent, &error))?;
        let (path, list) = (home.path().join("tree.tar"), home.path().join("names"));
        let mut text = std::fs::File::create(&list).map_err(|error| io(&list, &error))?;
        for name in &found {
            let name = name.strip_prefix("/").unwrap_or(name);
            text.write_all(name.as_os_str().as_encoded_bytes())
                .and_then(|()| text.write_all(b"\0"))
                .map_err(|error| io(&list, &error))?;
        }
        let mut tar = Command::new("tar");
        tar.arg("cf").arg(&path).args(["-C", "/", "--no-recursion", "--null", "-T"]).arg(&list);
        let done = tar.output().map_err(|error| failed(error.to_string()))?;
        if !done.status.success() {
            return Err(failed(String::from_utf8_lossy(&done.stderr).into_owned()));
        }
        Ok(Self { entries: count(&path)?, path, _home: Some(home) })
    }
}

fn count(path: &Path) -> Result<u64> {
    let done = Command::new("tar").arg("tf").arg(path).output();
    let done = done.map_err(|error| failed(error.to_string()))?;
    if !done.status.success() {
        return Err(failed(String::from_utf8_lossy(&done.stderr).into_owned()));
    }
    Ok(done.stdout.iter().filter(|byte| **byte == b'\n').count() as u64)
}
