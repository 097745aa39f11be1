//! A file system as a kernel sees it: system calls by inode number.
//!
//! [`Vfs`] answers them from the metadata server ([`cudele::User`]) or, in a subtree that this
//! process has decoupled, from that subtree's own view without any request ([`cudele::Subtree`]):
//! which one is decided per inode (module `tree`). File content goes straight to the object store
//! (module `content`). Module `filesystem` implements the contract of [`posix::FileSystem`], which
//! the mount and the libraries know.
//!
//! Each part of the work (names, attributes, content, open files, listings, locks, subtrees,
//! virtual attributes) is a context that names all the state it may touch; module `contexts` has
//! them together.
//!
//! The rules of POSIX are not in this crate: the plans of the namespace have them, for server and
//! view.
//!
//! Consistency: content is close-to-open, unless several clients have a file open (module `file`).
//! The policy decides the consistency of names and attributes; every answer says for how long a
//! kernel may cache it ([`posix::Entry`]).

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: reads who the caller is from the kernel, and the clock"
)]

mod accessed;
mod attrs;
mod background;
mod caller;
mod content;
mod contexts;
mod copy_up;
mod file;
mod filesystem;
mod flush;
mod holes;
mod layout;
mod listing;
mod locks;
mod lost_writes;
mod names;
mod nodes;
mod open;
mod outdated;
mod owned;
mod shared;
mod tree;
mod truncate;
mod unsynced;
mod virtual_xattr;
mod write_back;

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudele::{Completion, Fs, Ino, Path, Policy, Result, Subtree, WantsExclusive};
use posix::Atime;
use types::Cred;

pub use owned::Ending;

use listing::OpenDirs;
use locks::Lockers;
use outdated::Outdated;
use tree::Trees;
use write_back::WriteBack;

/// The time for which a kernel may cache an entry that only this process can change.
const OWNED_VALID: Duration = Duration::from_secs(3600);

/// How a [`Vfs`] behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VfsOptions {
    /// The time for which a kernel may cache names and attributes that other clients may change.
    /// Strong consistency needs 0, the default.
    pub valid: Duration,
    /// Every change is refused with `EROFS`.
    pub read_only: bool,
    /// Which reads change the time of a file's last access.
    pub atime: Atime,
    /// Whether changes in directories that no other client uses return before the server knows
    /// them ([`Fs::take_exclusive`]). The default is that they do not.
    pub ahead: WantsExclusive,
    /// Access control lists are refused, and the kernel does not ask for them. Servers enforce
    /// those that exist all the same; in a decoupled subtree the mode alone says who may open a
    /// file.
    pub no_access_lists: bool,
}

/// See the crate documentation.
#[derive(Debug)]
pub struct Vfs {
    /// The known inodes, the server and the subtrees of this process.
    trees: Trees,
    /// The threads that write content to the object store.
    write_back: WriteBack,
    open_dirs: OpenDirs,
    lockers: Mutex<Lockers>,
    outdated: Outdated,
    /// Ends the thread that writes files back.
    ticking: Mutex<Option<Sender<()>>>,
}

/// Locks a mutex whose holder may have panicked: the data changes in single steps, so it is usable.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Vfs {
    /// The namespace, or the part of it below a path, as a kernel sees it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES` about the path.
    pub fn new(fs: Arc<Fs>, root: &Path, options: VfsOptions) -> Result<Self> {
        fs.take_exclusive(options.ahead)?;
        Ok(Self {
            trees: Trees::new(fs, root, options)?,
            write_back: WriteBack::default(),
            open_dirs: OpenDirs::default(),
            lockers: Mutex::default(),
            outdated: Outdated::default(),
            ticking: Mutex::default(),
        })
    }

    /// The file system client behind it.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.trees.fs
    }

    /// Writes back everything that is held of files, before the mount ends.
    ///
    /// # Errors
    /// The first error; the rest is written back all the same.
    pub fn write_back_all(&self) -> Result<()> {
        self.content().write_back_all()
    }

    /// Decouples a subtree; from now on this process works in it alone.
    ///
    /// # Errors
    /// As `Fs::decouple`.
    pub fn decouple(&self, path: &Path, policy: &Policy) -> Result<Ino> {
        self.subtrees().decouple(path, policy)
    }

    /// Takes over a subtree that this process has decoupled, or attached to.
    pub fn adopt(&self, subtree: Subtree) -> Ino {
        self.trees.adopt(subtree)
    }

    /// Ends the work in a subtree, or with [`Ending::Complete`] a part of it.
    ///
    /// # Errors
    /// `EINVAL` if this process has not decoupled it; otherwise those of the mechanisms: the
    /// updates are still held then.
    pub fn end(&self, root: Ino, ending: Ending) -> Result<Completion> {
        self.subtrees().end(root, ending)
    }

    /// Publishes the subtree's journal so far (`Subtree::sync`); it stays this process's.
    ///
    /// # Errors
    /// As [`Vfs::end`].
    pub fn sync_owned(&self, root: Ino) -> Result<Completion> {
        self.subtrees().sync(root)
    }

    /// Makes a subtree's journal so far as durable as its policy promises (`Subtree::persist`);
    /// other clients see no more of it than before.
    ///
    /// # Errors
    /// As [`Vfs::end`].
    pub fn persist_owned(&self, root: Ino) -> Result<()> {
        self.subtrees().persist(root)
    }

    /// Works in a subtree for a user, for callers that append to its journal without a look-up.
    ///
    /// # Errors
    /// `EINVAL` if this process has not decoupled it, `ESTALE` if it was given up since, and those
    /// of the operation.
    pub fn in_owned<T>(
        &self,
        root: Ino,
        cred: &Cred,
        operation: impl FnOnce(&mut Subtree) -> Result<T>,
    ) -> Result<T> {
        self.trees.owned_at(root)?.with(cred, operation)
    }

    /// Refers to an inode of a subtree that this process has decoupled, until it is forgotten: for
    /// callers that have its number and no name.
    pub fn refer_in_owned(&self, root: Ino, ino: Ino) {
        self.trees.nodes().refer_in(root, ino);
    }

    /// The policy of a subtree that this process has decoupled.
    #[must_use]
    pub fn owned_policy(&self, root: Ino) -> Option<Policy> {
        self.trees.owned_policy(root)
    }

    /// Whether this process has decoupled the subtree with this root.
    #[must_use]
    pub fn is_owned(&self, root: Ino) -> bool {
        self.trees.is_owned(root)
    }

    /// The roots of the subtrees that this process has decoupled.
    #[must_use]
    pub fn owned_roots(&self) -> Vec<Ino> {
        self.trees.owned_roots()
    }
}
