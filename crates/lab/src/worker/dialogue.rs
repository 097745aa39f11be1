//! The dialogue of a client process with its parent, and the measured part between the lines.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use cudele::{Cluster, Errno, Error, Fs, Result};

use crate::harness::clock::{clock_ns, cpu_ns};
use crate::harness::job::{Job, JobOutcome, MIDDLE, READY};
use crate::harness::process;
use crate::harness::stats::{quantile, real, seconds_between};

pub(super) fn mount(job: &Job) -> Result<Arc<Fs>> {
    let address = job.mon.parse()?;
    match &job.key {
        Some(key) => Cluster::connect_with(&address, &net::Keyring::of(key))?.mount(),
        None => Cluster::connect(&address)?.mount(),
    }
}

pub(super) fn pipe(cause: &str) -> Error {
    Error::new(Errno::Io, "bench --worker", cause)
        .remedy("it is started by `cudele bench`, not by hand")
}

pub(super) fn line() -> Result<String> {
    let mut text = String::new();
    let count = std::io::stdin().lock().read_line(&mut text);
    match count {
        Ok(0) => Err(pipe("the parent went away")),
        Ok(_) => Ok(text.trim_end().to_owned()),
        Err(error) => Err(pipe(&error.to_string())),
    }
}

pub(super) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    written.map_err(|error| pipe(&error.to_string()))
}

/// The barrier: says that everything is prepared, and waits for the parent.
pub(super) fn await_start() -> Result<()> {
    say(READY)?;
    line().map(|_| ())
}

/// The barrier with a time: the parent says when the start is on the machine's clock.
pub(super) fn await_start_time() -> Result<u64> {
    say(READY)?;
    let text = line()?;
    let time = text.split_whitespace().nth(1).and_then(|time| time.parse().ok());
    time.ok_or_else(|| pipe("the start has no time"))
}

/// Waits until the parent reports the end of the rest.
pub(super) fn await_end() -> Result<()> {
    line().map(|_| ())
}

/// Says that half of the work is done, and waits for the parent.
pub(super) fn await_middle() -> Result<()> {
    say(MIDDLE)?;
    line().map(|_| ())
}

/// Sleeps until a time of the machine's clock.
pub(super) fn sleep_until(time_ns: u64) {
    std::thread::sleep(Duration::from_nanos(time_ns.saturating_sub(clock_ns())));
}

/// Bytes that this process had written to disks so far, in whole pages; 0 where the kernel does not
/// say.
pub(super) fn disk_bytes() -> u64 {
    process::written_bytes(std::process::id()).unwrap_or(0)
}

/// The most memory that this process had so far.
pub(super) fn peak_bytes() -> u64 {
    process::peak_bytes(std::process::id()).unwrap_or(0)
}

/// The measured part of a job.
pub(super) struct Stopwatch {
    start_ns: u64,
    cpu_ns: u64,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self { cpu_ns: cpu_ns(), start_ns: clock_ns() }
    }

    pub(super) fn stop(&self, outcome: &mut JobOutcome) {
        outcome.end_ns = clock_ns();
        outcome.start_ns = self.start_ns;
        outcome.cpu_seconds = seconds_between(self.cpu_ns, cpu_ns());
    }
}

/// An outcome's figures of latencies that were taken in tenths of a microsecond.
pub(super) fn latencies_us(mut tenths: Vec<u32>) -> [f64; 4] {
    tenths.sort_unstable();
    let at = |per_mille| real(u64::from(quantile(&tenths, per_mille))) / 10.0;
    [500, 990, 999, 1000].map(at)
}
