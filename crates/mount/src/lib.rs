//! The POSIX mount: FUSE requests in, answers out.
//!
//! This crate translates between the kernel's types and [`posix::FileSystem`], which has all
//! semantics. It mounts, unmounts, and tells the kernel which cached entries to drop.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: this crate speaks to the kernel"
)]

mod adapter;
mod arguments;
mod attributes;
mod content;
mod directory;
mod fuse;
mod locking;
mod metrics;
mod name_requests;
mod options;
mod session;
mod table;

pub use fuse::{READ_AHEAD_KIB, TRANSFER_BYTES_MAX};
pub use metrics::{MountMeter, metrics};
pub use options::MountOptions;
pub use session::{Mounted, mount, mount_measured, remount, unmount};
pub use table::{MountEntry, listed};
