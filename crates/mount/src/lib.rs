//! The POSIX mount: FUSE requests in, answers out.
//!
//! This crate translates between the kernel's types and [`vfs::Vfs`], which has all semantics. It
//! mounts, unmounts, and tells the kernel which cached entries to drop.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: this crate speaks to the kernel"
)]

mod answer;
mod asked;
mod attributes;
mod branch;
mod content;
mod directory;
mod filesystem;
mod fuse;
pub mod kernel;
mod locking;
mod naming;
mod options;
mod session;
mod table;

pub use branch::{MountedBranch, mount_branch};
pub use options::Options;
pub use session::{Mounted, mount, remount, unmount};
pub use table::{Listed, listed};
