//! A cluster of several ranks, each with the same small share of one processor (`share`), and their
//! work while clients work: clients and the rest have the remaining time, so ranks limit and not
//! the machine.
//!
//! All of them, and their clients, are on one processor. On several, a rank that works alone would
//! find clients on its own, and ranks that take turns would find them on further ones, which sleep
//! and cost a rank more to wake than a create does: the wake-ups would be compared, and not the
//! ranks.
//!
//! Rates are those of such ranks, and not of this machine. Only a speed-up can be compared, against
//! all work on one rank under the same share. The observer asks the monitor and the kernel, never
//! the ranks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudele::{Cluster, MdsEntry, Result};
use types::Rank;

use super::cluster::TestCluster;
use super::crew::{Crew, Together};
use super::job::{Job, Task};
use super::lab::Lab;
use super::process;
use super::row::Row;
use super::share::{OneProcessor, Share};
use super::stats::real;

/// How often ranks decide: an experiment takes seconds, and not the ten minutes of the paper's.
const INTERVAL: &str = "balance_interval_ms=500";
const HALF_LIFE: &str = "balance_half_life_ms=500";
/// The interval of the questions to the monitor.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Servers report twice in a second.
const BEACON: Duration = Duration::from_millis(600);
/// A row's figures of ranks, by their number.
const RANKS: [&str; 8] =
    ["rank_0", "rank_1", "rank_2", "rank_3", "rank_4", "rank_5", "rank_6", "rank_7"];

/// See the module documentation.
pub(crate) struct Rationed {
    // It goes before the processes do.
    limits: Share,
    /// The part of one processor that each rank has.
    share: f64,
    pub(crate) cluster: TestCluster,
    _processor: OneProcessor,
    pids: Vec<u32>,
}

/// The joint work of clients and ranks.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) together: Together,
    /// The part of one processor that each rank had.
    share: f64,
    /// Processor time of the ranks.
    ranks_cpu: f64,
    /// Counters of all ranks together, how much they grew.
    forwards: f64,
    moves: f64,
    flushed: f64,
    /// Requests of each rank in each second.
    pub(crate) seconds: Vec<Vec<f64>>,
}

impl Rationed {
    /// A cluster with this many ranks that decide twice in a second, and a balancer policy that
    /// moves nothing.
    ///
    /// # Errors
    /// As [`Lab::cluster`] and [`Share::of`].
    pub(crate) fn new(lab: &Lab, ranks: u16, settings: &[&str]) -> Result<Self> {
        let settings = [&[INTERVAL, HALF_LIFE], settings].concat();
        let processor = OneProcessor::here()?;
        let cluster = lab.cluster_of(&settings, ranks)?;
        let pids = cluster.pids()?;
        let limits = Share::of(&pids, lab.share)?;
        Ok(Self { limits, share: lab.share, cluster, _processor: processor, pids })
    }

    /// Puts a shipped policy in force.
    pub(crate) fn policy(&self, name: &str) -> Result<()> {
        self.cluster.shipped_balancer(name)
    }

    /// Empty directories.
    pub(crate) fn directories(&self, count: u32) -> Result<Vec<String>> {
        (0..count).map(|_| self.cluster.directory(None)).collect()
    }

    /// Gives directories to the ranks in turn.
    pub(crate) fn spread(&self, dirs: &[String], ranks: u16) -> Result<()> {
        let fs = self.cluster.client()?;
        for (dir, rank) in dirs.iter().zip((0..ranks).cycle()) {
            fs.pin(fs.stat(dir)?.ino, Rank(rank))?;
        }
        Ok(())
    }

    /// Lets clients work while ranks have their share, and no more.
    pub(crate) fn work(&self, tasks: Vec<Task>) -> Result<Measured> {
        let jobs: Vec<Job> = tasks.into_iter().map(|task| self.cluster.job(task)).collect();
        let crew = Crew::ready(&jobs, &self.cluster.state())?;
        let before = self.totals()?;
        self.limits.impose()?;
        let watched = self.watch(|| crew.go());
        self.limits.lift()?;
        let (together, seconds) = watched?;
        let cpu = self.cpu_seconds()?;
        std::thread::sleep(BEACON);
        let after = self.totals()?;
        let [forwards, moves, flushed] =
            [0, 1, 2].map(|at| after.counters[at] - before.counters[at]);
        let ranks_cpu = cpu - before.cpu;
        let share = self.share;
        Ok(Measured { together, share, ranks_cpu, forwards, moves, flushed, seconds })
    }

    fn cpu_seconds(&self) -> Result<f64> {
        self.pids.iter().map(|pid| process::cpu_seconds(*pid)).sum()
    }

    fn totals(&self) -> Result<Totals> {
        let names = ["forwards", "balancer_moves", "sessions_flushed"];
        let mut counters = [0.0; 3];
        for (counter, name) in counters.iter_mut().zip(names) {
            *counter = real(self.cluster.counter_of_all(name)?);
        }
        Ok(Totals { cpu: self.cpu_seconds()?, counters })
    }

    /// Has the requests of each rank counted while something is done.
    fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Vec<f64>>)> {
        let cluster = Cluster::connect(&self.cluster.address().parse()?)?;
        let ends = AtomicBool::new(false);
        let ranks = self.pids.len();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| look(&cluster, ranks, &ends));
            let done = work();
            ends.store(true, Ordering::Release);
            let seen = watcher.join().unwrap_or_default();
            Ok((done?, in_seconds(&seen)))
        })
    }
}

struct Totals {
    cpu: f64,
    counters: [f64; 3],
}

/// Requests that each rank had answered at some time.
type Look = (f64, Vec<f64>);

fn look(cluster: &Cluster, ranks: usize, ends: &AtomicBool) -> Vec<Look> {
    let start = Instant::now();
    let mut looks = Vec::new();
    loop {
        let last = ends.load(Ordering::Acquire);
        // A monitor that does not answer once is asked again.
        if let Ok(map) = cluster.status() {
            let requests = |rank: usize| {
                let it = map.mds.iter().find(|it| usize::from(it.rank.0) == rank);
                it.map_or(0.0, |it| real(counter(it, "requests")))
            };
            looks.push((start.elapsed().as_secs_f64(), (0..ranks).map(requests).collect()));
        }
        if last {
            return looks;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn counter(entry: &MdsEntry, name: &str) -> u64 {
    entry.counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
}

/// The answers of each rank in each whole second.
fn in_seconds(looks: &[Look]) -> Vec<Vec<f64>> {
    let Some((first, last)) = looks.first().zip(looks.last()) else { return Vec::new() };
    let ranks = first.1.len();
    let until = |second: f64, rank: usize| {
        let before = looks.iter().take_while(|look| look.0 <= second).last();
        let after = looks.iter().find(|look| look.0 > second);
        match (before, after) {
            (Some(before), Some(after)) => {
                let part = (second - before.0) / (after.0 - before.0).max(1e-9);
                before.1[rank] + (after.1[rank] - before.1[rank]) * part
            }
            (Some(known), None) | (None, Some(known)) => known.1[rank],
            (None, None) => 0.0,
        }
    };
    let mut seconds = Vec::new();
    let mut second = 1.0;
    while second <= last.0 {
        let at = |rank| until(second, rank) - until(second - 1.0, rank);
        seconds.push((0..ranks).map(at).collect());
        second += 1.0;
    }
    seconds
}

impl Measured {
    /// Records the limiting resource, and the times.
    pub(crate) fn note(&self, row: &mut Row, ranks: u16) {
        let seconds = self.together.seconds.max(1e-9);
        let clients: f64 = self.together.outcomes.iter().map(|it| it.cpu_seconds).sum();
        row.push(self.together.seconds);
        row.note("ranks", f64::from(ranks));
        row.note("share_of_a_processor", self.share);
        row.note("processors", 1.0);
        row.note("share_used", self.ranks_cpu / seconds / f64::from(ranks) / self.share);
        row.note("clients_processors", clients / seconds);
        row.note("requests", self.together.outcomes.iter().map(|it| real(it.requests)).sum());
        row.note("forwards", self.forwards);
        row.note("moves", self.moves);
        row.note("sessions_flushed", self.flushed);
    }

    /// The unevenness of the ranks in the last half: their deviation from the mean, as a part of
    /// it.
    pub(crate) fn unevenness(&self) -> f64 {
        let half = &self.seconds[self.seconds.len() / 2..];
        let Some(first) = half.first() else { return 0.0 };
        let loads: Vec<f64> =
            (0..first.len()).map(|rank| half.iter().map(|it| it[rank]).sum()).collect();
        let count = real(loads.len() as u64);
        let mean = loads.iter().sum::<f64>() / count;
        let square: f64 = loads.iter().map(|load| (load - mean) * (load - mean)).sum();
        if mean > 0.0 { (square / count).sqrt() / mean } else { 0.0 }
    }

    /// Requests of all ranks in a second, at the median of the last half: the rate when load has
    /// found its place.
    pub(crate) fn settled_per_second(&self) -> f64 {
        let half = &self.seconds[self.seconds.len() / 2..];
        let sums: Vec<f64> = half.iter().map(|ranks| ranks.iter().sum()).collect();
        super::stats::median(&sums)
    }

    /// Processor time of a client for each thing that it did.
    pub(crate) fn client_seconds_per_event(&self) -> f64 {
        let outcomes = &self.together.outcomes;
        let (cpu, events) = outcomes.iter().fold((0.0, 0), |(cpu, events), outcome| {
            (cpu + outcome.cpu_seconds, events + outcome.events)
        });
        cpu / real(events).max(1.0)
    }

    /// A row for each second: the answers of each rank in it.
    pub(crate) fn rows(&self, bench: &'static str, name: &str, clients: u32) -> Vec<Row> {
        let row = |(at, ranks): (usize, &Vec<f64>)| {
            let mut row = Row::new(bench, format!("{name}_second_{}", at + 1), 0).clients(clients);
            row.push(1.0);
            row.note("requests_per_second", ranks.iter().sum());
            for (rank, requests) in RANKS.iter().zip(ranks) {
                row.note(rank, *requests);
            }
            row
        };
        self.seconds.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_between_samples_are_spread_over_whole_seconds() {
        let looks = [(0.0, vec![10.0]), (0.5, vec![20.0]), (1.5, vec![40.0]), (2.25, vec![40.0])];
        assert_eq!(in_seconds(&looks), [[20.0], [10.0]]);
        assert!(in_seconds(&[]).is_empty());
    }
}
