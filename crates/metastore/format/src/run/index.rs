//! The ends of a run, read without its middle: its identity, and the places of its rows.
//!
//! Proves that header, index and footer are those of one run, and that blocks and filters fill the
//! object; the blocks and their rows are checked when they are read. Costs two small reads, and
//! memory for the index: about a thousandth of the run.
//!
//! Invariant: blocks come in order of their first names, one behind the other.

use crc32c::{crc32c, crc32c_append};
use types::DirFragId;
use types::bytes::{Malformed, Reader};

use super::block::{Block, BlockProbe};
use super::filter::{self, GROUP_BLOCKS};
use super::{
    END_MAGIC, FILTERED_VERSION, FOOTER_BYTES, HEADER_BYTES, Header, INDEX_ENTRY_BYTES, RunEnds,
    STATS_BYTES,
};
use crate::error::{FormatError, malformed};
use crate::object::{RunId, run_name};
use crate::row::{Base, RowValue};

/// The place of a block, and its first name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) rows: u32,
    name_start: u32,
    name_len: u8,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct RunIndex {
    pub(super) header: Header,
    pub(super) entries: Vec<Entry>,
    /// The first names of the blocks, one after the other.
    names: Vec<u8>,
    /// Where blocks end and filters begin.
    blocks_end: u64,
    /// Where each group of filters begins, and behind the last one; empty if the run has none.
    groups: Vec<u64>,
}

/// A piece of a run that has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunRange {
    /// Where it begins, in bytes from the start of the object.
    pub offset: u64,
    /// Its length in bytes.
    pub length: usize,
}

impl RunIndex {
    /// Reads the ends of a run of `length` bytes: its header, and as many bytes at its end as
    /// [`RunEnds::tail_bytes`](super::RunEnds::tail_bytes) says.
    ///
    /// # Errors
    /// If they are not those of one run.
    pub fn read(length: u64, header: &[u8], tail: &[u8]) -> Result<Self, FormatError> {
        read(length, header, tail).map_err(|malformed| FormatError::new("run", malformed))
    }

    /// The identity of the run.
    pub(super) fn ends(&self) -> RunEnds {
        let Header { id, dirfrag, rows, removed, .. } = self.header;
        RunEnds { id, dirfrag, rows, removed }
    }

    /// The base of its rows.
    pub(super) fn base(&self) -> &Base {
        &self.header.base
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.header.id
    }

    /// The directory fragment that it belongs to.
    #[must_use]
    pub fn dirfrag(&self) -> DirFragId {
        self.header.dirfrag
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.header.rows
    }

    /// The number of rows that only hide older ones.
    #[must_use]
    pub fn removed_rows(&self) -> u64 {
        self.header.removed
    }

    /// How many blocks it has.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.entries.len()
    }

    /// How many bytes of memory it takes, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let entries = self.entries.len() * size_of::<Entry>();
        size_of::<Self>() + entries + self.names.len() + self.groups.len() * 8
    }

    /// The first name of a block.
    #[must_use]
    pub fn first_name(&self, block: usize) -> &[u8] {
        self.entries.get(block).map_or(&[], |entry| {
            let start = entry.name_start as usize;
            &self.names[start..start + usize::from(entry.name_len)]
        })
    }

    /// The block that has a name, if the run has it.
    #[must_use]
    pub fn block_of(&self, name: &[u8]) -> Option<usize> {
        self.blocks_before(|first| first <= name).checked_sub(1)
    }

    /// The number of blocks at the front with a first name for which this holds.
    fn blocks_before(&self, holds: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if holds(self.first_name(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The blocks that have all rows from a name on that come before another; `None` is the end.
    #[must_use]
    pub fn blocks_between(&self, from: &[u8], to: Option<&[u8]>) -> std::ops::Range<usize> {
        let end = to.map_or(self.entries.len(), |to| self.blocks_before(|first| first < to));
        self.block_of(from).unwrap_or(0).min(end)..end
    }

    /// The part of the object to read for some consecutive blocks.
    #[must_use]
    pub fn span(&self, blocks: std::ops::Range<usize>) -> RunRange {
        let entries = self.entries.get(blocks).unwrap_or_default();
        let length = entries.iter().map(|entry| entry.length as usize).sum();
        RunRange { offset: entries.first().map_or(0, |entry| entry.offset), length }
    }

    /// The part of the object with the filters of a block; `None` if the run has none.
    #[must_use]
    pub fn filter_span(&self, block: usize) -> Option<RunRange> {
        let group = block / GROUP_BLOCKS;
        let (start, end) = (*self.groups.get(group)?, *self.groups.get(group + 1)?);
        Some(RunRange { offset: start, length: usize::try_from(end - start).ok()? })
    }

    /// Whether a block may have a name, by the bytes of [`RunIndex::filter_span`].
    ///
    /// # Errors
    /// If that is not intact.
    pub fn may_have(&self, block: usize, group: &[u8], name: &[u8]) -> Result<bool, FormatError> {
        let offset = self.filter_span(block).map_or(0, |span| span.offset);
        let filters = filter::open_group(group).map_err(|error| self.error(offset, error))?;
        let first = block / GROUP_BLOCKS * GROUP_BLOCKS;
        let before = self.entries.get(first..block).unwrap_or_default();
        let bytes = |entry: &Entry| filter::filter_bytes(entry.rows as usize);
        let start: usize = before.iter().map(bytes).sum();
        let own = self.entries.get(block).map_or(0, bytes);
        Ok(filters.get(start..start + own).is_none_or(|own| filter::may_have(own, name)))
    }

    /// The value of a name in the bytes of a block.
    ///
    /// # Errors
    /// If the block is not intact.
    pub fn get<'a>(
        &self,
        block: usize,
        bytes: &'a [u8],
        name: &[u8],
    ) -> Result<Option<RowValue<'a>>, FormatError> {
        let Some(entry) = self.entries.get(block) else { return Ok(None) };
        let probe = BlockProbe { first: self.first_name(block), name };
        let found = Block::open(bytes, entry.offset, entry.rows as usize)
            .and_then(|opened| opened.get(&self.header.base, probe));
        found.map_err(|malformed| self.error(entry.offset, malformed))
    }

    /// The same for a client's run: nothing behind a malformed row of a block counts, as in a read
    /// of the whole run.
    ///
    /// # Errors
    /// If the checksum of the block is wrong.
    pub fn get_admitted<'a>(
        &self,
        block: usize,
        bytes: &'a [u8],
        name: &[u8],
    ) -> Result<Option<RowValue<'a>>, FormatError> {
        let Some(entry) = self.entries.get(block) else { return Ok(None) };
        let opened = Block::open(bytes, entry.offset, entry.rows as usize)
            .map_err(|malformed| self.error(entry.offset, malformed))?;
        if block + 1 < self.entries.len() && name >= self.first_name(block + 1) {
            return Ok(None);
        }
        Ok(opened.scan(&self.header.base, BlockProbe { first: self.first_name(block), name }))
    }

    /// The error for something found wrong `malformed.offset` bytes after `offset`.
    #[cold]
    pub(super) fn error(&self, offset: u64, malformed: Malformed) -> FormatError {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let offset = offset.saturating_add(malformed.offset);
        FormatError::new(run_name(self.dirfrag(), self.id()), Malformed { offset, ..malformed })
    }
}

pub(super) fn read(length: u64, header: &[u8], tail: &[u8]) -> Result<RunIndex, Malformed> {
    let mut known = Header::read(header)?;
    let header = &header[..HEADER_BYTES];
    let body = length.checked_sub((HEADER_BYTES + tail.len()) as u64);
    let (Some(body), Some(footer_start)) = (body, tail.len().checked_sub(FOOTER_BYTES)) else {
        return Err(malformed(tail.len(), "more bytes"));
    };
    // Offsets in errors are those of the object.
    let tail_start = length - tail.len() as u64;
    let base = usize::try_from(tail_start).unwrap_or(usize::MAX);
    let about = |error: Malformed| malformed(base.saturating_add(error.offset), error.expected);
    let (entries, footer) = tail.split_at(footer_start);
    let mut reader = Reader::new(footer);
    let start = reader.u64()?;
    let count = reader.u32()? as usize;
    let crc = reader.u32()?;
    if reader.rest() != END_MAGIC {
        return Err(about(malformed(footer_start + 16, "the magic at the end of a run")));
    }
    if start != tail_start {
        return Err(about(malformed(footer_start, "the offset of the index")));
    }
    if crc32c_append(crc32c(header), &tail[..footer_start + 12]) != crc {
        return Err(about(malformed(footer_start + 12, "a checksum that matches")));
    }
    let filtered = known.version >= FILTERED_VERSION;
    let stats = if filtered { STATS_BYTES } else { 0 };
    let Some(index_bytes) = footer_start.checked_sub(stats) else {
        return Err(about(malformed(footer_start, "more bytes")));
    };
    // Checked before anything is allocated for it.
    if count > index_bytes / (INDEX_ENTRY_BYTES + 1) {
        return Err(about(malformed(footer_start + 8, "as many blocks as there are bytes for")));
    }
    if filtered {
        let mut reader = Reader::new(&entries[index_bytes..]);
        (known.rows, known.removed) = (reader.u64()?, reader.u64()?);
        known
            .check_counts()
            .map_err(|_| about(malformed(index_bytes, "at most as many removed rows as rows")))?;
    }
    let mut index = RunIndex {
        header: known,
        entries: Vec::with_capacity(count),
        names: Vec::with_capacity(index_bytes - count * INDEX_ENTRY_BYTES),
        blocks_end: 0,
        groups: Vec::new(),
    };
    index.read_entries(&entries[..index_bytes], count, body).map_err(about)?;
    index.find_filters(body).map_err(about)?;
    let rows = index.entries.iter().fold(0, |rows, entry| rows + u64::from(entry.rows));
    if rows != index.header.rows {
        return Err(about(malformed(0, "as many rows as the header states")));
    }
    Ok(index)
}

impl RunIndex {
    fn read_entries(&mut self, bytes: &[u8], count: usize, body: u64) -> Result<(), Malformed> {
        let mut reader = Reader::new(bytes);
        let mut offset = HEADER_BYTES as u64;
        let mut before: &[u8] = &[];
        for _ in 0..count {
            let entry = reader;
            let (length, rows) = (reader.u32()?, reader.u32()?);
            let name_bytes = reader.u8()?;
            let first = reader.take(usize::from(name_bytes))?;
            if first <= before {
                return Err(entry.malformed("blocks in order of name"));
            }
            let left = HEADER_BYTES as u64 + body - offset;
            if u64::from(length) > left || (length as usize) < Block::bytes_min(rows as usize) {
                return Err(entry.malformed("the length of a block"));
            }
            let name_start = u32::try_from(self.names.len())
                .map_err(|_| entry.malformed("an index of less than 4 GiB"))?;
            self.names.extend_from_slice(first);
            let name_len = name_bytes;
            self.entries.push(Entry { offset, length, rows, name_start, name_len });
            offset += u64::from(length);
            before = first;
        }
        reader.end()?;
        self.blocks_end = offset;
        Ok(())
    }

    /// Works out where filters are; the index must follow them, or the blocks.
    fn find_filters(&mut self, body: u64) -> Result<(), Malformed> {
        let mut end = self.blocks_end;
        if self.header.version >= FILTERED_VERSION {
            for group in self.entries.chunks(GROUP_BLOCKS) {
                self.groups.push(end);
                let filters = group.iter().map(|entry| filter::filter_bytes(entry.rows as usize));
                end += filter::group_bytes(filters.sum()) as u64;
            }
            self.groups.push(end);
        }
        if end != HEADER_BYTES as u64 + body {
            return Err(malformed(0, "the index after the last block"));
        }
        Ok(())
    }

    /// Checks the groups of filters in a whole object.
    pub(super) fn check_filters(&self, bytes: &[u8]) -> Result<(), Malformed> {
        for group in self.groups.windows(2) {
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let (start, end) = (at(group[0]), at(group[1]));
            let group = bytes.get(start..end).unwrap_or_default();
            filter::open_group(group)
                .map_err(|inner| malformed(start + inner.offset, inner.expected))?;
        }
        Ok(())
    }
}
