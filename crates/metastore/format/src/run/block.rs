//! One block of a run: prefix-compressed rows, where to start among them, and a checksum.
//!
//! Not here: the place of a block and the bytes before it.
//!
//! Invariant: a cursor reads rows only from a block with a checked frame, and checks each row.

use std::cmp::Ordering;

use crc32c::crc32c;
use types::bytes::{Malformed, Reader};
use types::check_name;

use super::{BLOCK_END_BYTES, RESTART_ROWS, ROW_BYTES_MIN};
use crate::error::malformed;
use crate::name::NameBuf;
use crate::row::{Base, RowValue, read_value};

/// A block with a valid frame. Offsets in its errors count from its own start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// Where the block starts in the object.
    pub(super) offset: u64,
    rows: usize,
    entries: &'a [u8],
    restarts: &'a [u8],
}

/// A name that a block is searched for.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockProbe<'n> {
    /// The block's first name, by the index.
    pub(super) first: &'n [u8],
    /// The name.
    pub(super) name: &'n [u8],
}

impl<'a> Block<'a> {
    /// Checks the frame and the checksum of the block `bytes` which starts at `offset`.
    pub(super) fn open(bytes: &'a [u8], offset: u64, rows: usize) -> Result<Self, Malformed> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(malformed(bytes.len(), "more bytes"));
        };
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(malformed(body.len(), "a checksum that matches"));
        }
        Self::frame(body, offset, rows)
    }

    /// As [`Block::open`], without the checksum at the end.
    pub(super) fn frame(body: &'a [u8], offset: u64, rows: usize) -> Result<Self, Malformed> {
        let Some((body, count)) = body.split_last_chunk::<4>() else {
            return Err(malformed(body.len(), "more bytes"));
        };
        let count = u32::from_le_bytes(*count) as usize;
        let split = count.checked_mul(4).and_then(|bytes| body.len().checked_sub(bytes));
        let Some(split) = split.filter(|_| count == rows.div_ceil(RESTART_ROWS)) else {
            return Err(malformed(body.len(), "a restart for every sixteen rows"));
        };
        let (entries, restarts) = body.split_at(split);
        if rows == 0 || entries.len() / ROW_BYTES_MIN < rows {
            return Err(malformed(split, "as many rows as there are bytes for"));
        }
        let block = Self { offset, rows, entries, restarts };
        if block.restart(0) != 0 {
            return Err(malformed(split, "the first restart at the first row"));
        }
        Ok(block)
    }

    /// The least number of bytes that a block of so many rows has.
    pub(super) fn bytes_min(rows: usize) -> usize {
        let restarts = rows.div_ceil(RESTART_ROWS);
        rows.saturating_mul(ROW_BYTES_MIN).saturating_add(restarts * 4 + BLOCK_END_BYTES)
    }

    /// A cursor before the first row.
    pub(super) fn cursor(&self) -> BlockCursor<'a> {
        BlockCursor { block: *self, reader: Reader::new(self.entries), row: 0 }
    }

    /// The value of a name, if the block has it.
    pub(super) fn get(
        &self,
        base: &Base,
        probe: BlockProbe<'_>,
    ) -> Result<Option<RowValue<'a>>, Malformed> {
        let BlockProbe { first, name } = probe;
        let mut cursor = self.seek(name)?;
        let mut found = NameBuf::new();
        while let Some(value) = cursor.advance(base, &mut found, || first)? {
            match found.as_slice().cmp(name) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Some(value)),
                Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    /// The same for a block in which only rows before the first malformed one count.
    pub(super) fn scan(&self, base: &Base, probe: BlockProbe<'_>) -> Option<RowValue<'a>> {
        let BlockProbe { first, name } = probe;
        let (mut cursor, mut found) = (self.cursor(), NameBuf::new());
        while let Ok(Some(value)) = cursor.advance(base, &mut found, || first) {
            match found.as_slice().cmp(name) {
                Ordering::Less => {}
                Ordering::Equal => return Some(value),
                Ordering::Greater => break,
            }
        }
        None
    }

    /// A cursor at the last restart with a name not larger than `name`.
    pub(super) fn seek(&self, name: &[u8]) -> Result<BlockCursor<'a>, Malformed> {
        let (mut low, mut high) = (0, self.restarts.len() / 4);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.restart_name(middle)? <= name { low = middle } else { high = middle }
        }
        let mut reader = Reader::new(self.entries);
        reader.take(self.restart(low))?;
        Ok(BlockCursor { block: *self, reader, row: low * RESTART_ROWS })
    }

    fn restart_name(&self, number: usize) -> Result<&'a [u8], Malformed> {
        let mut reader = Reader::new(self.entries);
        reader.take(self.restart(number))?;
        if reader.u8()? != 0 {
            return Err(malformed(reader.offset() - 1, "a name in full at a restart"));
        }
        let length = usize::from(reader.u8()?);
        reader.take(length)
    }

    /// Where the rows of a restart begin. The caller has checked that there is such a restart.
    fn restart(&self, number: usize) -> usize {
        let bytes = self.restarts[number * 4..].first_chunk().expect("restarts are four bytes");
        u32::from_le_bytes(*bytes) as usize
    }
}

/// Stands before a row of a block. The name is kept by the caller, across blocks.
#[derive(Clone, Debug)]
pub(super) struct BlockCursor<'a> {
    block: Block<'a>,
    reader: Reader<'a>,
    row: usize,
}

impl<'a> BlockCursor<'a> {
    /// Reads a row: `name` becomes its name, which must be larger than the last one, and equal to
    /// `first` for the first row.
    #[inline]
    pub(super) fn advance<'f>(
        &mut self,
        base: &Base,
        name: &mut NameBuf,
        first: impl FnOnce() -> &'f [u8],
    ) -> Result<Option<RowValue<'a>>, Malformed> {
        if self.row == self.block.rows {
            self.reader.end()?;
            return Ok(None);
        }
        let start = self.reader;
        let shared = usize::from(self.reader.u8()?);
        if self.row.is_multiple_of(RESTART_ROWS) {
            let restart = self.block.restart(self.row / RESTART_ROWS);
            if shared != 0 || restart != start.offset() {
                return Err(start.malformed("a name in full at a restart"));
            }
        }
        let length = usize::from(self.reader.u8()?);
        let suffix = self.reader.take(length)?;
        // A name that is the start of the one before, or equal to it, has an empty suffix or one
        // that is not larger, and so is refused here; so is the empty name.
        if name.as_slice().get(shared..).is_none_or(|before| suffix <= before) {
            return Err(start.malformed("names in strictly increasing order"));
        }
        // The shared bytes were looked at with the row that they are from.
        let legal = !suffix.iter().any(|byte| matches!(byte, 0 | b'/'));
        if !legal || !name.replace(shared, suffix) || is_dots(name.as_slice()) {
            return Err(start.malformed("a legal name"));
        }
        debug_assert_eq!(check_name(name.as_slice()), Ok(()), "only legal names get through");
        if self.row == 0 && name.as_slice() != first() {
            return Err(start.malformed("the name that the index states"));
        }
        self.row += 1;
        read_value(&mut self.reader, base).map(Some)
    }
}

fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
