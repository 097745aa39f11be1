//! `policy-change`: a large subtree goes from strong to weak and back while another client works in
//! it (F-09): the time of the change, the moved bytes, and the waiting time of the other client.
//!
//! Moved bytes are those of new or rewritten objects: there must be none with the content of files.
//! A held journal is merged, which writes metadata. The bytes that server and client hand to the
//! kernel in that time include the cost of the other client's creates.

use cudele::{Errno, Error, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::files::At;
use crate::harness::job::{Change, Checkpoint, JobOutcome, Syncing, Task};
use crate::harness::lab::{Fill, Lab, alone, fill, policy};
use crate::harness::row::Row;

const BENCH: &str = "policy-change";
/// Files with content, and the bytes of each.
const CONTENT_FILES: u64 = 256;
const CONTENT_BYTES: u64 = 64 << 10;
/// Unmerged, or unwritten, updates at some changes.
const HELD_MAX: u64 = 10_000;
/// The changes, in the order in which they are carried out.
const CHANGES: [&str; 6] = [
    "strong_to_weak",
    "decouple",
    "weak_to_strong",
    "weak_to_strong_held",
    "durable_to_volatile",
    "volatile_to_durable",
];
const FIGURES: [&str; 6] = [
    "data_bytes",
    "metadata_bytes",
    "server_handed_bytes",
    "client_handed_bytes",
    "live_creates",
    "longest_ms",
];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(1_000_000, 10_000);
    let mut rows = CHANGES.map(|name| Row::new(BENCH, name, files));
    for row in &mut rows {
        row.limit("data_bytes", 0.0);
    }
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{files} files"));
        let cluster = lab.cluster(&[])?;
        let outcome = once(&cluster, files)?;
        for (name, row) in CHANGES.iter().zip(&mut rows) {
            row.push(outcome.part(&format!("{name}.seconds")));
            for figure in FIGURES {
                row.note(figure, outcome.part(&format!("{name}.{figure}")));
            }
        }
        cluster.store().clone_into(&mut store);
    }
    lab.report(&store, rows);
    Ok(())
}

/// All changes on a subtree with so many names.
fn once(cluster: &TestCluster, files: u64) -> Result<JobOutcome> {
    let Some(objects) = cluster.store().strip_prefix("dir:") else {
        let cause = "what is written is found by looking at the files of an embedded store";
        return Err(Error::new(Errno::NotSupported, "--store", cause)
            .remedy("leave --store out, or name a directory with dir:PATH"));
    };
    let held = (files / 10).clamp(1, HELD_MAX);
    let (strong, weak) = (policy("strong-global", files)?, policy("weak-local", held)?);
    let volatile = policy("strong-none", files)?;
    let dir = cluster.directory(Some(&strong))?;
    let merge_by = cudele::MergeBy::Value;
    fill(cluster, Fill { dir: &dir, first: 0, files, merge: true, merge_by })?;
    let content = Checkpoint {
        at: At::Namespace,
        dir: dir.clone(),
        policy: None,
        shared: false,
        own: 0..1,
        ranks: 1,
        files: CONTENT_FILES.min(files),
        bytes: CONTENT_BYTES,
        steps: 1,
        sync: Syncing::All,
    };
    alone(cluster, Task::Checkpoint(content.clone()))?;
    let live_dir = format!("{dir}/live");
    cluster.make_dir(&live_dir)?;
    cluster.checkpoint()?;
    let task = Change {
        dir,
        live_dir,
        files,
        held,
        strong: strong.to_yaml(),
        weak: weak.to_yaml(),
        volatile: volatile.to_yaml(),
        store: objects.into(),
        server: cluster.mds()?.pid,
    };
    let outcome = alone(cluster, Task::Change(task))?;
    // The content is unchanged.
    alone(cluster, Task::WalkCheckpoint(content))?;
    Ok(outcome)
}
