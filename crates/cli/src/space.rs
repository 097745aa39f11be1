//! Paths of the namespace as they come from the command line: bytes, taken from the root.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use cudele::{Attr, Dir, Errno, Error, FileType, Fs, Path, Result};

/// A path and its inode.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedPath {
    /// From the root.
    pub(crate) path: Path,
    /// The attributes of its inode, if that exists.
    pub(crate) attr: Option<Attr>,
}

/// Reads a path of an argument.
///
/// # Errors
/// As of [`cudele::parse_path`].
pub(crate) fn parse(path: &OsStr) -> Result<Path> {
    cudele::parse_path(path.as_bytes())
}

/// Follows a path from the command line.
///
/// # Errors
/// As [`parse`] and [`Fs::walk`]; not if only its last name does not exist.
pub(crate) fn find(fs: &Fs, path: &OsStr) -> Result<ResolvedPath> {
    at(fs, parse(path)?)
}

/// Follows a path.
///
/// # Errors
/// As [`Fs::walk`]; not if only its last name does not exist.
pub(crate) fn at(fs: &Fs, path: Path) -> Result<ResolvedPath> {
    let (_, attr) = fs.walk(&path)?;
    Ok(ResolvedPath { path, attr })
}

impl ResolvedPath {
    /// What it names.
    ///
    /// # Errors
    /// `ENOENT`.
    pub(crate) fn existing(&self) -> Result<Attr> {
        self.attr.ok_or_else(|| Error::of(Errno::NotFound, self.path.to_string()))
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attr.is_some_and(|attr| attr.is_dir())
    }

    /// Its last name; the root is called `/`.
    pub(crate) fn name(&self) -> Vec<u8> {
        self.path.split_last().map_or_else(|| b"/".to_vec(), |(_, name)| name.to_vec())
    }
}

/// Where `path` leads as the target of a move or copy of something called `name`: into it if it is
/// a directory.
///
/// # Errors
/// As [`at`].
pub(crate) fn target(fs: &Fs, path: Path, name: &[u8]) -> Result<ResolvedPath> {
    let place = at(fs, path)?;
    if place.is_dir() { at(fs, place.path.join(name)) } else { Ok(place) }
}

/// The target of a symbolic link, nothing for anything else.
///
/// # Errors
/// `ESTALE` if it is gone.
pub(crate) fn link_target(fs: &Fs, path: &Path, attr: &Attr) -> Result<Option<Vec<u8>>> {
    if attr.file_type() != FileType::Symlink {
        return Ok(None);
    }
    let target = fs.walked(&[(path, attr.ino)], || fs.read_link(attr.ino));
    target.map(Some).map_err(|error| error.about(path.to_string()))
}

/// The directory of a path's last name, opened, and that name.
///
/// # Errors
/// `EINVAL` for the root, and as [`Fs::open_dir`].
pub(crate) fn parent(fs: &Arc<Fs>, path: &Path) -> Result<(Dir, Vec<u8>)> {
    fs.open_parent(path.to_bytes())
}

/// Waits until a command's changes are as durable as their policy promises. An error of the command
/// itself has priority over one of that.
///
/// # Errors
/// The command's, else those of [`Fs::sync`].
pub(crate) fn sync_after<T>(fs: &Fs, result: Result<T>) -> Result<T> {
    let synced = fs.sync();
    let value = result?;
    synced.map_err(|error| error.about("the changes just made"))?;
    Ok(value)
}
