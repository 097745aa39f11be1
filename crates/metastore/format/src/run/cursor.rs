//! Walks through a run, or some of its blocks, in order of name.
//!
//! A cursor lends each row until the next step, because names are put together in place; hence it
//! is not an `Iterator`.
//!
//! Invariant: a cursor that reached the end of a whole run has seen as many rows as it states; one
//! that met an error yields nothing more, unless its caller continues with the next block.

use super::block::BlockCursor;
use super::reader::RunReader;
use crate::error::{FormatError, malformed};
use crate::name::NameBuf;
use crate::row::{Row, RowValue};

/// A position in a run.
#[derive(Debug)]
pub struct RunCursor<'r, 'a> {
    run: &'r RunReader<'a>,
    /// The block after the open one, among those that are there.
    next_block: usize,
    block: Option<BlockCursor<'a>>,
    removed: u64,
    name: NameBuf,
    value: RowValue<'a>,
}

impl<'r, 'a> RunCursor<'r, 'a> {
    pub(super) fn new(run: &'r RunReader<'a>) -> Self {
        let block = run.blocks().first().map(|block| block.cursor());
        let (name, value) = (NameBuf::new(), RowValue::Removed);
        Self { run, next_block: 1, block, removed: 0, name, value }
    }

    /// The next row, or `None` after the last.
    ///
    /// # Errors
    /// If the row is malformed, which takes a forged checksum. Nothing follows an error.
    #[inline]
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, FormatError> {
        Ok(self.advance()?.then(|| Row { name: self.name.as_slice(), value: self.value }))
    }

    /// Steps to the next row and returns whether there is one.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool, FormatError> {
        while let Some(block) = &mut self.block {
            let first = || self.run.first_name(self.next_block - 1);
            match block.advance(self.run.base(), &mut self.name, first) {
                Ok(Some(value)) => {
                    self.value = value;
                    self.removed += u64::from(matches!(value, RowValue::Removed));
                    return Ok(true);
                }
                Ok(None) => self.open_next_block()?,
                Err(malformed) => {
                    self.block = None;
                    let offset = self.run.blocks()[self.next_block - 1].offset;
                    return Err(self.run.error(offset, malformed));
                }
            }
        }
        Ok(false)
    }

    /// Continues with the next block.
    pub(crate) fn leave_block(&mut self) {
        self.block = self.run.blocks().get(self.next_block).map(|block| block.cursor());
        self.next_block += 1;
    }

    /// Whether the row that it stands on belongs into the block that it is in.
    pub(crate) fn is_in_place(&self) -> bool {
        let next = self.run.first_name(self.next_block);
        next.is_empty() || self.name.as_slice() < next
    }

    fn open_next_block(&mut self) -> Result<(), FormatError> {
        self.leave_block();
        if self.block.is_none() && self.run.is_whole() && self.removed != self.run.removed_rows() {
            let cause = "as many removed rows as the header states";
            let offset = self.run.as_bytes().len() as u64;
            return Err(self.run.error(offset, malformed(0, cause)));
        }
        Ok(())
    }

    /// The name of the row it stands on.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        self.name.as_slice()
    }

    /// The value of the row it stands on.
    #[inline]
    pub(crate) fn value(&self) -> RowValue<'a> {
        self.value
    }
}
