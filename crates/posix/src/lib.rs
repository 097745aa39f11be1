//! The contract of a file system by inode number: the system calls that a kernel passes on.
//!
//! [`FileSystem`] has five parts: [`Names`], [`Attributes`], [`Files`], [`Directories`] and
//! [`Locks`]. The mount and the calls of the libraries know this contract only, so a new kind of
//! file system needs no code in them. Optional methods have a body that returns `ENOSYS`: a kernel
//! then uses its own substitute and does not ask again.
//!
//! This crate has no file system, does no I/O and reads no clock.
//!
//! Invariant: every trait is object-safe.

mod atime;
mod attributes;
mod caller;
mod directories;
mod files;
mod ids;

mod locks;
mod names;

use std::fmt::Debug;
use std::sync::Arc;

use types::{Errno, Error, Ino, Result};

pub use atime::Atime;
pub use attributes::Attributes;
pub use caller::Caller;
pub use directories::{Directories, Listed};
pub use files::{Caching, Files, OpenMode, Seek};
pub use ids::{IdMap, MappedRanges};
pub use locks::{Locker, Locks, Range};
pub use names::{Entry, Names, NewNode};

/// See the crate documentation.
pub trait FileSystem:
    Names + Attributes + Files + Directories + Locks + Debug + Send + Sync + 'static
{
    /// The abilities that a kernel must know when it mounts the file system.
    fn features(&self) -> Features;

    /// Starts the work in the background. `outdated` receives the cached entries that a kernel must
    /// drop.
    ///
    /// # Errors
    /// If no thread can be started.
    fn start(self: Arc<Self>, outdated: Box<dyn Fn(Vec<KnownInode>) + Send>) -> Result<()>;

    /// Writes back all that only this process holds, before the file system is given up.
    ///
    /// # Errors
    /// The first error; the rest is written back all the same.
    fn finish(&self) -> Result<()>;

    /// The cached entries that a kernel must drop since the last call.
    fn take_outdated(&self) -> Vec<KnownInode> {
        Vec::new()
    }
}

/// The abilities of a file system. The kernel does the work of a missing ability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// [`Locks`] keeps locks. Otherwise the kernel keeps locks among its own programs.
    pub locks: bool,
    /// Listings have all attributes, so that `ls -l` needs no further requests.
    pub listed_attributes: bool,
    /// A write, a truncation and a change of the owner remove set-user-id and set-group-id
    /// ([`Attributes::drop_set_id`]).
    pub drops_set_id: bool,
    /// Other machines change the content of files: the kernel must compare the times of a file
    /// before it uses its page cache.
    pub shared_content: bool,
    /// Programs may map files that the kernel must not cache ([`Caching::None`]) for all to see:
    /// nothing but this kernel changes them while they are mapped.
    pub maps_uncached: bool,
    /// It keeps and enforces POSIX access control lists ([`types::acl`]), and new inodes inherit
    /// them.
    pub access_lists: bool,
}

/// An inode that a kernel knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownInode {
    /// Its number.
    pub ino: Ino,
    /// The directory in which the kernel saw it last.
    pub parent: Ino,
    /// Its name there.
    pub name: Vec<u8>,
}

/// The answer of a method that a file system does not have.
fn unsupported<T>(method: &str) -> Result<T> {
    Err(Error::of(Errno::NotImplemented, method))
}
