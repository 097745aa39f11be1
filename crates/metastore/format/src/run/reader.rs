//! Opens a run and finds rows in it.
//!
//! Not here: rows and blocks themselves, and where they are ([`RunIndex`]).
//!
//! Invariant: a reader exists only for bytes with right checksums throughout. Reading rows finds a
//! forger's faults inside a block.

use std::ops::Range;

use types::DirFragId;
use types::bytes::{Malformed, Reader};

use super::block::{Block, BlockProbe};
use super::cursor::RunCursor;
use super::index::{self, RunIndex};
use super::{FOOTER_BYTES, HEADER_BYTES};
use crate::error::{FormatError, malformed};
use crate::object::{RunId, run_name};
use crate::row::{Base, RowValue};

/// A run, or some blocks of it, with verified checksums.
#[derive(Debug)]
pub struct RunReader<'a> {
    /// All of the object, or those blocks.
    bytes: &'a [u8],
    index: Index<'a>,
    /// Which of the blocks are there.
    range: Range<usize>,
    blocks: Vec<Block<'a>>,
}

/// A whole run's own index, or one that the caller lends.
#[derive(Debug)]
enum Index<'a> {
    Own(Box<RunIndex>),
    Lent(&'a RunIndex),
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

    /// Verifies and opens some blocks of a run that follow each other, as they were read.
    ///
    /// # Errors
    /// If a block is not intact.
    pub fn open_part(
        index: &'a RunIndex,
        range: Range<usize>,
        bytes: &'a [u8],
    ) -> Result<Self, FormatError> {
        let (mut blocks, mut at) = (Vec::with_capacity(range.len()), 0);
        for entry in index.entries.get(range.clone()).unwrap_or_default() {
            let end = at + entry.length as usize;
            let own = bytes.get(at..end).unwrap_or_default();
            let block = Block::open(own, entry.offset, entry.rows as usize);
            blocks.push(block.map_err(|malformed| index.error(entry.offset, malformed))?);
            at = end;
        }
        Ok(Self { bytes, index: Index::Lent(index), range, blocks })
    }

    /// Where its rows are.
    #[must_use]
    pub fn index(&self) -> &RunIndex {
        match &self.index {
            Index::Own(index) => index,
            Index::Lent(index) => index,
        }
    }

    /// The directory fragment it belongs to.
    #[must_use]
    pub fn dirfrag(&self) -> DirFragId {
        self.index().dirfrag()
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.index().id()
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.index().rows()
    }

    /// How many rows only hide older ones.
    #[must_use]
    pub fn removed_rows(&self) -> u64 {
        self.index().removed_rows()
    }

    /// The number of rows with a target.
    #[must_use]
    pub fn live_rows(&self) -> u64 {
        self.rows() - self.removed_rows()
    }

    /// The whole object, or the blocks that are there.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// A cursor before the first row. Rows come in order of name.
    #[must_use]
    pub fn iter(&self) -> RunCursor<'_, 'a> {
        RunCursor::new(self)
    }

    /// The run's entry for a name: none, a removal, or a target. Costs one binary search over
    /// blocks, one within a block and at most sixteen rows.
    ///
    /// # Errors
    /// If a row on the way is malformed, which takes a forged checksum.
    pub fn get(&self, name: &[u8]) -> Result<Option<RowValue<'a>>, FormatError> {
        let found = self.index().block_of(name);
        let Some(number) = found.and_then(|found| found.checked_sub(self.range.start)) else {
            return Ok(None);
        };
        let Some(block) = self.blocks.get(number) else { return Ok(None) };
        let value = block.get(self.base(), BlockProbe { first: self.first_name(number), name });
        value.map_err(|malformed| self.error(block.offset, malformed))
    }

    /// The base of its rows.
    pub(super) fn base(&self) -> &Base {
        &self.index().header.base
    }

    /// The blocks that are there.
    pub(super) fn blocks(&self) -> &[Block<'a>] {
        &self.blocks
    }

    /// The first name of a block in memory, or of the next one; empty if there is none.
    pub(super) fn first_name(&self, number: usize) -> &[u8] {
        self.index().first_name(self.range.start + number)
    }

    /// Whether all blocks are there.
    pub(super) fn is_whole(&self) -> bool {
        matches!(self.index, Index::Own(_))
    }

    /// The error for something found wrong `malformed.offset` bytes after `offset`.
    #[cold]
    pub(super) fn error(&self, offset: u64, malformed: Malformed) -> FormatError {
        self.index().error(offset, malformed)
    }
}

/// The claims of a run about itself, from its ends alone ([`RunIndex`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnds {
    /// Its number.
    pub id: RunId,
    /// The directory fragment.
    pub dirfrag: DirFragId,
    /// How many rows it has.
    pub rows: u64,
    /// The number of rows that only hide older ones.
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
        let index = RunIndex::read(length, header, tail)?;
        let (id, dirfrag) = (index.id(), index.dirfrag());
        Ok(Self { id, dirfrag, rows: index.rows(), removed: index.removed_rows() })
    }
}

fn open(bytes: &[u8]) -> Result<RunReader<'_>, Malformed> {
    // An object of another kind gets an error that names this.
    super::Header::read(bytes)?;
    let footer_start = bytes.len().checked_sub(FOOTER_BYTES).filter(|at| *at >= HEADER_BYTES);
    let Some(footer_start) = footer_start else {
        return Err(malformed(bytes.len(), "more bytes"));
    };
    let mut footer = Reader::new(&bytes[footer_start..]);
    let start = usize::try_from(footer.u64()?).ok();
    if !bytes.ends_with(super::END_MAGIC) {
        return Err(malformed(bytes.len() - 8, "the magic at the end of a run"));
    }
    let Some(start) = start.filter(|at| (HEADER_BYTES..=footer_start).contains(at)) else {
        return Err(malformed(footer_start, "the offset of the index"));
    };
    let index = index::read(bytes.len() as u64, &bytes[..HEADER_BYTES], &bytes[start..])?;
    let mut blocks = Vec::with_capacity(index.entries.len());
    let mut at = HEADER_BYTES;
    for entry in &index.entries {
        let end = at + entry.length as usize;
        let block = Block::open(&bytes[at..end], entry.offset, entry.rows as usize)
            .map_err(|inner| malformed(at + inner.offset, inner.expected))?;
        blocks.push(block);
        at = end;
    }
    index.check_filters(bytes)?;
    let range = 0..blocks.len();
    Ok(RunReader { bytes, index: Index::Own(Box::new(index)), range, blocks })
}
