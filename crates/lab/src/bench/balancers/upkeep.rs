//! The cost of the balancing logic for a rank with a load that cannot move: all of it is pinned.
//! The second rank is needed because a lone rank decides nothing.

use cudele::Result;
use types::Rank;

use super::BENCH;
use crate::harness::cluster::TestCluster;
use crate::harness::job::Task;
use crate::harness::lab::{Lab, alone};
use crate::harness::row::Row;
use crate::harness::stats::{median, real};

/// The largest cost, in per cent.
const MOST: f64 = 1.0;
/// How often both are measured in turn in one repetition.
const TURNS: usize = 8;
/// A hundred times as often as by default, and never: the cost of one decision is less than the
/// change in the cost of the same work from one time to another.
const TIMES: f64 = 100.0;
const OFTEN: &str = "balance_interval_ms=100";
const NEVER: &str = "balance_interval_ms=1000000000";

pub(super) fn row(lab: &Lab) -> Row {
    let mut row = Row::new(BENCH, "tick", lab.files(20_000, 200));
    row.limit("cost_percent", MOST);
    row
}

pub(super) fn measure(lab: &Lab, row: &mut Row) -> Result<()> {
    let clusters = [lab.cluster_of(&[OFTEN], 2)?, lab.cluster_of(&[NEVER], 2)?];
    let mut dirs = Vec::new();
    for cluster in &clusters {
        let dir = cluster.directory(None)?;
        let fs = cluster.client()?;
        fs.pin(fs.stat(&dir)?.ino, Rank(0))?;
        dirs.push(dir);
        // Policies run at every tick, even without a move.
        cluster.shipped_balancer("cudele")?;
    }
    let (mut cpu, mut seconds) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for turn in 0..if lab.quick { 2 } else { TURNS } {
        // The order alternates: the machine's speed changes with time.
        for at in [turn % 2, 1 - turn % 2] {
            let first = row.files * turn as u64;
            let (used, took) = create(&clusters[at], &dirs[at], first, row.files)?;
            cpu[at].push(used);
            seconds[at].push(took);
        }
    }
    let files = real(row.files);
    let micros = |used: &[f64]| median(used) * 1e6 / files;
    row.push(median(&seconds[0]));
    row.note("server_cpu_us", micros(&cpu[0]));
    row.note("without_server_cpu_us", micros(&cpu[1]));
    let cost = (median(&cpu[0]) / median(&cpu[1]).max(1e-9) - 1.0) * 100.0;
    row.note("cost_percent", cost / TIMES);
    row.note("cost_percent_hundred_times", cost);
    row.note("without_seconds", median(&seconds[1]));
    Ok(())
}

fn create(cluster: &TestCluster, dir: &str, first: u64, files: u64) -> Result<(f64, f64)> {
    let dir = dir.to_owned();
    let (sync, latencies) = (false, false);
    let task = Task::Create { dir, first, files, sync, latencies, alone: false };
    let outcome = alone(cluster, task)?;
    Ok((outcome.server_cpu_seconds, outcome.seconds()))
}
