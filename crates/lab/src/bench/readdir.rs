//! `readdir`: reading large directories (use case 4, U-04): by RPC while the server has the
//! directory in memory, by RPC and from the object store right after a restart, in the view of a
//! decoupled client; and through CephFS where `--cephfs` names one.

use std::path::Path;

use cudele::{MergeBy, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::job::{JobOutcome, Task};
use crate::harness::lab::{Fill, Lab, Size, alone, fill, policy};
use crate::harness::row::{PER_SECOND, Row};
use crate::harness::stats::real;

const BENCH: &str = "readdir";
const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Larger directories are not made in CephFS: a million files take it minutes.
const CEPHFS_MAX: u64 = 100_000;
/// Entries a second of a cold directory of a million, and times as many as CephFS.
const GOAL_STORED: f64 = 5e6;
const GOAL_OF_CEPHFS: f64 = 20.0;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    for size in lab.sizes(&SIZES, 1_000) {
        let row = |way: &str| Row::new(BENCH, format!("{way}_{}", Size(size)), size);
        let (mut warm, mut cold) = (row("rpc_warm"), row("rpc_cold"));
        let (mut stored, mut cephfs) = (row("stored_cold"), row("cephfs"));
        let (mut view, mut again) = (row("view"), row("view_again"));
        if size == 1_000_000 {
            stored.goal(PER_SECOND, GOAL_STORED);
        }
        if size <= CEPHFS_MAX {
            stored.goal("of_cephfs", GOAL_OF_CEPHFS);
        }
        let conf = lab.cephfs.as_deref().filter(|_| size <= CEPHFS_MAX);
        let peer = conf.map(|conf| peer(lab, conf, size)).transpose()?;
        let mut cluster = lab.cluster(&[])?;
        let dir = cluster.directory(None)?;
        fill(
            &cluster,
            Fill { dir: &dir, first: 0, files: size, merge: true, merge_by: MergeBy::Value },
        )?;
        for repetition in 0..lab.repeat {
            lab.progress(BENCH, repetition, &format!("{size} entries"));
            cluster.restart()?;
            note(&mut stored, &alone(&cluster, Task::Scan { dir: dir.clone() })?);
            if let Some(task) = &peer {
                let outcome = alone(&cluster, task.clone())?;
                note(&mut cephfs, &outcome);
                let seconds = stored.seconds.last().copied().unwrap_or_default();
                stored.note("of_cephfs", outcome.seconds() / seconds);
            }
            note(&mut cold, &list(&cluster, &dir)?);
            note(&mut warm, &list(&cluster, &dir)?);
            cluster.restart()?;
            let policy = policy("invisible-none", size)?.to_yaml();
            let outcome = alone(&cluster, Task::View { dir: dir.clone(), policy })?;
            note(&mut view, &outcome);
            again.push(outcome.part("again"));
        }
        let store = cluster.store().to_owned();
        let peer = peer.map(|_| cephfs);
        lab.report(&store, [Some(warm), Some(cold), Some(stored), peer].into_iter().flatten());
        lab.report(&store, [view, again]);
    }
    Ok(())
}

/// Fills a directory of a CephFS; the client that lists it is another process.
fn peer(lab: &Lab, conf: &Path, files: u64) -> Result<Task> {
    let (conf, id) = (conf.to_owned(), std::process::id());
    let dir = format!("/{BENCH}.{id}.{files}");
    let task = Task::CephCreate { conf: conf.clone(), dir: dir.clone(), files, sync: true };
    // The cluster has nothing to do with it.
    alone(&lab.cluster(&[])?, task)?;
    Ok(Task::CephList { conf, dir })
}

fn list(cluster: &TestCluster, dir: &str) -> Result<JobOutcome> {
    alone(cluster, Task::List { dir: dir.to_owned() })
}

fn note(row: &mut Row, outcome: &JobOutcome) {
    row.push(outcome.seconds());
    row.note("entries", real(outcome.events));
    row.note("requests", real(outcome.requests));
    row.cpu(std::slice::from_ref(outcome));
}
