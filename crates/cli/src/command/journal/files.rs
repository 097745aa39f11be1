//! Files that appear as a whole or not at all, and are durable when they do.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use cudele::{Errno, Error, Result};
use terminal::io;

/// Whether an existing file may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Nothing,
    Anything,
}

/// Writes a file durably.
///
/// # Errors
/// `EEXIST` if there is a file that must not be replaced; the error of the system.
pub(super) fn write(path: &Path, bytes: &[u8], over: Over) -> Result<()> {
    let temporary = beside(path)?;
    let written = put(&temporary, path, bytes, over);
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(|error| {
        let there = error.kind() == std::io::ErrorKind::AlreadyExists;
        if there { exists(&path.display().to_string()) } else { io(path, &error) }
    })
}

/// The file exists already.
pub(super) fn exists(name: &str) -> Error {
    Error::new(Errno::Exists, name, "it exists and is something else")
        .remedy("name another place, or replace it with --force")
}

fn put(temporary: &Path, path: &Path, bytes: &[u8], over: Over) -> std::io::Result<()> {
    let mut file = cudele::own_file::create(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match over {
        // Unlike a rename, a link replaces nothing.
        Over::Nothing => {
            fs::hard_link(temporary, path)?;
            fs::remove_file(temporary)?;
        }
        Over::Anything => fs::rename(temporary, path)?,
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The name under which it is written first.
fn beside(path: &Path) -> Result<PathBuf> {
    let Some(name) = path.file_name() else {
        let cause = "this names a directory";
        return Err(
            Error::new(Errno::IsDirectory, path.display().to_string(), cause).remedy("name a file")
        );
    };
    let mut name = name.to_owned();
    name.push(format!(".new.{}", std::process::id()));
    Ok(path.with_file_name(name))
}
