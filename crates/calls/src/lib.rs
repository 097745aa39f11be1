//! The calls of a client by path, blocking, as the libraries for C and for Python have them: names,
//! files, directories, policies and decoupled subtrees.
//!
//! Safe Rust over [`posix::FileSystem`], which for a cluster is [`vfs::Vfs`]: a path in a decoupled
//! subtree is answered by the subtree and any other by the metadata server, as in a mount. The
//! rules of each call are not here but in the namespace's plans, and neither is anything of the
//! callers' languages.
//!
//! Invariant: an open object keeps its connection open ([`Mount::finish`]), and the inodes on the
//! way to a path stay known while a caller needs them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: carries out what programs in other languages ask for"
)]

mod change;
mod dir;
mod failure;
mod file;
mod mount;
mod place;
mod subtree;

pub use change::Times;
pub use dir::OpenDir;
pub use failure::{CallFailure, about, guarded};
pub use file::OpenFile;
pub use mount::Mount;
pub use place::Follow;
pub use subtree::OpenSubtree;
pub use vfs::Ending;
