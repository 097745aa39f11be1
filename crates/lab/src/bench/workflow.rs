//! `workflow`: a job of a data processing framework (attempts below `_temporary`, renamed into
//! place, then `_SUCCESS`) beside a checkpoint of a parallel program, in one namespace (F-10,
//! U-05): each in a subtree with the policy that suits it, compared with both under `posix`, with
//! each alone, and with a local directory.
//!
//! An observer lists the job's output all the time: parts must appear whole, never go away, and all
//! exist when `_SUCCESS` does, with nothing of uncommitted attempts. Where the job has its subtree
//! decoupled, parts of its journal are merged while it works, and the observer sees these grow.

use cudele::{Policy, Result};
use policy::MergeTrigger;
use terminal::io;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::Together;
use crate::harness::disk;
use crate::harness::files::At;
use crate::harness::job::{Checkpoint, JobOutcome, Syncing, Task, Workflow};
use crate::harness::lab::{Lab, alone, policy, together};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "workflow";
/// Bytes of a part, and of a rank's file.
const PART_BYTES: u64 = 64 << 10;
const RANK_FILE_BYTES: u64 = 64 << 10;
/// Tasks of the job that are under way at the same time.
const EXECUTORS: u64 = 4;
/// The job's subtree is merged after so many updates, where it has one.
const MERGED_AFTER: u64 = 40;

/// Under which policies the two work beside each other.
#[derive(Clone, Copy, Debug)]
struct Setting {
    name: &'static str,
    job: &'static str,
    checkpoint: &'static str,
}

const SETTINGS: [Setting; 3] = [
    Setting { name: "both_posix", job: "posix", checkpoint: "posix" },
    Setting { name: "own", job: "posix", checkpoint: "batchfs" },
    Setting { name: "own_synced", job: "weak-local", checkpoint: "batchfs" },
];

/// The sizes.
#[derive(Clone, Copy)]
struct Load {
    tasks: u64,
    ranks: u32,
    files: u64,
    steps: u64,
}

/// The times of both in one repetition.
struct Both {
    job: JobOutcome,
    seen: JobOutcome,
    ranks: Together,
}

/// The rows of the two under one setting.
struct Pair {
    job: Row,
    checkpoint: Row,
}

impl Pair {
    fn new(name: &str, load: Load) -> Self {
        let job = Row::new(BENCH, format!("job_{name}"), load.tasks);
        let files = load.files * load.steps;
        let checkpoint = Row::new(BENCH, format!("checkpoint_{name}"), files).clients(load.ranks);
        Self { job, checkpoint }
    }

    fn note(&mut self, took: &Both, alone: Option<[f64; 2]>) -> [f64; 2] {
        let most = |part| took.ranks.outcomes.iter().map(|it| it.part(part)).fold(0.0, f64::max);
        let seconds = [took.job.seconds(), most("returned")];
        for (row, value) in [&mut self.job, &mut self.checkpoint].into_iter().zip(seconds) {
            row.push(value);
        }
        self.job.note("mb_per_second", real(took.job.bytes) / 1e6 / seconds[0].max(1e-9));
        self.job.note("first_seen_seconds", took.seen.part("first_seen"));
        self.job.note("done_seen_seconds", took.seen.seconds());
        self.job.note("progress_steps", took.seen.part("steps"));
        self.job.note("looks", took.seen.part("looks"));
        let bytes: f64 = took.ranks.outcomes.iter().map(|it| real(it.bytes)).sum();
        self.checkpoint.note("mb_per_second", bytes / 1e6 / seconds[1].max(1e-9));
        self.checkpoint.note("durable_seconds", most("durable"));
        if let Some(alone) = alone {
            self.job.note("times_alone", seconds[0] / alone[0].max(1e-9));
            self.checkpoint.note("times_alone", seconds[1] / alone[1].max(1e-9));
        }
        seconds
    }
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let load = Load {
        tasks: lab.files(400, 40),
        ranks: lab.clients(2),
        files: lab.files(400, 40),
        steps: if lab.quick { 1 } else { 4 },
    };
    let mut alone = Pair::new("alone", load);
    let mut local = Pair::new("local", load);
    let mut pairs = SETTINGS.map(|setting| (setting, Pair::new(setting.name, load)));
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        lab.progress(BENCH, repetition, "local");
        disk::settle(&cluster)?;
        local.note(&locally(lab, &cluster, load)?, None);
        lab.progress(BENCH, repetition, "alone");
        let base = alone.note(&each_alone(&cluster, load)?, None);
        for (setting, pair) in &mut pairs {
            lab.progress(BENCH, repetition, setting.name);
            disk::settle(&cluster)?;
            let work = Work::new(&cluster, setting.job, setting.checkpoint, load)?;
            pair.note(&work.beside(&cluster)?, Some(base));
        }
        cluster.store().clone_into(&mut store);
    }
    let rows = [local, alone].into_iter().chain(pairs.into_iter().map(|(_, pair)| pair));
    let rows: Vec<Row> = rows.flat_map(|pair| [pair.job, pair.checkpoint]).collect();
    lab.report(&store, rows);
    Ok(())
}

/// The two pieces of work.
struct Work {
    job: Workflow,
    checkpoint: Checkpoint,
}

impl Work {
    fn at(at: &At, [output, checkpoints]: [&str; 2], load: Load) -> Self {
        let Load { tasks, files, steps, .. } = load;
        let (at, dir) = (at.clone(), output.to_owned());
        let ranks = u64::from(load.ranks);
        Self {
            checkpoint: Checkpoint {
                at: at.clone(),
                dir: checkpoints.to_owned(),
                policy: None,
                shared: false,
                own: 0..ranks,
                ranks,
                files,
                bytes: RANK_FILE_BYTES,
                steps,
                sync: Syncing::All,
            },
            job: Workflow { at, dir, policy: None, tasks, bytes: PART_BYTES, executors: EXECUTORS },
        }
    }

    /// In two new subtrees under these policies.
    fn new(cluster: &TestCluster, job: &str, checkpoint: &str, load: Load) -> Result<Self> {
        let numbers = load.tasks * 8 + u64::from(load.ranks) * (load.files * load.steps + 1);
        let (job, checkpoint) = (policy(job, numbers)?, policy(checkpoint, numbers)?);
        let job = if job.is_decoupled() {
            Policy { merge: MergeTrigger::AtUpdates { count: MERGED_AFTER }, ..job }
        } else {
            job
        };
        let dir = |policy: &Policy| cluster.directory((!policy.is_decoupled()).then_some(policy));
        let dirs = [dir(&job)?, dir(&checkpoint)?];
        let mut work = Self::at(&At::Namespace, [&dirs[0], &dirs[1]], load);
        work.job.policy = job.is_decoupled().then(|| job.to_yaml());
        work.checkpoint.policy = checkpoint.is_decoupled().then(|| checkpoint.to_yaml());
        Ok(work)
    }

    fn ranks(&self) -> impl Iterator<Item = Task> {
        let rank = |rank| Checkpoint { own: rank..rank + 1, ..self.checkpoint.clone() };
        self.checkpoint.own.clone().map(move |it| Task::Checkpoint(rank(it)))
    }

    fn job_and_observer(&self) -> [Task; 2] {
        [Task::Workflow(self.job.clone()), Task::Observe(self.job.clone())]
    }

    /// Both at once. Afterwards the checkpoint is walked through; the observer has looked at the
    /// rest.
    fn beside(&self, cluster: &TestCluster) -> Result<Both> {
        let tasks = self.job_and_observer().into_iter().chain(self.ranks()).collect();
        let mut all = together(cluster, tasks)?;
        let ranks = all.outcomes.split_off(2);
        self.both(cluster, &all, ranks)
    }

    fn both(
        &self,
        cluster: &TestCluster,
        first: &Together,
        ranks: Vec<JobOutcome>,
    ) -> Result<Both> {
        alone(cluster, Task::WalkCheckpoint(self.checkpoint.clone()))?;
        let [job, seen] = [0, 1].map(|at| first.outcomes.get(at).cloned().unwrap_or_default());
        Ok(Both { job, seen, ranks: Together { seconds: first.seconds, outcomes: ranks } })
    }
}

/// Both under `posix`, one after the other.
fn each_alone(cluster: &TestCluster, load: Load) -> Result<Both> {
    let work = Work::new(cluster, "posix", "posix", load)?;
    disk::settle(cluster)?;
    let job = together(cluster, work.job_and_observer().into())?;
    disk::settle(cluster)?;
    let ranks = together(cluster, work.ranks().collect())?;
    work.both(cluster, &job, ranks.outcomes)
}

/// Both at once in a directory of this machine.
fn locally(lab: &Lab, cluster: &TestCluster, load: Load) -> Result<Both> {
    let parent = &lab.place.parent;
    let home = tempfile::tempdir_in(parent).map_err(|error| io(parent, &error))?;
    for name in ["output", "checkpoints"] {
        let dir = home.path().join(name);
        std::fs::create_dir(&dir).map_err(|error| io(&dir, &error))?;
    }
    let at = At::Below(home.path().to_owned());
    Work::at(&at, ["/output", "/checkpoints"], load).beside(cluster)
}
