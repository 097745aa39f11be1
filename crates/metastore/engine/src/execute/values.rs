//! Values of a directory's rows in its value segments: reading them, and collecting the live ones.
//!
//! Values are in their segment in the order of the names with which they were written, so a reader
//! of a directory reads segments forwards, a window at a time. Not here: the format, and the
//! manifest's list of segments.
//!
//! Invariant: a resolved row has its content and attributes itself, and points to nothing.

use std::collections::{BTreeMap, BTreeSet};

use metastore::{Manifest, Pointer, RowValue, Rows, RunBuilder, RunId, RunInfo, values_name};
use objstore::ObjectStore;
use types::{DirFragId, Errno, Error, Result};

/// The largest read-ahead.
const WINDOW_BYTES_MAX: usize = 1 << 20;
/// The first read-ahead behind a value, which may be the only needed one of its segment.
const WINDOW_BYTES_MIN: usize = 64 << 10;
/// So many segments are read from at a time.
const WINDOWS_MAX: usize = 16;
/// The largest segment, below the largest object of a store.
const SEGMENT_BYTES_MAX: u64 = 960 << 20;

/// Reads the values of a directory's rows.
#[derive(Debug)]
pub struct ValueReader<'a> {
    store: &'a dyn ObjectStore,
    dirfrag: DirFragId,
    windows: BTreeMap<RunId, Window>,
}

/// A part of a segment.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> ValueReader<'a> {
    /// Of one directory fragment.
    #[must_use]
    pub fn new(store: &'a dyn ObjectStore, dirfrag: DirFragId) -> Self {
        Self { store, dirfrag, windows: BTreeMap::new() }
    }

    /// Content and extra.
    ///
    /// # Errors
    /// As [`resolve`].
    pub fn read(&mut self, pointer: Pointer) -> Result<(&[u8], &[u8])> {
        let (name, dirfrag) = (|| values_name(self.dirfrag, pointer.segment), self.dirfrag);
        let too_long = || Error::new(Errno::BadMessage, name(), "a value that is too long");
        let length = usize::try_from(pointer.bytes()).map_err(|_| too_long())?;
        if self.windows.len() >= WINDOWS_MAX && !self.windows.contains_key(&pointer.segment) {
            self.windows.clear();
        }
        let window = self.windows.entry(pointer.segment).or_default();
        let end = window.start + window.bytes.len() as u64;
        if pointer.offset < window.start || pointer.offset + length as u64 > end {
            let is_next = pointer.offset >= window.start && pointer.offset <= end;
            let ahead = match is_next && !window.bytes.is_empty() {
                true => (window.bytes.len() * 2).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX),
                false => WINDOW_BYTES_MIN,
            };
            window.start = pointer.offset;
            window.bytes = self.store.read_range(&name(), pointer.offset, length.max(ahead))?;
        }
        let inside = usize::try_from(pointer.offset - window.start).unwrap_or(usize::MAX);
        Ok(pointer.read(dirfrag, window.bytes.get(inside..).unwrap_or_default())?)
    }
}

/// Rows together with their values from the segments of their directory.
///
/// # Errors
/// `ENOENT` if a segment is gone: then the manifest was replaced, or it is lost. `EBADMSG` if it is
/// damaged.
pub fn resolve(store: &dyn ObjectStore, dirfrag: DirFragId, rows: Rows) -> Result<Rows> {
    if !rows.has_pointers() {
        return Ok(rows);
    }
    let (mut values, mut resolved) = (ValueReader::new(store, dirfrag), Rows::new());
    for row in rows.iter() {
        let mut value = row.value;
        if let RowValue::Inode(record) = &mut value
            && let Some(pointer) = record.pointer.take()
        {
            (record.data, record.extra) = values.read(pointer)?;
            resolved.push(row.name, value);
        } else {
            resolved.push(row.name, value);
        }
    }
    Ok(resolved)
}

/// The segments whose values are rewritten when these runs are merged: no other run points into
/// them, and they are small or at least half garbage.
pub(super) fn moved(manifest: &Manifest, runs: &[RunInfo], small_bytes: u64) -> BTreeSet<RunId> {
    let is_merged = |id: RunId| runs.iter().any(|run| run.id == id);
    // The values in clients' rows go there, too.
    let inside = runs.iter().fold(0, |sum, run| u64::saturating_add(sum, run.bytes));
    let mut left = SEGMENT_BYTES_MAX.saturating_sub(inside);
    let chosen = manifest.values.iter().filter(|segment| {
        let used = segment.used();
        let is_worth_it = used < segment.bytes / 2 || segment.bytes <= small_bytes;
        let fits = used <= left && segment.uses.iter().all(|(run, _)| is_merged(*run));
        left -= if is_worth_it && fits { used } else { 0 };
        is_worth_it && fits
    });
    chosen.map(|segment| segment.id).collect()
}

/// The values that go from their segments to those of a new run.
pub(super) struct MovedValues<'a> {
    pub(super) reader: ValueReader<'a>,
    /// The segments that they leave.
    pub(super) moved: &'a BTreeSet<RunId>,
}

impl MovedValues<'_> {
    /// Puts a row into a run, with its value if that is moved.
    pub(super) fn push(
        &mut self,
        builder: &mut RunBuilder,
        name: &[u8],
        value: &RowValue<'_>,
    ) -> Result<()> {
        if let RowValue::Inode(record) = value
            && let Some(pointer) = record.pointer
            && self.moved.contains(&pointer.segment)
        {
            let (data, extra) = self.reader.read(pointer)?;
            let record = metastore::InodeRecord { data, extra, pointer: None, ..*record };
            builder.push(name, &RowValue::Inode(record));
        } else {
            builder.push(name, value);
        }
        Ok(())
    }
}
