//! Reads a directory fragment in order of name, with a bounded part of it in memory (U-04).
//!
//! Not here: fetching the pieces, and the use of the rows. The result equals that of
//! [`merge`](crate::merge), in the same order.
//!
//! Invariant: the place at which a scan continues is a function of the last name. So a new scan
//! with a newer manifest continues at the end of this one.

use crate::attach::Attached;
use crate::error::FormatError;
use crate::manifest::{Manifest, RunInfo};
use crate::row::RowValue;
use crate::run::{Moved, RunStream, StreamCursor};

/// See the module documentation.
#[derive(Debug)]
pub struct Scan {
    /// Newest first.
    streams: Vec<RunStream>,
    /// The permitted rows of each, if a client wrote it.
    attached: Vec<Option<Attached>>,
    /// The name given last.
    after: Vec<u8>,
}

/// A piece of an object that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedRange {
    /// The object.
    pub object: String,
    /// From where.
    pub offset: u64,
    /// How much: no less will do.
    pub length: usize,
    run: usize,
}

/// The streams that a merge read up to the end of their bytes in memory.
#[derive(Default)]
struct DryStreams {
    /// Those whose run has more.
    starved: Vec<usize>,
    /// Those whose run has no more.
    ended: Vec<usize>,
}

impl Scan {
    /// Of all names behind one; of all if it is empty.
    #[must_use]
    pub fn new(manifest: &Manifest, after: &[u8]) -> Self {
        let attached = |run: &RunInfo| {
            manifest.attached.iter().find(|attached| attached.run == run.id).cloned()
        };
        let attached: Vec<_> = manifest.runs.iter().map(attached).collect();
        let stream = |(run, attached): (&RunInfo, &Option<Attached>)| {
            RunStream::new(manifest.dirfrag, *run, attached.is_some())
        };
        let streams = manifest.runs.iter().zip(&attached).map(stream).collect();
        Self { streams, attached, after: after.to_vec() }
    }

    /// The parts to read before there can be rows; empty if there are rows.
    #[must_use]
    pub fn wants(&self) -> Vec<WantedRange> {
        let want = |(run, stream): (usize, &RunStream)| {
            let (offset, length) = stream.want()?;
            Some(WantedRange { object: stream.object(), offset, length, run })
        };
        self.streams.iter().enumerate().filter_map(want).collect()
    }

    /// Takes the bytes of a part.
    ///
    /// # Errors
    /// If it is not of the run that the manifest means.
    pub fn feed(&mut self, want: &WantedRange, bytes: Vec<u8>) -> Result<(), FormatError> {
        match self.streams.get_mut(want.run) {
            Some(stream) => stream.feed(bytes, &self.after),
            None => Ok(()),
        }
    }

    /// The name given last.
    #[must_use]
    pub fn after(&self) -> &[u8] {
        &self.after
    }

    /// Yields the rows that are in memory, until more has to be read. Returns whether there are
    /// more.
    ///
    /// # Errors
    /// If a block is damaged or a row malformed. Rows behind a forged checksum end the run of a
    /// client.
    pub fn rows(
        &mut self,
        take: &mut impl FnMut(&[u8], &RowValue<'_>),
    ) -> Result<bool, FormatError> {
        let mut last = std::mem::take(&mut self.after);
        let mut dry = DryStreams::default();
        let result = self.merge(&mut last, &mut dry, take);
        self.after = last;
        dry.starved.iter().for_each(|run| self.streams[*run].use_up());
        dry.ended.iter().for_each(|run| self.streams[*run].end());
        result?;
        Ok(!dry.starved.is_empty())
    }

    fn merge(
        &self,
        last: &mut Vec<u8>,
        dry: &mut DryStreams,
        take: &mut impl FnMut(&[u8], &RowValue<'_>),
    ) -> Result<(), FormatError> {
        let mut cursors: Vec<StreamCursor<'_>> = Vec::with_capacity(self.streams.len());
        let mut order: Vec<usize> = Vec::with_capacity(self.streams.len());
        for (run, stream) in self.streams.iter().enumerate() {
            let mut cursor = stream.cursor(last)?;
            match cursor.skip_to(last)? {
                Moved::Row => order.push(run),
                Moved::Starved => dry.starved.push(run),
                Moved::End => dry.ended.push(run),
            }
            cursors.push(cursor);
        }
        if !dry.starved.is_empty() {
            return Ok(());
        }
        order.sort_by(|left, right| cursors[*left].name().cmp(cursors[*right].name()));
        while let Some((&first, others)) = order.split_first() {
            let cursor = &mut cursors[first];
            let attached = self.attached[first].as_ref();
            let value = match attached {
                Some(attached) => attached.admit(cursor.value()),
                None => Some(cursor.value()),
            };
            // The older rows of a name follow its newest at once.
            if let Some(value) = value
                && cursor.name() != last.as_slice()
            {
                last.clear();
                last.extend_from_slice(cursor.name());
                match value {
                    RowValue::Removed => {}
                    RowValue::Remote { .. } | RowValue::Inode(_) => take(cursor.name(), &value),
                }
            }
            match cursor.advance()? {
                Moved::Row => {}
                Moved::Starved => {
                    dry.starved.push(first);
                    return Ok(());
                }
                Moved::End => {
                    dry.ended.push(first);
                    order.remove(0);
                    continue;
                }
            }
            let before =
                |other: &usize| (cursors[*other].name(), *other) < (cursors[first].name(), first);
            // Runs seldom interleave name by name: mostly the same cursor stays in front.
            if others.first().is_some_and(before) {
                let passed = others.partition_point(before);
                order[..=passed].rotate_left(1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
