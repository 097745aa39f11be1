//! The invariants of a directory in memory.

use types::{FileType, Ino};

use super::{DEPTH_MAX, Dir};
use crate::page::Page;

impl Dir {
    /// Checks the invariants of the directory.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, ino: Ino) {
        self.validate_pages(ino);
        let (mut entries, mut subdirs) = (0, 0);
        for (_, dentry) in self.list(None) {
            entries += 1;
            subdirs += u64::from(dentry.file_type() == FileType::Directory);
        }
        let (found, counted) = ((entries, subdirs), (self.entries, self.subdirs));
        assert!(found == counted, "{ino} has {found:?} names and directories, not {counted:?}");
        let absent: u64 = self.pages.iter().map(Page::absent).sum();
        assert!(
            absent == self.absent,
            "{ino} lacks {absent} names, and {} are counted",
            self.absent
        );
        let unstored = self.unstored_since().is_some() || self.withheld;
        assert!(unstored || self.dirty() == 0, "{ino}: a directory with dirty names is dirty");
        let stored = self.stored || (self.complete && self.flushing.is_none());
        assert!(stored, "{ino}: the store may have a copy of a directory that is not complete");
    }

    fn validate_pages(&self, ino: Ino) {
        let indexed = if self.pages.is_empty() { 0 } else { 1 << self.index_bits };
        assert!(self.index.len() == indexed, "{ino}: the index has a place for each prefix");
        let mut used = vec![false; self.pages.len()];
        for (prefix, page) in self.index.iter().enumerate() {
            let number = *page as usize;
            used[number] = true;
            let page = &self.pages[number];
            let bits = self.index_bits - page.depth();
            let own = u64::from(page.prefix) >> (32 - u32::from(self.index_bits));
            let leads = prefix as u64 >> bits == own >> bits;
            assert!(leads, "{ino}: the index leads to the page of a hash");
        }
        assert!(used.iter().all(|used| *used), "{ino}: the index leads to each page");
        for page in &self.pages {
            page.validate(page.depth() < DEPTH_MAX);
        }
    }
}
