//! The object store: named byte strings that outlive processes.
//!
//! Everything durable (journals, the metadata store, cluster state, file data) is written through
//! one trait, [`ObjectStore`]. Back ends: [`Memory`], which forgets unsynced writes at a simulated
//! crash; [`Dir`], a directory of files that keeps every promise with fsync; [`Rados`], a Ceph
//! cluster. Wrappers: [`Counting`] measures, [`Faulty`] breaks.
//! [`conformance`](fn@conformance::conformance) is the contract as a suite that every back end
//! passes.
//!
//! This crate does not know the meaning of the bytes: no journal, no namespace, no message.
//!
//! Invariant: a result is returned only when it is true. A durable operation that returned `Ok`
//! survives the loss of power; a failed one leaves the object as it was, or says that it may not.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: carries store operations to disks"
)]

mod apart;
mod aside;
mod carry;
pub mod conformance;
mod counting;
mod dir;
mod faulty;
mod forward;
mod gather;
mod kept;
mod memory;
mod name;
mod rados;
mod store;
mod url;

pub use apart::Apart;
pub use aside::Aside;
pub use carry::{Carrier, Tuning, ValueReader, carry_out, purge_data, resolve};
pub use counting::{Counters, Counting, Counts, OPERATIONS, Operation, Tally};
pub use dir::Dir;
pub use faulty::{Action, Faults, Faulty, Interlude, Rule};
pub use kept::{change_snapshots, links_dirs, load_dir_at, read_snapshots, take_snapshot};
pub use memory::Memory;
pub use name::{NAME_BYTES_MAX, check_name};
pub use rados::Rados;
pub use store::{
    Expect, LockGuard, OBJECT_BYTES_MAX, ObjectStore, Outcome, Presence, Reserved, Stat, Swept,
    SyncScope, Version,
};
pub use types::Space;
pub use url::{beside, copies, open, open_existing};

#[cfg(test)]
mod tests;
