//! A JuiceFS beside us: a volume with its metadata in SQLite and its content in files of the same
//! disk, its setup for one machine, mounted through FUSE by its own program (`scripts/peers
//! install`).

use std::path::Path;
use std::process::{Command, Stdio};

use cudele::{Errno, Error, Result};

use super::mounted::Fuse;

fn failed(cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, "juicefs", cause.into())
        .remedy("get it with `scripts/peers install`, or leave out --juicefs")
}

/// Makes a volume below a directory, and mounts it. Dropping the result removes both.
pub(crate) fn mount(program: &Path, parent: &Path) -> Result<Fuse> {
    let home = tempfile::tempdir_in(parent).map_err(|error| failed(error.to_string()))?;
    let url = format!("sqlite3://{}", home.path().join("meta.db").display());
    // It takes the part before a slash for a directory only if there is one.
    let bucket = format!("{}/", home.path().join("data").display());
    let mut format = Command::new(program);
    format.args(["format", "--storage", "file", "--bucket", &bucket, &url, "bench"]);
    let output = format.stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(format!("{}: {error}", program.display())))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let at = home.path().join("mount");
    std::fs::create_dir(&at).map_err(|error| failed(error.to_string()))?;
    let mut mount = Command::new(program);
    mount.args(["mount", "--no-usage-report", "--cache-dir"]).arg(home.path().join("cache"));
    mount.arg(url).arg(&at);
    Fuse::start(&mut mount, at, home)
}
