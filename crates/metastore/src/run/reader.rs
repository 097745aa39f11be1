//! Opens a run and finds rows in it.
//!
//! Not here: rows and blocks themselves.
//!
//! Invariant: a reader exists only for bytes whose every checksum is right and whose blocks fill
//! the space between header and index exactly. What a forger can still get wrong inside a block
//! is found when its rows are read.

use crc32c::{crc32c, crc32c_append};
use types::DirFragId;
use types::bytes::{Malformed, Reader};

use super::block::Block;
use super::cursor::RunCursor;
use super::{END_MAGIC, FOOTER_BYTES, HEADER_BYTES, Header, INDEX_ENTRY_BYTES};
use crate::error::{FormatError, malformed};
use crate::object::{RunId, run_name};
use crate::row::{Base, RowValue};

/// A run whose checksums were verified.
#[derive(Debug)]
pub struct RunReader<'a> {
    bytes: &'a [u8],
    header: Header,
    blocks: Vec<Block<'a>>,
}

impl<'a> RunReader<'a> {
    /// Verifies and opens a run.
    ///
    /// # Errors
    /// If the bytes are truncated, corrupt, foreign or of another version. Errors speak of `run`;
    /// see [`RunReader::open_as`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, FormatError> {
        open(bytes).map_err(|malformed| FormatError::new("run", malformed))
    }

    /// Verifies and opens the run that is stored as `id` of `dirfrag`; errors name the object.
    ///
    /// # Errors
    /// As [`RunReader::open`], and if it is another run.
    pub fn open_as(dirfrag: DirFragId, id: RunId, bytes: &'a [u8]) -> Result<Self, FormatError> {
        open(bytes)
            .and_then(|run| match (run.dirfrag(), run.id()) == (dirfrag, id) {
                true => Ok(run),
                false => Err(malformed(12, "the identity that the object's name states")),
            })
            .map_err(|malformed| FormatError::new(run_name(dirfrag, id), malformed))
    }

    /// The directory fragment it belongs to.
    #[must_use]
    pub fn dirfrag(&self) -> DirFragId {
        self.header.dirfrag
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.header.id
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.header.rows
    }

    /// How many rows only hide older ones.
    #[must_use]
    pub fn removed_rows(&self) -> u64 {
        self.header.removed
    }

    /// How many rows state what a name stands for.
    #[must_use]
    pub fn live_rows(&self) -> u64 {
        self.header.rows - self.header.removed
    }

    /// The whole object.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A cursor before the first row. Rows come in order of name.
    #[must_use]
    pub fn iter(&self) -> RunCursor<'_, 'a> {
        RunCursor::new(self)
    }

    /// What the run says about a name: nothing, that it was removed, or what it stands for. Costs
    /// one binary search over blocks, one within a block and at most sixteen rows.
    ///
    /// # Errors
    /// If a row on the way is malformed, which takes a forged checksum.
    pub fn get(&self, name: &[u8]) -> Result<Option<RowValue<'a>>, FormatError> {
        let after = self.blocks.partition_point(|block| block.first <= name);
        let Some(block) = after.checked_sub(1).map(|number| &self.blocks[number]) else {
            return Ok(None);
        };
        block.get(self.base(), name).map_err(|malformed| self.error(block.offset, malformed))
    }

    /// What its rows are stated against.
    pub(super) fn base(&self) -> &Base {
        &self.header.base
    }

    pub(super) fn blocks(&self) -> &[Block<'a>] {
        &self.blocks
    }

    /// The error for something found wrong `malformed.offset` bytes after `offset`.
    #[cold]
    pub(super) fn error(&self, offset: usize, malformed: Malformed) -> FormatError {
        let offset = offset + malformed.offset;
        FormatError::new(run_name(self.dirfrag(), self.id()), Malformed { offset, ..malformed })
    }
}

/// The ends of a run, read without what is between them: what it says it is.
///
/// Proves that header, index and footer are those of one run of this identity, and that its blocks
/// fill the object; not that the blocks are intact, or what their rows say. Costs two small reads,
/// and memory for the index: about a thousandth of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnds {
    /// Its number.
    pub id: RunId,
    /// The directory fragment.
    pub dirfrag: DirFragId,
    /// How many rows it has.
    pub rows: u64,
    /// How many of them only hide others.
    pub removed: u64,
}

impl RunEnds {
    /// How many bytes at the start of a run are its header.
    pub const HEADER_BYTES: usize = HEADER_BYTES;
    /// How many bytes at its end are its footer.
    pub const FOOTER_BYTES: usize = FOOTER_BYTES;

    /// How many bytes at the end of a run of `length` bytes are index and footer.
    ///
    /// # Errors
    /// If these are not the last bytes of a run of that length.
    pub fn tail_bytes(length: u64, footer: &[u8]) -> Result<usize, FormatError> {
        let tail = || -> Result<usize, Malformed> {
            let mut reader = Reader::new(footer);
            let index_start = reader.u64()?;
            let least = HEADER_BYTES as u64;
            let most = length.checked_sub(FOOTER_BYTES as u64);
            match most.filter(|most| (least..=*most).contains(&index_start)) {
                Some(_) => usize::try_from(length - index_start)
                    .map_err(|_| malformed(0, "the offset of the index")),
                None => Err(malformed(0, "the offset of the index")),
            }
        };
        tail().map_err(|malformed| FormatError::new("run", malformed))
    }

    /// Reads the ends of a run of `length` bytes.
    ///
    /// # Errors
    /// If they are not those of one run.
    pub fn read(length: u64, header: &[u8], tail: &[u8]) -> Result<Self, FormatError> {
        read_ends(length, header, tail).map_err(|malformed| FormatError::new("run", malformed))
    }
}

fn read_ends(length: u64, header: &[u8], tail: &[u8]) -> Result<RunEnds, Malformed> {
    let known = Header::read(header)?;
    // As if there were nothing between them: offsets are those of the real run, less that.
    let body = length.checked_sub((header.len() + tail.len()) as u64);
    let (Some(body), Some(index_bytes)) = (body, tail.len().checked_sub(FOOTER_BYTES)) else {
        return Err(malformed(tail.len(), "more bytes"));
    };
    let (index, footer) = tail.split_at(index_bytes);
    let mut reader = Reader::new(footer);
    let start = reader.u64()?;
    let count = reader.u32()? as usize;
    let crc = reader.u32()?;
    if reader.rest() != END_MAGIC {
        return Err(reader.malformed("the magic at the end of a run"));
    }
    if start != header.len() as u64 + body || header.len() != HEADER_BYTES {
        return Err(malformed(0, "the offset of the index"));
    }
    if crc32c_append(crc32c(header), &tail[..index_bytes + 12]) != crc {
        return Err(malformed(index_bytes + 12, "a checksum that matches"));
    }
    let (mut reader, mut left, mut rows) = (Reader::new(index), body, 0u64);
    let mut before: &[u8] = &[];
    for _ in 0..count {
        let entry = reader;
        let (bytes, block_rows) = (u64::from(reader.u32()?), reader.u32()? as usize);
        let name_bytes = usize::from(reader.u8()?);
        let first = reader.take(name_bytes)?;
        if first <= before {
            return Err(entry.malformed("blocks in order of name"));
        }
        if bytes > left || bytes < Block::bytes_min(block_rows) as u64 {
            return Err(entry.malformed("the length of a block"));
        }
        (left, rows, before) = (left - bytes, rows + block_rows as u64, first);
    }
    reader.end()?;
    if left != 0 {
        return Err(malformed(0, "the index after the last block"));
    }
    if rows != known.rows {
        return Err(malformed(0, "as many rows as the header states"));
    }
    let Header { dirfrag, id, removed, .. } = known;
    Ok(RunEnds { id, dirfrag, rows, removed })
}

fn open(bytes: &[u8]) -> Result<RunReader<'_>, Malformed> {
    let header = Header::read(bytes)?;
    let (index_start, count) = read_footer(bytes)?;
    let blocks = read_index(bytes, index_start, count)?;
    let rows = blocks.iter().fold(0, |rows, block| rows + block.rows as u64);
    if rows != header.rows {
        return Err(malformed(index_start, "as many rows as the header states"));
    }
    Ok(RunReader { bytes, header, blocks })
}

/// Where the index starts and how many blocks it lists.
fn read_footer(bytes: &[u8]) -> Result<(usize, usize), Malformed> {
    let footer_start = bytes.len().checked_sub(FOOTER_BYTES).filter(|at| *at >= HEADER_BYTES);
    let Some(footer_start) = footer_start else {
        return Err(malformed(bytes.len(), "more bytes"));
    };
    let mut footer = Reader::new(bytes);
    footer.take(footer_start)?;
    let index_start = usize::try_from(footer.u64()?).ok();
    let count = footer.u32()? as usize;
    let crc_start = footer.offset();
    let crc = footer.u32()?;
    if footer.rest() != END_MAGIC {
        return Err(footer.malformed("the magic at the end of a run"));
    }
    let Some(start) = index_start.filter(|at| (HEADER_BYTES..=footer_start).contains(at)) else {
        return Err(malformed(footer_start, "the offset of the index"));
    };
    if crc32c_append(crc32c(&bytes[..HEADER_BYTES]), &bytes[start..crc_start]) != crc {
        return Err(malformed(crc_start, "a checksum that matches"));
    }
    // Checked before anything is allocated for it.
    if count > (footer_start - start) / (INDEX_ENTRY_BYTES + 1) {
        return Err(malformed(footer_start + 8, "as many blocks as there are bytes for"));
    }
    Ok((start, count))
}

/// Checks every block and that they fill the space between header and index.
fn read_index(bytes: &[u8], start: usize, count: usize) -> Result<Vec<Block<'_>>, Malformed> {
    let mut index = Reader::new(&bytes[..bytes.len() - FOOTER_BYTES]);
    index.take(start)?;
    let mut blocks: Vec<Block<'_>> = Vec::with_capacity(count);
    let mut offset = HEADER_BYTES;
    for _ in 0..count {
        let entry = index;
        let length = index.u32()? as usize;
        let rows = index.u32()? as usize;
        let name_bytes = usize::from(index.u8()?);
        let first = index.take(name_bytes)?;
        if blocks.last().is_some_and(|before| first <= before.first) {
            return Err(entry.malformed("blocks in order of name"));
        }
        if length > start - offset || length < Block::bytes_min(rows) {
            return Err(entry.malformed("the length of a block"));
        }
        let block = Block::open(&bytes[offset..offset + length], offset, first, rows)
            .map_err(|inner| malformed(offset + inner.offset, inner.expected))?;
        blocks.push(block);
        offset += length;
    }
    index.end()?;
    if offset != start {
        return Err(malformed(offset, "the index after the last block"));
    }
    Ok(blocks)
}
