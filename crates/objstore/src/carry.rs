//! Carrying out what the state machines ask for ([`StoreOp`]) against any store.
//!
//! This is where a directory fragment becomes objects: a run is written, then the manifest is
//! replaced by compare-and-swap, then runs that it no longer lists are deleted. Whatever is
//! interrupted in between, the manifest names only runs that are complete.

use std::sync::atomic::{AtomicU64, Ordering};

use metastore::request::{Condition, LoadedDir, StoreFailure, StoreOp, StoreResult};
use metastore::{
    Attached, DirRun, Manifest, Rows, RunEnds, RunId, RunInfo, RunReader, manifest_name, run_name,
};
use types::{DirFragId, Errno, Error, Frag, Ino, InoRange, Pool, Result, Seq, Timestamp};

use crate::{Expect, ObjectStore, Outcome, SyncScope, Version};

/// A fragment with this many runs is rewritten as one.
const RUNS_MAX: usize = 8;
/// So many names are tried one by one rather than that a whole store is listed.
const GUESSES_MAX: u64 = 65_536;
/// So many of them at a time.
const GUESSES_AT_ONCE: u64 = 8;
/// Behind so many stripes that are missing no others are looked for: writing back goes in order, but
/// programs may leave holes.
const GAP_MAX: u64 = 4;

/// Carries out an operation.
///
/// # Errors
/// What the store said, with the operation so that it can be tried again.
pub fn carry_out(
    store: &dyn ObjectStore,
    op: StoreOp,
) -> std::result::Result<StoreResult, Box<StoreFailure>> {
    match try_op(store, &op) {
        Ok(result) => Ok(result),
        Err(error) => Err(Box::new(StoreFailure { error, op })),
    }
}

fn try_op(store: &dyn ObjectStore, op: &StoreOp) -> Result<StoreResult> {
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
                Outcome::Done(version) => StoreResult::Stored(version.0),
                Outcome::Conflict(_) => StoreResult::Conflict,
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
        StoreOp::PurgeData { ino, pool, stripes } => purge_data(store, (*ino, *pool), *stripes),
        StoreOp::PurgeDir { ino } => purge_dir(store, *ino),
        StoreOp::LoadDir { ino } => load_dir(store, *ino),
        StoreOp::AttachDirs { dirs, position, ranges } => {
            dirs.iter().try_for_each(|run| attach_dir(store, run, (*position, ranges)))?;
            Ok(StoreResult::Done)
        }
        StoreOp::ProveRun { run } => prove(store, run).map(|()| StoreResult::Done),
        StoreOp::CommitDir { ino, rows, counts, position, touched, attach } => {
            let commit =
                Commit { ino: *ino, counts: *counts, position: *position, touched: *touched };
            commit_dir(store, rows, &commit, attach.as_deref())
        }
    }
}

fn whole(ino: Ino) -> DirFragId {
    DirFragId { ino, frag: Frag::WHOLE }
}

fn purge_data(
    store: &dyn ObjectStore,
    (ino, pool): (Ino, Pool),
    stripes: u64,
) -> Result<StoreResult> {
    if store.lists_what_it_finds() || stripes > GUESSES_MAX {
        return delete_all(store, &metastore::data_prefix(ino, pool));
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
    // From the end: what is left by whoever dies here is found again.
    for stripe in (stripes..end).rev() {
        store.delete(&metastore::data_name(ino, pool, stripe))?;
    }
    let left = AtomicU64::new(stripes);
    let next = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
    let delete = || -> Result<()> {
        while let Ok(behind) = next() {
            store.delete(&metastore::data_name(ino, pool, behind - 1))?;
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

fn purge_dir(store: &dyn ObjectStore, ino: Ino) -> Result<StoreResult> {
    let dir = whole(ino);
    let manifest = match read_manifest(store, dir) {
        Ok(manifest) if !store.lists_what_it_finds() => manifest,
        Err(error) if error.errno != Errno::BadMessage => return Err(error),
        // A manifest that cannot be read says nothing about runs.
        Ok(_) | Err(_) => return delete_all(store, &metastore::prefix(dir)),
    };
    let manifest = manifest.map_or_else(|| Manifest::new(dir), |(manifest, _)| manifest);
    let (clients, own): (Vec<_>, Vec<_>) =
        manifest.runs.iter().map(|run| run.id).partition(|id| id.is_clients());
    let oldest = own.iter().map(|id| id.0).min().unwrap_or(manifest.next_run);
    for id in clients {
        store.delete(&run_name(dir, id))?;
    }
    // Whoever died in here left runs that were replaced, or one that was not listed yet.
    for id in oldest.saturating_sub(RUNS_MAX as u64)..=manifest.next_run {
        store.delete(&run_name(dir, RunId(id)))?;
    }
    store.delete(&manifest_name(dir))?;
    Ok(StoreResult::Done)
}

fn delete_all(store: &dyn ObjectStore, prefix: &str) -> Result<StoreResult> {
    for object in store.list(prefix)? {
        store.delete(&object)?;
    }
    Ok(StoreResult::Done)
}

fn optional<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.errno == Errno::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_manifest(store: &dyn ObjectStore, dir: DirFragId) -> Result<Option<(Manifest, Version)>> {
    let Some((bytes, version)) = optional(store.get(&manifest_name(dir)))? else {
        return Ok(None);
    };
    Ok(Some((Manifest::decode_as(dir, &bytes)?, version)))
}

fn read_runs(store: &dyn ObjectStore, manifest: &Manifest) -> Result<Vec<Vec<u8>>> {
    let run = |info: &RunInfo| Ok(store.get(&run_name(manifest.dirfrag, info.id))?.0);
    manifest.runs.iter().map(run).collect()
}

fn load_dir(store: &dyn ObjectStore, ino: Ino) -> Result<StoreResult> {
    let Some((manifest, _)) = read_manifest(store, whole(ino))? else {
        return Ok(StoreResult::Missing);
    };
    let runs = read_runs(store, &manifest)?;
    let rows = metastore::merge(&manifest, &runs)?;
    Ok(StoreResult::Dir(Box::new(LoadedDir { manifest, rows })))
}

/// What a commit says about its directory.
struct Commit {
    ino: Ino,
    counts: (u64, u64, bool),
    position: Seq,
    touched: (Timestamp, Seq),
}

fn commit_dir(
    store: &dyn ObjectStore,
    rows: &Rows,
    commit: &Commit,
    attach: Option<&(DirRun, Vec<InoRange>)>,
) -> Result<StoreResult> {
    let dir = whole(commit.ino);
    let current = read_manifest(store, dir)?;
    let expect = current.as_ref().map_or(Expect::Absent, |(_, version)| Expect::Is(*version));
    let mut manifest = current.map_or_else(|| Manifest::new(dir), |(manifest, _)| manifest);
    let is_listed = |run: &DirRun| manifest.runs.iter().any(|known| known.id == run.run.id);
    if attach.is_some_and(|(run, _)| is_listed(run)) {
        // It was done, and the answer was lost. Done again, the rows would come above the run.
        return Ok(StoreResult::Done);
    }
    manifest.generation += 1;
    (manifest.entries, manifest.subdirs, manifest.counts_exact) = commit.counts;
    (manifest.position, manifest.touched) = (commit.position, commit.touched);
    let mut replaced = Vec::new();
    // What is attached may come alone.
    if attach.is_none() || !rows.is_empty() {
        replaced = add_run(store, &mut manifest, rows)?;
    }
    if let Some((run, ranges)) = attach {
        attach_to(&mut manifest, run, (commit.position, ranges));
    }
    match store.put(&manifest_name(dir), &manifest.encode(), expect)? {
        Outcome::Done(_) => {}
        Outcome::Conflict(_) => {
            return Err(Error::new(
                Errno::Stale,
                manifest_name(dir),
                "another metadata server wrote this directory",
            )
            .remedy("this server lost its rank; clients reconnect to the new one"));
        }
    }
    for old in replaced {
        store.delete(&run_name(dir, old))?;
    }
    Ok(StoreResult::Done)
}

/// Writes rows as the newest run. Returns the runs that are not listed any more.
fn add_run(store: &dyn ObjectStore, manifest: &mut Manifest, rows: &Rows) -> Result<Vec<RunId>> {
    let (dir, id) = (manifest.dirfrag, RunId(manifest.next_run));
    manifest.next_run += 1;
    let mut run = metastore::encode_run(dir, id, rows);
    let mut replaced = Vec::new();
    let info = RunInfo::of(&RunReader::open_as(dir, id, &run)?);
    if manifest.runs.len() + 1 >= RUNS_MAX
        && let Some(merged) = rewrite(store, manifest, (info, &run))?
    {
        (run, replaced) = merged;
    } else {
        manifest.runs.insert(0, info);
    }
    // A run of this number that is not listed was left behind by a server that died here.
    let _ = store.put(&run_name(dir, id), &run, Expect::Any)?;
    Ok(replaced)
}

/// Merges all runs and a new one. The manifest then lists only the result, which is returned with
/// the runs that it replaces. Nothing if a run that a client wrote cannot be read: what others do in
/// its directory is stored all the same.
fn rewrite(
    store: &dyn ObjectStore,
    manifest: &mut Manifest,
    (info, run): (RunInfo, &[u8]),
) -> Result<Option<(Vec<u8>, Vec<RunId>)>> {
    let replaced = manifest.runs.iter().map(|info| info.id).collect();
    let mut all = manifest.clone();
    all.runs.insert(0, info);
    let merged = read_runs(store, manifest).and_then(|mut runs| {
        runs.insert(0, run.to_vec());
        Ok(metastore::merge(&all, &runs)?)
    });
    let merged = match merged {
        Ok(rows) => rows.into_run(manifest.dirfrag, info.id),
        Err(error) if !manifest.attached.is_empty() && is_unreadable(error.errno) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let info = RunInfo::of(&RunReader::open_as(manifest.dirfrag, info.id, &merged)?);
    manifest.runs = vec![info];
    manifest.attached.clear();
    Ok(Some((merged, replaced)))
}

/// Whether an object is gone or damaged, which trying again does not change.
fn is_unreadable(errno: Errno) -> bool {
    matches!(errno, Errno::BadMessage | Errno::NotFound)
}

/// Reads the ends of a client's run, which must say what the client said.
fn prove(store: &dyn ObjectStore, DirRun { dir, run, .. }: &DirRun) -> Result<()> {
    let dirfrag = whole(*dir);
    let name = run_name(dirfrag, run.id);
    let refuse = |cause: &str| {
        Error::new(Errno::BadMessage, name.clone(), cause).remedy("merge it by value")
    };
    let length = store.stat(&name)?.size;
    let (header, footer) = (RunEnds::HEADER_BYTES, RunEnds::FOOTER_BYTES);
    if length != run.bytes || length < (header + footer) as u64 {
        return Err(refuse("it does not have the length that its client stated"));
    }
    let first = store.read_range(&name, 0, header)?;
    let last = store.read_range(&name, length - footer as u64, footer)?;
    let about = |error: metastore::FormatError| Error::from(error.about(name.clone()));
    let tail = RunEnds::tail_bytes(length, &last).map_err(about)?;
    let tail = store.read_range(&name, length - tail as u64, tail)?;
    let ends = RunEnds::read(length, &first, &tail).map_err(about)?;
    let stated = RunEnds { id: run.id, dirfrag, rows: run.rows, removed: run.removed };
    if ends == stated { Ok(()) } else { Err(refuse("it is not the run that its client stated")) }
}

/// Puts a client's run above all others of a manifest.
fn attach_to(manifest: &mut Manifest, run: &DirRun, (position, ranges): (Seq, &[InoRange])) {
    let attached = Attached { run: run.run.id, position, ranges: ranges.to_vec() };
    manifest.runs.insert(0, run.run);
    manifest.attached.insert(0, attached);
    manifest.counts_exact = false;
}

/// Makes a directory of a client's run.
fn attach_dir(
    store: &dyn ObjectStore,
    run: &DirRun,
    (position, ranges): (Seq, &[InoRange]),
) -> Result<()> {
    let dir = whole(run.dir);
    prove(store, run)?;
    let mut manifest = Manifest::new(dir);
    (manifest.entries, manifest.subdirs) = (run.run.rows, run.subdirs.min(run.run.rows));
    manifest.position = position;
    attach_to(&mut manifest, run, (position, ranges));
    // Where there is one, the journal was merged before.
    let _ = store.put(&manifest_name(dir), &manifest.encode(), Expect::Absent)?;
    Ok(())
}

#[cfg(test)]
mod tests;
