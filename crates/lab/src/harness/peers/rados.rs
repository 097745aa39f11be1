//! The speed of a Ceph cluster without us: its own `rados bench`, with objects as large as ours and
//! as many under way.

use std::process::Command;

use cudele::{Errno, Error, Result};

/// The size of objects, equal to the store's pieces of a larger object.
const OBJECT_BYTES: u64 = 4 << 20;
/// The number under way: a journal is handed over in steps of this many (32 MiB).
const DEPTH: &str = "8";
/// No run takes longer, in seconds.
const SECONDS_MAX: &str = "60";

/// Writes at least this many bytes to the pool of this store's address, and removes them. Returns
/// MB (10^6) per second; None for a store that is not in a Ceph cluster.
///
/// # Errors
/// If Ceph's `rados` is not installed, or says nothing of its bandwidth.
pub(crate) fn rados_bench(url: &str, bytes: u64) -> Result<Option<f64>> {
    let Some(rest) = url.strip_prefix("rados://") else { return Ok(None) };
    let (pool, options) = rest.split_once('?').unwrap_or((rest, ""));
    let options = || options.split('&').filter_map(|option| option.split_once('='));
    let option = |name: &str| options().find(|(key, _)| *key == name).map(|(_, value)| value);
    let mut program = Command::new("rados");
    for (flag, name) in [("--conf", "conf"), ("--keyring", "keyring"), ("--id", "id")] {
        if let Some(value) = option(name) {
            program.args([flag, value]);
        }
    }
    let pool = option("journal_pool").unwrap_or(pool);
    program.args(["--pool", pool, "--namespace", "cudele.bench", "bench", SECONDS_MAX, "write"]);
    program.args(["-b", &OBJECT_BYTES.to_string(), "-t", DEPTH]);
    program.args(["--max-objects", &bytes.div_ceil(OBJECT_BYTES).max(1).to_string()]);
    let failed = |cause: String| {
        Error::new(Errno::Io, "rados bench", cause)
            .remedy("install ceph-common, or use another store")
    };
    let output = program.output().map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.strip_prefix("Bandwidth (MB/sec):"));
    // Its MB are MiB.
    let rate = line.and_then(|text| text.trim().parse::<f64>().ok());
    let rate = rate.ok_or_else(|| failed(String::from_utf8_lossy(&output.stderr).into_owned()))?;
    Ok(Some(rate * f64::from(1 << 20) / 1e6))
}
