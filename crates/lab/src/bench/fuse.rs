//! `fuse`: the mount, beside a file system that does nothing on the same terms with the kernel, and
//! beside the object store and the local file system alone. Compared cases are measured in turn,
//! repetition by repetition.
//!
//! Ratios named `of_…` are speeds, larger is better; those named `times_…` are times. The figures
//! of JuiceFS are published ones, of another day on this kind of machine: to be read, not compared.

mod archive;

use std::ffi::OsString;
use std::path::Path;

use cudele::Result;
use terminal::io;

use crate::harness::cluster::TestCluster;
use crate::harness::disk::{evict, settle};
use crate::harness::job::{Calls, JobOutcome, Served, Task};
use crate::harness::lab::{Lab, alone, policy};
use crate::harness::mounting::{Mount, decoupled, possible};
use crate::harness::row::Row;
use crate::harness::sheet::Sheet;
use crate::harness::stats::real;
use archive::Archive;

const BENCH: &str = "fuse";
/// How often every file is asked for its attributes.
const PASSES: u64 = 5;
/// Files that are asked for over and over.
const HOT_FILES: u64 = 100;
const MIB: u64 = 1 << 20;
/// The inodes of an archive's subtree.
const ARCHIVE_INODES: u64 = 200_000;

const OF_NOTHING: &str = "of_nothing";
const OF_STORE: &str = "of_store";
const OF_STORE_SYNCED: &str = "of_store_synced";
const TIMES_NOTHING: &str = "times_nothing";
const TIMES_LOCAL: &str = "times_local_tar";

/// Operations in a second, JuiceFS 1.3 on redis and a local directory (`tar`: on badger).
const JUICEFS: &str = "juicefs_per_s_on_another_day";
const JUICEFS_CREATE: f64 = 1_700.0;
const JUICEFS_STAT: f64 = 18_000.0;
const JUICEFS_READDIR: f64 = 177_000.0;
const JUICEFS_TAR: f64 = 5_901.0 / 6.2;

/// The bounds of the ratios.
fn goals(sheet: &mut Sheet) {
    for row in &mut sheet.rows {
        match row.name.as_str() {
            "create_batchfs" => row.goal(OF_NOTHING, 0.7),
            "create_posix" => row.goal(OF_NOTHING, 0.8),
            "stat_batchfs" | "stat_posix" | "stat_hot_batchfs" | "stat_hot_posix" => {
                row.goal(OF_NOTHING, 0.95);
            }
            "readdir_batchfs" | "readdir_posix" => row.goal(OF_NOTHING, 0.7),
            "write_batchfs" | "read_from_disk_batchfs" | "read_batchfs" => {
                row.goal(OF_STORE, 0.7);
            }
            "tar_batchfs" => row.limit(TIMES_NOTHING, 1.4),
            "ingest_batchfs" => row.limit(TIMES_LOCAL, 1.2),
            _ => {}
        }
    }
}

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    possible()?;
    let files = lab.files(100_000, 1_000);
    let bytes = if lab.quick { 64 * MIB } else { 1024 * MIB };
    let archive = Archive::of(lab)?;
    let cluster = lab.cluster(&[])?;
    let mut sheet = Sheet::new(BENCH);
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, "names");
        names(&cluster, &mut sheet, files)?;
        if cluster.store_disk().is_some() {
            lab.progress(BENCH, repetition, "content");
            content(&cluster, &mut sheet, bytes)?;
        }
        lab.progress(BENCH, repetition, "tar");
        unpack(&cluster, &mut sheet, &archive)?;
        lab.progress(BENCH, repetition, "ingest");
        ingest(&cluster, &mut sheet, &archive, &lab.place.parent)?;
    }
    goals(&mut sheet);
    let store = cluster.store().to_owned();
    lab.report(&store, sheet.rows);
    Ok(())
}

/// The same among all experiments, where this machine may have no mounts.
pub(crate) fn run_where_possible(lab: &mut Lab) -> Result<()> {
    match possible() {
        Ok(()) => run(lab),
        Err(error) => {
            eprintln!("cudele: {error}");
            Ok(())
        }
    }
}

fn calls(cluster: &TestCluster, dir: &Path, work: Calls) -> Result<JobOutcome> {
    alone(cluster, Task::Calls { dir: dir.to_owned(), work })
}

/// Whether root has switched on requests over io_uring.
fn offers_io_uring() -> bool {
    let setting = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    setting.is_ok_and(|setting| setting.trim() == "Y")
}

/// Creates, attributes, listings.
fn names(cluster: &TestCluster, sheet: &mut Sheet, files: u64) -> Result<()> {
    let nothing = Mount::new(cluster, Served::Nothing)?;
    let (batchfs, batchfs_dir) = decoupled(cluster, files, false)?;
    let posix = Mount::new(cluster, Served::Namespace)?;
    let strict = policy("posix", files)?;
    let posix_dir = posix.dir(&cluster.directory(Some(&strict))?);
    // The same promises to other clients; this one waits for the server at each change.
    let wsync = Mount::new(cluster, Served::Synchronously)?;
    let wsync_dir = wsync.dir(&cluster.directory(Some(&strict))?);
    let mut dirs = vec![
        ("nothing", nothing.dir("")),
        ("batchfs", batchfs_dir),
        ("posix", posix_dir),
        ("wsync", wsync_dir),
    ];
    // Only root may keep processors awake.
    let awake = rustix::process::getuid().is_root();
    let awake = awake.then(|| Mount::new(cluster, Served::Awake)).transpose()?;
    if let Some(awake) = &awake {
        dirs.push(("posix_awake", awake.dir(&cluster.directory(Some(&strict))?)));
    }
    let queued = offers_io_uring().then(|| Mount::new(cluster, Served::OverIoUring)).transpose()?;
    if let Some(queued) = &queued {
        dirs.push(("posix_io_uring", queued.dir(&cluster.directory(Some(&strict))?)));
    }
    let mut base = 0.0;
    for (name, dir) in &dirs {
        let outcome = calls(cluster, dir, Calls::Create { files })?;
        let row = sheet.row(&format!("create_{name}"), files);
        compared(row, outcome.seconds(), &mut base);
        row.note("client_cpu_us", outcome.cpu_seconds * 1e6 / real(files));
        row.note(JUICEFS, JUICEFS_CREATE);
    }
    base = 0.0;
    for (name, dir) in &dirs {
        // Where everything is asked for again, once is enough.
        let passes = if matches!(*name, "nothing" | "batchfs") { PASSES } else { 1 };
        let outcome = calls(cluster, dir, Calls::Stat { files, passes })?;
        let row = sheet.row(&format!("stat_{name}"), files * passes);
        compared_work(row, outcome.seconds(), real(passes), &mut base);
        if passes != PASSES {
            row.note("passes", real(passes));
        }
        row.note(JUICEFS, JUICEFS_STAT);
    }
    base = 0.0;
    // The same few files again and again, as programs look at the directories on their paths: the
    // kernel may answer.
    let hot = files.min(HOT_FILES);
    let passes = files * PASSES / hot;
    for (name, dir) in &dirs {
        let outcome = calls(cluster, dir, Calls::Stat { files: hot, passes })?;
        compared(
            sheet.row(&format!("stat_hot_{name}"), hot * passes),
            outcome.seconds(),
            &mut base,
        );
    }
    base = 0.0;
    for (name, dir) in &dirs {
        let outcome = calls(cluster, dir, Calls::List)?;
        let row = sheet.row(&format!("readdir_{name}"), files);
        compared(row, outcome.seconds(), &mut base);
        row.note("again_s", outcome.part("again"));
        row.note("entries", real(outcome.events));
        row.note(JUICEFS, JUICEFS_READDIR);
    }
    for mount in [nothing, batchfs, posix, wsync].into_iter().chain(awake).chain(queued) {
        mount.end()?;
    }
    Ok(())
}

/// Adds a repetition, and its speed as a part of the base's, which is measured first.
fn compared(row: &mut Row, seconds: f64, base: &mut f64) {
    compared_work(row, seconds, 1.0, base);
}

/// The same of a repetition that did so many units of work. The base is the time of one.
fn compared_work(row: &mut Row, seconds: f64, units: f64, base: &mut f64) {
    row.push(seconds);
    let one = seconds / units;
    if *base == 0.0 {
        *base = one;
    } else if one > 0.0 {
        row.note(OF_NOTHING, *base / one);
    }
}

/// One large file: through the mounts, and the same bytes in the store.
fn content(cluster: &TestCluster, sheet: &mut Sheet, bytes: u64) -> Result<()> {
    let nothing = Mount::new(cluster, Served::Nothing)?;
    let (batchfs, dir) = decoupled(cluster, 1, false)?;
    // From memory first: reading from the disk empties the cache.
    for way in ["write", "read", "read_from_disk"] {
        let url = cluster.store().to_owned();
        let (write, cold) = (way == "write", way == "read_from_disk");
        let keep = !cold;
        let work = if write { Calls::Write { bytes } } else { Calls::Read { bytes, keep } };
        let through = |dir: &Path| Task::Calls { dir: dir.to_owned(), work };
        let tasks = [
            ("nothing", through(&nothing.dir(""))),
            ("store", Task::Store { url, bytes, write, keep }),
            ("batchfs", through(&dir)),
        ];
        let (mut store, mut store_synced) = (0.0, 0.0);
        for (name, task) in tasks {
            if cold && name == "nothing" {
                continue; // It has no disk.
            }
            settle(cluster)?;
            if cold {
                evict(cluster)?;
            }
            let outcome = alone(cluster, task)?;
            let (seconds, sync) = (outcome.seconds(), outcome.part("sync"));
            let row = sheet.row(&format!("{way}_{name}"), bytes / MIB);
            row.push(seconds);
            if write {
                row.note("sync_s", sync);
            }
            match name {
                "store" => (store, store_synced) = (seconds, seconds + sync),
                "batchfs" => {
                    row.note(OF_STORE, store / seconds);
                    if write {
                        row.note(OF_STORE_SYNCED, store_synced / (seconds + sync));
                    }
                }
                _ => {}
            }
        }
    }
    nothing.end()?;
    batchfs.end()?;
    Ok(())
}

fn tar(archive: &Archive, dir: &Path) -> Task {
    let arguments: [OsString; 5] =
        ["tar".into(), "xf".into(), archive.path().into(), "-C".into(), dir.into()];
    Task::Program { arguments: arguments.into() }
}

/// `tar x` of a source tree.
fn unpack(cluster: &TestCluster, sheet: &mut Sheet, archive: &Archive) -> Result<()> {
    let nothing = Mount::new(cluster, Served::Nothing)?;
    let (batchfs, dir) = decoupled(cluster, ARCHIVE_INODES, true)?;
    settle(cluster)?;
    let base = alone(cluster, tar(archive, &nothing.dir("")))?.seconds();
    settle(cluster)?;
    let seconds = alone(cluster, tar(archive, &dir))?.seconds();
    nothing.end()?;
    let merge = batchfs.end()?.part("merge");
    let row = sheet.row("tar_nothing", archive.entries());
    row.push(base);
    row.note(JUICEFS, JUICEFS_TAR);
    let row = sheet.row("tar_batchfs", archive.entries());
    row.push(seconds);
    row.note(TIMES_NOTHING, seconds / base);
    row.note("merge_s", merge);
    row.note("times_nothing_with_merge", (seconds + merge) / base);
    row.note(JUICEFS, JUICEFS_TAR);
    Ok(())
}

/// `cudele ingest` of the same archive, beside `tar x` onto the local disk.
fn ingest(
    cluster: &TestCluster,
    sheet: &mut Sheet,
    archive: &Archive,
    parent: &Path,
) -> Result<()> {
    let local = tempfile::tempdir_in(parent).map_err(|error| io(parent, &error))?;
    settle(cluster)?;
    let script = "tar xf \"$0\" -C \"$1\" && sync -f \"$1\"";
    let mut arguments: Vec<OsString> = vec!["sh".into(), "-c".into(), script.into()];
    arguments.extend([archive.path().into(), local.path().into()]);
    let base = alone(cluster, Task::Program { arguments })?.seconds();
    drop(local);
    let to = cluster.directory(None)?;
    settle(cluster)?;
    let program = terminal::program::find(terminal::program::PRODUCT)?;
    let mut arguments: Vec<OsString> = vec![program.into(), "ingest".into()];
    arguments.extend(["--mon".into(), cluster.address().into()]);
    arguments.extend(["--policy".into(), "batchfs".into(), archive.path().into(), to.into()]);
    let seconds = alone(cluster, Task::Program { arguments })?.seconds();
    sheet.row("tar_local_and_sync", archive.entries()).push(base);
    let row = sheet.row("ingest_batchfs", archive.entries());
    row.push(seconds);
    row.note(TIMES_LOCAL, seconds / base);
    Ok(())
}
