//! `cudele-lab soak`: a cluster under load for hours, with incidents in the order of a seed.
//!
//! A run can be stopped and continued: each piece has a cluster of its own, and the samples and
//! episodes of all pieces are in the same files. Invariant: the run ends at the first broken bound,
//! with a sentence that names the bound, the process, the figure and the seed.

mod disk;
mod drawing;
mod incidents;
mod judge;
mod limits;
mod records;
mod report;
mod sampler;
mod schedule;
mod stage;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use cudele::{Errno, Error, Result};
use terminal::context::Context;

use self::disk::StoreDisk;
use self::judge::{Judge, Verdict};
use self::limits::Limits;
use self::records::{Episode, Records, RunSettings};
use self::sampler::{Outage, Sampler, Watched, locked};
use self::schedule::{Incident, Schedule};
use self::stage::Stage;
use crate::harness::clock::clock_ns;
use crate::lossy::{DiskFormat, LossyDisk};

/// Between two incidents, in milliseconds.
const QUIET: (u64, u64) = (2_000, 5_000);
/// The size of the disk of a client's machine. XFS needs 300 MiB.
const CLIENT_DISK_MIB: u64 = 320;
/// Outages that the sampler remembers.
const OUTAGES: usize = 16;

/// Run a cluster under load through incidents in the order of a seed, sample memory, descriptors,
/// objects, journals and stalls each second, and judge each acknowledged name. The records go to
/// --dir, or to `cudele-soak` below the directory for temporary files.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  \
    cudele-lab soak --minutes 10 --dir /var/tmp/soak\n  \
    cudele-lab soak --continue --dir /var/tmp/soak     go on where an interrupt stopped it\n  \
    cudele-lab soak --minutes 1 --only kill-mds --seed 7")]
pub(crate) struct Args {
    /// Length of the run in hours
    #[arg(long, value_name = "H", conflicts_with = "minutes")]
    hours: Option<f64>,
    /// Length of the run in minutes [default: 10]
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Seed of the order and the details of the incidents
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Continue a run that was stopped, with its own settings, in a new cluster
    #[arg(long = "continue", conflicts_with_all = ["hours", "minutes", "seed", "only"])]
    goes_on: bool,
    /// Incidents to play; given several times, all of these [default: all that this machine can]
    #[arg(long, value_name = "INCIDENT")]
    only: Vec<Incident>,
    /// Metadata servers
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(2..=16))]
    ranks: u16,
    /// Room of the store's file system in memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    store_mib: u64,
    /// File system of the store, on a disk that loses unsynced writes when its power is cut: for
    /// power-cut and client-power-cut [default: a file system in memory]
    #[arg(long, value_name = "FORMAT")]
    disk: Option<DiskFormat>,
    /// Bound of the resident memory of a daemon, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    daemon_mib: u64,
    /// Bound of the resident memory of a client, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    client_mib: u64,
    /// Bound of the open descriptors of each process
    #[arg(long, value_name = "N", default_value_t = 512)]
    descriptors: u64,
    /// Bound of the objects in the store, besides one for each hundred names of the large directory
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    objects: u64,
    /// Bound of the slowest answer outside of announced outages, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100)]
    stall_ms: u64,
    /// Bound of the time after an incident until `cudele health` finds nothing, in seconds
    #[arg(long, value_name = "S", default_value_t = 30)]
    heal_s: u64,
}

/// A piece of a run.
struct Run {
    settings: RunSettings,
    schedule: Schedule,
    records: Records,
    watched: Arc<Watched>,
    judge: Judge,
    stage: Stage,
    /// The number of the next episode.
    next: u64,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<()> {
    let mounts = disk::own_namespace();
    let dir = context.dir.clone().unwrap_or_else(|| std::env::temp_dir().join("cudele-soak"));
    let dir = std::path::absolute(&dir).map_err(|error| terminal::io(&dir, &error))?;
    let records = Records::new(&dir)?;
    let settings = settings(args, &records, mounts)?;
    let interrupted = crate::bench::interrupts()?;
    let mut run = Run::start(args, settings, records, &dir, mounts, interrupted)?;
    let seed = run.settings.seed;
    eprintln!("soak: seed {seed}, {:.0} s, records in {}", run.settings.seconds, dir.display());
    let ended = run.all().and_then(|()| run.end());
    if ended.is_err() {
        keep_logs(&run.stage, &dir);
    }
    let (records, settings) = (run.records.clone(), run.settings.clone());
    drop(run);
    let text = report::write(&records, &settings)?;
    ended.map_err(|error| {
        let sentence = format!("{} (seed {seed}, {})", error.cause, report::place(&records));
        Error::new(error.errno, "soak", sentence).remedy(format!(
            "the records and the logs are in {}; the same seed plays the same incidents",
            dir.display()
        ))
    })?;
    if context.json {
        report::print_json(&records, &settings)
    } else {
        terminal::context::say(&text)
    }
}

/// The settings of a new run, or those of the run that continues.
fn settings(args: &Args, records: &Records, mounts: bool) -> Result<RunSettings> {
    let old = records.settings()?;
    let invalid = |cause: &str, remedy: &str| {
        let at = records.path("soak.json").display().to_string();
        Err(Error::new(Errno::Invalid, at, cause.to_owned()).remedy(remedy.to_owned()))
    };
    match (args.goes_on, old) {
        (true, Some(old)) => return Ok(old),
        (true, None) => return invalid("no run was begun here", "leave --continue out"),
        (false, Some(_)) => {
            let remedy = "--continue goes on with it; another --dir begins a new one";
            return invalid("a run was begun here", remedy);
        }
        (false, None) => {}
    }
    let minutes = args.minutes.unwrap_or(10.0);
    let seconds = args.hours.map_or(minutes * 60.0, |hours| hours * 3600.0);
    if !seconds.is_finite() || seconds <= 0.0 {
        return Err(Error::new(Errno::Invalid, "--hours", "the run has no length"));
    }
    let all = if args.only.is_empty() { Incident::value_variants() } else { &args.only };
    let has_lossy_disk = args.disk.is_some() && mounts;
    let possible = all.iter().copied().filter(|one| {
        (mounts || !one.needs_mounts()) && (has_lossy_disk || !one.needs_lossy_disk())
    });
    let incidents: Vec<Incident> = possible.collect();
    if all.iter().any(|one| !mounts && one.needs_mounts()) {
        eprintln!("soak: without the right to mount there is no full and no refusing disk");
    }
    if let Some(one) = args.only.iter().find(|one| !has_lossy_disk && one.needs_lossy_disk()) {
        let cause = "the store is on no disk that loses writes";
        return Err(Error::new(Errno::Invalid, one.name(), cause)
            .remedy("give `--disk ext4` or `--disk xfs`, as root"));
    }
    if incidents.is_empty() {
        return Err(Error::new(Errno::NotSupported, "--only", "this user may not mount")
            .remedy("run it as root"));
    }
    let limits = Limits {
        daemon_mib: args.daemon_mib,
        client_mib: args.client_mib,
        descriptors: args.descriptors,
        objects: args.objects,
        stall_ms: args.stall_ms,
        heal_s: args.heal_s,
    };
    let (seed, ranks, disk) = (args.seed, args.ranks, args.disk.filter(|_| mounts));
    let settings = RunSettings { seed, seconds, ranks, incidents, limits, disk };
    records.begin(&settings)?;
    Ok(settings)
}

impl Run {
    fn start(
        args: &Args,
        settings: RunSettings,
        records: Records,
        dir: &Path,
        mounts: bool,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self> {
        let samples = records.samples()?;
        let before = samples.last().map_or(0.0, |sample| sample.seconds);
        let piece = samples.last().map_or(0, |sample| sample.piece + 1);
        let next = records.episodes()?.len() as u64;
        // The records of writers belong to the cluster of one piece.
        let writers: Vec<u32> = (0..stage::WRITERS).collect();
        let stale = writers.iter().map(|writer| stage::record_of(dir, *writer));
        for path in stale.chain([stage::record_of_probe(dir)]) {
            let _ = std::fs::remove_file(path);
        }
        let disk =
            mounts.then(|| StoreDisk::new(dir, args.store_mib, settings.disk)).transpose()?;
        let has_client_disk = settings.incidents.contains(&Incident::ClientPowerCut);
        let format = settings.disk.filter(|_| has_client_disk);
        let client_disk = format
            .map(|format| LossyDisk::new(&dir.join("client"), format, CLIENT_DISK_MIB))
            .transpose()?;
        let mut stage = Stage::start(dir, settings.ranks, (disk, client_disk), interrupted)?;
        let watched = Arc::new(Watched {
            limits: settings.limits,
            records: records.clone(),
            before,
            piece,
            dir: stage.cluster.own_dir()?.to_owned(),
            store: incidents::store_dir(&stage)?,
            probe: stage::record_of_probe(dir),
            begin_ns: clock_ns(),
            clients: Mutex::default(),
            outages: Mutex::default(),
            broken: Mutex::default(),
            slowest_us: AtomicU64::new(0),
            probe_lines: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            large_names: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        stage.watched = Some(watched.clone());
        stage.report_clients();
        let of = |writer: u32| (stage::directory_of(writer), stage::record_of(dir, writer));
        let judge = Judge::new(stage::SHARED, writers.into_iter().map(of).collect());
        let schedule = Schedule::new(settings.seed, settings.incidents.clone());
        Ok(Self { settings, schedule, records, watched, judge, stage, next })
    }

    /// Plays incidents until the time is over, an interrupt comes, or a bound is broken.
    fn all(&mut self) -> Result<()> {
        let address = self.stage.cluster.address().parse()?;
        let _sampler = Sampler::start(&self.watched, &address)?;
        while self.watched.seconds() < self.settings.seconds {
            let (incident, mut random) = self.schedule.at(self.next);
            self.stage.wait(Duration::from_millis(random.between(QUIET.0, QUIET.1)));
            self.check()?;
            if self.stage.interrupted.load(Ordering::Relaxed) {
                eprintln!("soak: stopped; --continue goes on");
                return Ok(());
            }
            let episode = self.episode(incident, &mut random)?;
            eprintln!(
                "{:>6.0} s  {:<20}  {}; {} names, {} operations, slowest answer {:.0} ms",
                episode.begin_seconds,
                incident.name(),
                episode.note,
                episode.judged_names,
                episode.operations,
                episode.stall_ms
            );
            self.records.add_episode(&episode)?;
            self.next += 1;
            self.check()?;
        }
        self.hear_probe()?;
        self.check()
    }

    /// Waits until the sampler has all answers that the probe got so far: the second line from now
    /// on covers time after this moment only.
    fn hear_probe(&self) -> Result<()> {
        let lines = || self.watched.probe_lines.load(Ordering::Relaxed);
        let wanted = lines() + 2;
        self.stage.until("the probe has answers", |_| Ok(lines() >= wanted)).map(drop)
    }

    fn check(&self) -> Result<()> {
        if let Some(sentence) = locked(&self.watched.broken).clone() {
            return Err(stage::fault(sentence));
        }
        self.stage.ended_client().map_or(Ok(()), |sentence| Err(stage::fault(sentence)))
    }

    /// Plays an incident, waits until the cluster is well, and judges the names.
    fn episode(&mut self, incident: Incident, random: &mut types::rng::Rng) -> Result<Episode> {
        let (number, begin_seconds) = (self.next, self.watched.seconds());
        let allowance = incident.allowance();
        self.watched.slowest_us.store(0, Ordering::Relaxed);
        let begin_ns = clock_ns();
        let errors = !allowance.errors.is_empty();
        let outage = Outage { begin_ns, end_ns: u64::MAX, stall: allowance.stall, errors };
        let outages =
            |change: &dyn Fn(&mut Vec<Outage>)| change(&mut locked(&self.watched.outages));
        outages(&|all| {
            let surplus = all.len().saturating_sub(OUTAGES);
            all.drain(..surplus);
            all.push(outage);
        });
        let note = incidents::play(&mut self.stage, incident, random, begin_seconds)
            .map_err(|error| stage::fault(format!("{}: {error}", incident.name())))?;
        let end_seconds = self.watched.seconds();
        let healed = self.stage.heal()?;
        self.hear_probe()?;
        // Also the first seconds afterwards: the servers trim their journals then.
        outages(&|all| all.iter_mut().for_each(|one| one.end_ns = one.end_ns.min(clock_ns())));
        let verdict = self.judged(allowance.errors)?;
        #[allow(clippy::cast_precision_loss, reason = "below an hour")]
        let stall_ms = self.watched.slowest_us.load(Ordering::Relaxed) as f64 / 1e3;
        Ok(Episode {
            number,
            incident,
            begin_seconds,
            end_seconds,
            heal_seconds: healed.as_secs_f64(),
            note,
            judged_names: verdict.names,
            operations: verdict.operations,
            refused: verdict.refused,
            stall_ms,
            large_names: self.watched.large_names.load(Ordering::Relaxed),
        })
    }

    fn judged(&mut self, allowed: &[&str]) -> Result<Verdict> {
        let verdict = self.judge.compare(&self.stage.client()?, allowed)?;
        match &verdict.fault {
            Some(sentence) => Err(stage::fault(sentence.clone())),
            None => Ok(verdict),
        }
    }

    /// The last comparison, without load; then the store of the stopped cluster is checked.
    fn end(&mut self) -> Result<()> {
        self.stage.end_clients();
        self.judged(&[])?;
        self.stage.heal()?;
        let large = self.watched.large_names.load(Ordering::Relaxed);
        let found = self.stage.count(stage::LARGE)?;
        if found != large {
            let sentence = format!("names: the large directory has {found} of {large} names");
            return Err(stage::fault(sentence));
        }
        self.stage.cluster.stop()?;
        let report = self.stage.ask(&["fsck"])?;
        let findings = report["findings"].as_array().map_or(0, Vec::len);
        if findings > 0 {
            let first = report["findings"][0].to_string();
            return Err(stage::fault(format!("fsck: {findings} findings, the first is {first}")));
        }
        eprintln!(
            "soak: fsck read {} objects and {} names, and found nothing",
            report["objects"], report["names"]
        );
        Ok(())
    }
}

/// The logs go with the cluster: those of a failed run are kept.
fn keep_logs(stage: &Stage, dir: &Path) {
    let Ok(own) = stage.cluster.own_dir() else { return };
    let to: PathBuf = dir.join("log");
    let _ = std::fs::create_dir_all(&to);
    for entry in std::fs::read_dir(own.join("log")).into_iter().flatten().flatten() {
        let _ = std::fs::copy(entry.path(), to.join(entry.file_name()));
    }
}
