//! `readdir`: reading large directories (use case 4, U-04): by RPC while the server has the
//! directory in memory, by RPC right after a restart, and in the view of a decoupled client.

use cudele::{MergeBy, Result};

use super::cluster::TestCluster;
use super::job::{Outcome, Task};
use super::lab::{Fill, Lab, Size, alone, fill, policy};
use super::row::Row;
use super::stats::real;

const BENCH: &str = "readdir";
const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    for size in lab.sizes(&SIZES, 1_000) {
        let row = |way: &str| Row::new(BENCH, format!("{way}_{}", Size(size)), size);
        let (mut warm, mut cold) = (row("rpc_warm"), row("rpc_cold"));
        let (mut view, mut again) = (row("view"), row("view_again"));
        let mut cluster = lab.cluster(&[])?;
        let dir = cluster.directory(None)?;
        fill(
            &cluster,
            Fill { dir: &dir, first: 0, files: size, merge: true, merge_by: MergeBy::Value },
        )?;
        for repetition in 0..lab.repeat {
            lab.progress(BENCH, repetition, &format!("{size} entries"));
            cluster.restart()?;
            note(&mut cold, &list(&cluster, &dir)?);
            note(&mut warm, &list(&cluster, &dir)?);
            let policy = policy("invisible-none", size)?.to_yaml();
            let outcome = alone(&cluster, Task::View { dir: dir.clone(), policy })?;
            note(&mut view, &outcome);
            again.push(outcome.part("again"));
        }
        let store = cluster.store().to_owned();
        lab.report(&store, [warm, cold, view, again]);
    }
    Ok(())
}

fn list(cluster: &TestCluster, dir: &str) -> Result<Outcome> {
    alone(cluster, Task::List { dir: dir.to_owned() })
}

fn note(row: &mut Row, outcome: &Outcome) {
    row.push(outcome.seconds());
    row.note("entries", real(outcome.events));
    row.note("requests", real(outcome.requests));
}
