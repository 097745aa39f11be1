//! `checkpoint`: the ranks of a parallel program write checkpoints, each its own files (N-N) or all
//! of them one file, block by block in turn (N-1): under several policies, through the client
//! library and, where this machine can mount, through a mount; beside a local directory in the same
//! repetition (U-07).
//!
//! Three times are separate: until the ranks can continue computing (`return_seconds`, the row's
//! own), until the checkpoint has its final durability, and until other clients see it. A client
//! with a decoupled subtree waits for the mechanisms of its policy, all other clients wait for the
//! disk. A decoupled subtree is one client's: for N-1 all ranks are threads of one client then,
//! else each is a process. At the end another client walks through everything: names, lengths, and
//! the writer of each block.

use cudele::{Policy, Result};
use terminal::io;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::Together;
use crate::harness::disk;
use crate::harness::files::At;
use crate::harness::job::{Checkpoint, JobOutcome, Served, Syncing, Task};
use crate::harness::lab::{Lab, alone, policy, together};
use crate::harness::mounting::{self, Mount};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "checkpoint";
/// Bytes that a rank writes at a time.
const BLOCK_BYTES: u64 = 64 << 10;
/// Checkpoints of one repetition.
const STEPS: u64 = 4;

/// The ways to write checkpoints; the local directory comes first, as the base of comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Local,
    Library(&'static str),
    Mounted(&'static str),
}

const WAYS: [Way; 9] = [
    Way::Local,
    Way::Library("posix"),
    Way::Library("posix-volatile"),
    Way::Library("batchfs"),
    Way::Library("hdfs"),
    Way::Library("deltafs"),
    Way::Library("ramdisk"),
    Way::Mounted("posix"),
    Way::Mounted("batchfs"),
];

impl Way {
    fn name(self) -> String {
        match self {
            Self::Local => "local".to_owned(),
            Self::Library(policy) => policy.to_owned(),
            Self::Mounted(policy) => format!("{policy}_mount"),
        }
    }
}

/// The sizes of one pattern.
#[derive(Clone, Copy)]
struct Load {
    shared: bool,
    ranks: u32,
    files: u64,
    steps: u64,
}

impl Load {
    /// The number of inodes that all ranks make, directories included.
    fn inodes(self) -> u64 {
        u64::from(self.ranks) * (self.files * self.steps + 1)
    }

    fn task(self, at: At, dir: &str) -> Checkpoint {
        let (dir, ranks) = (dir.to_owned(), u64::from(self.ranks));
        let Self { shared, files, steps, .. } = self;
        let (policy, own, bytes, sync) = (None, 0..ranks, BLOCK_BYTES, Syncing::All);
        Checkpoint { at, dir, policy, shared, own, ranks, files, bytes, steps, sync }
    }
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let (ranks, files) = (lab.clients(4), lab.files(128, 8));
    let steps = if lab.quick { 2 } else { STEPS };
    let mounts = mounting::possible().is_ok();
    for shared in [false, true] {
        let load = Load { shared, ranks, files, steps };
        let pattern = if shared { "n1" } else { "nn" };
        let ways = WAYS.into_iter().filter(|way| mounts || !matches!(way, Way::Mounted(_)));
        let row = |way: Way| {
            Row::new(BENCH, format!("{pattern}_{}", way.name()), files * steps).clients(ranks)
        };
        let mut rows: Vec<(Way, Row)> = ways.map(|way| (way, row(way))).collect();
        let mut store = String::new();
        for repetition in 0..lab.repeat {
            let cluster = lab.cluster(&[])?;
            let mut local = None;
            for (way, row) in &mut rows {
                lab.progress(BENCH, repetition, &row.name);
                disk::settle(&cluster)?;
                let took = one(lab, &cluster, *way, load)?;
                took.note(row, local.get_or_insert(took));
            }
            cluster.store().clone_into(&mut store);
        }
        lab.report(&store, rows.into_iter().map(|(_, row)| row));
    }
    Ok(())
}

/// Seconds of one way in one repetition.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    returned: f64,
    durable: Option<f64>,
    visible: Option<f64>,
    /// The time of an explicit merge, where the policy has none.
    merge: Option<f64>,
    walk: f64,
    bytes: f64,
}

impl Took {
    fn of(ranks: &Together, policy: Option<&Policy>) -> Self {
        let most = |part| ranks.outcomes.iter().map(|it| it.part(part)).fold(0.0, f64::max);
        let merges = policy.is_none_or(|policy| !policy.is_decoupled() || policy.applies());
        let persists = policy.is_none_or(|policy| policy.persists() || policy.streams());
        Self {
            returned: most("returned"),
            durable: persists.then(|| most("durable")),
            visible: merges.then(|| most("visible")),
            merge: (!merges).then(|| most("merge")),
            walk: 0.0,
            bytes: ranks.outcomes.iter().map(|it| real(it.bytes)).sum(),
        }
    }

    fn note(self, row: &mut Row, local: &Self) {
        row.push(self.returned);
        row.note("return_seconds", self.returned);
        row.note("mb_per_second", self.bytes / 1e6 / self.returned.max(1e-9));
        row.note("times_local_return", self.returned / local.returned.max(1e-9));
        if let Some(durable) = self.durable {
            row.note("durable_seconds", durable);
            row.note("durable_mb_per_second", self.bytes / 1e6 / durable.max(1e-9));
            let beside = local.durable.unwrap_or(local.returned);
            row.note("times_local_durable", durable / beside.max(1e-9));
        }
        if let Some(visible) = self.visible {
            row.note("visible_seconds", visible);
        }
        if let Some(merge) = self.merge {
            row.note("explicit_merge_seconds", merge);
        }
        row.note("walk_seconds", self.walk);
    }
}

/// Writes all checkpoints in one way, and verifies them.
fn one(lab: &Lab, cluster: &TestCluster, way: Way, load: Load) -> Result<Took> {
    match way {
        Way::Local => {
            let parent = &lab.place.parent;
            let home = tempfile::tempdir_in(parent).map_err(|error| io(parent, &error))?;
            let task = load.task(At::Below(home.path().to_owned()), "/");
            let took = Took::of(&together(cluster, processes(&task))?, None);
            walked(cluster, took, task)
        }
        Way::Library(name) => {
            let policy = policy(name, load.inodes())?;
            let decoupled = policy.is_decoupled();
            let dir = cluster.directory((!decoupled).then_some(&policy))?;
            let task = load.task(At::Namespace, &dir);
            let own = decoupled.then(|| policy.to_yaml());
            let writing = Checkpoint { policy: own, ..task.clone() };
            // A subtree is one client's.
            let tasks = if load.shared && decoupled {
                vec![Task::Checkpoint(writing)]
            } else {
                processes(&writing)
            };
            let took = Took::of(&together(cluster, tasks)?, Some(&policy));
            walked(cluster, took, task)
        }
        Way::Mounted(name) => mounted(cluster, name, load),
    }
}

/// A process for each rank.
fn processes(task: &Checkpoint) -> Vec<Task> {
    let one = |rank| Task::Checkpoint(Checkpoint { own: rank..rank + 1, ..task.clone() });
    task.own.clone().map(one).collect()
}

fn walked(cluster: &TestCluster, took: Took, task: Checkpoint) -> Result<Took> {
    let walk: JobOutcome = alone(cluster, Task::WalkCheckpoint(task))?;
    Ok(Took { walk: walk.seconds(), ..took })
}

/// Through a mount, in which the directory is decoupled if its policy decouples. It is merged at
/// the unmount.
fn mounted(cluster: &TestCluster, name: &str, load: Load) -> Result<Took> {
    let policy = policy(name, load.inodes())?;
    let decoupled = policy.is_decoupled();
    let path = cluster.directory((!decoupled).then_some(&policy))?;
    let mount = if decoupled {
        let policy = policy.to_yaml();
        Mount::new(cluster, Served::Decoupled { dir: path.clone(), policy, merge: true })?
    } else {
        Mount::new(cluster, Served::Namespace)?
    };
    let at = At::Below(mount.dir(&path));
    // The merge of a decoupled subtree makes it durable.
    let sync = if decoupled { Syncing::Not } else { Syncing::Each };
    let task = Checkpoint { sync, ..load.task(at, "/") };
    let written = together(cluster, processes(&task))?;
    let merge = mount.end()?.part("merge");
    let mut took = Took::of(&written, Some(&policy));
    if decoupled {
        let done = took.returned + merge;
        (took.durable, took.visible, took.merge) = (Some(done), Some(done), None);
    }
    walked(cluster, took, load.task(At::Namespace, &path))
}
