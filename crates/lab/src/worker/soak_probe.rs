//! The client of `soak` that measures how long the system takes to answer.
//!
//! A thread beside it measures how late the machine wakes a thread, so that a busy machine is not
//! taken for a slow server. Invariant: one operation is under way at a time.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cudele::{Dir, Errno, Error, Fs, NewFile, Result};

use super::dialogue::{await_start, sleep_until};
use crate::harness::clock::clock_ns;
use crate::harness::job::JobOutcome;
use crate::harness::soak::{ProbeLine, SoakJob};
use crate::harness::stats::real;

/// How long a line covers.
const WINDOW_NS: u64 = 1_000_000_000;
/// The nap of the thread that measures the machine.
const NAP: Duration = Duration::from_millis(2);
const NAME: &str = "probe";

struct Window {
    begin_ns: u64,
    line: ProbeLine,
}

/// Creates, looks up and unlinks a file in each directory in turn, until the parent ends this
/// process.
pub(super) fn probe(fs: &Arc<Fs>, job: &SoakJob) -> Result<JobOutcome> {
    let dirs = job.dirs.iter().map(|dir| fs.open_dir(dir)).collect::<Result<Vec<_>>>()?;
    let record = File::options().create(true).append(true).open(&job.record);
    let mut record = record.map_err(|error| terminal::io(&job.record, &error))?;
    let late = measure_machine()?;
    await_start()?;
    let mut window = Window::new();
    for dir in dirs.iter().cycle() {
        window.time(|| create(dir));
        window.time(|| dir.lookup(NAME).map(drop));
        window.time(|| dir.unlink(NAME));
        if clock_ns().saturating_sub(window.begin_ns) >= WINDOW_NS {
            window.line.machine_ms = real(late.swap(0, Ordering::Relaxed)) / 1e6;
            let text = serde_json::to_string(&window.line);
            let text = text.map_err(|error| failed(&error.to_string()))?;
            writeln!(record, "{text}").map_err(|error| failed(&error.to_string()))?;
            window = Window::new();
        }
        sleep_until(clock_ns() + u64::try_from(job.pace.as_nanos()).unwrap_or(0));
    }
    Ok(JobOutcome::default())
}

/// A file that a failed unlink has left is no fault of the create.
fn create(dir: &Dir) -> Result<()> {
    match dir.create(NAME, &NewFile::default()) {
        Err(error) if error.errno == Errno::Exists => Ok(()),
        other => other.map(drop),
    }
}

/// Starts the thread that notes the latest wake-up, in nanoseconds.
fn measure_machine() -> Result<Arc<AtomicU64>> {
    let late = Arc::new(AtomicU64::new(0));
    let noted = late.clone();
    let thread = std::thread::Builder::new().name("machine".to_owned()).spawn(move || {
        loop {
            let before = clock_ns();
            std::thread::sleep(NAP);
            let slept = clock_ns().saturating_sub(before);
            let nap = u64::try_from(NAP.as_nanos()).unwrap_or(0);
            noted.fetch_max(slept.saturating_sub(nap), Ordering::Relaxed);
        }
    });
    thread.map_err(|error| failed(&error.to_string()))?;
    Ok(late)
}

fn failed(cause: &str) -> Error {
    Error::new(Errno::Io, "the probe of the soak", cause)
}

impl Window {
    fn new() -> Self {
        let line = ProbeLine { end_ns: 0, slowest_ms: 0.0, machine_ms: 0.0, answers: 0, failed: 0 };
        Self { begin_ns: clock_ns(), line }
    }

    fn time(&mut self, operation: impl FnOnce() -> Result<()>) {
        let before = clock_ns();
        let done = operation();
        let end_ns = clock_ns();
        let took_ms = real(end_ns.saturating_sub(before)) / 1e6;
        if took_ms > self.line.slowest_ms {
            (self.line.slowest_ms, self.line.end_ns) = (took_ms, end_ns);
        }
        self.line.answers += u64::from(done.is_ok());
        self.line.failed += u64::from(done.is_err());
    }
}
