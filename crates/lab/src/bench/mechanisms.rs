//! `mechanisms`: the cost of each mechanism alone (Fig 6, left): one client, one directory.
//!
//! The mechanisms that complete a journal are timed inside their composition; the transfer of the
//! journal is a part of `volatile_apply`, as it happens (J-15). Beside the persists is the disk's
//! own time for the same number of bytes.

use std::path::Path;

use cudele::Result;
use terminal::costs::COMPLETION;

use crate::harness::cluster::TestCluster;
use crate::harness::job::{JobOutcome, Task};
use crate::harness::lab::{Lab, alone, create, decoupled};
use crate::harness::peers::cephfs::Peer;
use crate::harness::row::Row;
use crate::harness::stats::real;

const BENCH: &str = "mechanisms";
/// Files of the smallest measurement.
const SMALL: u64 = 20_000;
/// Files of the published way of applying to the store.
const PER_EVENT: u64 = 500;
/// Files with creates that wait for a request and for the client's own disk, each.
const LOGGED: u64 = 2_000;

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let mut all = Sizes::of(lab);
    for repetition in 0..lab.repeat {
        all.repetition(lab, repetition)?;
    }
    all.report(lab);
    if let Some(conf) = lab.cephfs.clone() {
        beside(lab, &Peer::new(&conf))?;
    }
    Ok(())
}

/// One client of a CephFS that waits for each create, as `rpcs+stream` does, with a tenth of the
/// files.
fn beside(lab: &mut Lab, peer: &Peer) -> Result<()> {
    let files = (lab.files(100_000, 2_000) / 10).max(1);
    let mut row = Peer::row(BENCH, "cephfs", files);
    // Of this cluster only the place for its client's state is used.
    let cluster = lab.cluster(&[])?;
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &row.name);
        let (conf, dir) = (peer.conf().to_owned(), peer.directory(BENCH));
        let outcome = alone(&cluster, Task::CephCreate { conf, dir, files, sync: true })?;
        row.push(outcome.seconds());
    }
    lab.report("", [row]);
    Ok(())
}

/// The mechanisms at several sizes.
pub(super) struct Sizes {
    rows: Vec<Rows>,
    store: String,
}

impl Sizes {
    pub(super) fn of(lab: &Lab) -> Self {
        let mut sizes = vec![(lab.files(100_000, 2_000), Requests::All)];
        if lab.files.is_none() {
            // Larger, but without the mechanisms that cost a request per file.
            sizes.push((if lab.quick { 20_000 } else { 1_000_000 }, Requests::None));
        }
        if lab.files.is_none() && !lab.quick {
            // The small size shows the fixed cost, and the large one the later cost: a server
            // streams faster while its journal has room than when it has to make room.
            sizes.push((SMALL, Requests::Fast));
        }
        let rows = sizes.into_iter().map(|(files, requests)| Rows::new(files, requests)).collect();
        Self { rows, store: String::new() }
    }

    /// Measures all of them once, each on a cluster of its own.
    pub(super) fn repetition(&mut self, lab: &Lab, repetition: u32) -> Result<()> {
        for rows in &mut self.rows {
            lab.progress(BENCH, repetition, &format!("{} files", rows.files));
            let cluster = lab.cluster(&[])?;
            rows.repetition(&cluster)?;
            cluster.store().clone_into(&mut self.store);
        }
        Ok(())
    }

    pub(super) fn report(self, lab: &mut Lab) {
        let Self { rows, store } = self;
        lab.report(&store, rows.into_iter().flat_map(Rows::into_rows));
    }
}

/// Which mechanisms that cost a request per file are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Requests {
    None,
    /// Requests that wait for no disk.
    Fast,
    All,
}

struct Rows {
    files: u64,
    requests: Requests,
    append: Row,
    rpcs: Row,
    stream: Row,
    /// Each create is on the client's own disk before the next: fewer files.
    logged: Row,
    local: Row,
    local_disk: Row,
    global: Row,
    global_disk: Row,
    apply: Row,
    store: Row,
    /// As published: fewer files, because the cost of each grows with the directory.
    per_event: Row,
}

impl Rows {
    fn new(files: u64, requests: Requests) -> Self {
        let row = |name| Row::new(BENCH, name, files);
        Self {
            files,
            requests,
            append: row("append_client_journal"),
            rpcs: row("rpcs"),
            stream: row("rpcs+stream"),
            logged: Row::new(BENCH, "rpcs+local_persist", files.min(LOGGED)),
            local: row("local_persist"),
            local_disk: row("sequential_write_local"),
            global: row("global_persist"),
            global_disk: row("sequential_write_store"),
            apply: row("volatile_apply"),
            store: row("nonvolatile_apply"),
            per_event: Row::new(BENCH, "nonvolatile_apply_reference", files.min(PER_EVENT)),
        }
    }

    fn repetition(&mut self, cluster: &TestCluster) -> Result<()> {
        let files = self.files;
        let append = decoupled(cluster, "invisible-none", files)?;
        let base = append.part("append_client_journal");
        self.append.push(base);
        self.append.note("requests", real(append.requests));
        self.append.note("client_cpu_us", append.part("append_cpu") * 1e6 / real(files));
        self.append.against(base);
        journal(&mut self.append, &append);
        if self.requests != Requests::None {
            let rpcs = create(cluster, "posix-volatile", files)?;
            self.rpcs.push(rpcs.seconds());
            self.rpcs.cpu(std::slice::from_ref(&rpcs));
            self.rpcs.against(base);
            let stream = create(cluster, "posix", files)?;
            self.stream.push(stream.seconds());
            self.stream.cpu(std::slice::from_ref(&stream));
            self.stream.against(base);
            self.stream.note("sync_seconds", stream.part("sync"));
            self.stream.note("of_rpcs", rpcs.seconds() / stream.seconds());
        }
        if self.requests == Requests::All {
            let logged = create(cluster, "strong-local", self.logged.files)?;
            self.logged.push(logged.seconds());
            self.logged.cpu(std::slice::from_ref(&logged));
        }
        let local = decoupled(cluster, "invisible-local", files)?;
        mechanism(&mut self.local, &local, "local_persist", base);
        let disk = cluster.state();
        write(cluster, &disk, &local, &mut self.local, &mut self.local_disk)?;
        let global = decoupled(cluster, "invisible-global", files)?;
        mechanism(&mut self.global, &global, "global_persist", base);
        if let Some(disk) = cluster.store_disk() {
            write(cluster, &disk, &global, &mut self.global, &mut self.global_disk)?;
        }
        let apply = decoupled(cluster, "weak-none", files)?;
        mechanism(&mut self.apply, &apply, "volatile_apply", base);
        self.apply.note("verify_seconds", apply.part("verify"));
        self.apply.note("apply_seconds", apply.part("apply"));
        let rest = apply.part("volatile_apply") - apply.part("verify") - apply.part("apply");
        self.apply.note("transfer_seconds", rest);
        let store = decoupled(cluster, "nonvolatile", files)?;
        mechanism(&mut self.store, &store, "nonvolatile_apply", base);
        let parts = apply.part("volatile_apply") + global.part("global_persist");
        // The goal: at most 3 (published: 60).
        self.store
            .note("of_volatile_apply_and_global_persist", store.part("nonvolatile_apply") / parts);
        if let Some(disk) = cluster.store_disk()
            && self.requests == Requests::All
        {
            let (place, files) = (disk.join("per-event"), files.min(PER_EVENT));
            let reference = alone(cluster, Task::PerEvent { place, files })?;
            self.per_event.push(reference.seconds());
            let each = reference.seconds() / real(files);
            let ours = store.part("nonvolatile_apply") / real(self.files);
            self.per_event.note("of_nonvolatile_apply_per_event", each / ours);
        }
        Ok(())
    }

    fn into_rows(self) -> impl Iterator<Item = Row> {
        let Self { append, rpcs, stream, logged, local, global, apply, store, .. } = self;
        let (local_disk, global_disk) = (self.local_disk, self.global_disk);
        let rows =
            [append, rpcs, stream, logged, local, local_disk, global, global_disk, apply, store];
        rows.into_iter().chain([self.per_event]).filter(|row| !row.seconds.is_empty())
    }
}

fn mechanism(row: &mut Row, outcome: &JobOutcome, name: &str, base: f64) {
    row.push(outcome.part(name));
    row.against(base);
    journal(row, outcome);
    // A job's end waits for more than the mechanism alone: content first, and notes on its disk.
    row.note(COMPLETION, outcome.seconds() - outcome.part("append_client_journal"));
    row.note("MB_per_second", real(outcome.bytes) / 1e6 / outcome.part(name));
}

fn journal(row: &mut Row, outcome: &JobOutcome) {
    row.bytes_per_event = Some(real(outcome.bytes) / real(outcome.events.max(1)));
}

/// Writes the same number of bytes to the same disk, right after the mechanism did.
fn write(
    cluster: &TestCluster,
    disk: &Path,
    persisted: &JobOutcome,
    row: &mut Row,
    beside: &mut Row,
) -> Result<()> {
    let task = Task::Write { file: disk.join("sequential"), bytes: persisted.bytes };
    let seconds = alone(cluster, task)?.seconds();
    beside.push(seconds);
    beside.note("MB_per_second", real(persisted.bytes) / 1e6 / seconds);
    if let Some(mechanism) = row.seconds.last().copied() {
        row.note("of_sequential_write", seconds / mechanism);
    }
    Ok(())
}
