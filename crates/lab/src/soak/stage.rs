//! The cluster of a run, its clients, and the handles of incidents on both.
//!
//! Invariant: dropping it ends all clients and daemons, in this order.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cudele::{Errno, Error, Fs, MdsState, Result};
use serde_json::Value;
use types::Rank;
use wire::{Answer, Op, ReadOp};

use super::disk::StoreDisk;
use super::sampler::{Watched, locked};
use crate::harness::cluster::{Place, TestCluster, daemons_in, program};
use crate::harness::crew::{Crew, Together};
use crate::harness::job::{Job, Task};
use crate::harness::process;
use crate::harness::soak::{SoakJob, SoakRole};
use crate::lossy::LossyDisk;

/// Small journals, so that a run of minutes fills and trims them, and frequent balancing.
const SETTINGS: [&str; 3] =
    ["segment_bytes_max=524288", "segments_max=4", "balance_interval_ms=1000"];
/// The segments that a journal has before its rank trims it.
pub(super) const SEGMENTS_MAX: u64 = 4;
pub(super) const WRITERS: u32 = 8;
const READERS: u32 = 2;
const WRITER_PACE: Duration = Duration::from_millis(10);
const READER_PACE: Duration = Duration::from_millis(200);
const PROBE_PACE: Duration = Duration::from_millis(5);
const STEP: Duration = Duration::from_millis(20);
/// How long a killed process may take to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Names of a listing in one answer.
const LIST_LIMIT: u32 = 4096;
/// The directory in which all writers work.
pub(super) const SHARED: &str = "/shared";
/// The directory of the incident of the same name.
pub(super) const LARGE: &str = "/large";

struct StageClient {
    name: String,
    job: Job,
    /// `None` while it is killed.
    crew: Option<Crew>,
}

/// See the module documentation.
pub(super) struct Stage {
    clients: Vec<StageClient>,
    pub(super) cluster: TestCluster,
    pub(super) disk: Option<StoreDisk>,
    /// The disk of a client's machine.
    pub(super) client_disk: Option<LossyDisk>,
    pub(super) ranks: u16,
    pub(super) interrupted: Arc<AtomicBool>,
    pub(super) watched: Option<Arc<Watched>>,
    scratches: u64,
}

/// The sentence about a broken bound, as an error.
pub(super) fn fault(sentence: impl Into<String>) -> Error {
    Error::new(Errno::Io, "the soak", sentence.into())
}

/// The record of a writer in the directory of a run.
pub(super) fn record_of(records: &Path, writer: u32) -> PathBuf {
    records.join(format!("writer.{writer}.record"))
}

/// The directory of a writer.
pub(super) fn directory_of(writer: u32) -> String {
    format!("/writer.{writer}")
}

/// The record of the probe.
pub(super) fn record_of_probe(records: &Path) -> PathBuf {
    records.join("probe.jsonl")
}

impl Stage {
    /// Starts the cluster and its clients.
    pub(super) fn start(
        records: &Path,
        ranks: u16,
        (disk, client_disk): (Option<StoreDisk>, Option<LossyDisk>),
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self> {
        let store = disk.as_ref().map(StoreDisk::url);
        let parent = records.to_owned();
        let place = Place { parent, store, state: None, mon: None, group: None };
        let cluster = TestCluster::start_ranks(&place, &SETTINGS.map(str::to_owned), ranks)?;
        let (clients, watched) = (Vec::new(), None);
        let scratches = 0;
        let mut stage =
            Self { clients, cluster, disk, client_disk, ranks, interrupted, watched, scratches };
        stage.up()?;
        stage.make_dirs()?;
        for writer in 0..WRITERS {
            let dirs = vec![directory_of(writer), SHARED.to_owned()];
            let record = record_of(records, writer);
            let job = (writer, SoakRole::Write, dirs, record, WRITER_PACE);
            stage.add(&format!("writer.{writer}"), job)?;
        }
        for reader in 0..READERS {
            let dirs = (0..WRITERS).map(directory_of).chain([SHARED.to_owned()]).collect();
            let job = (reader, SoakRole::Read, dirs, PathBuf::new(), READER_PACE);
            stage.add(&format!("reader.{reader}"), job)?;
        }
        let dirs = (0..ranks).map(|rank| format!("/probe.{rank}")).collect();
        let job = (0, SoakRole::Probe, dirs, record_of_probe(records), PROBE_PACE);
        stage.add("probe", job)?;
        Ok(stage)
    }

    /// The probe works at each rank; half of the writers are left to the balancer.
    fn make_dirs(&self) -> Result<()> {
        let fs = self.cluster.client()?;
        for rank in 0..self.ranks {
            let ino = fs.make_dir(format!("/probe.{rank}"), 0o755)?.ino;
            fs.pin(ino, Rank(rank))?;
        }
        for dir in [SHARED, LARGE] {
            fs.make_dir(dir, 0o755)?;
        }
        for writer in 0..WRITERS {
            let ino = fs.make_dir(directory_of(writer), 0o755)?.ino;
            if writer < WRITERS / 2 {
                let rank = u16::try_from(writer).unwrap_or(0) % self.ranks;
                fs.pin(ino, Rank(rank))?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        name: &str,
        (number, role, dirs, record, pace): (u32, SoakRole, Vec<String>, PathBuf, Duration),
    ) -> Result<()> {
        let job = self.cluster.job(Task::Soak(SoakJob { number, role, dirs, record, pace }));
        self.clients.push(StageClient { name: name.to_owned(), job, crew: None });
        self.start_client(name)
    }

    /// Starts a client, or starts it again.
    pub(super) fn start_client(&mut self, name: &str) -> Result<()> {
        let state = self.cluster.state();
        if let Some(client) = self.clients.iter_mut().find(|client| client.name == name) {
            let mut crew = Crew::ready(std::slice::from_ref(&client.job), &state)?;
            crew.release()?;
            client.crew = Some(crew);
        }
        self.report_clients();
        Ok(())
    }

    /// Kills a client.
    pub(super) fn kill_client(&mut self, name: &str) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.name == name) {
            client.crew = None;
        }
        self.report_clients();
    }

    /// Ends all clients.
    pub(super) fn end_clients(&mut self) {
        self.clients.clear();
        self.report_clients();
    }

    /// Tells the sampler which processes there are.
    pub(super) fn report_clients(&self) {
        let Some(watched) = &self.watched else { return };
        let pid = |client: &StageClient| Some((client.name.clone(), client.crew.as_ref()?.pid()?));
        *locked(&watched.clients) = self.clients.iter().filter_map(pid).collect();
    }

    /// The sentence about a client that ended although no incident killed the client.
    pub(super) fn ended_client(&self) -> Option<String> {
        let ended = |client: &&StageClient| {
            let pid = client.crew.as_ref().and_then(Crew::pid);
            pid.is_some_and(|pid| process::resident_bytes(pid).is_err())
        };
        let client = self.clients.iter().find(ended)?;
        Some(format!("clients: {} has ended by itself", client.name))
    }

    /// Starts all daemons that do not run.
    pub(super) fn up(&self) -> Result<()> {
        let ranks = self.ranks.to_string();
        let mut options = vec!["--mds", &ranks, "--standby", "1"];
        options.extend(SETTINGS.iter().flat_map(|setting| ["--set", setting]));
        self.cluster.up(&options)
    }

    /// The process that serves a rank.
    pub(super) fn server(&self, rank: u16) -> Result<u32> {
        let pids = self.cluster.pids()?;
        let pid = pids.get(usize::from(rank)).copied();
        pid.ok_or_else(|| fault(format!("servers: the map has no rank {rank}")))
    }

    /// The process of the monitor.
    pub(super) fn monitor(&self) -> Result<u32> {
        let daemons = daemons_in(self.cluster.own_dir()?);
        let monitor = daemons.into_iter().find(|(name, _)| name == "mon");
        monitor.map(|(_, pid)| pid).ok_or_else(|| fault("servers: there is no monitor"))
    }

    /// All processes of metadata servers, and standbys.
    pub(super) fn all_servers(&self) -> Result<Vec<u32>> {
        let daemons = daemons_in(self.cluster.own_dir()?);
        let servers = daemons.into_iter().filter(|(name, _)| name != "mon");
        Ok(servers.map(|(_, pid)| pid).collect())
    }

    /// Kills a daemon.
    pub(super) fn kill(&self, pid: u32) -> Result<()> {
        process::kill(pid, PATIENCE)
    }

    /// Whether all ranks are active.
    pub(super) fn is_active(&self) -> Result<bool> {
        let map = self.cluster.status()?;
        let active = map.mds.iter().filter(|entry| entry.state == MdsState::Active).count();
        Ok(active == usize::from(self.ranks))
    }

    /// Waits until `is` holds. Returns how long that took, and fails after the bound for healing.
    pub(super) fn until(
        &self,
        wanted: &str,
        mut is: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<Duration> {
        let bound = self.heal_bound();
        let begin = Instant::now();
        loop {
            if is(self).unwrap_or(false) {
                return Ok(begin.elapsed());
            }
            if begin.elapsed() > bound {
                let seconds = bound.as_secs();
                return Err(fault(format!("healing: after {seconds} s still not: {wanted}")));
            }
            sleep(STEP);
        }
    }

    /// Lets the outage of the present episode last so long.
    pub(super) fn announce(&self, stall: Duration) {
        let Some(watched) = &self.watched else { return };
        if let Some(outage) = locked(&watched.outages).last_mut() {
            outage.stall = Some(stall);
        }
    }

    fn heal_bound(&self) -> Duration {
        self.watched.as_ref().map_or(PATIENCE, |watched| watched.limits.heal())
    }

    /// Waits for so long, or until an interrupt or a broken bound.
    pub(super) fn wait(&self, span: Duration) {
        let begin = Instant::now();
        let broken = |watched: &Arc<Watched>| locked(&watched.broken).is_some();
        while begin.elapsed() < span
            && !self.interrupted.load(Ordering::Relaxed)
            && !self.watched.as_ref().is_some_and(broken)
        {
            sleep(STEP);
        }
    }

    /// The conditions that `cudele health` shows.
    pub(super) fn health(&self) -> Result<Vec<String>> {
        let report = self.ask(&["health"])?;
        let checks = report["checks"].as_array().cloned().unwrap_or_default();
        let code = |check: &Value| check["code"].as_str().unwrap_or("?").to_owned();
        Ok(checks.iter().map(code).collect())
    }

    /// Waits until `cudele health` shows nothing and all ranks are active.
    pub(super) fn heal(&self) -> Result<Duration> {
        let mut last = Vec::new();
        let healed = self.until("`cudele health` finds nothing", |stage| {
            last = stage.health()?;
            Ok(last.is_empty() && stage.is_active()?)
        });
        healed.map_err(|error| fault(format!("{} ({})", error.cause, last.join(", "))))
    }

    /// Runs a command of the product, and returns its output.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = program()?;
        command.args(arguments).args(["--json", "--dir"]).arg(self.cluster.own_dir()?);
        command.env("CUDELE_STATE", self.cluster.state()).stdin(Stdio::null());
        let name = arguments.join(" ");
        let failed = |cause: String| Error::new(Errno::Io, format!("cudele {name}"), cause);
        let done = command.output().map_err(|error| failed(error.to_string()))?;
        if done.stdout.is_empty() {
            return Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()));
        }
        serde_json::from_slice(&done.stdout).map_err(|error| failed(error.to_string()))
    }

    /// A new directory for an incident, at the rank that has the root.
    pub(super) fn scratch(&mut self) -> Result<String> {
        self.scratches += 1;
        let path = format!("/scratch.{}", self.scratches);
        self.cluster.make_dir(&path)?;
        Ok(path)
    }

    /// Removes the directory of an incident.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        let mut command = program()?;
        command.args(["rm", "-r", path, "--dir"]).arg(self.cluster.own_dir()?);
        command.env("CUDELE_STATE", self.cluster.state()).stdin(Stdio::null());
        let done = command.output().map_err(|error| fault(error.to_string()))?;
        if done.status.success() {
            return Ok(());
        }
        let cause = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        Err(fault(format!("scratch: `cudele rm -r {path}` failed: {cause}")))
    }

    /// Lets clients create so many names each in a directory, from this number on, and sync.
    pub(super) fn burst(&self, dir: &str, clients: u64, first: u64, each: u64) -> Result<Together> {
        self.begin_burst(dir, clients, first, each)?.ended()
    }

    /// The same, without waiting for the end.
    pub(super) fn begin_burst(
        &self,
        dir: &str,
        clients: u64,
        first: u64,
        each: u64,
    ) -> Result<Crew> {
        let task = |client| Task::Create {
            dir: dir.to_owned(),
            first: first + client * each,
            files: each,
            sync: true,
            latencies: false,
            alone: false,
        };
        let jobs: Vec<Job> = (0..clients).map(|client| self.cluster.job(task(client))).collect();
        let mut crew = Crew::ready(&jobs, &self.cluster.state())?;
        crew.release()?;
        Ok(crew)
    }

    /// The number of names in a directory, however large.
    pub(super) fn count(&self, path: &str) -> Result<u64> {
        let fs = self.cluster.client()?;
        let dir = fs.stat(path)?.ino;
        let (mut count, mut after) = (0, None::<Vec<u8>>);
        loop {
            let op = ReadOp::List { dir, after: after.as_deref(), limit: LIST_LIMIT, attrs: false };
            let Answer::Entries { entries, more } = fs.call(Op::Read(op))? else {
                return Err(fault("answers: a listing was answered with something else"));
            };
            count += entries.len() as u64;
            after = entries.last().map(|(name, _)| name.clone());
            if !more || after.is_none() {
                return Ok(count);
            }
        }
    }

    /// A client of this process.
    pub(super) fn client(&self) -> Result<Arc<Fs>> {
        self.cluster.client()
    }
}
