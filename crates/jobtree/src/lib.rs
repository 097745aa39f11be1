//! The tree of a job in memory that all processes of the job share.
//!
//! A [`JobRegion`] is a range of memory that several processes map, each at an address of its own,
//! so everything in it is named by its offset. It contains directories, names, inodes, the content
//! of files and the open file descriptions. A thread works in it through a [`Visit`]: most calls
//! enter *shared*, side by side with all other threads, and lock one bucket of the table of names;
//! calls that change several names at once (rename, rmdir) enter *exclusively*. The job's own
//! process closes the region for good before it hands the tree on ([`Visit::close`]); from then
//! on every call returns [`Denied::Closed`].
//!
//! A process may be killed at any instruction. Every change takes effect with one store, and a
//! waiting thread takes over the lock or the gate of a dead holder. A rename first
//! notes its intent, which the next holder of the gate completes. A kill can leave memory that is
//! not used again, never a wrong tree.
//!
//! Memory that is freed is used again only when no thread can still be reading it: epochs
//! (module `slots`).
//!
//! This crate does no I/O: a [`Host`] answers whether a thread is alive, and waits.
//!
//! Invariant: no value in the region, however damaged, makes this crate read or write outside it.
#![allow(unsafe_code, reason = "works in memory that other processes change meanwhile")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "fields of the region are packed into words of 64 bits, and read back in their width"
)]

mod alloc;
mod content;
mod descriptions;
mod exclusive;
mod inode;
mod keeper;
mod listing;
mod names;
mod region;
mod slots;
mod walk;

pub use content::CONTENT_BYTES_MAX;
pub use descriptions::Description;
pub use inode::{Inode, JobStat, Kind, NewTimes};
pub use keeper::{KeeperRequest, Note, inode_of_link, stand_in_prefix};
pub use listing::ListedName;
pub use names::{InodeParts, NameEntry};
pub use region::{Denied, ErrorNumber, Format, Host, JobRegion};
pub use slots::{Guard, Visit};
pub use walk::{Identity, PATH_BYTES_MAX, PathBuffer, Walk, WalkEnd, WalkPlace, may};

#[cfg(test)]
mod tests;
