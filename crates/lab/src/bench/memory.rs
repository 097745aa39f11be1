//! `memory`: resident bytes of the metadata server per inode.

use cudele::{MergeBy, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::job::Task;
use crate::harness::lab::{Fill, Lab, fill, policy, together};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "memory";

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(1_000_000, 5_000);
    let clients = lab.clients(8);
    // As many clients as it takes to be done soon; together they create as many files.
    let share = files.div_ceil(u64::from(clients));
    let by_clients = |name| Row::new(BENCH, name, share).clients(clients);
    let by_merge = Row::new(BENCH, "by_merge", files);
    let mut rows = [by_merge, by_clients("by_rpcs"), by_clients("by_rpcs+stream")];
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        for row in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let cluster = lab.cluster(&[])?;
            let seconds = match row.name.as_str() {
                "by_merge" => {
                    let dir = cluster.directory(None)?;
                    fill(
                        &cluster,
                        Fill { dir: &dir, first: 0, files, merge: true, merge_by: MergeBy::Value },
                    )?
                    .part("volatile_apply")
                }
                "by_rpcs" => create(&cluster, "posix-volatile", share, clients)?,
                _ => create(&cluster, "posix", share, clients)?,
            };
            row.push(seconds);
            // All of it: the memory that an empty server has ready is the inodes' by now.
            let resident = cluster.resident_bytes()?;
            let inodes = row.files * u64::from(row.clients);
            row.note("bytes_per_inode", real(resident) / real(inodes));
            cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, rows);
    Ok(())
}

/// Creates in one directory, a share by each client.
fn create(cluster: &TestCluster, preset: &str, share: u64, clients: u32) -> Result<f64> {
    let policy = policy(preset, share)?;
    let dir = cluster.directory(Some(&policy))?;
    let tasks = (0..u64::from(clients)).map(|client| Task::Create {
        dir: dir.clone(),
        first: client * share,
        files: share,
        sync: policy.streams(),
        latencies: false,
        alone: false,
    });
    Ok(together(cluster, tasks.collect())?.seconds)
}
