//! Merging runs of a directory into one, while the directory is used.
//!
//! The new run is written piece by piece, and takes memory for one slice of each run, an index and
//! filters. Then one replacement of the manifest puts it in the place of those that it was made of. What
//! comes meanwhile goes above them. A crash leaves a run that no manifest lists.

use std::sync::atomic::Ordering;

use metastore::request::StoreResult;
use metastore::{
    Manifest, RowValue, RunBuilder, RunId, RunIndex, RunInfo, RunReader, Slice, manifest_name,
    run_name,
};
use types::{Errno, Error, Ino, Result};

use super::lookup::read_index;
use super::{Carrier, read_manifest, replace_manifest, whole};
use crate::kept::Keeper;
use crate::{Expect, ObjectStore, SyncScope};

/// Bytes of all runs together that are merged before the next ones are read.
const SLICE_BYTES: usize = 1 << 20;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Merges runs if there are some that should be.
pub(super) fn compact(store: &dyn ObjectStore, carrier: &Carrier, ino: Ino) -> Result<StoreResult> {
    let nothing = StoreResult::Written { compact: false, bytes: (0, 0) };
    let dir = whole(ino);
    let swap = carrier.swap(ino);
    let Some((manifest, _)) = read_manifest(store, dir)? else { return Ok(nothing) };
    let Some(count) = carrier.tuning.tiers.choose(&manifest.runs) else { return Ok(nothing) };
    let id = RunId(manifest.next_run);
    // Whoever writes a run meanwhile takes the next number.
    let _taken = carrier.take_number(ino, id);
    drop(swap);
    let mut count = count;
    let mut written = write(store, carrier, (&manifest, count), id);
    if written.as_ref().is_err_and(|error| super::is_unreadable(error.errno)) {
        // What a client wrote cannot be read: what is above it need not wait for it.
        let foreign = manifest.runs[..count].iter().position(|run| run.id.is_clients());
        match foreign {
            Some(above) if above >= 2 => {
                count = above;
                written = write(store, carrier, (&manifest, count), id);
            }
            Some(_) => {
                store.delete(&run_name(dir, id))?;
                return Ok(nothing);
            }
            None => {}
        }
    }
    let info = match written {
        Ok(info) => info,
        Err(error) => {
            // Whether or not that is possible: nothing lists it.
            let _ = store.delete(&run_name(dir, id));
            return Err(error);
        }
    };
    let replaced = &manifest.runs[..count];
    match put_in_place(store, carrier, ino, (replaced, info))? {
        Some(compact) => {
            let before = replaced.iter().filter(|run| !run.id.is_clients());
            let before = before.map(|run| run.bytes).sum();
            Ok(StoreResult::Written { compact, bytes: (info.bytes, before) })
        }
        None => {
            store.delete(&run_name(dir, id))?;
            Ok(nothing)
        }
    }
}

/// Replaces runs by one, and deletes them. Nothing if they are not there any more; else whether there
/// are others to be merged.
pub(super) fn put_in_place(
    store: &dyn ObjectStore,
    carrier: &Carrier,
    ino: Ino,
    (replaced, info): (&[RunInfo], RunInfo),
) -> Result<Option<bool>> {
    let _swap = carrier.swap(ino);
    let keeper = Keeper::new(store)?;
    let Some((mut manifest, version)) = read_manifest(store, whole(ino))? else {
        return Ok(None);
    };
    let Some(start) = manifest.runs.windows(replaced.len()).position(|runs| runs == replaced)
    else {
        return Ok(None);
    };
    let spared = keeper.keep(manifest.dirfrag, Some(&manifest))?;
    let is_replaced = |id: RunId| replaced.iter().any(|run| run.id == id);
    manifest.attached.retain(|attached| !is_replaced(attached.run));
    let new = (info.rows > 0).then_some(info);
    manifest.runs.splice(start..start + replaced.len(), new);
    manifest.next_run = manifest.next_run.max(info.id.0 + 1);
    manifest.generation += 1;
    replace_manifest(store, &manifest, Expect::Is(version))?;
    let gone = replaced.iter().map(|run| run.id).chain(new.is_none().then_some(info.id));
    for old in gone.filter(|old| keeper.may_delete(*old, &spared)) {
        store.delete(&run_name(manifest.dirfrag, old))?;
    }
    Ok(Some(carrier.tuning.tiers.choose(&manifest.runs).is_some()))
}

/// Writes what the first runs of a manifest are together.
pub(super) fn write(
    store: &dyn ObjectStore,
    carrier: &Carrier,
    (manifest, count): (&Manifest, usize),
    id: RunId,
) -> Result<RunInfo> {
    let name = run_name(manifest.dirfrag, id);
    let has_older = count < manifest.runs.len();
    let runs = &manifest.runs[..count];
    let index = |info: &RunInfo| read_index(store, manifest.dirfrag, info);
    let indexes: Vec<RunIndex> = runs.iter().map(index).collect::<Result<_>>()?;
    let cuts = metastore::cuts(&indexes.iter().collect::<Vec<_>>(), SLICE_BYTES);
    let mut builder = RunBuilder::new(manifest.dirfrag, id);
    // One that was left behind would be added to.
    store.delete(&name)?;
    let mut is_begun = false;
    for number in 0..=cuts.len() {
        if carrier.stopping.load(Ordering::Relaxed) {
            return Err(Error::of(Errno::Canceled, name));
        }
        let from = number.checked_sub(1).map_or(&[][..], |before| &cuts[before]);
        let slice = Slice { from, to: cuts.get(number).map(Vec::as_slice) };
        merge_slice(store, (manifest, &indexes), slice, |name, value| match value {
            RowValue::Removed if !has_older => {}
            RowValue::Removed | RowValue::Remote { .. } | RowValue::Inode(_) => {
                builder.push(name, value);
            }
        })?;
        if builder.ready_bytes() >= PIECE_BYTES {
            store.append(&name, &builder.take())?;
            is_begun = true;
        }
    }
    let (rest, info) = builder.finish();
    if is_begun {
        store.append(&name, &rest)?;
        store.sync(SyncScope::Object(&name))?;
    } else {
        let _ = store.put(&name, &rest, Expect::Any)?;
    }
    Ok(info)
}

/// Reads of each run what it has of a slice, and merges that.
fn merge_slice(
    store: &dyn ObjectStore,
    (manifest, indexes): (&Manifest, &[RunIndex]),
    slice: Slice<'_>,
    each: impl FnMut(&[u8], &RowValue<'_>),
) -> Result<()> {
    let mut parts = Vec::with_capacity(indexes.len());
    for index in indexes {
        let blocks = index.blocks_between(slice.from, slice.to);
        let span = index.span(blocks.clone());
        let bytes = match span.length {
            0 => Vec::new(),
            length => {
                store.read_range(&run_name(manifest.dirfrag, index.id()), span.offset, length)?
            }
        };
        parts.push((index, blocks, bytes));
    }
    let mut readers = Vec::with_capacity(parts.len());
    for (index, blocks, bytes) in &parts {
        readers.push(RunReader::open_part(index, blocks.clone(), bytes)?);
    }
    Ok(metastore::merge_slice(manifest, &readers, slice, each)?)
}

/// The name of the manifest that another server has replaced.
pub(super) fn stale(manifest: &Manifest) -> Error {
    Error::new(
        Errno::Stale,
        manifest_name(manifest.dirfrag),
        "another metadata server wrote this directory",
    )
    .remedy("this server lost its rank; clients reconnect to the new one")
}
