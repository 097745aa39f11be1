//! Which of the two answers: the metadata server, or a subtree that this process has decoupled.
//!
//! Every request of this crate goes through [`Trees::run`]. If the server evicted an inode, or has
//! not loaded it since it was started, it is asked to walk to the name under which the kernel saw
//! the inode last, and the request is sent again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use cudele::{Attr, AttrChange, Checksums, Errno, Error, Fs, Ino, Path, Result, Subtree, User};
use posix::{Caller, Entry, KnownInode};
use types::{Cred, EntryName, Map, Span};

use crate::caller::OnBehalf;
use crate::file::File;
use crate::nodes::Nodes;
use crate::owned::Owned;
use crate::{OWNED_VALID, VfsOptions, held};

/// The source of answers about an inode.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Server,
    Owned(Arc<Owned>),
}

/// The inodes that a kernel knows, and the two sources of answers about them.
#[derive(Debug)]
pub(crate) struct Trees {
    pub(crate) fs: Arc<Fs>,
    pub(crate) options: VfsOptions,
    /// The directory that the mount shows as its root.
    pub(crate) root: Ino,
    /// The directory that held the root's name when it was mounted.
    root_home: Ino,
    nodes: Mutex<Nodes>,
    /// Subtrees that this process has decoupled, by root.
    owned: RwLock<Map<Ino, Arc<Owned>>>,
}

impl Trees {
    /// The namespace, or the part of it below a path.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` about the path.
    pub(crate) fn new(fs: Arc<Fs>, root: &Path, options: VfsOptions) -> Result<Self> {
        let (parent, attr) = fs.walk(root)?;
        let attr = attr.ok_or_else(|| Error::of(Errno::NotFound, root.to_string()))?;
        if !attr.is_dir() {
            return Err(Error::of(Errno::NotDirectory, root.to_string()));
        }
        Ok(Self {
            nodes: Mutex::new(Nodes::new(attr.ino, root.clone())),
            fs,
            options,
            root: attr.ino,
            root_home: if attr.ino == Ino::ROOT { Ino::ANCHOR } else { parent },
            owned: RwLock::default(),
        })
    }

    pub(crate) fn nodes(&self) -> MutexGuard<'_, Nodes> {
        held(&self.nodes)
    }

    pub(crate) fn owned(&self) -> RwLockReadGuard<'_, Map<Ino, Arc<Owned>>> {
        self.owned.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a subtree that this process has decoupled, or attached to.
    pub(crate) fn adopt(&self, subtree: Subtree) -> Ino {
        let root = subtree.root();
        let owned = Arc::new(Owned::new(subtree));
        self.owned.write().unwrap_or_else(PoisonError::into_inner).insert(root, owned);
        self.nodes().set_owner_below(root, root);
        root
    }

    /// The subtree is not this process's any more. Returns what the kernel knows of it.
    pub(crate) fn disown(&self, root: Ino) -> Vec<KnownInode> {
        self.owned.write().unwrap_or_else(PoisonError::into_inner).remove(&root);
        let known = self.nodes().known_of(root);
        self.nodes().set_owner_below(root, Ino(0));
        known
    }

    pub(crate) fn file(&self, ino: Ino) -> Result<Arc<File>> {
        let file = self.nodes().file(ino).cloned();
        file.ok_or_else(|| Error::of(Errno::Stale, "file"))
    }

    /// Attributes in the view of this process: an open file may be longer than its inode knows.
    pub(crate) fn as_open(&self, attr: Attr) -> Attr {
        if !self.nodes().any_open() {
            return attr;
        }
        let file = self.nodes().file(attr.ino).cloned();
        file.map_or(attr, |file| {
            let mut content = file.held();
            content.last = content.over(attr);
            content.last
        })
    }

    pub(crate) fn tree(&self, ino: Ino) -> Tree {
        let owned = self.owned();
        if owned.is_empty() {
            return Tree::Server;
        }
        let root = if owned.contains_key(&ino) { ino } else { self.nodes().owner(ino) };
        owned.get(&root).map_or(Tree::Server, |owned| Tree::Owned(owned.clone()))
    }

    /// The root of the decoupled subtree that an inode is in if it stands in this directory; 0 for
    /// none.
    pub(crate) fn owner_in(&self, parent: Ino, ino: Ino) -> Ino {
        let owned = self.owned();
        if owned.is_empty() {
            return Ino(0);
        }
        let nearest = |dir| if owned.contains_key(&dir) { dir } else { self.nodes().owner(dir) };
        if owned.contains_key(&ino) { ino } else { nearest(parent) }
    }

    /// Attributes, and for how long a kernel may use them without asking.
    pub(crate) fn lent_attr(&self, attr: Attr) -> Entry {
        let valid = match self.tree(attr.ino) {
            Tree::Server => self.server_attr_valid(&attr),
            Tree::Owned(_) => OWNED_VALID,
        };
        Entry::new(attr, valid)
    }

    /// The same of what a name leads to.
    pub(crate) fn lent_name(&self, place: EntryName<'_>, attr: Attr) -> Entry {
        let entry = self.lent_attr(attr);
        match self.tree(attr.ino) {
            Tree::Server => Entry { name_valid: self.name_valid(place, Some(attr.ino)), ..entry },
            Tree::Owned(_) => entry,
        }
    }

    /// For how long a kernel may use that a name does not exist.
    pub(crate) fn lent_absence(&self, place: EntryName<'_>) -> Duration {
        match self.tree(place.dir) {
            Tree::Server => self.name_valid(place, None),
            Tree::Owned(_) => OWNED_VALID,
        }
    }

    fn name_valid(&self, place: EntryName<'_>, named: Option<Ino>) -> Duration {
        let Span(nanos) = self.fs.lend_name(place.dir, place.name, named);
        self.options.valid.max(Duration::from_nanos(nanos))
    }

    fn server_attr_valid(&self, attr: &Attr) -> Duration {
        let (dir, is_open) = {
            let nodes = self.nodes();
            (nodes.parent(attr.ino), nodes.file(attr.ino).is_some())
        };
        // A write of this process changes an open file before the kernel asks again.
        let Span(nanos) = if is_open { Span(0) } else { self.fs.lend_attr(dir, attr) };
        self.options.valid.max(Duration::from_nanos(nanos))
    }

    /// Does one or the other, on behalf of a caller.
    pub(crate) fn run<T>(
        &self,
        ino: Ino,
        caller: &Caller,
        server: impl Fn(&User<'_>) -> Result<T>,
        owned: impl Fn(&mut Subtree) -> Result<T>,
    ) -> Result<T> {
        self.run_about(&[ino], caller, server, owned)
    }

    /// The same about several inodes of one tree, the first of which says which tree.
    pub(crate) fn run_about<T>(
        &self,
        inos: &[Ino],
        caller: &Caller,
        server: impl Fn(&User<'_>) -> Result<T>,
        owned: impl Fn(&mut Subtree) -> Result<T>,
    ) -> Result<T> {
        match self.tree(inos.first().copied().unwrap_or(self.root)) {
            Tree::Server => {
                self.walked_about(inos, || caller.act(|cred| server(&self.fs.as_user(cred))))
            }
            Tree::Owned(tree) => caller.act(|cred| tree.with(cred, &owned)),
        }
    }

    pub(crate) fn ask<T>(
        &self,
        ino: Ino,
        request: impl Fn(&Cred) -> Result<T>,
        caller: &Caller,
    ) -> Result<T> {
        self.walked(ino, || caller.act(&request))
    }

    /// Makes a request about an inode, and again if the server had to be shown where it is.
    pub(crate) fn walked<T>(&self, ino: Ino, request: impl Fn() -> Result<T>) -> Result<T> {
        self.walked_about(&[ino], request)
    }

    fn walked_about<T>(&self, inos: &[Ino], request: impl Fn() -> Result<T>) -> Result<T> {
        cudele::walked(inos.len(), request, |at| self.show(inos[at]))
    }

    /// Has the server walk to an inode. Returns whether it found it.
    fn show(&self, ino: Ino) -> Result<bool> {
        let path = self.nodes().path(ino);
        if let Some(path) = path
            && self.fs.walk_to(Ino::ROOT, &path, ino)?
        {
            return Ok(true);
        }
        // Another client renamed a directory on this path: the server may still have a lower one
        // loaded.
        let ways = self.nodes().ways(ino);
        for (base, path) in ways {
            match self.fs.walk_to(base, &path, ino) {
                Err(error) if error.errno == Errno::Stale => {}
                found => return found,
            }
        }
        Ok(false)
    }

    /// Where an inode is in the whole namespace.
    pub(crate) fn known_path(&self, ino: Ino) -> Result<cudele::Path> {
        self.nodes().path(ino).ok_or_else(|| Error::of(Errno::Stale, ino.to_string()))
    }

    /// Refuses a change where none may be made.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::of(Errno::ReadOnly, "mount"));
        }
        Ok(())
    }

    /// The attributes of an inode at the server or in the view.
    pub(crate) fn stored_attr(&self, ino: Ino) -> Result<Attr> {
        self.run(ino, &Caller::SELF, |user| user.attr(ino), |subtree| subtree.attr(ino))
    }

    /// How long content may be that is written to a file and kept in its inode, where the file was
    /// seen last.
    pub(crate) fn inline_bytes(&self, ino: Ino) -> u64 {
        let bytes = match self.tree(ino) {
            Tree::Server => {
                let dir = self.nodes().parent(ino);
                self.walked(dir, || self.fs.inline_bytes(dir))
            }
            Tree::Owned(owned) => {
                owned.with(&Caller::SELF.cred(), |subtree| Ok(subtree.policy().inline_bytes))
            }
        };
        // Any answer would do: it is about where the content is best, and readers look in both
        // places. A file that has lost its name is in no directory.
        bytes.unwrap_or(cudele::INLINE_BYTES).into()
    }

    /// Whether this process may write to a shared file without a message to its other clients, by
    /// the policy of the directory in which the file was last seen.
    pub(crate) fn is_lazy(&self, ino: Ino) -> bool {
        let dir = self.nodes().parent(ino);
        // Without a policy, the safe answer costs messages only.
        self.walked(dir, || self.fs.shares_lazily(dir)).unwrap_or(false)
    }

    /// The directory that holds the name of an inode. The kernel knows no directory above the root
    /// of a mount, so the server is asked for that of the root, which may have been renamed.
    pub(crate) fn home(&self, ino: Ino) -> Ino {
        if ino != self.root {
            return self.nodes().parent(ino);
        }
        if ino == Ino::ROOT {
            return self.root_home;
        }
        let walked = self.known_path(ino).and_then(|path| self.fs.walk(&path));
        match walked {
            Ok((parent, Some(attr))) if attr.ino == ino => parent,
            Ok(_) | Err(_) => self.root_home,
        }
    }

    /// Whether the policy of the directory in which this mount last saw a file demands checksums.
    pub(crate) fn wants_sums(&self, ino: Ino) -> bool {
        let wanted = match self.tree(ino) {
            Tree::Server => {
                let dir = self.nodes().parent(ino);
                self.walked(dir, || self.fs.checksums(dir))
            }
            Tree::Owned(owned) => owned.with(&Caller::SELF.cred(), |subtree| {
                Ok(subtree.policy().checksums == Checksums::On)
            }),
        };
        // A file without a name is in no directory.
        wanted.unwrap_or(true)
    }

    pub(crate) fn change_attr(&self, caller: &Caller, ino: Ino, change: &AttrChange) -> Result<()> {
        let home = self.home(ino);
        // A caller outside the group of a file cannot set set-group-id, and gets no error, so all
        // groups of the caller are needed here.
        let cred = change.mode.map(|_| caller.cred());
        self.run(
            ino,
            caller,
            |user| user.acting(cred.as_ref()).set_attr(home, ino, change),
            |subtree| {
                if let Some(cred) = &cred {
                    subtree.act_as(cred);
                }
                subtree.set_attr(ino, change)
            },
        )
    }

    pub(crate) fn change_data(&self, ino: Ino, data: &[u8], size: u64) -> Result<()> {
        let home = self.nodes().parent(ino);
        self.run(
            ino,
            &Caller::SELF,
            |user| user.set_data(home, ino, data, size),
            |subtree| subtree.set_data(ino, data, size),
        )
    }

    pub(crate) fn data(&self, ino: Ino) -> Result<Vec<u8>> {
        self.run(ino, &Caller::SELF, |user| user.data(ino), |subtree| subtree.data(ino))
    }

    pub(crate) fn sync_metadata(&self, ino: Ino) -> Result<()> {
        match self.tree(ino) {
            Tree::Server => self.fs.sync().map(|_| ()),
            Tree::Owned(owned) => owned.with(&Caller::SELF.cred(), |subtree| subtree.persist()),
        }
    }
}
