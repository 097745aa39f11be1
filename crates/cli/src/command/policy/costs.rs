//! The costs of the mechanisms on this machine: from a file, or measured now.

use std::io::Seek;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use advise::Costs;
use cudele::{Errno, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use terminal::context::Context;
use terminal::costs::of_rows;

use crate::command::bench;

/// Time between two looks at the benchmark.
const STEP: Duration = Duration::from_millis(20);

/// Reads the output of `cudele bench mechanisms --json`, or runs it.
pub(super) fn read(context: &Context, file: Option<&PathBuf>) -> Result<Costs> {
    match file {
        Some(file) => {
            let text = std::fs::read(file).map_err(|error| terminal::io(file, &error))?;
            let rows = serde_json::from_slice(&text).map_err(|error| not_costs(file, &error))?;
            of_rows(&rows).ok_or_else(|| not_costs(file, &"a mechanism is not among its rows"))
        }
        None => {
            if !context.json {
                eprintln!(
                    "measuring what the mechanisms cost here; --costs FILE uses what was measured before"
                );
            }
            let rows = measured(context)?;
            of_rows(&rows)
                .ok_or_else(|| not_costs(Path::new("bench"), &"a mechanism was not measured"))
        }
    }
}

fn not_costs(file: &Path, why: &dyn std::fmt::Display) -> Error {
    let cause = format!("it does not say what the mechanisms cost: {why}");
    Error::new(Errno::Invalid, file.display().to_string(), cause)
        .remedy("write it with `cudele bench mechanisms --json > costs.json`")
}

/// The rows of `cudele bench mechanisms`, run now. It ends its cluster before this process ends,
/// also after an interrupt.
fn measured(context: &Context) -> Result<Value> {
    let failed = |errno, cause: String| {
        Error::new(errno, "cudele bench mechanisms", cause)
            .remedy("its own message is above; --costs FILE uses what was measured before")
    };
    let io = |error: std::io::Error| failed(Errno::Io, error.to_string());
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(io)?;
    }
    // A file, because a pipe would have to be read while the benchmark runs.
    let mut printed = tempfile::tempfile().map_err(io)?;
    let mut command = bench::lab(context, true)?;
    command.args(["mechanisms", "--repeat", "1"]).stdout(printed.try_clone().map_err(io)?);
    let mut child = command.spawn().map_err(io)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(io)? {
            break status;
        }
        if interrupted.load(Ordering::Relaxed)
            && let Some(pid) = child.id().try_into().ok().and_then(Pid::from_raw)
        {
            // A second signal does not hurt: the benchmark only sets a flag.
            let _ = kill_process(pid, Signal::TERM);
        }
        std::thread::sleep(STEP);
    };
    if interrupted.load(Ordering::Relaxed) {
        return Err(Error::of(Errno::Canceled, "bench"));
    }
    if !status.success() {
        return Err(failed(Errno::Io, status.to_string()));
    }
    printed.rewind().map_err(io)?;
    serde_json::from_reader(printed).map_err(|error| failed(Errno::Io, error.to_string()))
}
