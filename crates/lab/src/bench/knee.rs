//! `knee`: how many clients one server carries (Fig 3c, S-04).
//!
//! Clients create files one after the other, each in a directory of its own, more and more of them.
//! Where the server (or this machine, which runs the clients, too) is saturated, more clients only
//! make each other slower: the knee is the first number beyond which adding clients yields less
//! than 5 % more creates in a second. Published: 18 clients at most, then the server is reported as
//! laggy.

use cudele::Result;

use crate::harness::cluster::TestCluster;
use crate::harness::job::Task;
use crate::harness::lab::{Lab, policy, together};
use crate::harness::peers::cephfs::Peer;
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "knee";
const CLIENTS: [u32; 7] = [1, 2, 4, 8, 16, 18, 24];
const CLIENTS_QUICK: [u32; 3] = [1, 2, 4];
/// The least gain of more clients below the knee.
const GAIN: f64 = 1.05;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(20_000, 500);
    let all: &[u32] = if lab.quick { &CLIENTS_QUICK } else { &CLIENTS };
    let most = lab.clients(u32::MAX);
    let mut counts: Vec<_> = all.iter().copied().filter(|count| *count <= most).collect();
    if counts.is_empty() {
        counts.push(1);
    }
    let row = |count: &u32| Row::new(BENCH, format!("clients_{count}"), files).clients(*count);
    let mut rows: Vec<_> = counts.iter().map(row).collect();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let cluster = lab.cluster(&[])?;
        let mut alone = 0.0;
        for row in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let slowest = measure(&cluster, files, row)?;
            if row.clients == 1 {
                alone = slowest;
            }
            row.slowdown.push(slowest / alone);
        }
        cluster.store().clone_into(&mut store);
    }
    let rates: Vec<f64> = rows.iter().map(|row| row.per_second().unwrap_or(0.0)).collect();
    let found = match knee(&rates) {
        Some(at) => {
            let mut found = rows[at].named("knee");
            found.note("gain_beyond", rates[at + 1] / rates[at]);
            found
        }
        // The last number is then no knee, only as far as this went.
        None => match rows.last() {
            Some(last) => last.named(format!("no_knee_up_to_{}", last.clients)),
            None => return Ok(()),
        },
    };
    rows.push(found);
    lab.report(&store, rows);
    if let Some(conf) = lab.cephfs.clone() {
        beside(lab, &Peer::new(&conf), files, &counts)?;
    }
    Ok(())
}

/// The same in a CephFS, with a tenth of the files.
fn beside(lab: &mut Lab, peer: &Peer, files: u64, counts: &[u32]) -> Result<()> {
    let files = (files / 10).max(1);
    let row =
        |count: &u32| Peer::row(BENCH, format!("cephfs_clients_{count}"), files).clients(*count);
    let mut rows: Vec<_> = counts.iter().map(row).collect();
    // Of this cluster only the place for its clients' state is used.
    let cluster = lab.cluster(&[])?;
    for repetition in 0..lab.repeat {
        let mut alone = 0.0;
        for row in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let task = |_| {
                let (conf, dir) = (peer.conf().to_owned(), peer.directory(BENCH));
                Task::CephCreate { conf, dir, files, sync: false }
            };
            let result = together(&cluster, (0..row.clients).map(task).collect())?;
            row.push(result.seconds);
            let seconds = result.outcomes.iter().map(crate::harness::job::JobOutcome::seconds);
            let slowest = seconds.fold(0.0, f64::max);
            if row.clients == 1 {
                alone = slowest;
            }
            row.slowdown.push(slowest / alone);
            row.note("creates", real(files * u64::from(row.clients)));
        }
    }
    lab.report("", rows);
    Ok(())
}

/// A repetition with the row's number of clients; returns the seconds of the slowest one.
fn measure(cluster: &TestCluster, files: u64, row: &mut Row) -> Result<f64> {
    let policy = policy("posix", files)?;
    let mut tasks = Vec::new();
    for _ in 0..row.clients {
        let dir = cluster.directory(Some(&policy))?;
        let (sync, latencies) = (false, true);
        tasks.push(Task::Create { dir, first: 0, files, sync, latencies, alone: false });
    }
    let result = together(cluster, tasks)?;
    row.push(result.seconds);
    row.cpu(&result.outcomes);
    let seconds = result.outcomes.iter().map(crate::harness::job::JobOutcome::seconds);
    let slowest = seconds.clone().fold(0.0, f64::max);
    let fastest = seconds.fold(f64::INFINITY, f64::min);
    row.note("slowest_of_fastest", slowest / fastest);
    row.note("server_cpu_share", real_cpu(&result.outcomes) / result.seconds);
    let latencies: Vec<_> = result.outcomes.iter().filter_map(|one| one.latencies_us).collect();
    // The median of the clients' medians, and the 99th percentile of the one that has it worst.
    let medians: Vec<_> = latencies.iter().map(|of| of[0]).collect();
    row.note("p50_us", crate::harness::stats::median(&medians));
    row.note("worst_p99_us", latencies.iter().map(|of| of[1]).fold(0.0, f64::max));
    row.note("creates", real(files * u64::from(row.clients)));
    Ok(slowest)
}

fn real_cpu(outcomes: &[crate::harness::job::JobOutcome]) -> f64 {
    outcomes.iter().map(|outcome| outcome.server_cpu_seconds).sum()
}

/// The first of these rates that the next one does not exceed by 5 %.
fn knee(rates: &[f64]) -> Option<usize> {
    rates.windows(2).position(|pair| pair[1] < pair[0] * GAIN)
}

#[cfg(test)]
mod tests {
    use super::knee;

    #[test]
    fn the_knee_is_where_more_clients_yield_little() {
        assert_eq!(knee(&[10.0, 20.0, 38.0, 39.0, 30.0]), Some(2));
        assert_eq!(knee(&[10.0, 10.4, 20.0]), Some(0), "the first such number, not the last");
        assert_eq!(knee(&[10.0, 10.6, 20.0]), None);
        assert_eq!(knee(&[10.0]), None);
    }
}
