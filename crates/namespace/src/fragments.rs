//! Directories that are split (B-04): all their names are in hidden directories, one for each
//! fragment, which are entries of the directory under names of their own.
//!
//! A split directory answers no question that its fragments can answer: a request for one of its
//! names gets [`Refusal::Cold`](crate::Refusal::Cold) with the directory, and the server replies
//! with the fragments. The moves between a directory and its fragments are ordinary events, which
//! change nothing but the place.

use types::{Ino, Set};

use crate::dir_table::DirTable;

impl DirTable {
    /// Says which directories are split.
    pub(crate) fn set_split(&mut self, dirs: Set<Ino>) {
        self.split = dirs;
    }

    /// Whether all names of a directory are in its fragments.
    #[inline]
    #[must_use]
    pub fn is_split(&self, dir: Ino) -> bool {
        !self.split.is_empty() && self.split.contains(&dir)
    }

    /// Names that are in a directory itself, split or not, after a name or from the start.
    #[must_use]
    pub fn names_in(&self, dir: Ino, after: Option<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Ino)> {
        let Some(content) = self.get(dir) else { return Vec::new() };
        let names = content.list(after).take(limit);
        names.map(|(name, dentry)| (name.to_vec(), dentry.ino)).collect()
    }

    /// How many names are in a directory itself, split or not, as far as that is known.
    #[must_use]
    pub fn names_here(&self, dir: Ino) -> u64 {
        let Some(content) = self.get(dir) else { return 0 };
        content.count().map_or(content.entries, |(names, _)| names)
    }
}
