//! Blocks that were written and have no entry yet, and what is known of their content without reading it.

use std::collections::BTreeMap;
use std::ops::Range;

use metastore::{SUM_BLOCK_BYTES, Sum, content_crc, content_crc_append};

use super::blocks;
use crate::extents::usize_of;

/// All of a block.
const WHOLE: Range<u32> = 0..16 << 10;
const _: () = assert!(WHOLE.end as u64 == SUM_BLOCK_BYTES);

/// What is known of the content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The checksum of so many bytes from its beginning on.
    Bytes { crc: u32, length: u32 },
    /// It was written in the middle: it has to be read. At least so many bytes were written.
    Unread { length: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Block {
    known: Known,
    /// So many writes are under way.
    writers: u16,
    /// There were several at a time: in which order is not known.
    crossed: bool,
    /// The entry of this was written, for as long as nothing unsynced can have been lost.
    written: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Pending {
    blocks: BTreeMap<u64, Block>,
}

/// The part of a byte range that is in a block, counted from its beginning.
fn within(block: u64, (offset, end): (u64, u64)) -> Range<u32> {
    let start = block * SUM_BLOCK_BYTES;
    let of = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
    of(offset.max(start) - start)..of((end - start).min(SUM_BLOCK_BYTES))
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// A write begins. `entry` is what stands in the store, and whether it was taken away just now.
    pub(super) fn begin(&mut self, block: u64, entry: Option<Sum>, is_gone: bool) {
        let known = match entry {
            Some(Sum { length, .. }) if is_gone => Known::Unread { length },
            Some(Sum { crc, length, .. }) => Known::Bytes { crc, length },
            None => Known::Bytes { crc: 0, length: 0 },
        };
        let new = Block { known, writers: 0, crossed: false, written: false };
        let block = self.blocks.entry(block).or_insert(new);
        block.writers = block.writers.saturating_add(1);
        block.crossed |= block.writers > 1;
        block.written = false;
    }

    /// A write of a range has ended; nothing if it failed, so that any part of it may be there.
    pub(super) fn end(&mut self, (offset, length): (u64, u64), data: Option<&[u8]>) {
        for number in blocks(offset, length) {
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            let range = within(number, (offset, offset + length));
            let start = usize_of(number * SUM_BLOCK_BYTES + u64::from(range.start) - offset);
            let bytes = data.map(|data| &data[start..][..range.len()]);
            block.writers = block.writers.saturating_sub(1);
            let bytes = bytes.filter(|_| !block.crossed);
            block.known = block.known.after(&range, bytes);
            block.crossed &= block.writers > 0;
        }
    }

    /// A range is about to become zeros; `lost` are blocks in it whose entries were taken away.
    pub(super) fn begin_zero(&mut self, (offset, end): (u64, u64), lost: &[(u64, u32)]) {
        for (number, length) in lost {
            if within(*number, (offset, end)) != WHOLE {
                let known = Known::Unread { length: *length };
                let new = Block { known, writers: 0, crossed: false, written: false };
                self.blocks.entry(*number).or_insert(new);
            }
        }
    }

    /// A range was made zeros, or a part of it if that failed.
    pub(super) fn zero(&mut self, (offset, end): (u64, u64)) {
        let all = blocks(offset, end - offset);
        let touched: Vec<u64> = self.blocks.range(all).map(|(number, _)| *number).collect();
        for number in touched {
            let range = within(number, (offset, end));
            if range == WHOLE {
                self.blocks.remove(&number);
            } else if let Some(block) = self.blocks.get_mut(&number) {
                block.known = block.known.after(&range, None);
                block.written = false;
            }
        }
    }

    /// Whether nothing is lost but that entries hold for longer, if this is forgotten.
    pub(super) fn is_written(&self) -> bool {
        self.blocks.values().all(|block| block.written)
    }

    /// Entries that were written and hold for this period only.
    pub(super) fn written(&self) -> Vec<(u64, Known)> {
        let written = self.blocks.iter().filter(|(_, block)| block.written);
        written.map(|(number, block)| (*number, block.known)).collect()
    }

    /// Whether a block is still as it was when its entry was written.
    pub(super) fn is_still(&self, number: u64, known: Known) -> bool {
        self.blocks.get(&number).is_some_and(|block| block.written && block.known == known)
    }

    /// What entries can be made of; with `all` also those of this period, to be written once more.
    pub(super) fn ready(&self, all: bool) -> Vec<(u64, Known)> {
        let idle = self.blocks.iter().filter(|(_, block)| block.writers == 0);
        let wanted = idle.filter(|(_, block)| all || !block.written);
        let known = wanted.map(|(number, block)| (*number, block.known));
        known.filter(|(_, known)| *known != Known::Bytes { crc: 0, length: 0 }).collect()
    }

    /// The entry of a block was written; it holds for good, or is to be written again.
    pub(super) fn sealed(&mut self, block: u64, sum: Sum) {
        if sum.period == 0 {
            self.blocks.remove(&block);
        } else if let Some(block) = self.blocks.get_mut(&block) {
            block.known = Known::Bytes { crc: sum.crc, length: sum.length };
            block.written = true;
        }
    }
}

impl Known {
    /// What is known after bytes were written to a range of the block; without bytes it is not known which.
    fn after(self, range: &Range<u32>, bytes: Option<&[u8]>) -> Self {
        let (Self::Bytes { length: known, .. } | Self::Unread { length: known }) = self;
        let length = known.max(range.end);
        let Some(bytes) = bytes else { return Self::Unread { length } };
        if range.start == 0 && range.end >= known {
            return Self::Bytes { crc: content_crc(bytes), length: range.end };
        }
        match self {
            Self::Bytes { crc, length: known } if known == range.start => {
                Self::Bytes { crc: content_crc_append(crc, bytes), length }
            }
            Self::Bytes { .. } | Self::Unread { .. } => Self::Unread { length },
        }
    }
}
