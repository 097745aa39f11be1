//! Walks through a run of which a piece at a time is in memory.
//!
//! The caller reads the wanted bytes. Not here: several runs.
//!
//! Invariant: every seen row is from a block with a right checksum; at most [`CHUNK_BYTES`] or one
//! block of rows are in memory, and the index.

use std::ops::Range;

use types::DirFragId;
use types::bytes::Malformed;

use super::block::{Block, BlockCursor};
use super::index::RunIndex;
use super::{FOOTER_BYTES, HEADER_BYTES, RunEnds};
use crate::error::{FormatError, malformed};
use crate::manifest::RunInfo;
use crate::name::NameBuf;
use crate::object::run_name;
use crate::row::RowValue;

/// The size of a read, unless a block is larger.
pub(crate) const CHUNK_BYTES: usize = 512 << 10;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RunStream {
    dirfrag: DirFragId,
    info: RunInfo,
    /// A client wrote it: a malformed row ends its block, and nothing else.
    is_clients: bool,
    state: State,
    /// The last bytes that were read, their offset, and their blocks.
    chunk: Vec<u8>,
    start: u64,
    blocks: Range<usize>,
    /// The next block.
    at: usize,
}

#[derive(Debug)]
enum State {
    Fresh,
    Header(Vec<u8>),
    Footer(Vec<u8>, usize),
    Open(RunIndex),
    /// Nothing more comes of it.
    Ended,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// There is a row.
    Row,
    /// The next one is not in memory.
    Starved,
    /// There are no more.
    End,
}

impl RunStream {
    pub(crate) fn new(dirfrag: DirFragId, info: RunInfo, is_clients: bool) -> Self {
        let (chunk, start, blocks, at) = (Vec::new(), 0, 0..0, 0);
        Self { dirfrag, info, is_clients, state: State::Fresh, chunk, start, blocks, at }
    }

    /// The object.
    pub(crate) fn object(&self) -> String {
        run_name(self.dirfrag, self.info.id)
    }

    /// The next part to read, as offset and length; None if there are rows in memory or no more.
    pub(crate) fn want(&self) -> Option<(u64, usize)> {
        let length = self.info.bytes;
        match &self.state {
            State::Fresh if length <= CHUNK_BYTES as u64 => Some((0, length_of(length))),
            State::Fresh => Some((0, HEADER_BYTES)),
            State::Header(_) => Some((length - FOOTER_BYTES as u64, FOOTER_BYTES)),
            State::Footer(_, tail) => Some((length - *tail as u64, *tail)),
            State::Open(index) if !self.blocks.contains(&self.at) => {
                let span = index.span(self.at..chunk_end(index, self.at));
                (self.at < index.block_count()).then_some((span.offset, span.length))
            }
            State::Open(_) | State::Ended => None,
        }
    }

    /// What was wanted. `after` is the name behind which rows are wanted.
    ///
    /// # Errors
    /// If it is not of the run that the manifest means.
    pub(crate) fn feed(&mut self, bytes: Vec<u8>, after: &[u8]) -> Result<(), FormatError> {
        let wanted = self.want();
        if wanted.is_none_or(|(_, length)| length != bytes.len()) {
            return Err(self.error(0, "the length that the manifest states"));
        }
        self.state = match std::mem::replace(&mut self.state, State::Ended) {
            State::Fresh if bytes.len() as u64 == self.info.bytes => {
                let footer = bytes.len().checked_sub(FOOTER_BYTES).filter(|at| *at >= HEADER_BYTES);
                let Some(footer) = footer else { return Err(self.error(0, "more bytes")) };
                let tail = self.about(RunEnds::tail_bytes(self.info.bytes, &bytes[footer..]))?;
                let (header, tail) = (&bytes[..HEADER_BYTES], &bytes[bytes.len() - tail..]);
                let index = self.open(header, tail, after)?;
                let filters = index.check_filters(&bytes);
                self.about(filters.map_err(|error| FormatError::new("run", error)))?;
                (self.blocks, self.start, self.chunk) = (0..index.block_count(), 0, bytes);
                State::Open(index)
            }
            State::Fresh => State::Header(bytes),
            State::Header(header) => {
                let tail = self.about(RunEnds::tail_bytes(self.info.bytes, &bytes))?;
                State::Footer(header, tail)
            }
            State::Footer(header, _) => State::Open(self.open(&header, &bytes, after)?),
            State::Open(index) => {
                let (start, _) = wanted.unwrap_or_default();
                (self.blocks, self.start) = (self.at..chunk_end(&index, self.at), start);
                self.chunk = bytes;
                State::Open(index)
            }
            State::Ended => State::Ended,
        };
        Ok(())
    }

    fn open(&mut self, header: &[u8], tail: &[u8], after: &[u8]) -> Result<RunIndex, FormatError> {
        let index = self.about(RunIndex::read(self.info.bytes, header, tail))?;
        let RunInfo { id, rows, removed, .. } = self.info;
        let stated = RunEnds { id, dirfrag: self.dirfrag, rows, removed };
        if index.ends() != stated {
            return Err(self.error(0, "the run that the manifest states"));
        }
        self.at = block_after(&index, after);
        Ok(index)
    }

    /// A cursor before the first row behind a name that is in memory.
    pub(crate) fn cursor<'s>(&'s self, after: &[u8]) -> Result<StreamCursor<'s>, FormatError> {
        let (name, value) = (NameBuf::new(), RowValue::Removed);
        let mut cursor = StreamCursor { stream: self, next: self.at, block: None, name, value };
        if let State::Open(index) = &self.state {
            let start = block_after(index, after).max(self.at);
            cursor.next = start;
            if !after.is_empty() && self.blocks.contains(&start) {
                let block = cursor.open_block(index, start)?;
                let inside = block.seek(after);
                cursor.block = match inside {
                    Ok(inside) => Some(inside),
                    Err(_) if self.is_clients => Some(block.cursor()),
                    Err(malformed) => return Err(cursor.error_at(start, malformed)),
                };
                cursor.next = start + 1;
            }
        }
        Ok(cursor)
    }

    /// The chunk in memory is used up.
    pub(crate) fn use_up(&mut self) {
        self.at = self.blocks.end.max(self.at);
    }

    /// Nothing more is wanted of it.
    pub(crate) fn end(&mut self) {
        self.state = State::Ended;
    }

    fn about<T>(&self, result: Result<T, FormatError>) -> Result<T, FormatError> {
        result.map_err(|error| error.about(self.object()))
    }

    #[cold]
    fn error(&self, offset: usize, expected: &'static str) -> FormatError {
        FormatError::new(self.object(), malformed(offset, expected))
    }
}

/// The first block that may have a row behind a name.
fn block_after(index: &RunIndex, after: &[u8]) -> usize {
    index.block_of(after).unwrap_or(0)
}

/// The end of the blocks from one on that are read at once.
fn chunk_end(index: &RunIndex, at: usize) -> usize {
    let mut bytes = 0;
    let fits = |block: &usize| {
        bytes += index.span(*block..block + 1).length;
        bytes <= CHUNK_BYTES
    };
    at + (at..index.block_count()).take_while(fits).count().max(1)
}

fn length_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Stands on a row in memory, or before the first.
pub(crate) struct StreamCursor<'s> {
    stream: &'s RunStream,
    /// The block after the open one.
    next: usize,
    block: Option<BlockCursor<'s>>,
    name: NameBuf,
    value: RowValue<'s>,
}

impl<'s> StreamCursor<'s> {
    /// Steps to the next row behind a name.
    pub(crate) fn skip_to(&mut self, after: &[u8]) -> Result<Moved, FormatError> {
        loop {
            let moved = self.advance()?;
            if moved != Moved::Row || self.name() > after {
                return Ok(moved);
            }
        }
    }

    /// Steps to the next row.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Moved, FormatError> {
        let State::Open(index) = &self.stream.state else { return Ok(Moved::End) };
        loop {
            if let Some(block) = &mut self.block {
                let first = || index.first_name(self.next - 1);
                match block.advance(index.base(), &mut self.name, first) {
                    Ok(Some(value)) if self.is_in_place(index) => {
                        self.value = value;
                        return Ok(Moved::Row);
                    }
                    // The rest of the block is a client's forgery, and the client loses it.
                    Ok(_) => {}
                    Err(_) if self.stream.is_clients => {}
                    Err(malformed) => return Err(self.error_at(self.next - 1, malformed)),
                }
            }
            if self.next >= index.block_count() {
                return Ok(Moved::End);
            }
            if !self.stream.blocks.contains(&self.next) {
                return Ok(Moved::Starved);
            }
            self.block = Some(self.open_block(index, self.next)?.cursor());
            self.next += 1;
        }
    }

    /// Whether the current row is in the range of its block. Checksums vouch for the runs of
    /// servers.
    fn is_in_place(&self, index: &RunIndex) -> bool {
        let next = index.first_name(self.next);
        !self.stream.is_clients || next.is_empty() || self.name() < next
    }

    fn open_block(&self, index: &'s RunIndex, at: usize) -> Result<Block<'s>, FormatError> {
        let entry = &index.entries[at];
        let start = length_of(entry.offset - self.stream.start);
        let bytes = &self.stream.chunk[start..start + entry.length as usize];
        let block = Block::open(bytes, entry.offset, entry.rows as usize);
        block.map_err(|malformed| self.error_at(at, malformed))
    }

    #[cold]
    fn error_at(&self, block: usize, found: Malformed) -> FormatError {
        let State::Open(index) = &self.stream.state else {
            return self.stream.error(found.offset, found.expected);
        };
        let offset = length_of(index.entries[block].offset) + found.offset;
        self.stream.error(offset, found.expected)
    }

    /// The name of the row it stands on.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        self.name.as_slice()
    }

    /// The value of that row.
    #[inline]
    pub(crate) fn value(&self) -> RowValue<'s> {
        self.value
    }
}
