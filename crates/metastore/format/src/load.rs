//! Loads a directory fragment: overlays its runs.
//!
//! Not here: fetching the runs, and the use of the rows.
//!
//! Invariant: the result has each name at most once, in order, with the value of the newest run
//! that has it; names with a removal as newest row are absent. Of a client's run only those rows
//! count that its [`Attached`] admits; a malformed row ends its block. So loading a fragment as a
//! whole, slice by slice, or looking a name up give the same result. Values in value segments are
//! not read.

use types::bytes::Malformed;

use crate::attach::Attached;
use crate::error::{FormatError, malformed};
use crate::manifest::Manifest;
use crate::name::NameBuf;
use crate::object::{manifest_name, run_name};
use crate::row::RowValue;
use crate::rows::Rows;
use crate::run::{RunCursor, RunIndex, RunReader};

/// Overlays the runs of a manifest, which come in its order, newest first.
///
/// # Errors
/// If a run is missing, malformed or not the one that the manifest means.
pub fn merge(manifest: &Manifest, runs: &[Vec<u8>]) -> Result<Rows, FormatError> {
    let readers = open_all(manifest, runs)?;
    // Bounded by the bytes present: opening a run checks that its rows fit its blocks.
    let live = readers.iter().map(RunReader::live_rows).max().unwrap_or(0);
    let bytes = runs.iter().map(Vec::len).max().unwrap_or(0);
    let mut rows = Rows::new();
    rows.reserve(usize::try_from(live).unwrap_or(0), bytes);
    merge_slice(manifest, &readers, Slice::default(), |name, value| match value {
        RowValue::Removed => {}
        RowValue::Remote { .. } | RowValue::Inode(_) => rows.push(name, *value),
    })?;
    Ok(rows)
}

/// Overlays the runs of a manifest, which come in its order: `each` gets the newest row of each
/// name, in order of name; removals, too.
///
/// # Errors
/// As [`merge`].
pub fn overlay(
    manifest: &Manifest,
    runs: &[Vec<u8>],
    each: impl FnMut(&[u8], &RowValue<'_>),
) -> Result<(), FormatError> {
    merge_slice(manifest, &open_all(manifest, runs)?, Slice::default(), each)
}

/// The names from one on that come before another; from the first if that is empty, and to the last
/// if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice<'a> {
    /// The first.
    pub from: &'a [u8],
    /// Behind the last.
    pub to: Option<&'a [u8]>,
}

/// Overlays the parts of some runs of a manifest, which come in its order, in a slice: `each` gets
/// the newest row of each name, in order of name; removals, too. The runs must have all blocks of
/// the slice ([`RunIndex::blocks_between`]).
///
/// # Errors
/// If a row is malformed, unless a client wrote it.
pub fn merge_slice(
    manifest: &Manifest,
    readers: &[RunReader<'_>],
    slice: Slice<'_>,
    mut each: impl FnMut(&[u8], &RowValue<'_>),
) -> Result<(), FormatError> {
    let mut merger = Merger::new(readers, manifest, slice.from)?;
    let mut last = NameBuf::new();
    while let Some((name, value, attached)) = merger.newest() {
        if slice.to.is_some_and(|to| name >= to) {
            break;
        }
        let value = attached.map_or(Some(value), |attached| attached.admit(value));
        // The older rows of a name follow its newest at once.
        if let Some(value) = value
            && name != last.as_slice()
        {
            last.set(name);
            each(name, &value);
        }
        merger.advance()?;
    }
    Ok(())
}

/// The cuts of runs into slices of about this many bytes: the first names of all slices but the
/// first.
#[must_use]
pub fn cuts(indexes: &[&RunIndex], bytes: usize) -> Vec<Vec<u8>> {
    let blocks = |index: &&RunIndex| index.block_count();
    let mut all = Vec::with_capacity(indexes.iter().map(blocks).sum());
    for index in indexes {
        let block = |block| (index.first_name(block), index.span(block..block + 1).length);
        all.extend((0..index.block_count()).map(block));
    }
    all.sort_unstable();
    let (mut cuts, mut sum): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
    for (first, length) in all {
        let is_new = cuts.last().is_none_or(|last| last.as_slice() < first);
        if sum >= bytes && is_new {
            cuts.push(first.to_vec());
            sum = 0;
        }
        sum += length;
    }
    cuts
}

fn open_all<'a>(
    manifest: &Manifest,
    runs: &'a [Vec<u8>],
) -> Result<Vec<RunReader<'a>>, FormatError> {
    let dirfrag = manifest.dirfrag;
    if runs.len() != manifest.runs.len() {
        let malformed = malformed(0, "as many runs as there are to merge");
        return Err(FormatError::new(manifest_name(dirfrag), malformed));
    }
    let mut readers = Vec::with_capacity(runs.len());
    for (info, bytes) in manifest.runs.iter().zip(runs) {
        let about = |malformed: Malformed| FormatError::new(run_name(dirfrag, info.id), malformed);
        info.check(bytes).map_err(about)?;
        readers.push(RunReader::open_as(dirfrag, info.id, bytes)?);
    }
    Ok(readers)
}

/// Several runs as one sequence in order of name and, within a name, of age.
struct Merger<'r, 'a> {
    /// Newest first, like the runs.
    cursors: Vec<RunCursor<'r, 'a>>,
    /// The permitted rows of each run, if a client wrote it.
    attached: Vec<Option<&'r Attached>>,
    /// The cursors that stand on a row, by name and age of that row.
    order: Vec<usize>,
}

impl<'r, 'a> Merger<'r, 'a> {
    fn new(
        readers: &'r [RunReader<'a>],
        manifest: &'r Manifest,
        from: &[u8],
    ) -> Result<Self, FormatError> {
        let attached = readers
            .iter()
            .map(|run| manifest.attached.iter().find(|attached| attached.run == run.id()));
        let attached: Vec<_> = attached.collect();
        let mut cursors: Vec<_> = readers.iter().map(RunReader::iter).collect();
        let mut order = Vec::with_capacity(cursors.len());
        for (number, cursor) in cursors.iter_mut().enumerate() {
            let mut stands = step(cursor, attached[number])?;
            while stands && cursor.name() < from {
                stands = step(cursor, attached[number])?;
            }
            if stands {
                order.push(number);
            }
        }
        order.sort_by(|left, right| cursors[*left].name().cmp(cursors[*right].name()));
        Ok(Self { cursors, attached, order })
    }

    /// The row to take next.
    #[inline]
    fn newest(&self) -> Option<(&[u8], RowValue<'a>, Option<&'r Attached>)> {
        let first = *self.order.first()?;
        let cursor = &self.cursors[first];
        Some((cursor.name(), cursor.value(), self.attached[first]))
    }

    /// Steps past it.
    #[inline]
    fn advance(&mut self) -> Result<(), FormatError> {
        let Some((&first, others)) = self.order.split_first() else {
            return Ok(());
        };
        if !step(&mut self.cursors[first], self.attached[first])? {
            self.order.remove(0);
            return Ok(());
        }
        let before = |other: &usize| {
            (self.cursors[*other].name(), *other) < (self.cursors[first].name(), first)
        };
        // Runs seldom interleave name by name: mostly the same cursor stays in front.
        if others.first().is_some_and(before) {
            let passed = others.partition_point(before);
            self.order[..=passed].rotate_left(1);
        }
        Ok(())
    }
}

/// Steps to the next row. Behind a forged checksum a malformed row of a client's run, or one
/// outside the range of its block, ends the block: the client loses its own rows, and no other
/// client's directory becomes unreadable.
#[inline]
fn step(cursor: &mut RunCursor<'_, '_>, attached: Option<&Attached>) -> Result<bool, FormatError> {
    loop {
        match cursor.advance() {
            Ok(true) if attached.is_some() && !cursor.is_in_place() => cursor.leave_block(),
            Err(_) if attached.is_some() => cursor.leave_block(),
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
