//! Merging runs of a directory into one, while the directory is used.
//!
//! The new run is written piece by piece, and takes memory for one slice of each run, an index and
//! filters, and for a piece of a value segment. Then one replacement of the manifest puts it in the
//! place of its inputs. Runs that are added during that go above them. A crash leaves a run, and
//! perhaps a value segment, that no manifest lists.

use std::sync::atomic::Ordering;

use metastore::request::StoreResult;
use metastore::{
    Columns, Manifest, RowValue, RunBuilder, RunId, RunIndex, RunInfo, RunReader, Slice,
    VALUE_BYTES_MIN, ValueSegment, manifest_name, run_name, values_name,
};
use objstore::{Expect, ObjectStore, SyncScope};
use types::{DirFragId, Errno, Error, Ino, Result};

use super::lookup::read_index;
use super::values::{self, MovedValues, ValueReader};
use super::{Executor, read_manifest, replace_manifest, whole};
use crate::retained::{Keeper, Unlisted};

/// Bytes of all runs together that are merged before the next ones are read.
const SLICE_BYTES: usize = 1 << 20;
/// Bytes that are written at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Merges runs if there are some that should be.
pub(super) fn compact(
    store: &dyn ObjectStore,
    executor: &Executor,
    ino: Ino,
) -> Result<StoreResult> {
    let nothing = StoreResult::Written { compact: false, bytes: (0, 0) };
    let dir = whole(ino);
    let swap = executor.swap(ino);
    let Some((manifest, _)) = read_manifest(store, dir)? else { return Ok(nothing) };
    let Some(count) = executor.tuning.tiers.choose(&manifest) else { return Ok(nothing) };
    let id = RunId(manifest.next_run);
    // A commit that writes a run during the compaction takes the next number.
    let _taken = executor.take_number(ino, id);
    drop(swap);
    let mut count = count;
    let mut written = write(store, executor, &manifest, count, id);
    if written.as_ref().is_err_and(|error| super::is_unreadable(error.errno)) {
        // A client's run is unreadable: the runs above it need not wait for it.
        let foreign = manifest.runs[..count].iter().position(|run| run.id.is_clients());
        match foreign {
            Some(above) if above >= 2 => {
                count = above;
                written = write(store, executor, &manifest, count, id);
            }
            Some(_) => {
                discard(store, dir, id)?;
                return Ok(nothing);
            }
            None => {}
        }
    }
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            // Whether or not that is possible: nothing lists it.
            let _ = discard(store, dir, id);
            return Err(error);
        }
    };
    let replaced = &manifest.runs[..count];
    match put_in_place(store, executor, ino, replaced, &written)? {
        Some(compact) => {
            let before = replaced.iter().filter(|run| !run.id.is_clients());
            let before: u64 = before.map(|run| run.bytes).sum();
            let values = written.columns.segment.as_ref().map_or(0, |(_, segment)| segment.bytes);
            let bytes = (written.info.bytes + values, before + written.moved_bytes);
            Ok(StoreResult::Written { compact, bytes })
        }
        None => {
            discard(store, dir, id)?;
            Ok(nothing)
        }
    }
}

/// Deletes written objects that no manifest lists.
fn discard(store: &dyn ObjectStore, dir: DirFragId, id: RunId) -> Result<()> {
    store.delete(&run_name(dir, id))?;
    store.delete(&values_name(dir, id))?;
    Ok(())
}

/// A run that was written, with the values of its rows.
pub(super) struct Rewritten {
    pub(super) info: RunInfo,
    pub(super) columns: Columns,
    /// Bytes of values that were written before.
    moved_bytes: u64,
}

/// Replaces runs by one, and deletes them. Does nothing if they are not listed any more; else
/// returns whether further runs should be merged.
pub(super) fn put_in_place(
    store: &dyn ObjectStore,
    executor: &Executor,
    ino: Ino,
    replaced: &[RunInfo],
    written: &Rewritten,
) -> Result<Option<bool>> {
    let _swap = executor.swap(ino);
    let keeper = Keeper::new(store)?;
    let Some((mut manifest, version)) = read_manifest(store, whole(ino))? else {
        return Ok(None);
    };
    let Some(start) = manifest.runs.windows(replaced.len()).position(|runs| runs == replaced)
    else {
        return Ok(None);
    };
    let spared = keeper.keep(manifest.dirfrag, Some(&manifest))?;
    let Rewritten { info, columns, .. } = written;
    let new = (info.rows > 0).then_some((*info, columns));
    let emptied = manifest.replace_runs(start..start + replaced.len(), new);
    manifest.next_run = manifest.next_run.max(info.id.0 + 1);
    manifest.generation += 1;
    replace_manifest(store, &manifest, Expect::Is(version))?;
    let gone = replaced.iter().map(|run| run.id).chain(new.is_none().then_some(info.id));
    let gone: Vec<_> = gone.collect();
    let unlisted = Unlisted { runs: &gone, values: &emptied };
    for old in keeper.deletable(manifest.dirfrag, unlisted, &spared) {
        store.delete(&old)?;
    }
    Ok(Some(executor.tuning.tiers.choose(&manifest).is_some()))
}

/// Writes the merge of the first runs of a manifest.
pub(super) fn write(
    store: &dyn ObjectStore,
    executor: &Executor,
    manifest: &Manifest,
    count: usize,
    id: RunId,
) -> Result<Rewritten> {
    let dirfrag = manifest.dirfrag;
    let mut run = Growing { store, name: run_name(dirfrag, id), is_begun: false };
    let mut segment = Growing { store, name: values_name(dirfrag, id), is_begun: false };
    let has_older = count < manifest.runs.len();
    let runs = &manifest.runs[..count];
    let index = |info: &RunInfo| read_index(store, dirfrag, info);
    let indexes: Vec<RunIndex> = runs.iter().map(index).collect::<Result<_>>()?;
    let cuts = metastore::cuts(&indexes.iter().collect::<Vec<_>>(), SLICE_BYTES);
    let moved = values::moved(manifest, runs, executor.tuning.tiers.at_once_bytes);
    let mut values = MovedValues { reader: ValueReader::new(store, dirfrag), moved: &moved };
    let mut builder = RunBuilder::new(dirfrag, id);
    if executor.tuning.has_segments() {
        builder = builder.with_values(VALUE_BYTES_MIN);
    }
    // The new run would be appended to leftovers.
    discard(store, dirfrag, id)?;
    for number in 0..=cuts.len() {
        if executor.stopping.load(Ordering::Relaxed) {
            return Err(Error::of(Errno::Canceled, run.name));
        }
        let from = number.checked_sub(1).map_or(&[][..], |before| &cuts[before]);
        let slice = Slice { from, to: cuts.get(number).map(Vec::as_slice) };
        let mut push = |name: &[u8], value: &RowValue<'_>| -> Result<()> {
            values.push(&mut builder, name, value)?;
            if builder.ready_value_bytes() >= PIECE_BYTES {
                segment.append(&builder.take_values())?;
            }
            Ok(())
        };
        let mut pushed = Ok(());
        merge_slice(store, manifest, &indexes, slice, |name, value| match value {
            RowValue::Removed if !has_older => {}
            RowValue::Removed | RowValue::Remote { .. } | RowValue::Inode(_) => {
                if pushed.is_ok() {
                    pushed = push(name, value);
                }
            }
        })?;
        pushed?;
        if builder.ready_bytes() >= PIECE_BYTES {
            run.append(&builder.take())?;
        }
    }
    let (rest, info, columns) = builder.finish_columns();
    // Values exist before the rows that point to them.
    if let Some((rest, _)) = &columns.segment {
        segment.end(rest)?;
    }
    run.end(&rest)?;
    let is_moved = |segment: &&ValueSegment| moved.contains(&segment.id);
    let moved_bytes = manifest.values.iter().filter(is_moved).map(ValueSegment::used).sum();
    Ok(Rewritten { info, columns, moved_bytes })
}

/// An object that is written piece by piece.
struct Growing<'a> {
    store: &'a dyn ObjectStore,
    name: String,
    is_begun: bool,
}

impl Growing<'_> {
    fn append(&mut self, piece: &[u8]) -> Result<()> {
        self.is_begun = true;
        self.store.append(&self.name, piece).map(drop)
    }

    /// Appends the rest and makes all of it durable.
    fn end(&mut self, rest: &[u8]) -> Result<()> {
        if self.is_begun {
            self.append(rest)?;
            self.store.sync(SyncScope::Object(&self.name))
        } else {
            self.store.put(&self.name, rest, Expect::Any).map(drop)
        }
    }
}

/// Reads each run's part of a slice, and merges the parts.
fn merge_slice(
    store: &dyn ObjectStore,
    manifest: &Manifest,
    indexes: &[RunIndex],
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
