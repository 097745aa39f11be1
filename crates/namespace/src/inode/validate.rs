//! The invariants of the inode table.

use super::{BLOCK_INODES, Inode, InodeTable, SPAN_BLOCKS, Span};
use types::Ino;

impl InodeTable {
    /// Checks the invariants of the table.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        let (mut live, mut blocks) = (0, 0);
        let used = self.spans.iter().flatten().count();
        assert!(used == self.index.len(), "{used} spans are in use, and {:?} known", self.index);
        let vacant = self.spans.len() - used;
        assert!(vacant == self.vacant.len(), "{vacant} places of spans are vacant");
        for number in self.index.values() {
            let Some(span) = self.spans.get(*number as usize).and_then(Option::as_ref) else {
                panic!("the index leads to span {number}");
            };
            live += span.validate();
            blocks += span.used as usize;
        }
        assert!(live == self.live, "{live} inodes are in the table, and {} counted", self.live);
        assert!(blocks == self.blocks, "{blocks} blocks are in use");
        for (key, number) in self.recent.iter().filter(|(key, _)| *key != 0) {
            assert!(self.index.get(key) == Some(number), "the recent span {key} is in the index");
        }
    }

    /// All inodes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.index.iter().flat_map(move |(key, number)| {
            let span = self.spans[*number as usize].as_ref();
            let blocks = span.into_iter().flat_map(|span| span.blocks.iter().enumerate());
            blocks.flat_map(move |(block, inodes)| {
                let first = (((key - 1) as usize * SPAN_BLOCKS) + block) * BLOCK_INODES;
                let numbered = inodes.iter().enumerate();
                let used = numbered.filter(|(_, inode)| inode.mode != 0);
                used.map(move |(at, inode)| (Ino((first + at) as u64), inode))
            })
        })
    }
}

impl Span {
    /// Returns the number of inodes in the span.
    fn validate(&self) -> u64 {
        let (mut all, mut used) = (0, 0);
        for (block, live) in self.blocks.iter().zip(self.live) {
            let found = block.iter().filter(|inode| inode.mode != 0).count();
            assert!(found == usize::from(live), "{found} inodes are in a block, not {live}");
            assert!(block.len() <= BLOCK_INODES, "a block has {BLOCK_INODES} places");
            assert!(found > 0 || block.capacity() == 0, "an empty block takes no memory");
            used += u32::from(found > 0);
            all += found as u64;
        }
        assert!(used == self.used, "{used} blocks of a span are in use, and {} known", self.used);
        assert!(used > 0, "an empty span takes no memory");
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::InodePlace;

    #[test]
    fn an_inode_table_lists_the_inodes_under_their_numbers() {
        let mut table = InodeTable::default();
        let all = [1, 63, 64, 4095, 4096, 1 << 40, (1 << 40) + 70];
        for ino in all {
            table.insert(Ino(ino), Inode { mode: 1, size: ino, ..Inode::default() });
        }
        table.validate();
        let mut found: Vec<u64> = table.iter().map(|(ino, inode)| ino.0.min(inode.size)).collect();
        found.sort_unstable();
        assert_eq!(found, all);
        for ino in all {
            table.remove(Ino(ino));
            table.validate();
        }
        assert_eq!(table.iter().count(), 0);
        assert_eq!(InodePlace::of(Ino(0)).key, 1, "keys of spans start at 1");
    }
}
