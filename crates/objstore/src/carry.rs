//! Carrying out what the state machines ask for ([`StoreOp`]) against any store.
//!
//! This is where a directory fragment becomes objects: a run is written, then the manifest is
//! replaced by compare-and-swap, then runs that it no longer lists are deleted. Whatever is
//! interrupted in between, the manifest names only runs that are complete.

use std::sync::atomic::{AtomicU64, Ordering};

use metastore::request::{Condition, LoadedDir, StoreFailure, StoreOp, StoreResult};
use metastore::{Manifest, Rows, RunId, RunInfo, RunReader, manifest_name, run_name};
use types::{DirFragId, Errno, Error, Frag, Ino, Pool, Result, Seq, Timestamp};

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
        StoreOp::CommitDir { ino, rows, counts, position, touched } => {
            commit_dir(store, *ino, rows, *counts, (*position, *touched))
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
    let oldest = manifest.runs.iter().map(|run| run.id.0).min().unwrap_or(manifest.next_run);
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

fn commit_dir(
    store: &dyn ObjectStore,
    ino: Ino,
    rows: &Rows,
    (entries, subdirs, exact): (u64, u64, bool),
    (position, touched): (Seq, (Timestamp, Seq)),
) -> Result<StoreResult> {
    let dir = whole(ino);
    let current = read_manifest(store, dir)?;
    let expect = current.as_ref().map_or(Expect::Absent, |(_, version)| Expect::Is(*version));
    let mut manifest = current.map_or_else(|| Manifest::new(dir), |(manifest, _)| manifest);
    let id = RunId(manifest.next_run);
    manifest.next_run += 1;
    manifest.generation += 1;
    (manifest.entries, manifest.subdirs, manifest.counts_exact) = (entries, subdirs, exact);
    (manifest.position, manifest.touched) = (position, touched);
    let mut run = metastore::encode_run(dir, id, rows);
    let mut replaced = Vec::new();
    let info = RunInfo::of(&RunReader::open_as(dir, id, &run)?);
    if manifest.runs.len() + 1 >= RUNS_MAX {
        (run, replaced) = rewrite(store, &mut manifest, (info, run))?;
    } else {
        manifest.runs.insert(0, info);
    }
    // A run of this number that is not listed was left behind by a server that died here.
    let _ = store.put(&run_name(dir, id), &run, Expect::Any)?;
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

/// Merges all runs and a new one. The manifest then lists only the result, which is returned with
/// the runs that it replaces.
fn rewrite(
    store: &dyn ObjectStore,
    manifest: &mut Manifest,
    (info, run): (RunInfo, Vec<u8>),
) -> Result<(Vec<u8>, Vec<RunId>)> {
    let replaced = manifest.runs.iter().map(|info| info.id).collect();
    let mut runs = read_runs(store, manifest)?;
    manifest.runs.insert(0, info);
    runs.insert(0, run);
    let merged = metastore::merge(manifest, &runs)?.into_run(manifest.dirfrag, info.id);
    let info = RunInfo::of(&RunReader::open_as(manifest.dirfrag, info.id, &merged)?);
    manifest.runs = vec![info];
    Ok((merged, replaced))
}
