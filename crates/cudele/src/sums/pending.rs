//! Written blocks that have no entry yet, and the knowledge of their content without a read.

use std::collections::BTreeMap;
use std::ops::Range;

use metastore::{SUM_BLOCK_BYTES, Sum, content_crc, content_crc_append};

use super::blocks;
use crate::extents::usize_of;

/// The range of a whole block.
const WHOLE: Range<u32> = 0..16 << 10;
const _: () = assert!(WHOLE.end as u64 == SUM_BLOCK_BYTES);

/// The knowledge of the content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// The checksum of the first `length` bytes.
    Bytes { crc: u32, length: u32 },
    /// A write in the middle of the block: the entry needs a read of the block, which has at least
    /// `length` bytes.
    Unread { length: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Block {
    known: BlockState,
    /// The number of concurrent writes.
    writers: u16,
    /// Writes were concurrent, and their order is unknown.
    crossed: bool,
    /// The entry was written, and holds until a power failure can lose unsynced content.
    written: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Pending {
    blocks: BTreeMap<u64, Block>,
}

/// The part of a byte range that is in a block, relative to the beginning of the block.
fn within(block: u64, range: &Range<u64>) -> Range<u32> {
    let start = block * SUM_BLOCK_BYTES;
    let of = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
    of(range.start.max(start) - start)..of((range.end - start).min(SUM_BLOCK_BYTES))
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

    /// Registers the beginning of a write. `entry` is the entry before the write; with `is_gone`
    /// the write has removed it.
    pub(super) fn begin(&mut self, block: u64, entry: Option<Sum>, is_gone: bool) {
        let known = match entry {
            Some(Sum { length, .. }) if is_gone => BlockState::Unread { length },
            Some(Sum { crc, length, .. }) => BlockState::Bytes { crc, length },
            None => BlockState::Bytes { crc: 0, length: 0 },
        };
        let new = Block { known, writers: 0, crossed: false, written: false };
        self.blocks.entry(block).or_insert(new).begin();
    }

    /// Registers the end of a write; `data` is `None` if it failed, and then any part of it may be
    /// in the store.
    pub(super) fn end(&mut self, written: &Range<u64>, data: Option<&[u8]>) {
        for number in blocks(written) {
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            let range = within(number, written);
            let start = usize_of(number * SUM_BLOCK_BYTES + u64::from(range.start) - written.start);
            let bytes = data.map(|data| &data[start..][..range.len()]);
            block.writers = block.writers.saturating_sub(1);
            let bytes = bytes.filter(|_| !block.crossed);
            block.known = block.known.after(&range, bytes);
            block.crossed &= block.writers > 0;
        }
    }

    /// Registers that a range will become zeros: as a write, so no entry is written before
    /// [`Pending::end_zero`], not even by a sync of another file. Returns the registered blocks.
    pub(super) fn begin_zero(&mut self, zeroed: &Range<u64>) -> Vec<u64> {
        let known = self.blocks.range_mut(blocks(zeroed));
        let begun = known.map(|(number, block)| {
            block.begin();
            *number
        });
        begun.collect()
    }

    /// Registers the blocks in the range whose entries were removed, with the bytes that the
    /// entries covered. `begun` has the blocks that are registered, and gets the new ones.
    pub(super) fn lose(&mut self, zeroed: &Range<u64>, lost: &[(u64, u32)], begun: &mut Vec<u64>) {
        for (number, length) in lost {
            if within(*number, zeroed) != WHOLE && !self.blocks.contains_key(number) {
                let known = BlockState::Unread { length: *length };
                let new = Block { known, writers: 1, crossed: false, written: false };
                self.blocks.insert(*number, new);
                begun.push(*number);
            }
        }
    }

    /// Registers that a range has become zeros, or a part of it if that failed. `begun` has the
    /// blocks that were registered at the beginning.
    pub(super) fn end_zero(&mut self, zeroed: &Range<u64>, begun: &[u64]) {
        let all = blocks(zeroed);
        let touched: Vec<u64> = self.blocks.range(all).map(|(number, _)| *number).collect();
        for number in touched {
            let range = within(number, zeroed);
            if range == WHOLE {
                self.blocks.remove(&number);
            } else if let Some(block) = self.blocks.get_mut(&number) {
                block.known = block.known.after(&range, None);
                block.written = false;
                if begun.contains(&number) {
                    block.writers = block.writers.saturating_sub(1);
                    block.crossed &= block.writers > 0;
                }
            }
        }
    }

    /// Whether all entries are written, so that a clear loses only the upgrade of entries to period
    /// 0.
    pub(super) fn is_written(&self) -> bool {
        self.blocks.values().all(|block| block.written)
    }

    /// The written entries that hold for this period only.
    pub(super) fn written(&self) -> Vec<(u64, BlockState)> {
        let written = self.blocks.iter().filter(|(_, block)| block.written);
        written.map(|(number, block)| (*number, block.known)).collect()
    }

    /// Whether a block is unchanged since its entry was written.
    pub(super) fn is_still(&self, number: u64, known: BlockState) -> bool {
        self.blocks.get(&number).is_some_and(|block| block.written && block.known == known)
    }

    /// The blocks whose entries can be written; with `all` also those with an entry of this period.
    pub(super) fn ready(&self, all: bool) -> Vec<(u64, BlockState)> {
        let idle = self.blocks.iter().filter(|(_, block)| block.writers == 0);
        let wanted = idle.filter(|(_, block)| all || !block.written);
        let known = wanted.map(|(number, block)| (*number, block.known));
        known.filter(|(_, known)| *known != BlockState::Bytes { crc: 0, length: 0 }).collect()
    }

    /// Registers that the entry of a block was written, with period 0 or with the present period.
    pub(super) fn sealed(&mut self, block: u64, sum: Sum) {
        if sum.period == 0 {
            self.blocks.remove(&block);
        } else if let Some(block) = self.blocks.get_mut(&block) {
            block.known = BlockState::Bytes { crc: sum.crc, length: sum.length };
            block.written = true;
        }
    }
}

impl Block {
    /// A write begins.
    fn begin(&mut self) {
        self.writers = self.writers.saturating_add(1);
        self.crossed |= self.writers > 1;
        self.written = false;
    }
}

impl BlockState {
    /// The knowledge after a write of a range of the block; without bytes the written content is
    /// unknown.
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
