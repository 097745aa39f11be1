//! Directories of which only a part is in memory: names that were looked up, and names that were
//! forgotten.
//!
//! Invariant: the metadata store has every forgotten name; names that it lacks stay in memory.

use metastore::{DirTouch, Row, RowValue};
use types::{EntryName, Ino, Seq, Set};

use crate::StoreExchange;
use crate::inode::{ATTR_DIRTY, Inode};
use crate::load::{Newer, is_hidden};

/// The number of names that the metadata store knows of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredCounts {
    /// How many names it has.
    pub entries: u64,
    /// How many of them are directories.
    pub subdirs: u64,
    /// Whether the two are exact.
    pub exact: bool,
    /// Whether an estimate will do, because the directory is large.
    pub may_estimate: bool,
}

impl StoreExchange<'_> {
    /// Adds the store's rows of some names of a directory: missing names come as removals.
    /// `counts`, `position` and `touched` are those of the store's directory.
    pub fn load_names<'a>(
        &mut self,
        ino: Ino,
        rows: impl Iterator<Item = Row<'a>>,
        counts: StoredCounts,
        position: Seq,
        touched: DirTouch,
    ) {
        for row in rows {
            match row.value {
                RowValue::Removed => {
                    self.tree.dirs.add_absent(EntryName::new(ino, row.name));
                }
                RowValue::Remote { .. } | RowValue::Inode(_) => {
                    self.load_row(ino, &row, Newer::Memory);
                }
            }
        }
        self.tree.dirs.make(ino).note_counts(counts);
        self.note_loaded(ino, position, touched);
    }

    /// Counts the missing names in memory exactly ([`crate::DirTable::absent_at_most`]).
    pub fn count_absent(&mut self) {
        self.tree.dirs.count_absent();
    }

    /// Forgets a directory whose content the metadata store has: nothing in it is dirty, none of
    /// its sub-directories is in memory, and none of its inodes is in `pinned`. Returns whether
    /// it was forgotten.
    pub fn evict(&mut self, ino: Ino, pinned: &Set<Ino>) -> bool {
        if is_hidden(ino) {
            return false;
        }
        let Some(dir) = self.tree.dirs.get(ino) else { return false };
        let touched = dir.touched.is_some() && !self.tree.inodes.knows(ino);
        let busy = dir.withheld
            || dir.flushing.is_some()
            || dir.dirty_since.is_some()
            || dir.dirty() > 0
            || touched;
        let keeps = |ino: Ino| self.tree.dirs.contains(ino) || pinned.contains(&ino);
        if busy || dir.list(None).any(|(_, dentry)| keeps(dentry.ino)) {
            return false;
        }
        let dir = self.tree.dirs.remove(ino);
        for (_, dentry) in dir.iter().flat_map(|dir| dir.list(None)) {
            if !dentry.is_remote() {
                self.tree.inodes.remove(dentry.ino);
            }
        }
        true
    }

    /// Forgets the names of a directory that the metadata store has, where the directory as a whole
    /// must stay because of unstored changes, or an inode in `pinned`. Returns how many names were
    /// forgotten.
    pub fn thin(&mut self, ino: Ino, pinned: &Set<Ino>) -> u64 {
        if is_hidden(ino) {
            return 0;
        }
        if self.tree.dirs.get(ino).is_some_and(|dir| dir.withheld) {
            return 0;
        }
        let Some(mut dir) = self.tree.dirs.remove(ino) else { return 0 };
        let mut gone = 0;
        // During a write, changes that the store lacks look as if it had them.
        if dir.flushing.is_none() && dir.clean() > 0 {
            let (dirs, inodes) = (&self.tree.dirs, &self.tree.inodes);
            let is_unstored =
                |ino| inodes.get(ino).is_some_and(|inode: &Inode| inode.flags & ATTR_DIRTY != 0);
            let mut forgotten = Vec::new();
            dir.thin(
                |dentry| {
                    let ino = dentry.ino;
                    dirs.contains(ino) || pinned.contains(&ino) || is_unstored(ino)
                },
                |dentry| forgotten.push((dentry.ino, dentry.is_remote())),
            );
            gone = forgotten.len() as u64;
            for (ino, is_remote) in forgotten {
                if !is_remote {
                    self.tree.inodes.remove(ino);
                }
            }
        }
        self.tree.dirs.insert(ino, dir);
        gone
    }
}
