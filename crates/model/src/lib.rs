//! A second, naive namespace: the executable specification that crate `namespace` is tested
//! against.
//!
//! Two maps hold everything: inodes by number, and inode numbers by directory and name. Counts
//! (links, entries, sub-directories) are computed and never stored, so that they cannot be wrong.
//! Requests (`request`) check the rules of POSIX and change the maps at once, without events in
//! between; `apply` applies journal events blindly, as a merge does.
//!
//! This crate is neither fast nor small, and only tests use it. It shares no code with crate
//! `namespace`, knows no pages, no checkpoints and no directories that are not in memory.
//!
//! Invariant: every inode but the root has a name.

mod apply;
mod lists;
mod request;
mod trash;

use std::collections::{BTreeMap, BTreeSet};

use types::{Attr, Errno, FileType, Ino, Timestamp};

pub use apply::ModelOutcome;
pub use request::New;

/// An inode. Its attributes are complete except for the counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Attributes; `nlink` and, for a directory, `size` mean nothing here.
    pub attr: Attr,
    /// Content of a small file, or target of a symbolic link.
    pub data: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Policy text; empty if there is none.
    pub policy: Vec<u8>,
    /// Whether `link` was ever used on it. From then on its names come and go one by one, while
    /// an inode without this moves when it is given another name.
    pub linked: bool,
}

/// A whole namespace. See the crate documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    nodes: BTreeMap<Ino, Node>,
    names: BTreeMap<(Ino, Vec<u8>), Ino>,
    /// The roots of removed trees that cannot be restored any more.
    ended: BTreeSet<Ino>,
}

impl Model {
    /// A new namespace: only the root exists, owned by root, mode 755.
    #[must_use]
    pub fn with_root(time: Timestamp) -> Self {
        let mode = FileType::Directory.mode_bits() | 0o755;
        let times = Attr { atime: time, mtime: time, ctime: time, btime: time, ..Attr::default() };
        let attr = Attr { ino: Ino::ROOT, mode, ..times };
        let mut model = Self::default();
        model.nodes.insert(Ino::ROOT, Node { attr, ..Node::default() });
        model
    }

    /// An inode.
    #[must_use]
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// The inode that a name points to.
    #[must_use]
    pub fn peek(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.names.get(&(dir, name.to_vec())).copied()
    }

    /// The names of a directory, in order of bytes.
    pub fn entries(&self, dir: Ino) -> impl Iterator<Item = (&[u8], Ino)> {
        self.names
            .range((dir, Vec::new())..)
            .take_while(move |((parent, _), _)| *parent == dir)
            .map(|((_, name), ino)| (name.as_slice(), *ino))
    }

    /// What `stat` reports.
    ///
    /// # Errors
    /// `ESTALE` if there is no such inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Errno> {
        let mut attr = self.nodes.get(&ino).ok_or(Errno::Stale)?.attr;
        let count = if attr.is_dir() {
            attr.size = self.entries(ino).count() as u64;
            2 + self.entries(ino).filter(|(_, entry)| self.is_dir(*entry)).count()
        } else {
            self.names_of(ino).len()
        };
        attr.nlink = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(attr)
    }

    /// Every name of an inode: directory and name.
    #[must_use]
    pub fn names_of(&self, ino: Ino) -> Vec<(Ino, Vec<u8>)> {
        self.names
            .iter()
            .filter(|(_, named)| **named == ino)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Whether an inode is a directory.
    #[must_use]
    pub fn is_dir(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.attr.is_dir())
    }

    /// Whether `ino` is `ancestor` or lies below it.
    #[must_use]
    pub fn is_within(&self, ino: Ino, ancestor: Ino) -> bool {
        let mut at = ino;
        // Bounded by the number of names: damaged trees may contain loops.
        for _ in 0..=self.names.len() {
            if at == ancestor {
                return true;
            }
            match self.names_of(at).first() {
                Some((parent, _)) if self.is_dir(at) => at = *parent,
                Some(_) | None => return false,
            }
        }
        false
    }

    /// A directory's content changed.
    fn touch(&mut self, dir: Ino, time: Timestamp) {
        if let Some(node) = self.nodes.get_mut(&dir) {
            (node.attr.mtime, node.attr.ctime) = (time, time);
        }
    }

    /// An inode lost a name; with the last one it goes, and with a directory all that is in it.
    fn lost_name(&mut self, ino: Ino, time: Timestamp) {
        if !self.names_of(ino).is_empty() {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.attr.ctime = time;
            }
            return;
        }
        self.nodes.remove(&ino);
        let inside: Vec<_> =
            self.entries(ino).map(|(name, below)| (name.to_vec(), below)).collect();
        for (name, below) in inside {
            self.names.remove(&(ino, name));
            self.lost_name(below, time);
        }
    }
}

#[cfg(test)]
mod tests;
