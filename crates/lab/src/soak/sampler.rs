//! The monitor of a run: a sample of all processes each second, held against the bounds.
//!
//! Three threads: one takes samples, one asks the monitor of the cluster for the journals, and one
//! counts objects. The last two may wait long, and a sample has their last answer. Invariant: the
//! first broken bound stays.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use cudele::{Cluster, Errno, Error, Result};
use net::Address;
use walkdir::WalkDir;

use super::judge::tail;
use super::limits::Limits;
use super::records::{Records, Sample};
use crate::harness::clock::clock_ns;
use crate::harness::cluster::daemons_in;
use crate::harness::process;
use crate::harness::soak::ProbeLine;
use crate::harness::stats::seconds_between;

const INTERVAL: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(50);
/// Counting objects takes at most one part of so many of the time.
const COUNT_SHARE: u32 = 10;

/// An announced outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outage {
    pub(crate) begin_ns: u64,
    /// `u64::MAX` until it has ended.
    pub(crate) end_ns: u64,
    pub(crate) stall: Option<Duration>,
    /// Whether requests may fail.
    pub(crate) errors: bool,
}

/// The state that the threads share with the run.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) limits: Limits,
    pub(crate) records: Records,
    /// Seconds of the pieces before this one, and its number.
    pub(crate) before: f64,
    pub(crate) piece: u64,
    pub(crate) dir: PathBuf,
    pub(crate) store: PathBuf,
    pub(crate) probe: PathBuf,
    pub(crate) begin_ns: u64,
    pub(crate) clients: Mutex<Vec<(String, u32)>>,
    pub(crate) outages: Mutex<Vec<Outage>>,
    pub(crate) broken: Mutex<Option<String>>,
    /// The slowest answer since the last episode began, in microseconds.
    pub(crate) slowest_us: AtomicU64,
    /// Lines of the probe that were read.
    pub(crate) probe_lines: AtomicU64,
    pub(crate) segments: AtomicU64,
    pub(crate) objects: AtomicU64,
    pub(crate) large_names: AtomicU64,
    pub(crate) ended: AtomicBool,
}

/// Locks a value that stays usable after a panic.
pub(crate) fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Seconds of work since the run began.
    pub(crate) fn seconds(&self) -> f64 {
        self.before + seconds_between(self.begin_ns, clock_ns())
    }

    /// Notes a broken bound, unless one is broken already.
    pub(crate) fn fail(&self, sentence: String) {
        locked(&self.broken).get_or_insert(sentence);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn sample(&self, offset: &mut u64) -> Result<Sample> {
        let mut sample = Sample {
            seconds: self.seconds(),
            piece: self.piece,
            objects: self.objects.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
            ..Sample::default()
        };
        let clients = locked(&self.clients).clone();
        for (name, pid) in daemons_in(&self.dir).into_iter().chain(clients) {
            // A process that has just ended has no figures.
            let memory = process::resident_bytes(pid);
            let descriptors = process::descriptors(pid);
            if let (Ok(memory), Ok(descriptors)) = (memory, descriptors) {
                sample.memory_kib.insert(name.clone(), memory / 1024);
                sample.descriptors.insert(name, descriptors);
            }
        }
        let text = tail(&self.probe, *offset)?;
        *offset += text.len() as u64;
        for line in text.lines() {
            if let Ok(line) = serde_json::from_str::<ProbeLine>(line) {
                self.take(&mut sample, &line);
                self.probe_lines.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(sample)
    }

    fn take(&self, sample: &mut Sample, line: &ProbeLine) {
        sample.stall_ms = sample.stall_ms.max(line.slowest_ms);
        sample.machine_ms = sample.machine_ms.max(line.machine_ms);
        sample.answers += line.answers;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below an hour"
        )]
        self.slowest_us.fetch_max((line.slowest_ms * 1e3) as u64, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below an hour")]
        let begin_ns = line.end_ns.saturating_sub((line.slowest_ms * 1e6) as u64);
        let during: Vec<Outage> = locked(&self.outages)
            .iter()
            .filter(|one| one.begin_ns <= line.end_ns && begin_ns <= one.end_ns)
            .copied()
            .collect();
        let announced = during.iter().filter_map(|one| one.stall).max();
        if let Some(sentence) = self.limits.stalled(line.slowest_ms, line.machine_ms, announced) {
            self.fail(sentence);
        }
        // Failures have no time of their own: an episode that ended in this second allows them.
        let allowed = locked(&self.outages)
            .iter()
            .any(|one| one.errors && one.end_ns.saturating_add(2_000_000_000) >= line.end_ns);
        if line.failed > 0 && !allowed {
            self.fail(format!("answers: the probe got {} errors in a second", line.failed));
        }
    }

    fn take_samples(&self) -> Result<()> {
        let (mut offset, mut due) = (0, Instant::now());
        while !self.has_ended() {
            let sample = self.sample(&mut offset)?;
            let large = self.large_names.load(Ordering::Relaxed);
            if let Some(sentence) = self.limits.broken_by(&sample, large) {
                self.fail(sentence);
            }
            self.records.add_sample(&sample)?;
            due += INTERVAL;
            while Instant::now() < due && !self.has_ended() {
                sleep(STEP);
            }
        }
        Ok(())
    }

    fn ask_monitor(&self, address: &Address) {
        while !self.has_ended() {
            // Without a monitor the last answer stays.
            if let Ok(map) = Cluster::connect(address).and_then(|cluster| cluster.status()) {
                let counters = map.mds.iter().flat_map(|entry| &entry.counters);
                let segments = counters.filter(|(name, _)| name == "journal_segments");
                let sum = segments.map(|(_, value)| value).sum();
                self.segments.store(sum, Ordering::Relaxed);
            }
            sleep(INTERVAL);
        }
    }

    fn count_objects(&self) {
        while !self.has_ended() {
            let begin = Instant::now();
            let entries = WalkDir::new(self.store.join("objects")).into_iter();
            let files = entries.filter_map(std::result::Result::ok);
            let count = files.filter(|entry| entry.file_type().is_file()).count();
            self.objects.store(count as u64, Ordering::Relaxed);
            let pause = begin.elapsed().saturating_mul(COUNT_SHARE).max(INTERVAL);
            let begin = Instant::now();
            while begin.elapsed() < pause && !self.has_ended() {
                sleep(STEP);
            }
        }
    }
}

/// The threads. Dropping them ends them.
pub(crate) struct Sampler {
    watched: Arc<Watched>,
    threads: Vec<JoinHandle<()>>,
}

impl Sampler {
    pub(crate) fn start(watched: &Arc<Watched>, address: &Address) -> Result<Self> {
        let mut sampler = Self { watched: watched.clone(), threads: Vec::new() };
        let (of, at) = (watched.clone(), address.clone());
        sampler.spawn("samples", move || {
            if let Err(error) = of.take_samples() {
                of.fail(format!("samples: {error}"));
            }
        })?;
        let of = watched.clone();
        sampler.spawn("journals", move || of.ask_monitor(&at))?;
        let of = watched.clone();
        sampler.spawn("objects", move || of.count_objects())?;
        Ok(sampler)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        let failed =
            |error: std::io::Error| Error::new(Errno::Again, "a thread", error.to_string());
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.watched.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in it was printed.
            let _ = thread.join();
        }
    }
}
