//! Where experiments get their sizes, clusters and clients from, and where their rows go.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudele::{Errno, Error, MergeBy, Policy, Result};

use super::cluster::{Place, TestCluster};
use super::crew::{Crew, Together};
use super::job::{Decoupled, Job, JobOutcome, Task};
use super::row::Row;

/// Eight ranks and their clients fit into one processor.
pub(crate) const SHARE_PERCENT: u8 = 5;

/// See the module documentation.
pub(crate) struct Lab {
    pub(crate) place: Place,
    /// `--files`, if given.
    pub(crate) files: Option<u64>,
    /// `--clients`, if given.
    pub(crate) clients: Option<u32>,
    /// How often every measurement is repeated.
    pub(crate) repeat: u32,
    /// `--share`: the part of one processor that each of several ranks has.
    pub(crate) share: f64,
    /// Small sizes, to see that everything works.
    pub(crate) quick: bool,
    /// Where real names are taken from.
    pub(crate) names: PathBuf,
    /// `--archive`, if given.
    pub(crate) archive: Option<PathBuf>,
    /// `--cephfs`, if given.
    pub(crate) cephfs: Option<PathBuf>,
    /// `--seaweedfs`, if given.
    pub(crate) seaweedfs: Option<PathBuf>,
    /// `--juicefs`, if given.
    pub(crate) juicefs: Option<PathBuf>,
    /// Rows so far.
    pub(crate) rows: Vec<Row>,
    /// Set by a signal to end: the process removes its cluster first.
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// A size and how it is written: `100K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            n if n >= 1_000_000 && n % 1_000_000 == 0 => write!(f, "{}M", n / 1_000_000),
            n if n >= 1_000 && n % 1_000 == 0 => write!(f, "{}K", n / 1_000),
            n => write!(f, "{n}"),
        }
    }
}

impl Lab {
    /// A laboratory in which nothing is set.
    pub(crate) fn new(place: Place, interrupted: Arc<AtomicBool>) -> Self {
        Self {
            place,
            files: None,
            clients: None,
            repeat: 1,
            share: f64::from(SHARE_PERCENT) / 100.0,
            quick: false,
            names: PathBuf::from("/usr/share"),
            archive: None,
            cephfs: None,
            juicefs: None,
            seaweedfs: None,
            rows: Vec::new(),
            interrupted,
        }
    }

    /// `--files`, else the size for this experiment.
    pub(crate) fn files(&self, full: u64, quick: u64) -> u64 {
        self.files.unwrap_or(if self.quick { quick } else { full })
    }

    /// `--clients`, else the number for this experiment.
    pub(crate) fn clients(&self, number: u32) -> u32 {
        self.clients.unwrap_or(number)
    }

    /// The sizes of a sweep that are not larger than `--files` or, for `--quick`, than `quick`.
    pub(crate) fn sizes(&self, full: &[u64], quick: u64) -> Vec<u64> {
        let limit = self.files.unwrap_or(if self.quick { quick } else { u64::MAX });
        let mut sizes: Vec<_> = full.iter().copied().filter(|size| *size <= limit).collect();
        if sizes.is_empty() {
            sizes.push(limit);
        }
        sizes
    }

    /// A cluster for this experiment.
    ///
    /// # Errors
    /// `ECANCELED` after an interrupt; the error of a cluster that does not start.
    pub(crate) fn cluster(&self, settings: &[&str]) -> Result<TestCluster> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::of(Errno::Canceled, "bench"));
        }
        let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        TestCluster::start(&self.place, &settings)
    }

    /// A cluster whose members of a group may connect.
    ///
    /// # Errors
    /// As [`Lab::cluster`].
    pub(crate) fn cluster_for(&self, group: &str) -> Result<TestCluster> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::of(Errno::Canceled, "bench"));
        }
        TestCluster::start(&Place { group: Some(group.to_owned()), ..self.place.clone() }, &[])
    }

    /// A cluster with so many ranks.
    ///
    /// # Errors
    /// As [`Lab::cluster`].
    pub(crate) fn cluster_of(&self, settings: &[&str], ranks: u16) -> Result<TestCluster> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Error::of(Errno::Canceled, "bench"));
        }
        let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        TestCluster::start_ranks(&self.place, &settings, ranks)
    }

    /// Prints the current step on a terminal.
    pub(crate) fn progress(&self, bench: &str, repetition: u32, what: &str) {
        if std::io::stderr().is_terminal() {
            eprintln!("{bench}: repetition {} of {}: {what}", repetition + 1, self.repeat);
        }
    }

    /// Adds the rows of an experiment.
    pub(crate) fn report(&mut self, cluster_store: &str, rows: impl IntoIterator<Item = Row>) {
        for mut row in rows {
            if row.store.is_empty() {
                cluster_store.clone_into(&mut row.store);
            }
            self.rows.push(row);
        }
    }
}

/// Policies that are no preset and no cell of Table II.
pub(crate) const MORE: [(&str, &str); 3] = [
    ("nonvolatile", "consistency: append_client_journal + nonvolatile_apply\ndurability: none"),
    (
        "persist_in_turn",
        "consistency: append_client_journal\ndurability: local_persist + global_persist",
    ),
    (
        "persist_at_once",
        "consistency: append_client_journal\ndurability: local_persist || global_persist",
    ),
];

/// A preset, a cell of Table II or one of [`MORE`], with room for so many inodes.
pub(crate) fn policy(name: &str, files: u64) -> Result<Policy> {
    if let Some((_, text)) = MORE.iter().find(|(known, _)| *known == name) {
        return Ok(Policy { allocated_inodes: files.max(1), ..Policy::parse(text)?.policy });
    }
    let policy = policy::policy_named(name)
        .ok_or_else(|| Error::new(Errno::Invalid, name, "no such preset"))?;
    Ok(Policy { allocated_inodes: files.max(1), ..policy })
}

/// Lets one client do one thing.
pub(crate) fn alone(cluster: &TestCluster, task: Task) -> Result<JobOutcome> {
    together(cluster, vec![task])?.first().cloned()
}

/// Lets several clients start at once.
pub(crate) fn together(cluster: &TestCluster, tasks: Vec<Task>) -> Result<Together> {
    let jobs: Vec<Job> = tasks.into_iter().map(|task| cluster.job(task)).collect();
    let crew = Crew::ready(&jobs, &cluster.state())?;
    measured(cluster, || crew.go())
}

/// Lets clients do their work, and has the server's processor time with the first one's outcome.
pub(crate) fn measured(
    cluster: &TestCluster,
    work: impl FnOnce() -> Result<Together>,
) -> Result<Together> {
    let before = cluster.server_cpu_seconds()?;
    let mut result = work()?;
    let used = cluster.server_cpu_seconds()? - before;
    if let Some(first) = result.outcomes.first_mut() {
        first.server_cpu_seconds = used;
    }
    Ok(result)
}

/// Creates by RPC in a new directory under a preset, by one client.
pub(crate) fn create(cluster: &TestCluster, preset: &str, files: u64) -> Result<JobOutcome> {
    let dir = cluster.directory(Some(&policy(preset, files)?))?;
    let sync = preset != "posix-volatile" && preset != "strong-none";
    alone(cluster, Task::Create { dir, first: 0, files, sync, latencies: false, alone: false })
}

/// Creates in a new decoupled directory under a preset, and its completion, by one client.
pub(crate) fn decoupled(cluster: &TestCluster, preset: &str, files: u64) -> Result<JobOutcome> {
    let dir = cluster.directory(None)?;
    let policy = policy(preset, files)?.to_yaml();
    alone(cluster, Task::Decoupled(Decoupled { dir, policy, files, ..Decoupled::default() }))
}

/// Merges this many files into a directory, and gives it up afterwards with `merge`.
pub(crate) fn fill(cluster: &TestCluster, task: Fill<'_>) -> Result<JobOutcome> {
    fill_as(cluster, task, true)
}

/// The same; with `append_first` only the completion is measured.
pub(crate) fn fill_as(
    cluster: &TestCluster,
    task: Fill<'_>,
    append_first: bool,
) -> Result<JobOutcome> {
    let Fill { dir, first, files, merge, merge_by } = task;
    let policy = Policy { merge_by, ..policy("weak-none", files)? }.to_yaml();
    let dir = dir.to_owned();
    let task = Decoupled { dir, policy, first, files, append_first, merge, ..Decoupled::default() };
    alone(cluster, Task::Decoupled(task))
}

/// See [`fill`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill<'a> {
    pub(crate) dir: &'a str,
    /// Number of the first name.
    pub(crate) first: u64,
    pub(crate) files: u64,
    /// Whether the subtree is given up, which the server writes down durably.
    pub(crate) merge: bool,
    pub(crate) merge_by: MergeBy,
}
