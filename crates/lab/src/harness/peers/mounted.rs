//! A mount of a peer's file system by a program of its own, which runs as long as it is mounted.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cudele::{Errno, Error, Result};

/// Longer than mounting takes, and ending.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);

/// See the module documentation. It is unmounted when it is dropped.
pub(crate) struct Fuse {
    child: Child,
    at: PathBuf,
    /// Ends after the mount, and before its files are removed.
    server: Option<Server>,
    /// Removed with it.
    _home: tempfile::TempDir,
}

/// A server of a peer, for as long as this value exists.
pub(crate) struct Server(Child);

impl Server {
    /// Starts a program in the foreground, and waits until it is ready.
    pub(crate) fn start(command: &mut Command, ready: impl Fn() -> bool) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |cause: String| {
            Error::new(Errno::Io, &name, cause)
                .remedy("install it (scripts/peers install), or leave the peer out")
        };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self(command.spawn().map_err(|error| failed(error.to_string()))?);
        let start = Instant::now();
        while !ready() {
            let ended = server.0.try_wait().map_err(|error| failed(error.to_string()))?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                return Err(failed("it did not begin to serve".to_owned()));
            }
            std::thread::sleep(STEP);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Fuse {
    /// Starts a program in the foreground, and waits until it has mounted.
    pub(crate) fn start(
        command: &mut Command,
        at: PathBuf,
        home: tempfile::TempDir,
    ) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |cause: String| {
            Error::new(Errno::Io, &name, cause)
                .remedy("install it (scripts/peers install), or leave the peer out")
        };
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut fuse = Self { child, at, server: None, _home: home };
        let start = Instant::now();
        while !is_mounted(&fuse.at) {
            let ended = fuse.child.try_wait().map_err(|error| failed(error.to_string()))?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                return Err(failed("it did not mount its file system".to_owned()));
            }
            std::thread::sleep(STEP);
        }
        Ok(fuse)
    }

    /// The mount needs this server.
    pub(crate) fn on(mut self, server: Option<Server>) -> Self {
        self.server = server;
        self
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.at
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

fn is_mounted(at: &Path) -> bool {
    let Ok(all) = std::fs::read_to_string("/proc/self/mounts") else { return false };
    all.lines().any(|line| line.split(' ').nth(1).is_some_and(|dir| Path::new(dir) == at))
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let unmount = |lazy: &[&str]| {
            let mut command = Command::new("umount");
            let command = command.args(lazy).arg(&self.at);
            command.stdout(Stdio::null()).stderr(Stdio::null()).status()
        };
        if is_mounted(&self.at) && !unmount(&[]).is_ok_and(|status| status.success()) {
            let _ = unmount(&["-l"]);
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(STEP);
        }
    }
}
