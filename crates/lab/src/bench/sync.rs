//! `sync`: namespace sync (U-03, Fig 9): a job that creates files and computes for some ten
//! seconds, with and without merges at an interval during the work.
//!
//! The job's own work between two creates is always the same, so that its time shows all costs of
//! syncing. Runs without sync alternate with the rest; each run with it is compared with the one
//! without that came just before. At its end the subtree is merged, and every file must have been
//! created once.

use cudele::{Errno, Error, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::job::{JobOutcome, Synced, Task};
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::row::Row;

const BENCH: &str = "sync";
/// Seconds between two syncs.
const INTERVALS: [u64; 2] = [1, 5];
/// The job's work between two creates: a checksum of this many bytes, some 10 µs.
const WORK_BYTES: usize = 128 << 10;
/// The rate that is kept, and the longest time that a create may take.
const GOAL_KEPT: f64 = 0.98;
const PAUSE_MS: f64 = 5.0;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(1_000_000, 5_000);
    let quick = if lab.quick { 1_000 } else { 1 };
    let row = |name: String| Row::new(BENCH, name, files);
    let mut without = row("no_sync".to_owned());
    let mut with: Vec<_> = INTERVALS.iter().map(|every| row(format!("sync_{every}s"))).collect();
    for row in &mut with {
        row.goal("of_no_sync", GOAL_KEPT);
        row.goal("pause_limit_of_longest", 1.0);
    }
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        for (every, row) in INTERVALS.iter().zip(&mut with) {
            lab.progress(BENCH, repetition, &format!("every {every} s"));
            let base = measure(lab, files, 0, &mut store)?;
            without.push(base.seconds());
            without.note("longest_create_ms", base.part("longest") * 1e3);
            let synced = measure(lab, files, every * 1_000_000_000 / quick, &mut store)?;
            row.push(synced.seconds());
            row.note("of_no_sync", base.seconds() / synced.seconds());
            row.note("syncs", synced.part("syncs"));
            let longest = synced.part("longest") * 1e3;
            row.note("longest_create_ms", longest);
            row.note("pause_limit_of_longest", PAUSE_MS / longest);
            row.note("final_merge_seconds", synced.part("final_merge"));
        }
    }
    lab.report(&store, std::iter::once(without).chain(with));
    Ok(())
}

fn measure(lab: &Lab, files: u64, every_ns: u64, store: &mut String) -> Result<JobOutcome> {
    let cluster: TestCluster = lab.cluster(&[])?;
    cluster.store().clone_into(store);
    let dir = cluster.directory(None)?;
    let policy = policy("weak-none", files)?.to_yaml();
    let task = Synced { dir, policy, files, every_ns, work_bytes: WORK_BYTES };
    let outcome = alone(&cluster, Task::Synced(task))?;
    if outcome.events != files {
        let cause = format!("{files} files were created, and {} are there", outcome.events);
        return Err(Error::new(Errno::Io, BENCH, cause));
    }
    Ok(outcome)
}
