//! A file system as a kernel sees it: system calls by inode number.
//!
//! [`Vfs`] answers them from the metadata server ([`cudele::User`]) or, in a subtree that this
//! process has decoupled, from that subtree's own view without any request ([`cudele::Subtree`]):
//! which one is decided per inode (module `tree`). File content goes straight to the object store
//! (module `file`). Module `filesystem` implements the contract of [`posix::FileSystem`], which the
//! mount and the libraries know.
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
mod caller;
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
mod owned;
mod shared;
mod tree;
mod unsynced;
mod virtual_xattr;
mod write_back;

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use cudele::{Fs, Ino};
use posix::{Atime, KnownInode};
use types::Map;

pub use owned::Ending;

use nodes::Nodes;
use owned::Owned;
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
}

/// See the crate documentation.
#[derive(Debug)]
pub struct Vfs {
    fs: Arc<Fs>,
    options: VfsOptions,
    /// The directory that the mount shows as its root.
    root: Ino,
    /// The directory that held the root's name when it was mounted.
    root_home: Ino,
    nodes: Mutex<Nodes>,
    /// Subtrees that this process has decoupled, by root.
    owned: RwLock<Map<Ino, Arc<Owned>>>,
    /// Directories that are open, by handle.
    listings: Mutex<listing::OpenDirs>,
    next_handle: AtomicU64,
    /// Entries that a kernel must drop from its cache.
    outdated: Mutex<Vec<KnownInode>>,
    write_back: WriteBack,
    /// Ends the thread that writes files back.
    ticking: Mutex<Option<Sender<()>>>,
    /// Possible owners of locks.
    locked: Mutex<locks::Lockers>,
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
    pub fn new(fs: Arc<Fs>, root: &cudele::Path, options: VfsOptions) -> cudele::Result<Self> {
        let (parent, attr) = fs.walk(root)?;
        let attr =
            attr.ok_or_else(|| cudele::Error::of(cudele::Errno::NotFound, root.to_string()))?;
        if !attr.is_dir() {
            return Err(cudele::Error::of(cudele::Errno::NotDirectory, root.to_string()));
        }
        Ok(Self {
            nodes: Mutex::new(Nodes::new(attr.ino, root.clone())),
            fs,
            options,
            root: attr.ino,
            root_home: if attr.ino == Ino::ROOT { Ino::ANCHOR } else { parent },
            owned: RwLock::default(),
            listings: Mutex::default(),
            next_handle: AtomicU64::new(1),
            outdated: Mutex::default(),
            write_back: WriteBack::default(),
            ticking: Mutex::default(),
            locked: Mutex::default(),
        })
    }

    /// The file system client behind it.
    #[must_use]
    pub fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// The directory that is shown as the root.
    #[must_use]
    pub(crate) fn root(&self) -> Ino {
        self.root
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        held(&self.nodes)
    }
}
