//! Promise: the objects of a file or directory are deleted soon after the removal is durable, and
//! not before, whatever crashes.

use std::collections::BTreeSet;

use types::{FileType, Ino};

use crate::tree::Tree;

/// Files that were seen with content in data objects.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// Those of the last look.
    with_content: BTreeSet<Ino>,
    /// A merge may have removed some of them. No record of the journal names the files that a merge
    /// removed, so a crash loses their purge.
    unnamed: bool,
}

impl Removed {
    /// A client stores the content of a file with its inode: that client deletes the data objects,
    /// and the server does not know of them any more.
    pub fn shrunk(&mut self, ino: Ino) {
        self.with_content.remove(&ino);
    }

    /// A client asks for a merge.
    pub fn merged(&mut self) {
        self.unnamed = true;
    }

    /// Compares a tree with the last one. Returns the files with content that were removed since.
    ///
    /// # Errors
    /// If the tree has an inode that a server has begun to purge.
    pub fn see(
        &mut self,
        tree: &Tree,
        deleted: &BTreeSet<Ino>,
        when: &str,
    ) -> Result<BTreeSet<Ino>, String> {
        if let Some((path, item)) = tree.iter().find(|(_, it)| deleted.contains(&it.attr.ino)) {
            let ino = item.attr.ino;
            return Err(format!("{when}: {path} is there, and {ino} was deleted from the store"));
        }
        let files = tree.values().filter(|item| {
            item.attr.file_type() == FileType::Regular && item.attr.size > 0 && item.data.is_empty()
        });
        let now: BTreeSet<Ino> = files.map(|item| item.attr.ino).collect();
        let there: BTreeSet<Ino> = tree.values().map(|item| item.attr.ino).collect();
        let before = std::mem::replace(&mut self.with_content, now);
        if std::mem::take(&mut self.unnamed) {
            return Ok(BTreeSet::new());
        }
        Ok(before.difference(&there).copied().collect())
    }
}

/// Checks that the content of removed files was deleted.
///
/// # Errors
/// If it was not.
pub fn check(gone: &BTreeSet<Ino>, deleted: &BTreeSet<Ino>, when: &str) -> Result<(), String> {
    let left: Vec<Ino> = gone.difference(deleted).copied().collect();
    if left.is_empty() { Ok(()) } else { Err(format!("{when}: the content of {left:?} is left")) }
}
