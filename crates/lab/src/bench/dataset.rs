//! `dataset`: many small files (256 bytes to 8 KiB) in directories of a thousand are read in random
//! order: by requests through the client library, in a client's own view, and in a directory of
//! this machine.
//!
//! Cold means that the server has restarted and the kernel has dropped the store's files; as root
//! it drops everything (`drop_caches`), else those files. Warm is the next pass of the same client.
//! Every file that is read is compared with the written content.

use std::path::{Path, PathBuf};

use cudele::{MergeBy, Policy, Result};
use terminal::io;

use crate::harness::cluster::TestCluster;
use crate::harness::crew::Together;
use crate::harness::disk;
use crate::harness::files::At;
use crate::harness::job::{Dataset, Reading, Task};
use crate::harness::lab::{Lab, alone, policy, together};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "dataset";

/// A row for the first pass and one for the next, and the same of several readers.
struct Way {
    cold: Row,
    warm: Row,
}

impl Way {
    fn new(name: &str, files: u64, clients: u64) -> Self {
        let clients = u32::try_from(clients).unwrap_or(1);
        let row = |heat| {
            let several = if clients > 1 { format!("_{clients}_readers") } else { String::new() };
            let files = files / u64::from(clients);
            Row::new(BENCH, format!("{name}_{heat}{several}"), files).clients(clients)
        };
        Self { cold: row("cold"), warm: row("warm") }
    }

    /// Records the readers' times; they are compared with the local ones of the same pass.
    fn note(&mut self, took: &Together, local: Option<[f64; 2]>) -> [f64; 2] {
        let most = |part| took.outcomes.iter().map(|it| it.part(part)).fold(0.0, f64::max);
        let opened = most("opened");
        let seconds = [opened + most("first"), most("again")];
        let bytes: f64 = took.outcomes.iter().map(|it| real(it.bytes)).sum::<f64>() / 2.0;
        let files: f64 = took.outcomes.iter().map(|it| real(it.events)).sum();
        let requests: f64 = took.outcomes.iter().map(|it| real(it.requests)).sum();
        for (at, row) in [&mut self.cold, &mut self.warm].into_iter().enumerate() {
            row.push(seconds[at]);
            row.note("mb_per_second", bytes / 1e6 / seconds[at].max(1e-9));
            row.note("requests_per_file", requests / files.max(1.0));
            if let Some(local) = local {
                row.note("times_local", seconds[at] / local[at].max(1e-9));
            }
        }
        self.cold.note("opening_seconds", opened);
        seconds
    }
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(100_000, 1_000);
    let several = u64::from(lab.clients(4));
    let mut cluster = lab.cluster(&[])?;
    let parent = &lab.place.parent;
    let home = tempfile::tempdir_in(parent).map_err(|error| io(parent, &error))?;
    let task = |at: At, dir: &str| Dataset {
        at,
        dir: dir.to_owned(),
        policy: None,
        files,
        reading: Reading::Requests,
        reader: 0,
        readers: 1,
    };
    let dir = cluster.directory(None)?;
    let (local, there) = (task(At::Below(home.path().to_owned()), "/"), task(At::Namespace, &dir));
    let made = made(lab, &cluster, files, [&local, &there])?;
    let view = Dataset {
        reading: Reading::View,
        policy: Some(policy("invisible-none", 1)?.to_yaml()),
        ..there.clone()
    };
    let mut ways = [("local", &local, 1), ("requests", &there, 1), ("view", &view, 1)]
        .into_iter()
        .chain([("local", &local, several), ("requests", &there, several)])
        .map(|(name, task, readers)| (Way::new(name, files, readers), task, readers))
        .collect::<Vec<_>>();
    for repetition in 0..lab.repeat {
        let mut beside = None;
        for (way, task, readers) in &mut ways {
            lab.progress(BENCH, repetition, &way.cold.name);
            cluster.restart()?;
            forget(&cluster, home.path(), lab.quick)?;
            let one = |reader| Dataset { reader, readers: *readers, ..(*task).clone() };
            let tasks = (0..*readers).map(|reader| Task::ReadDataset(one(reader))).collect();
            let took = together(&cluster, tasks)?;
            let is_local = task.at != At::Namespace;
            let seconds = way.note(&took, beside.filter(|_| !is_local));
            if is_local {
                beside = Some(seconds);
            }
        }
    }
    let store = cluster.store().to_owned();
    let rows = ways.into_iter().flat_map(|(way, ..)| [way.cold, way.warm]);
    lab.report(&store, made.into_iter().chain(rows.collect::<Vec<_>>()));
    Ok(())
}

/// Makes the data set in both places: in the namespace as a batch job.
fn made(
    lab: &Lab,
    cluster: &TestCluster,
    files: u64,
    [local, there]: [&Dataset; 2],
) -> Result<[Row; 2]> {
    lab.progress(BENCH, 0, "making it");
    let batch = Policy { merge_by: MergeBy::Reference, ..policy("weak-global", files)? };
    let mut rows = ["made_local", "made_batch"].map(|name| Row::new(BENCH, name, files));
    let batch = Dataset { policy: Some(batch.to_yaml()), ..there.clone() };
    for (row, task) in rows.iter_mut().zip([local.clone(), batch]) {
        let outcome = alone(cluster, Task::MakeDataset(task))?;
        row.push(outcome.seconds());
        row.note("mb_per_second", real(outcome.bytes) / 1e6 / outcome.seconds());
    }
    Ok(rows)
}

/// The kernel drops its page cache: as root all of it, else the files of store and directory.
fn forget(cluster: &TestCluster, local: &Path, quick: bool) -> Result<()> {
    disk::settle(cluster)?;
    let everything = PathBuf::from("/proc/sys/vm/drop_caches");
    if !quick && rustix::process::geteuid().is_root() && std::fs::write(&everything, "3").is_ok() {
        return Ok(());
    }
    disk::evict(cluster)?;
    disk::evict_below(local)
}
