//! A JuiceFS beside us: a volume with its content in files of the same disk, mounted through FUSE
//! by its own program (`scripts/peers install`). Its metadata is in Badger, in the process of the
//! mount and synced with each transaction, or in a Redis server that stores nothing.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use cudele::{Errno, Error, Result};

use super::mounted::{Fuse, Server};

/// Where a volume has its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metadata {
    /// On the disk, in the process of the mount.
    Badger,
    /// In the memory of a Redis server on a Unix socket.
    Redis,
}

fn failed(cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, "juicefs", cause.into())
        .remedy("get it with `scripts/peers install`, or leave out --juicefs")
}

/// Whether this machine has the program of Redis.
pub(crate) fn has_redis() -> bool {
    let mut redis = Command::new("redis-server");
    let redis = redis.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    redis.status().is_ok_and(|status| status.success())
}

/// Makes a volume below a directory, and mounts it. Dropping the result removes both.
pub(crate) fn mount(program: &Path, parent: &Path, metadata: Metadata) -> Result<Fuse> {
    let home = tempfile::tempdir_in(parent).map_err(|error| failed(error.to_string()))?;
    let (server, url) = match metadata {
        Metadata::Badger => (None, below("badger://", &home.path().join("meta"))),
        Metadata::Redis => {
            let socket = home.path().join("redis.sock");
            let mut redis = Command::new("redis-server");
            redis.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
            redis.arg(&socket).arg("--dir").arg(home.path());
            (Some(Server::start(&mut redis, || socket.exists())?), below("unix://", &socket))
        }
    };
    // It takes the part before a slash for a directory only if there is one.
    let bucket = format!("{}/", home.path().join("data").display());
    let mut format = Command::new(program);
    format.args(["format", "--storage", "file", "--bucket", &bucket]).arg(&url).arg("bench");
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
    Ok(Fuse::start(&mut mount, at, home)?.on(server))
}

fn below(scheme: &str, path: &Path) -> OsString {
    let mut url = OsString::from(scheme);
    url.push(path);
    url
}
