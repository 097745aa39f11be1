//! `insert`: many entries in random order into large directories (I-08 to I-10), beside RocksDB
//! with the same rows in the same run.
//!
//! Ours is measured from the first create of a decoupled client until all clients see all of them
//! and the metadata store has them durably. By reference the client writes sorted runs and the
//! server links them; by value the server receives the creates in batches, with room in its memory
//! for a small part of the namespace. RocksDB gets the same rows in batches, without a log, until
//! they are in its tables; and finished sorted tables. Behind that, single requests of one client
//! to a server that has a small part of the namespace in its memory. Bytes written are the kernel's
//! counts of the processes; bytes inserted are keys and values, as RocksDB gets them.

pub(super) mod columns;

use cudele::{Errno, Error, Ino, MergeBy, Policy, Result};
use metastore::request::{StoreOp, StoreResult};

use crate::harness::cluster::TestCluster;
use crate::harness::crew::Crew;
use crate::harness::job::{Entries, Insert, JobOutcome, Task};
use crate::harness::lab::{Lab, Size, alone, policy};
use crate::harness::numbered::directory_name;
use crate::harness::row::Row;
use crate::harness::stats::real;
use crate::worker;

const BENCH: &str = "insert";
const FILES: u64 = 30_000_000;
const FILES_QUICK: u64 = 20_000;
/// Entries of a directory.
const PER_DIRECTORY: u64 = 10_000_000;
/// Creates that are merged together, by value.
const BATCH: u64 = 200_000;
/// The most inodes in the server's memory, and its memory limit.
const INODES_MAX: &str = "inodes_max=300000";
const SERVER_MB: f64 = 350.0;
/// Bytes written for each byte that is inserted.
const WRITTEN_MAX: f64 = 4.0;
/// Times the rate of RocksDB's batches, and of its taking in ready tables.
const OF_BATCHES: f64 = 5.0;
const OF_TABLES: f64 = 1.0;

/// Single requests.
const REQUESTS: u64 = 100_000;
const REQUESTS_QUICK: u64 = 500;

/// One repetition of one of our two ways.
struct Measured {
    outcome: JobOutcome,
    peak_bytes: u64,
    server_disk_bytes: u64,
    /// The server's bytes of runs, and the rewritten part of them.
    run_bytes: u64,
    rewritten_bytes: u64,
    /// The most memory that the server has had when these were answered.
    single_peak_bytes: u64,
    /// Questions and creates behind that, with the look-ups that they cost in the store.
    single: Vec<(JobOutcome, u64)>,
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let files = lab.files(FILES, FILES_QUICK);
    let entries = Entries { files, directories: files.div_ceil(PER_DIRECTORY) };
    let row = |name: &str| Row::new(BENCH, format!("{name}_{}", Size(files)), files);
    let (mut reference, mut value) = (row("by_reference"), row("by_value"));
    let mut visible = row("by_reference_ready");
    let count = if lab.quick { REQUESTS_QUICK } else { REQUESTS };
    let single = |name: &str| Row::new(BENCH, format!("{name}_{}", Size(files)), count);
    let mut cold = [single("cold_stat"), single("cold_create")];
    let (mut batches, mut tables) = (row("rocksdb_batches"), row("rocksdb_tables_ready"));
    for row in [&mut reference, &mut value] {
        row.limit("server_peak_mb", SERVER_MB);
        row.limit("written_per_byte", WRITTEN_MAX);
        row.goal("times_batches", OF_BATCHES);
    }
    visible.goal("times_tables_ready", OF_TABLES);
    let has_peer = worker::rocks::is_there();
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        let mut peers = None;
        if has_peer {
            lab.progress(BENCH, repetition, "RocksDB, batches");
            let batched = beside(lab, entries, false)?;
            lab.progress(BENCH, repetition, "RocksDB, tables");
            let taken_in = beside(lab, entries, true)?;
            note_peer(&mut batches, &batched);
            note_peer(&mut tables, &taken_in);
            peers = Some((batched, taken_in));
        }
        for (row, merge_by) in [(&mut reference, MergeBy::Reference), (&mut value, MergeBy::Value)]
        {
            lab.progress(BENCH, repetition, &row.name);
            let measured = insert(lab, entries, count, merge_by, &mut store)?;
            note(row, &measured, peers.as_ref());
            for (row, (outcome, lookups)) in cold.iter_mut().zip(&measured.single) {
                note_single(row, outcome, *lookups);
                row.note("server_peak_mb", real(measured.single_peak_bytes) / 1e6);
            }
            if merge_by == MergeBy::Reference {
                let seconds = measured.outcome.part("by_reference");
                visible.push(seconds);
                if let Some((_, taken_in)) = &peers {
                    visible.note("times_tables_ready", taken_in.seconds() / seconds);
                }
            }
        }
    }
    let mut rows = vec![reference, visible, value, columns::row(lab)?];
    rows.extend(cold);
    if has_peer {
        rows.extend([batches, tables]);
    }
    lab.report(&store, rows);
    Ok(())
}

/// Inserts into a new cluster, and counts the objects of its store afterwards.
fn insert(
    lab: &Lab,
    entries: Entries,
    count: u64,
    merge_by: MergeBy,
    store: &mut String,
) -> Result<Measured> {
    let cluster = lab.cluster(&[INODES_MAX])?;
    cluster.store().clone_into(store);
    let dir = cluster.directory(None)?;
    let room = entries.files + entries.directories;
    let policy = Policy { merge_by, ..policy("weak-none", room)? }.to_yaml();
    let batch = if merge_by == MergeBy::Value { BATCH } else { 0 };
    let before = cluster.disk_bytes()?;
    let task = Insert { dir: dir.clone(), policy, entries, batch, content: None };
    let outcome = alone(&cluster, Task::Insert(task))?;
    let (peak_bytes, server_disk_bytes) = (cluster.peak_bytes()?, cluster.disk_bytes()? - before);
    let mut single = Vec::new();
    for create in [false, true].into_iter().filter(|_| merge_by == MergeBy::Value) {
        let before = cluster.counter_now("cold_lookups")?;
        let task = Task::Find { dir: dir.clone(), entries, count, create };
        let outcome = alone(&cluster, task)?;
        single.push((outcome, cluster.counter_now("cold_lookups")? - before));
    }
    let measured = Measured {
        outcome,
        peak_bytes,
        server_disk_bytes,
        single_peak_bytes: cluster.peak_bytes()?,
        run_bytes: cluster.counter_now("run_bytes")?,
        rewritten_bytes: cluster.counter_now("rewritten_bytes")?,
        single,
    };
    let created = if measured.single.is_empty() { 0 } else { count };
    cluster.checkpoint()?;
    prove(&cluster, &dir, Entries { files: entries.files + created, ..entries })?;
    Ok(measured)
}

/// Every directory must have all of its names in the store.
fn prove(cluster: &TestCluster, dir: &str, entries: Entries) -> Result<()> {
    let store = objstore::open_existing(cluster.store())?;
    let count = |ino: Ino| -> Result<u64> {
        match engine::execute(&*store, StoreOp::LoadDir { ino }) {
            Ok(StoreResult::Dir(loaded)) => Ok(loaded.rows.len() as u64),
            Ok(_) => Ok(0),
            Err(failure) => Err(failure.error),
        }
    };
    let mut found = 0;
    for number in 0..entries.directories {
        found += count(cluster.ino(&format!("{dir}/{}", directory_name(number)))?)?;
    }
    if found == entries.files {
        return Ok(());
    }
    let cause = format!("{} files were created, and the store has {found}", entries.files);
    Err(Error::new(Errno::Io, BENCH, cause))
}

/// The peer, with a place of its own.
fn beside(lab: &Lab, entries: Entries, tables: bool) -> Result<JobOutcome> {
    let name = format!("cudele-bench.{}.rocksdb", std::process::id());
    let place = lab.place.parent.join(name);
    let task = Task::RocksInsert { place: place.clone(), entries, tables };
    let job = crate::harness::job::Job { mon: String::new(), key: None, user: None, task };
    let done = Crew::ready(&[job], &lab.place.parent).and_then(Crew::go);
    // Removed after a failure, too.
    let removed = std::fs::remove_dir_all(&place);
    let outcome = done?.first().cloned()?;
    removed.map_err(|error| terminal::io(&place, &error))?;
    Ok(outcome)
}

fn note(row: &mut Row, measured: &Measured, peers: Option<&(JobOutcome, JobOutcome)>) {
    let Measured { outcome, peak_bytes, server_disk_bytes, .. } = measured;
    row.push(outcome.seconds());
    row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
    row.note("server_peak_mb", real(*peak_bytes) / 1e6);
    let written = real(*server_disk_bytes) + outcome.part("disk_bytes");
    row.note("written_mb", written / 1e6);
    if let Some(rewritten) = (measured.rewritten_bytes * 1000).checked_div(measured.run_bytes) {
        row.note("rewritten_per_mille", real(rewritten));
    }
    row.note("until_last_create_seconds", outcome.part("until_last"));
    row.cpu(std::slice::from_ref(outcome));
    if let Some((batched, _)) = peers {
        row.note("written_per_byte", written / real(batched.bytes.max(1)));
        row.note("times_batches", batched.seconds() / outcome.seconds());
    }
}

fn note_single(row: &mut Row, outcome: &JobOutcome, lookups: u64) {
    row.push(outcome.seconds());
    if let Some([median, p99, ..]) = outcome.latencies_us {
        row.note("median_us", median);
        row.note("p99_us", p99);
    }
    row.note("store_lookups_per_request", real(lookups) / real(outcome.events.max(1)));
    row.cpu(std::slice::from_ref(outcome));
}

fn note_peer(row: &mut Row, outcome: &JobOutcome) {
    row.push(outcome.seconds());
    row.note("inserted_mb", real(outcome.bytes) / 1e6);
    row.note("written_mb", outcome.part("disk_bytes") / 1e6);
    row.note("written_per_byte", outcome.part("disk_bytes") / real(outcome.bytes.max(1)));
    row.note("peak_mb", outcome.part("peak_bytes") / 1e6);
    if outcome.part("tables") > 0.0 {
        row.note("making_tables_seconds", outcome.part("tables"));
    }
    row.cpu(std::slice::from_ref(outcome));
}
