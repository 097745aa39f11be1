//! A CephFS beside us: its metadata server's counters and settings, through Ceph's own command, and
//! a mount of it by `ceph-fuse`. The clients through its library are in `worker/cephfs.rs`.
//!
//! Rows of it stand on the disks and with the copies of its own cluster, which is why they say so.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cudele::{Errno, Error, Result};
use serde_json::Value;

use super::mounted::Fuse;
use crate::harness::row::Row;

/// The file system of a cluster.
pub(crate) struct Peer {
    conf: PathBuf,
}

/// The counters of its metadata server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// Requests of clients.
    pub(crate) requests: f64,
    /// Look-ups among them.
    pub(crate) lookups: f64,
}

fn failed(what: &str, cause: impl Into<String>) -> Error {
    Error::new(Errno::Io, what, cause.into())
        .remedy("check with `ceph -s` that the file system of --cephfs is there and active")
}

impl Peer {
    pub(crate) fn new(conf: &Path) -> Self {
        Self { conf: conf.to_owned() }
    }

    pub(crate) fn conf(&self) -> &Path {
        &self.conf
    }

    /// A row of its figures.
    pub(crate) fn row(bench: &'static str, name: impl Into<String>, files: u64) -> Row {
        let mut row = Row::new(bench, name, files);
        "rados".clone_into(&mut row.store);
        row
    }

    /// A directory without other users.
    pub(crate) fn directory(&self, name: &str) -> String {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        format!("/{name}.{}.{}", std::process::id(), since.map_or(0, |since| since.as_nanos()))
    }

    fn tell(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let mut command = Command::new("ceph");
        command.arg("--conf").arg(&self.conf).args(["--connect-timeout", "20", "tell", "mds.0"]);
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| failed("ceph", error.to_string()))?;
        let Output { status, stdout, stderr } = output;
        if status.success() {
            return Ok(stdout);
        }
        Err(failed("ceph tell mds.0", String::from_utf8_lossy(&stderr).trim()))
    }

    /// The metadata server's counters since it started.
    pub(crate) fn counted(&self) -> Result<Counted> {
        let text = self.tell(&["perf", "dump"])?;
        let all: Value = serde_json::from_slice(&text)
            .map_err(|error| failed("ceph tell mds.0 perf dump", error.to_string()))?;
        counted(&all).ok_or_else(|| failed("ceph tell mds.0 perf dump", "its counters are missing"))
    }

    /// Has the metadata server work with another setting from now on.
    pub(crate) fn set(&self, setting: &str, value: &str) -> Result<()> {
        self.tell(&["config", "set", setting, value]).map(drop)
    }

    /// The value that a setting has.
    pub(crate) fn setting(&self, setting: &str) -> Result<String> {
        let text = self.tell(&["config", "get", setting])?;
        let said: Value = serde_json::from_slice(&text).unwrap_or_default();
        let value = said[setting].as_str().map(str::to_owned);
        value.ok_or_else(|| failed("ceph tell mds.0 config get", format!("no {setting}")))
    }

    /// Mounts it through FUSE, as programs use it.
    pub(crate) fn mount(&self) -> Result<Fuse> {
        let home = tempfile::tempdir().map_err(|error| failed("ceph-fuse", error.to_string()))?;
        let at = home.path().to_owned();
        let mut command = Command::new("ceph-fuse");
        command.args(["-f", "--conf"]).arg(&self.conf).arg(&at);
        Fuse::start(&mut command, at, home)
    }
}

fn counted(all: &Value) -> Option<Counted> {
    let server = &all["mds_server"];
    let lookups = server["req_lookup_latency"]["avgcount"].as_f64()?;
    Some(Counted { requests: server["handle_client_request"].as_f64()?, lookups })
}

impl Counted {
    pub(crate) fn since(self, before: Self) -> Self {
        Self { requests: self.requests - before.requests, lookups: self.lookups - before.lookups }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::counted;

    #[test]
    fn counters_are_those_of_the_metadata_server() {
        let said = json!({"mds_server": {
            "handle_client_request": 70, "req_lookup_latency": {"avgcount": 30, "sum": 0.1},
        }});
        let found = counted(&said).unwrap();
        assert_eq!((found.requests, found.lookups), (70.0, 30.0));
        assert!(counted(&json!({"mds": {}})).is_none());
    }
}
