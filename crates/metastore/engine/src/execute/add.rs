//! Captured rows become the newest run of a directory, merged with small ones when there are many.
//!
//! Not here: the manifest's replacement, and the deletion of replaced runs.
//!
//! Invariant: a run is in the store before a manifest lists it.

use std::collections::BTreeSet;

use metastore::{
    Columns, Manifest, RowValue, Rows, RunBuilder, RunId, RunInfo, RunReader, VALUE_BYTES_MIN,
    run_name, values_name,
};
use objstore::{Expect, ObjectStore};
use types::{DirFragId, Result};

use super::values::{self, MovedValues, ValueReader};
use super::{Executor, is_unreadable, read_runs};

/// A run that was written.
#[derive(Debug, Default)]
pub(super) struct Added {
    /// The runs that are not listed any more.
    pub(super) replaced: Vec<RunId>,
    /// The value segments that nothing points into any more.
    pub(super) emptied: Vec<RunId>,
    /// How many bytes were written, and how many of them had been written before.
    pub(super) bytes: (u64, u64),
}

/// Writes rows as the newest run, merged with small ones if they are many.
pub(super) fn add_run(
    store: &dyn ObjectStore,
    executor: &Executor,
    manifest: &mut Manifest,
    rows: &Rows,
) -> Result<Added> {
    let dir = manifest.dirfrag;
    let id = executor.free_number(dir.ino, manifest.next_run);
    manifest.next_run = id.0 + 1;
    let count = executor.tuning.tiers.at_once(&manifest.runs);
    let rewritten = match count {
        0 => None,
        _ => rewrite(store, executor, manifest, count, id, rows)?,
    };
    let (fresh, count) = match rewritten {
        Some(rewritten) => rewritten,
        None => (encode(executor, dir, id, rows)?, 0),
    };
    let Fresh { run, info, columns } = fresh;
    let old = &manifest.runs[..count];
    let mut added = Added { replaced: old.iter().map(|run| run.id).collect(), ..Added::default() };
    let own = old.iter().filter(|run| !run.id.is_clients());
    added.bytes.1 = own.map(|run| run.bytes).sum();
    added.emptied = manifest.replace_runs(0..count, Some((info, &columns)));
    // A run of this number that is not listed was left behind by a server that died here.
    if let Some((values, _)) = &columns.segment {
        let _ = store.put(&values_name(dir, id), values, Expect::Any)?;
        added.bytes.0 += values.len() as u64;
    }
    let _ = store.put(&run_name(dir, id), &run, Expect::Any)?;
    added.bytes.0 += run.len() as u64;
    Ok(added)
}

/// A run that is to be written.
struct Fresh {
    run: Vec<u8>,
    info: RunInfo,
    columns: Columns,
}

/// Encodes rows; their long values go to a value segment if that is worth an object.
fn encode(executor: &Executor, dir: DirFragId, id: RunId, rows: &Rows) -> Result<Fresh> {
    if rows.large_bytes() >= executor.tuning.segment_bytes_min {
        let (run, info, columns) = metastore::encode_columns(dir, id, rows);
        return Ok(Fresh { run, info, columns });
    }
    let run = metastore::encode_run(dir, id, rows);
    let info = RunInfo::of(&RunReader::open_as(dir, id, &run)?);
    Ok(Fresh { run, info, columns: Columns::default() })
}

/// Merges the first runs and a new one. Returns that with how many runs it replaces. Nothing if a
/// run cannot be read: then the rows become a run of their own.
fn rewrite(
    store: &dyn ObjectStore,
    executor: &Executor,
    manifest: &Manifest,
    count: usize,
    id: RunId,
    rows: &Rows,
) -> Result<Option<(Fresh, usize)>> {
    let mut front = manifest.clone();
    front.runs.truncate(count);
    let run = metastore::encode_run(manifest.dirfrag, id, rows);
    let info = RunInfo::of(&RunReader::open_as(manifest.dirfrag, id, &run)?);
    let merged = read_runs(store, &front).and_then(|mut runs| {
        let moved = values::moved(manifest, &front.runs, executor.tuning.tiers.small_bytes);
        front.runs.insert(0, info);
        runs.insert(0, run);
        let has_older = count < manifest.runs.len();
        let inputs = MergeInputs { front: &front, runs: &runs, moved: &moved, has_older };
        let fresh = merge_as(store, inputs, executor.tuning.has_segments())?;
        let values = fresh.columns.segment.as_ref().map_or(0, |(values, _)| values.len() as u64);
        if values == 0 || values >= executor.tuning.segment_bytes_min {
            return Ok(fresh);
        }
        // Not worth an object.
        merge_as(store, inputs, false)
    });
    match merged {
        Ok(fresh) => Ok(Some((fresh, count))),
        Err(error) if is_unreadable(error.errno) => {
            // Runs above the client's run need not wait for it.
            let above = manifest.runs.iter().position(|run| run.id.is_clients()).unwrap_or(0);
            if above > 1 && above < count {
                rewrite(store, executor, manifest, above, id, rows)
            } else {
                Ok(None)
            }
        }
        Err(error) => Err(error),
    }
}

/// The runs that are merged into one.
#[derive(Clone, Copy)]
struct MergeInputs<'a> {
    /// A manifest of these runs only.
    front: &'a Manifest,
    /// The runs, in its order.
    runs: &'a [Vec<u8>],
    /// The value segments whose values move.
    moved: &'a BTreeSet<RunId>,
    /// Whether the directory has older runs, for which removals must stay.
    has_older: bool,
}

/// Merges runs into one with the number of the first, with a value segment if that is wanted.
fn merge_as(store: &dyn ObjectStore, inputs: MergeInputs<'_>, with_values: bool) -> Result<Fresh> {
    let MergeInputs { front, runs, moved, has_older } = inputs;
    let id = front.runs.first().map_or_else(RunId::default, |run| run.id);
    let mut builder = RunBuilder::new(front.dirfrag, id);
    if with_values {
        builder = builder.with_values(VALUE_BYTES_MIN);
    }
    let mut values = MovedValues { reader: ValueReader::new(store, front.dirfrag), moved };
    let mut pushed = Ok(());
    metastore::overlay(front, runs, |name, value| match value {
        RowValue::Removed if !has_older => {}
        RowValue::Removed | RowValue::Remote { .. } | RowValue::Inode(_) => {
            if pushed.is_ok() {
                pushed = values.push(&mut builder, name, value);
            }
        }
    })?;
    pushed?;
    let (run, info, columns) = builder.finish_columns();
    Ok(Fresh { run, info, columns })
}
