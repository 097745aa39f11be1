//! `remove`: a tree of many names is removed at once, restored, and removed for good, beside a
//! client that creates files, and beside a removal name by name.
//!
//! The times of removal and restore end when a second client, which had looked into the tree
//! before, sees it gone, or there again. The names come from the merge of a decoupled journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudele::{Dir, Errno, Error, Fs, NewFile, RemovedTree, Result};

use crate::harness::cluster::TestCluster;
use crate::harness::lab::{Lab, policy};
use crate::harness::row::Row;
use crate::harness::sheet::Sheet;
use crate::harness::stats::real;

const BENCH: &str = "remove";
/// Names of one directory of the tree.
const NAMES_PER_DIR: u64 = 20_000;
/// Names that are removed one by one, at most.
const ONE_BY_ONE_MAX: u64 = 50_000;
/// Goals: gone, or back, for a second client; names reaped in a second; the share of the creates of
/// another client that remains during that.
const GOAL_MS: f64 = 10.0;
const GOAL_REAPED: f64 = 1_000_000.0;
const GOAL_OTHERS: f64 = 0.95;
const KEPT: &str = "trash: 1d\n";
/// How long the server may take for anything.
const PATIENCE: Duration = Duration::from_secs(600);
const STEP: Duration = Duration::from_millis(20);

pub(crate) fn run(lab: &mut Lab) -> Result<()> {
    let names = lab.files(10_000_000, 20_000);
    let window = Duration::from_millis(if lab.quick { 300 } else { 3_000 });
    let mut sheet = Sheet::new(BENCH);
    let mut store = String::new();
    for repetition in 0..lab.repeat {
        lab.progress(BENCH, repetition, &format!("{names} names"));
        let cluster = lab.cluster(&[])?;
        once(&cluster, names, window, &mut sheet)?;
        cluster.store().clone_into(&mut store);
    }
    for name in ["gone", "restored"] {
        sheet.row(name, 1).limit("ms", GOAL_MS);
    }
    sheet.row("reaped", names).goal("names_per_second", GOAL_REAPED);
    sheet.row("others", 1).goal("of_alone", GOAL_OTHERS);
    lab.report(&store, sheet.rows);
    Ok(())
}

fn once(cluster: &TestCluster, names: u64, window: Duration, sheet: &mut Sheet) -> Result<()> {
    let above = cluster.directory(Some(&cudele::Policy::parse(KEPT)?.policy))?;
    let (tree, small) = (format!("{above}/tree"), format!("{above}/small"));
    let total = fill(cluster, &tree, names)?;
    let few = fill(cluster, &small, names.min(ONE_BY_ONE_MAX))?;
    let (remover, other) = (cluster.client()?, cluster.client()?);
    let creates = cluster.directory(None)?;
    let alone = creating(&other, &creates, "a", window, || Ok(()))?;

    timed(sheet.row("gone", 1), || removed(&remover, &other, &tree))?;
    let kept = kept(&remover, &tree)?;
    timed(sheet.row("restored", 1), || {
        remover.restore(&kept, None)?;
        other.stat(&tree).map(drop)
    })?;
    removed(&remover, &other, &tree)?;
    let kept = self::kept(&remover, &tree)?;
    let beside = creating(&other, &creates, "b", window, || remover.empty_trash(&kept))?;
    let row = sheet.row("others", 1);
    row.push(window.as_secs_f64());
    row.note("creates_per_second_alone", alone);
    row.note("creates_per_second_beside", beside);
    row.note("of_alone", beside / alone.max(1.0));
    let row = sheet.row("reaped", names);
    row.note("reaped_beside", real(cluster.counter("reaped")?));
    let rate = reaped_alone(cluster, total, row)?;
    row.note("names_per_second", rate);

    let start = Instant::now();
    one_by_one(&remover, &small)?;
    let row = sheet.row("one_by_one", few);
    row.push(start.elapsed().as_secs_f64());
    row.note("us_per_name", start.elapsed().as_secs_f64() * 1e6 / real(few));
    Ok(())
}

fn failed(cause: &str) -> Error {
    Error::new(Errno::TimedOut, BENCH, cause)
}

fn timed(row: &mut Row, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    work()?;
    let seconds = start.elapsed().as_secs_f64();
    row.push(seconds);
    row.note("ms", seconds * 1e3);
    Ok(())
}

/// Makes a tree by a merge, with all of it in the metadata store. Returns how many names it has.
fn fill(cluster: &TestCluster, path: &str, names: u64) -> Result<u64> {
    cluster.make_dir(path)?;
    let fs = cluster.client()?;
    let mut subtree =
        fs.decouple(path, &policy("weak-none", names + names / NAMES_PER_DIR + 1)?)?;
    let (root, file) = (subtree.root(), NewFile::default());
    let (mut dir, mut directories) = (root, 0);
    for number in 0..names {
        if number % NAMES_PER_DIR == 0 {
            let name = format!("d{directories:05}");
            dir = subtree.create(root, name.as_bytes(), &NewFile::directory())?;
            directories += 1;
        }
        subtree.create(dir, format!("file.{number:08}").as_bytes(), &file)?;
    }
    subtree.merge()?;
    // A journal in memory only would be lost with the server, and so may be removed only when the
    // store has its names.
    cluster.checkpoint()?;
    Ok(names + directories + 1)
}

/// Removes a tree, and waits until another client sees that.
fn removed(fs: &Arc<Fs>, other: &Fs, path: &str) -> Result<()> {
    other.stat(format!("{path}/d00000/file.00000000"))?;
    if !fs.remove_tree(path)? {
        return Err(Error::new(Errno::NotSupported, path, "it was removed name by name")
            .remedy("run this experiment as root"));
    }
    match other.stat(path) {
        Err(error) if error.errno == Errno::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(failed("another client sees a removed tree")),
    }
}

fn kept(fs: &Fs, path: &str) -> Result<RemovedTree> {
    let mut trees = fs.trash()?.into_iter();
    let found = trees.find(|tree| tree.entry.path == path.as_bytes());
    found.ok_or_else(|| failed("the removed tree is not in the trash"))
}

/// The creates of a client in a second, from the moment when `begin` was called.
fn creating(
    fs: &Arc<Fs>,
    dir: &str,
    prefix: &str,
    window: Duration,
    begin: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let dir = fs.open_dir(dir)?;
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let work = scope.spawn(|| -> Result<u64> {
            let mut counted = 0_u64;
            for number in 0_u64.. {
                dir.create(format!("{prefix}{number}"), &NewFile::default())?;
                counted += u64::from(begun.load(Ordering::Relaxed));
                if ended.load(Ordering::Relaxed) {
                    return Ok(counted);
                }
            }
            Ok(counted)
        });
        std::thread::sleep(window / 10);
        let result = begin();
        begun.store(true, Ordering::Relaxed);
        let start = Instant::now();
        std::thread::sleep(window);
        let seconds = start.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        let counted = work.join().map_err(|_| failed("a client panicked"))??;
        result.map(|()| real(counted) / seconds)
    })
}

/// Waits until the trash is empty; the server has no requests. Returns the names in a second, from
/// the first change of the counter to the last.
fn reaped_alone(cluster: &TestCluster, total: u64, row: &mut Row) -> Result<f64> {
    let start = Instant::now();
    let (mut first, mut last) = (None, None);
    let mut before = cluster.counter("reaped")?;
    let begin = before;
    while cluster.counter("removed_trees")? > 0 {
        if start.elapsed() > PATIENCE {
            return Err(failed("the trash is not emptied"));
        }
        let now = cluster.counter("reaped")?;
        if now != before {
            let at = (Instant::now(), now);
            first.get_or_insert(at);
            last = Some(at);
            before = now;
        }
        std::thread::sleep(STEP);
    }
    row.push(start.elapsed().as_secs_f64());
    match (first, last) {
        (Some((since, from)), Some((until, to))) if to > from => {
            Ok(real(to - from) / until.duration_since(since).as_secs_f64())
        }
        // So few names that two reports of the server have all of them.
        _ => Ok(real(total.saturating_sub(begin)) / start.elapsed().as_secs_f64()),
    }
}

/// Removes a tree of two levels as `rm -r` does without the server's help.
fn one_by_one(fs: &Arc<Fs>, path: &str) -> Result<()> {
    let root = fs.open_dir(path)?;
    for entry in root.list()? {
        let dir: Dir = root.enter(&entry.name, entry.attr.ino)?;
        for file in dir.list()? {
            dir.unlink(&file.name)?;
        }
        root.rmdir(&entry.name)?;
    }
    let (above, name) = fs.open_parent(path)?;
    above.rmdir(name)?;
    fs.sync().map(drop)
}
