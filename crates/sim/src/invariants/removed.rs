//! Promise: the objects of a file or directory are deleted soon after the removal is durable, and
//! not before, whatever crashes.

use std::collections::{BTreeMap, BTreeSet};

use types::{AttrChange, FileType, Ino};

use crate::call::CallKind;
use crate::region::Region;
use crate::tree::Tree;

/// Files that were seen with content in data objects.
#[derive(Clone, Debug, Default)]
pub struct Removed {
    /// Those of the last look, with their paths.
    with_content: BTreeMap<Ino, Vec<String>>,
    /// A merge without a journal object may have removed some of them: a crash loses the purge of
    /// what it removed.
    unjournalled: bool,
}

impl Removed {
    /// A client makes a request.
    pub fn requested(&mut self, what: &CallKind) {
        match what {
            // The client stores the content with the inode, or cuts it off: it deletes the data
            // objects, and the server does not know of them any more.
            CallKind::SetData { ino, data, size } if !data.is_empty() || *size == 0 => {
                self.with_content.remove(ino);
            }
            CallKind::SetAttr { ino, change: AttrChange { size: Some(0), .. } } => {
                self.with_content.remove(ino);
            }
            CallKind::Merge { object, .. } => self.unjournalled |= object.is_empty(),
            _ => {}
        }
    }

    /// Compares a tree with the last one. Returns the files with content that were removed since,
    /// except those in removed trees that are `kept`.
    ///
    /// A crash undoes changes that no journal has, also a create that the last tree shows. Such a
    /// file was not removed: no server knows of its content any more, and `cudele fsck` finds it.
    /// The regions with such changes are unknown until the model learns the tree.
    ///
    /// # Errors
    /// If the tree has an inode that a server has begun to purge.
    pub fn see(
        &mut self,
        (tree, kept): (&Tree, &BTreeSet<Ino>),
        deleted: &BTreeSet<Ino>,
        regions: &[Region],
        when: &str,
    ) -> Result<BTreeSet<Ino>, String> {
        if let Some((path, item)) = tree.iter().find(|(_, it)| deleted.contains(&it.attr.ino)) {
            let ino = item.attr.ino;
            return Err(format!("{when}: {path} is there, and {ino} was deleted from the store"));
        }
        if let Some(ino) = kept.intersection(deleted).next() {
            return Err(format!("{when}: {ino} can be restored, and was deleted from the store"));
        }
        let mut now = BTreeMap::<Ino, Vec<String>>::new();
        for (path, item) in tree {
            let is_file = item.attr.file_type() == FileType::Regular;
            if is_file && item.attr.size > 0 && item.data.is_empty() {
                now.entry(item.attr.ino).or_default().push(path.clone());
            }
        }
        let in_trash = self.with_content.iter().filter(|(ino, _)| kept.contains(ino));
        now.extend(in_trash.map(|(ino, paths)| (*ino, paths.clone())));
        let there: BTreeSet<Ino> = tree.values().map(|item| item.attr.ino).collect();
        let before = std::mem::replace(&mut self.with_content, now);
        if std::mem::take(&mut self.unjournalled) {
            return Ok(BTreeSet::new());
        }
        let unknown: Vec<&Region> = regions.iter().filter(|region| !region.known).collect();
        let may_be_undone = |path: &String| unknown.iter().any(|region| region.holds(path));
        let is_there = |ino: &Ino| there.contains(ino) || kept.contains(ino);
        let gone = before.into_iter().filter(|(ino, _)| !is_there(ino));
        let gone = gone.filter(|(_, paths)| !paths.iter().any(may_be_undone));
        Ok(gone.map(|(ino, _)| ino).collect())
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

#[cfg(test)]
mod tests {
    use types::Attr;

    use super::*;
    use crate::tree::Item;

    const FILE: Ino = Ino(9);

    /// Whether a purge is expected of a file with content that a client removes after a request.
    fn expects_purge(what: &CallKind) -> bool {
        let mut removed = Removed::default();
        let attr = Attr { ino: FILE, mode: 0o100_644, size: 10, ..Attr::default() };
        let before = Tree::from([("/s/n0".to_owned(), Item { attr, ..Item::default() })]);
        let none = BTreeSet::new();
        assert_eq!(removed.see((&before, &none), &none, &[], "before"), Ok(BTreeSet::new()));
        removed.requested(what);
        let gone =
            removed.see((&Tree::new(), &none), &none, &[], "after").expect("nothing was purged");
        gone.contains(&FILE)
    }

    #[test]
    fn the_client_deletes_the_content_that_it_cuts_off() {
        let cut = |size| {
            let change = AttrChange { size: Some(size), ..AttrChange::default() };
            CallKind::SetAttr { ino: FILE, change }
        };
        assert!(!expects_purge(&cut(0)));
        assert!(expects_purge(&cut(1)), "the server purges the stripes of the size that is left");
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        assert!(expects_purge(&CallKind::SetAttr { ino: FILE, change }));
    }

    #[test]
    fn the_client_deletes_the_content_that_it_stores_with_the_inode() {
        let store = |data: &[u8], size| CallKind::SetData { ino: FILE, data: data.into(), size };
        assert!(!expects_purge(&store(b"d", 1)));
        assert!(!expects_purge(&store(b"", 0)));
        assert!(expects_purge(&store(b"", 100)));
    }
}
