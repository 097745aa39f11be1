//! The inodes that a kernel knows: under which name each was seen last, and its content while it is
//! open.
//!
//! Invariant: a node exists while the kernel refers to it, or while it is open.

use std::collections::VecDeque;
use std::sync::Arc;

use cudele::{Attr, Ino, Path, Timestamp};
use posix::KnownInode;
use types::{EntryName, Map};

use crate::file::File;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Nodes {
    known: Map<Ino, Node>,
    root: Ino,
    /// Where the root is in the whole namespace.
    root_path: Path,
    /// How many files are open.
    open: usize,
}

#[derive(Debug, Default)]
struct Node {
    /// References of the kernel.
    lookups: u64,
    parent: Ino,
    name: Box<[u8]>,
    /// The root of the decoupled subtree that it is in; 0 for none.
    owner: Ino,
    file: Option<Arc<File>>,
    /// How often it is open.
    opens: u32,
    /// The attributes of a directory that was removed here while it was open, if the server has
    /// forgotten it.
    gone: Option<Box<Attr>>,
    /// The version of its content that was seen last.
    seen: Option<ContentVersion>,
    /// How often its inode was told of content from here.
    times_sent: u64,
}

/// Tells two states of a file's content apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentVersion {
    /// Time of the last change of the inode. Not that of the last modification, which programs set
    /// back.
    pub(crate) ctime: Timestamp,
    /// The length of the file in bytes.
    pub(crate) size: u64,
}

impl ContentVersion {
    pub(crate) fn of(attr: &Attr) -> Self {
        Self { ctime: attr.ctime, size: attr.size }
    }
}

impl Nodes {
    pub(crate) fn new(root: Ino, root_path: Path) -> Self {
        // The root is its own parent, as in the kernel.
        let node = Node { lookups: 1, parent: root, ..Node::default() };
        Self { known: Map::from_iter([(root, node)]), root, root_path, open: 0 }
    }

    /// Counts a reference of the kernel to an inode under a name. `owner` is the root of the
    /// decoupled subtree with the inode, or 0.
    pub(crate) fn refer(&mut self, parent: Ino, name: &[u8], ino: Ino, owner: Ino) {
        let node = self.known.entry(ino).or_default();
        node.lookups += 1;
        node.owner = owner;
        if ino != self.root && (node.parent != parent || *node.name != *name) {
            node.parent = parent;
            node.name = name.into();
        }
    }

    /// Counts a reference to an inode of a decoupled subtree, whatever its name is there.
    pub(crate) fn refer_in(&mut self, owner: Ino, ino: Ino) {
        let unnamed = || Node { parent: owner, owner, ..Node::default() };
        self.known.entry(ino).or_insert_with(unnamed).lookups += 1;
    }

    /// The kernel gives references up.
    pub(crate) fn forget(&mut self, ino: Ino, count: u64) {
        let Some(node) = self.known.get_mut(&ino) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        self.drop_unused(ino);
    }

    fn drop_unused(&mut self, ino: Ino) {
        let unused = self.known.get(&ino).is_some_and(|node| node.lookups == 0 && node.opens == 0);
        if unused && ino != self.root {
            self.known.remove(&ino);
        }
    }

    /// An inode has another name.
    pub(crate) fn renamed(&mut self, ino: Ino, parent: Ino, name: &[u8]) {
        if let Some(node) = self.known.get_mut(&ino) {
            node.parent = parent;
            node.name = name.into();
        }
    }

    /// The root of the decoupled subtree that an inode was last seen in; 0 for none.
    pub(crate) fn owner(&self, ino: Ino) -> Ino {
        self.known.get(&ino).map_or(Ino(0), |node| node.owner)
    }

    /// Records that the inodes below a directory are now in a decoupled subtree, or in none.
    pub(crate) fn set_owner_below(&mut self, root: Ino, owner: Ino) {
        let inside: Vec<_> =
            self.known.keys().copied().filter(|ino| self.is_below(*ino, root)).collect();
        for ino in inside {
            if let Some(node) = self.known.get_mut(&ino) {
                node.owner = owner;
            }
        }
    }

    fn is_below(&self, ino: Ino, root: Ino) -> bool {
        let mut at = ino;
        for _ in 0..self.known.len() {
            if at == root {
                return true;
            }
            let Some(node) = self.known.get(&at) else { return false };
            at = node.parent;
        }
        false
    }

    /// Everything that the kernel knows of a decoupled subtree: inodes, and the names under which
    /// they were seen last.
    pub(crate) fn known_of(&self, owner: Ino) -> Vec<KnownInode> {
        let inside = self.known.iter().filter(|(_, node)| node.owner == owner);
        let known = inside.map(|(ino, node)| KnownInode {
            ino: *ino,
            parent: node.parent,
            name: node.name.to_vec(),
        });
        known.collect()
    }

    /// Whether an inode was seen last under this name.
    pub(crate) fn is_named(&self, ino: Ino, place: EntryName<'_>) -> bool {
        let known = self.known.get(&ino);
        known.is_some_and(|node| node.parent == place.dir && *node.name == *place.name)
    }

    /// Under which name an inode was seen last; nothing for one that has lost it.
    pub(crate) fn name(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        let node = self.known.get(&ino).filter(|node| !node.name.is_empty())?;
        Some((node.parent, node.name.to_vec()))
    }

    /// Keeps the attributes of a directory that the server has forgotten.
    pub(crate) fn set_gone(&mut self, attr: Attr) {
        if let Some(node) = self.known.get_mut(&attr.ino) {
            node.gone = Some(Box::new(attr));
        }
    }

    /// The attributes of a directory that was removed while it was open.
    pub(crate) fn gone(&self, ino: Ino) -> Option<Attr> {
        self.known.get(&ino)?.gone.as_deref().copied()
    }

    /// The directory under which an inode was seen last.
    pub(crate) fn parent(&self, ino: Ino) -> Ino {
        self.known.get(&ino).map_or(self.root, |node| node.parent)
    }

    /// Where an inode is in the whole namespace, as far as the kernel knows.
    pub(crate) fn path(&self, ino: Ino) -> Option<Path> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != self.root {
            let node = self.known.get(&at)?;
            // A file that has lost its name has no path.
            if node.name.is_empty() || names.len() > self.known.len() {
                return None;
            }
            names.push(&node.name);
            at = node.parent;
        }
        let mut path = self.root_path.clone();
        for name in names.into_iter().rev() {
            path = path.join(name);
        }
        Some(path)
    }

    /// The paths to an inode from the directories above it, the nearest first, as far as the
    /// kernel knows.
    pub(crate) fn ways(&self, ino: Ino) -> Vec<(Ino, Path)> {
        let (mut ways, mut names) = (Vec::new(), VecDeque::new());
        let mut at = ino;
        while at != self.root
            && let Some(node) = self.known.get(&at)
            && !node.name.is_empty()
            && names.len() <= self.known.len()
        {
            names.push_front(&node.name);
            at = node.parent;
            ways.push((at, names.iter().fold(Path::root(), |path, name| path.join(name))));
        }
        ways
    }

    /// The content of an inode, if it is open.
    pub(crate) fn file(&self, ino: Ino) -> Option<&Arc<File>> {
        self.known.get(&ino)?.file.as_ref()
    }

    /// Counts an open of an inode. `new` makes the content for the first.
    pub(crate) fn open(&mut self, ino: Ino, new: impl FnOnce() -> File) -> Arc<File> {
        let node = self.known.entry(ino).or_default();
        node.opens += 1;
        self.open += usize::from(node.opens == 1);
        node.file.get_or_insert_with(|| Arc::new(new())).clone()
    }

    /// Closes it once. Returns its content if that was the last time.
    pub(crate) fn close(&mut self, ino: Ino) -> Option<Arc<File>> {
        let node = self.known.get_mut(&ino)?;
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return None;
        }
        self.open -= 1;
        let file = node.file.take();
        self.drop_unused(ino);
        file
    }

    /// Content of this version is seen; returns whether it was before.
    pub(crate) fn see(&mut self, ino: Ino, content: ContentVersion) -> bool {
        let Some(node) = self.known.get_mut(&ino) else { return false };
        node.seen.replace(content) == Some(content)
    }

    /// This process changed the content: its next version is not known.
    pub(crate) fn see_after(&mut self, ino: Ino) {
        if let Some(node) = self.known.get_mut(&ino) {
            node.seen = None;
            node.times_sent += 1;
        }
    }

    /// The number of times that this process sent the inode its content: an answer to a question
    /// from before the last time may be old.
    pub(crate) fn times_sent(&self, ino: Ino) -> u64 {
        self.known.get(&ino).map_or(0, |node| node.times_sent)
    }

    /// Whether any file is open.
    pub(crate) fn any_open(&self) -> bool {
        self.open > 0
    }

    /// All files that are open.
    pub(crate) fn files(&self) -> Vec<(Ino, Arc<File>)> {
        let open = self.known.iter();
        open.filter_map(|(ino, node)| Some((*ino, node.file.clone()?))).collect()
    }
}
