//! `batch`: 1, 2, 4 and 8 clients that each have a job of their own, decoupled, persisted in the
//! object store and merged by reference (BF-09); and a counter for each of the five costs that such
//! a job must not have (BF-08).
//!
//! Clients of a cluster have processors of their own; these share the machine's. So beside the
//! creates of all clients in a second there are their creates for each second of processor time: as
//! long as this does not fall, another client node adds that much.

use cudele::{MergeBy, Policy, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::job::{Decoupled, Task};
use crate::harness::lab::{Lab, policy, together};
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "batch";
const CLIENTS: [u32; 4] = [1, 2, 4, 8];
const FILES: u64 = 1_000_000;
const FILES_QUICK: u64 = 10_000;
/// The share that this many clients should create of the multiple of one client's rate.
const GOAL_SLOPE: f64 = 0.8;

/// The server's counters that must stay at zero for each create.
const COUNTERS: [&str; 5] = ["requests", "lookups", "caps_revoked", "recalls", "busy"];

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(FILES, FILES_QUICK);
    let most = lab.clients(CLIENTS[CLIENTS.len() - 1]);
    let counts: Vec<u32> = CLIENTS.into_iter().filter(|count| *count <= most).collect();
    let mut rows: Vec<Row> = counts.iter().map(|count| row(*count, files)).collect();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let mut one = None;
        for row in &mut rows {
            lab.progress(BENCH, repetition, &row.name);
            let cluster = lab.cluster(&[])?;
            let (rate, per_cpu) = measure(&cluster, row)?;
            let (rate_of_one, per_cpu_of_one) = *one.get_or_insert((rate, per_cpu));
            row.note("of_linear", rate / rate_of_one / f64::from(row.clients));
            row.note("slope_per_processor", per_cpu / per_cpu_of_one);
            cluster.store().clone_into(&mut store);
        }
    }
    lab.report(&store, rows);
    Ok(())
}

fn row(clients: u32, files: u64) -> Row {
    let mut row = Row::new(BENCH, format!("jobs_{clients}"), files).clients(clients);
    if clients == 1 {
        row.limit("requests_per_create", 0.001);
        row.limit("waits_per_create", 0.001);
        row.limit("lookups_per_create", 0.001);
        row.limit("taken_back_per_create", 0.001);
    } else {
        row.goal("slope_per_processor", GOAL_SLOPE);
    }
    row
}

/// Creates per second, and per second of processor time, of all clients.
fn measure(cluster: &TestCluster, row: &mut Row) -> Result<(f64, f64)> {
    let base = policy("weak-global", row.files)?;
    let policy = Policy { merge_by: MergeBy::Reference, ..base }.to_yaml();
    let mut tasks = Vec::new();
    for _ in 0..row.clients {
        let (dir, policy) = (cluster.directory(None)?, policy.clone());
        let merge = true;
        tasks.push(Task::Decoupled(Decoupled {
            dir,
            policy,
            files: row.files,
            merge,
            ..Decoupled::default()
        }));
    }
    let before = counters(cluster)?;
    let result = together(cluster, tasks)?;
    let after = counters(cluster)?;
    let creates = real(row.files * u64::from(row.clients));
    let each = |index: usize| real(after[index].saturating_sub(before[index])) / creates;
    row.push(result.seconds);
    row.cpu(&result.outcomes);
    // A request or more for each operation.
    row.note("requests_per_create", each(0));
    // An inefficient representation.
    let bytes: u64 = result.outcomes.iter().map(|outcome| outcome.bytes).sum();
    row.bytes_per_event = Some(real(bytes) / creates);
    // Pessimistic concurrency: revocations and rejections that other clients get because of this
    // job.
    row.note("taken_back_per_create", each(2) + each(3) + each(4));
    // A synchronous interface: how often a client waits for an answer.
    let waits: u64 = result.outcomes.iter().map(|outcome| outcome.requests).sum();
    row.note("waits_per_create", real(waits) / creates);
    // An authorisation service: look-ups of names are its requests.
    row.note("lookups_per_create", each(1));
    let clients: f64 = result.outcomes.iter().map(|outcome| outcome.cpu_seconds).sum();
    let server = result.outcomes.first().map_or(0.0, |first| first.server_cpu_seconds);
    Ok((creates / result.seconds, creates / (clients + server)))
}

fn counters(cluster: &TestCluster) -> Result<[u64; COUNTERS.len()]> {
    let mut counters = [0; COUNTERS.len()];
    for (at, (value, name)) in counters.iter_mut().zip(COUNTERS).enumerate() {
        // The counters behind the first are as recent.
        *value = if at == 0 { cluster.counter_now(name)? } else { cluster.counter(name)? };
    }
    Ok(counters)
}
