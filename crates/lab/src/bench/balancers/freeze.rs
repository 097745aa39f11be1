//! The time for which no client can work in a subtree that goes to another rank.

use cudele::{Errno, Error, Result};
use types::Rank;

use super::BENCH;
use crate::harness::cluster::TestCluster;
use crate::harness::crew::Crew;
use crate::harness::job::Task;
use crate::harness::lab::{Fill, Lab, fill};
use crate::harness::row::Row;
use crate::harness::stats::real;

/// The longest freeze, in milliseconds.
const MOST: f64 = 50.0;
/// Creates of the client that works there during the move.
const LIVE: u64 = 20_000;

pub(super) fn row(lab: &Lab) -> Row {
    let inodes = if lab.quick { lab.files(1_000, 1_000) } else { 100_000 };
    let mut row = Row::new(BENCH, "move_100K", inodes);
    row.limit("frozen_ms", MOST);
    row
}

/// There, while a client works, and back.
pub(super) fn measure(lab: &Lab, row: &mut Row) -> Result<()> {
    let cluster = lab.cluster_of(&[], 2)?;
    let dir = cluster.directory(None)?;
    let merge_by = cudele::MergeBy::Value;
    fill(&cluster, Fill { dir: &dir, first: 0, files: row.files, merge: true, merge_by })?;
    // A merged subtree stays on its rank until the store has it.
    cluster.checkpoint()?;
    let fs = cluster.client()?;
    let root = fs.stat(&dir)?.ino;
    let task = Task::Create {
        dir,
        first: row.files,
        files: if lab.quick { row.files } else { LIVE },
        sync: false,
        latencies: true,
        alone: false,
    };
    let crew = Crew::ready(&[cluster.job(task)], &cluster.state())?;
    let mut seconds = 0.0;
    let live = std::thread::scope(|scope| {
        let live = scope.spawn(|| crew.go());
        let start = std::time::Instant::now();
        let moved = fs.pin(root, Rank(1));
        seconds = start.elapsed().as_secs_f64();
        let live = live.join().map_err(|_| failed("the client's thread failed"))?;
        moved.and(live)
    })?;
    row.push(seconds);
    row.note("frozen_ms", frozen_ms(&cluster, 0)?);
    if let Some([_, _, _, largest]) = live.first()?.latencies_us {
        row.note("slowest_create_ms", largest / 1e3);
    }
    fs.pin(root, Rank(0))?;
    row.note("frozen_back_ms", frozen_ms(&cluster, 1)?);
    Ok(())
}

fn failed(cause: &str) -> Error {
    Error::new(Errno::Io, "balancers", cause)
}

/// The rank's figure about the one subtree that it has given away.
fn frozen_ms(cluster: &TestCluster, rank: u16) -> Result<f64> {
    cluster.await_counter(rank, "exports", 1)?;
    Ok(real(cluster.counter_of(rank, "export_freeze_micros")?) / 1e3)
}
