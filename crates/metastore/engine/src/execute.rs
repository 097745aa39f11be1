//! Executes the operations of the state machines ([`StoreOp`]) on any store.
//!
//! This is where a directory fragment becomes objects: a run is written, then the manifest is
//! replaced by compare-and-swap, then runs that it no longer lists are deleted. An interruption at
//! any point leaves a manifest that names only complete runs.

mod add;
mod cache;
mod compact;
mod executor;
mod lookup;
mod prove;
mod values;

use std::sync::atomic::{AtomicU64, Ordering};

use metastore::request::{Condition, LoadedDir, StoreFailure, StoreOp, StoreResult};
use metastore::{
    Attached, DirRun, DirTouch, Manifest, Rows, RunId, RunInfo, manifest_name, run_name,
    values_name,
};
use objstore::{Expect, ObjectStore, PutOutcome, Store, SyncScope, Version};
use types::{DirFragId, Errno, Error, Frag, Ino, InoRange, Pool, Result, Seq, Stripe};

use crate::retained::{self, Keeper, Unlisted};

/// So many numbers before the oldest run of a directory may be of runs that were left behind.
const RUNS_LEFT_MAX: u64 = 64;
/// How often a directory is read again because its runs were merged during the read.
const READS_MAX: usize = 16;
/// So many names are tried one by one rather than that a whole store is listed.
const GUESSES_MAX: u64 = 65_536;
/// So many of them at a time.
const GUESSES_AT_ONCE: u64 = 8;
/// After so many missing stripes the search ends: write-back goes in order, but programs may leave
/// holes.
const GAP_MAX: u64 = 4;

pub use executor::{Executor, Tuning};
pub use values::{ValueReader, resolve};

/// Executes a single operation ([`Executor`]).
///
/// # Errors
/// The error of the store, with the operation so that it can be tried again.
pub fn execute(
    store: &dyn Store,
    op: StoreOp,
) -> std::result::Result<StoreResult, Box<StoreFailure>> {
    Executor::default().execute(store, op)
}

fn try_op(store: &dyn Store, executor: &Executor, op: &StoreOp) -> Result<StoreResult> {
    match op {
        StoreOp::Append { object, data } => {
            store.append(object, data)?;
            store.sync(SyncScope::Object(object))?;
            Ok(StoreResult::Done)
        }
        StoreOp::Put { object, data, condition } => {
            let expect = match condition {
                Condition::Any => Expect::Any,
                Condition::Absent => Expect::Absent,
                Condition::Version(version) => Expect::Is(Version(*version)),
            };
            Ok(match store.put(object, data, expect)? {
                PutOutcome::Done(version) => StoreResult::Stored(version.0),
                PutOutcome::Conflict(_) => StoreResult::Conflict,
            })
        }
        StoreOp::Get { object } => Ok(match optional(store.get(object))? {
            Some((bytes, version)) => StoreResult::Bytes(bytes, version.0),
            None => StoreResult::Missing,
        }),
        StoreOp::List { prefix } => Ok(StoreResult::Names(store.list(prefix)?)),
        StoreOp::Delete { objects } => {
            for object in objects {
                store.delete(object)?;
            }
            Ok(StoreResult::Done)
        }
        StoreOp::PurgeData { ino, pool, stripes } => {
            if Keeper::new(store)?.puts_off(*ino, *pool, *stripes)? {
                return Ok(StoreResult::Done);
            }
            purge_data(store, *ino, *pool, *stripes)
        }
        StoreOp::TakeSnapshot { snapshot } => {
            retained::take_snapshot(store, snapshot).map(StoreResult::Stored)
        }
        StoreOp::PurgeDir { ino } => {
            let _swap = executor.swap(*ino);
            purge_dir(store, *ino)
        }
        StoreOp::LoadDir { ino } => load_dir(store, *ino),
        StoreOp::LookUp { ino, names } => lookup::look_up(store, executor, *ino, names),
        StoreOp::CompactDir { ino } => compact::compact(store, executor, *ino),
        StoreOp::AttachDirs { dirs, position, ranges } => {
            prove::prove_all(store, dirs)?;
            let mut dirs = dirs.chunk_by(|one, next| one.dir == next.dir);
            dirs.try_for_each(|runs| attach_dir(store, runs, *position, ranges))?;
            Ok(StoreResult::Done)
        }
        StoreOp::ProveRuns { runs } => prove::prove_all(store, runs).map(|()| StoreResult::Done),
        StoreOp::CommitDir { ino, rows, counts, position, touched, attach } => {
            let commit =
                Commit { ino: *ino, counts: *counts, position: *position, touched: *touched };
            commit_dir(store, executor, rows, &commit, attach.as_deref())
        }
    }
}

fn whole(ino: Ino) -> DirFragId {
    DirFragId { ino, frag: Frag::WHOLE }
}

/// Deletes the content of a file of so many stripes, and stripes that a dead writer left behind its
/// end.
///
/// # Errors
/// The error of the store.
pub fn purge_data(store: &dyn Store, ino: Ino, pool: Pool, stripes: u64) -> Result<StoreResult> {
    if store.lists_what_it_finds() || stripes > GUESSES_MAX {
        // Delete backwards: after a crash the next purge finds the remaining prefix.
        for object in store.list(&metastore::data_prefix(ino, pool))?.iter().rev() {
            store.delete(object)?;
        }
        return Ok(StoreResult::Done);
    }
    // A writer that died before it said how long the file is left stripes behind the end.
    let (mut end, mut absent) = (stripes, 0);
    while absent < GAP_MAX {
        let there = match optional(store.stat(&metastore::data_name(ino, pool, end + absent))) {
            // Everything went with the pool.
            Err(error) if error.errno == Errno::NoSuchPlace => return Ok(StoreResult::Done),
            there => there?.is_some(),
        };
        if there {
            (end, absent) = (end + absent + 1, 0);
        } else {
            absent += 1;
        }
    }
    // Delete backwards: after a crash the next purge finds the remaining prefix.
    for stripe in (stripes..end).rev() {
        store.delete(&metastore::data_name(ino, pool, stripe))?;
    }
    delete_sums(store, ino, pool, end)?;
    let left = AtomicU64::new(stripes);
    let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    let delete = || -> Result<()> {
        while let Ok(next_end) = next() {
            store.delete(&metastore::data_name(ino, pool, next_end - 1))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        // With fewer threads it only takes longer.
        let begun = (1..stripes.min(GUESSES_AT_ONCE)).map_while(|_| {
            std::thread::Builder::new().name("purge".to_owned()).spawn_scoped(scope, delete).ok()
        });
        let others: Vec<_> = begun.collect();
        let lost = |_| Err(Error::of(Errno::Io, "purge"));
        let done = delete();
        others.into_iter().fold(done, |done, other| done.and(other.join().unwrap_or_else(lost)))
    })?;
    Ok(StoreResult::Done)
}

/// Deletes the checksums of this many stripes, of any size.
fn delete_sums(store: &dyn ObjectStore, ino: Ino, pool: Pool, stripes: u64) -> Result<()> {
    const STRIPES_MIN: u64 =
        metastore::SUMS_PER_OBJECT * metastore::SUM_BLOCK_BYTES / Stripe::MAX.bytes();
    for number in (0..=stripes / STRIPES_MIN).rev() {
        store.delete(&metastore::sums_name(ino, pool, number))?;
    }
    Ok(())
}

fn purge_dir(store: &dyn Store, ino: Ino) -> Result<StoreResult> {
    let dir = whole(ino);
    let keeper = Keeper::new(store)?;
    if !keeper.is_free() {
        return put_away_dir(store, dir, &keeper);
    }
    let manifest = match read_manifest(store, dir) {
        Ok(manifest) if !store.lists_what_it_finds() => manifest,
        Err(error) if error.errno != Errno::BadMessage => return Err(error),
        // A manifest that cannot be read says nothing about runs.
        Ok(_) | Err(_) => return delete_all(store, &metastore::prefix(dir)),
    };
    let manifest = manifest.map_or_else(|| Manifest::new(dir), |(manifest, _)| manifest);
    for segment in &manifest.values {
        store.delete(&values_name(dir, segment.id))?;
    }
    let (clients, own): (Vec<_>, Vec<_>) =
        manifest.runs.iter().map(|run| run.id).partition(|id| id.is_clients());
    let oldest = own.iter().map(|id| id.0).min().unwrap_or(manifest.next_run);
    for id in clients {
        store.delete(&run_name(dir, id))?;
    }
    // A crash in here leaves runs that were replaced, or one that was not listed yet.
    for id in oldest.saturating_sub(RUNS_LEFT_MAX)..=manifest.next_run {
        store.delete(&run_name(dir, RunId(id)))?;
    }
    store.delete(&values_name(dir, RunId(manifest.next_run)))?;
    store.delete(&manifest_name(dir))?;
    Ok(StoreResult::Done)
}

/// The directory is gone, but a snapshot may need its former state.
fn put_away_dir(
    store: &dyn ObjectStore,
    dir: DirFragId,
    keeper: &Keeper<'_>,
) -> Result<StoreResult> {
    let Some((manifest, _)) = read_manifest(store, dir)? else { return Ok(StoreResult::Done) };
    let spared = keeper.keep(dir, Some(&manifest))?;
    // Before its runs: a crash in here leaves unlisted runs, and `gc` finds them.
    store.delete(&manifest_name(dir))?;
    let runs: Vec<_> = manifest.runs.iter().map(|run| run.id).collect();
    let values: Vec<_> = manifest.values.iter().map(|segment| segment.id).collect();
    let unlisted = Unlisted { runs: &runs, values: &values };
    for name in keeper.deletable(dir, unlisted, &spared) {
        store.delete(&name)?;
    }
    Ok(StoreResult::Done)
}

pub(crate) fn delete_all(store: &dyn ObjectStore, prefix: &str) -> Result<StoreResult> {
    for object in store.list(prefix)? {
        store.delete(&object)?;
    }
    Ok(StoreResult::Done)
}

pub(crate) fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn read_manifest(
    store: &dyn ObjectStore,
    dir: DirFragId,
) -> Result<Option<(Manifest, Version)>> {
    let Some((bytes, version)) = optional(store.get(&manifest_name(dir)))? else {
        return Ok(None);
    };
    Ok(Some((Manifest::decode_as(dir, &bytes)?, version)))
}

pub(crate) fn read_runs(store: &dyn ObjectStore, manifest: &Manifest) -> Result<Vec<Vec<u8>>> {
    let run = |info: &RunInfo| Ok(store.get(&run_name(manifest.dirfrag, info.id))?.0);
    manifest.runs.iter().map(run).collect()
}

fn load_dir(store: &dyn ObjectStore, ino: Ino) -> Result<StoreResult> {
    while_runs_go(|| match read_manifest(store, whole(ino))? {
        None => Ok(StoreResult::Missing),
        Some((manifest, _)) => load_manifest(store, manifest),
    })
}

fn load_manifest(store: &dyn ObjectStore, manifest: Manifest) -> Result<StoreResult> {
    let runs = read_runs(store, &manifest)?;
    let rows = metastore::merge(&manifest, &runs)?;
    // Values of a segment that is gone are found again as runs are.
    let rows = resolve(store, manifest.dirfrag, rows)?;
    Ok(StoreResult::Dir(Box::new(LoadedDir { manifest, rows })))
}

/// Reads a directory again as long as runs of it are gone: then they were merged, and the manifest
/// lists new ones. If it still lists them, they are lost.
fn while_runs_go(mut read: impl FnMut() -> Result<StoreResult>) -> Result<StoreResult> {
    let mut result = read();
    for _ in 1..READS_MAX {
        match &result {
            Err(error) if error.errno == Errno::NotFound => result = read(),
            Ok(_) | Err(_) => return result,
        }
    }
    // ENOENT would mean that the directory does not exist.
    result.map_err(|error| {
        if error.errno != Errno::NotFound {
            return error;
        }
        Error::new(Errno::BadMessage, error.subject, "its directory lists it, and it is gone")
            .remedy("run `cudele fsck`")
    })
}

/// The directory's state that a commit states.
struct Commit {
    ino: Ino,
    counts: (u64, u64, bool),
    position: Seq,
    touched: DirTouch,
}

fn commit_dir(
    store: &dyn ObjectStore,
    executor: &Executor,
    rows: &Rows,
    commit: &Commit,
    attach: Option<&(Vec<DirRun>, Vec<InoRange>)>,
) -> Result<StoreResult> {
    let dir = whole(commit.ino);
    let _swap = executor.swap(commit.ino);
    let keeper = Keeper::new(store)?;
    let current = read_manifest(store, dir)?;
    let spared = keeper.keep(dir, current.as_ref().map(|(manifest, _)| manifest))?;
    let expect = current.as_ref().map_or(Expect::Absent, |(_, version)| Expect::Is(*version));
    let new = || Manifest { next_run: keeper.first_run(), ..Manifest::new(dir) };
    let mut manifest = current.map_or_else(new, |(manifest, _)| manifest);
    let is_listed = |run: &DirRun| manifest.runs.iter().any(|known| known.id == run.run.id);
    if attach.is_some_and(|(runs, _)| runs.iter().any(is_listed)) {
        // It was done, and the answer was lost. Done again, the rows would come above the run.
        return Ok(StoreResult::Written { compact: false, bytes: (0, 0) });
    }
    manifest.generation += 1;
    (manifest.entries, manifest.subdirs, manifest.counts_exact) = commit.counts;
    (manifest.position, manifest.touched) = (commit.position, commit.touched);
    let mut added = add::Added::default();
    // An attached run may come without rows.
    if attach.is_none() || !rows.is_empty() {
        added = add::add_run(store, executor, &mut manifest, rows)?;
    }
    if let Some((runs, ranges)) = attach {
        attach_to(&mut manifest, runs, commit.position, ranges);
    }
    replace_manifest(store, &manifest, expect)?;
    let unlisted = Unlisted { runs: &added.replaced, values: &added.emptied };
    for old in keeper.deletable(dir, unlisted, &spared) {
        store.delete(&old)?;
    }
    let compact = executor.tuning.tiers.choose(&manifest).is_some();
    Ok(StoreResult::Written { compact, bytes: added.bytes })
}

fn replace_manifest(store: &dyn ObjectStore, manifest: &Manifest, expect: Expect) -> Result<()> {
    match store.put(&manifest_name(manifest.dirfrag), &manifest.encode(), expect)? {
        PutOutcome::Done(_) => Ok(()),
        PutOutcome::Conflict(_) => Err(compact::stale(manifest)),
    }
}

/// Whether an object is gone or damaged, which trying again does not change.
fn is_unreadable(errno: Errno) -> bool {
    matches!(errno, Errno::BadMessage | Errno::NotFound)
}

/// Puts a client's runs above all other runs of a manifest.
fn attach_to(manifest: &mut Manifest, runs: &[DirRun], position: Seq, ranges: &[InoRange]) {
    let attached = |run: &DirRun| {
        let (run, ranges) = (run.run.id, ranges.to_vec());
        Attached { run, position, ranges }
    };
    manifest.runs.splice(0..0, runs.iter().map(|run| run.run));
    manifest.attached.splice(0..0, runs.iter().map(attached));
    manifest.counts_exact = false;
}

/// Makes a directory of a client's runs, after they were found to be as the client stated.
fn attach_dir(
    store: &dyn ObjectStore,
    runs: &[DirRun],
    position: Seq,
    ranges: &[InoRange],
) -> Result<()> {
    let Some(dir) = runs.first().map(|run| whole(run.dir)) else { return Ok(()) };
    let next_run = Keeper::new(store)?.first_run();
    let mut manifest = Manifest { next_run, ..Manifest::new(dir) };
    for DirRun { run, subdirs, .. } in runs {
        manifest.entries = manifest.entries.saturating_add(run.rows);
        manifest.subdirs = manifest.subdirs.saturating_add((*subdirs).min(run.rows));
    }
    manifest.position = position;
    attach_to(&mut manifest, runs, position, ranges);
    // Where there is one, the journal was merged before.
    let _ = store.put(&manifest_name(dir), &manifest.encode(), Expect::Absent)?;
    Ok(())
}

#[cfg(test)]
mod tests;
