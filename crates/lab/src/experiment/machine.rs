//! Facts about the machine, its load, and the versions that ran.

use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use cudele::Timestamp;
use serde::{Deserialize, Serialize};
use terminal::format::minute;

/// See the module documentation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_mb: u64,
    pub(crate) kernel: String,
    /// Of the directory for temporary files, where clusters are.
    pub(crate) file_system: String,
    pub(crate) commit: String,
    /// The commit is not all: there are changes besides.
    pub(crate) changed: bool,
    pub(crate) compiler: String,
}

impl Machine {
    pub(crate) fn here(root: &Path) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let git = |arguments: &[&str]| said(Command::new("git").args(arguments).current_dir(root));
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores,
            memory_mb: field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            kernel: read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| "unknown".into(), |text| text.trim().to_owned()),
            file_system: said(
                Command::new("stat").args(["-f", "-c", "%T"]).arg(std::env::temp_dir()),
            ),
            commit: git(&["rev-parse", "--short=12", "HEAD"]),
            // Results that this program writes do not count as changes.
            changed: !git(&["status", "--porcelain", "--", ".", ":!experiments"]).is_empty(),
            compiler: said(Command::new("rustc").arg("--version")),
        }
    }
}

/// The output of a command; empty if it cannot be started.
fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Processes that run or wait for the disk, mean of the last minute; 0 without the kernel's figure.
pub(crate) fn load() -> f64 {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

/// Civil time in UTC, to the minute.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
    format!("{} UTC", minute(Timestamp(nanos)))
}
