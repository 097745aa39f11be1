//! The kernel's FUSE protocol, without a library.
//!
//! The library `fuser` ignores `FUSE_INTERRUPT` and hides the flag that tells `flock` from `fcntl`.

pub(crate) mod abi;
mod awake;
pub(crate) mod device;
mod flights;
mod kind;
mod parts;
mod processors;
mod reply;
mod request;
mod ring;
mod session;

pub(crate) use awake::Awake;
pub(crate) use flights::Ticket;
pub(crate) use reply::{Dirent, Out};
pub(crate) use request::{LockAsked, NodeName, Op, ReadDir, Request, SetAttr, Time, Write};
pub(crate) use session::{Handler, Notifier, Session, Setup, start};
pub use session::{READ_AHEAD_KIB, TRANSFER_BYTES_MAX};
