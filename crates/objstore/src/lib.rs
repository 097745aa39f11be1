//! The object store: named byte strings that outlive processes.
//!
//! Everything durable (journals, the metadata store, cluster state, file data) is written through
//! one trait, [`ObjectStore`], of nine methods. [`Store`] adds five small traits: hints
//! ([`Tuned`]), room ([`Capacity`]), [`Pools`], locks and fencing ([`Fencing`]), and the removal of
//! leftovers ([`Sweeping`]).
//!
//! Back ends: [`Memory`], which forgets unsynced writes at a simulated crash; [`DirStore`], a
//! directory of files that keeps every promise with fsync; [`Rados`], a Ceph cluster. Wrappers:
//! [`Counting`] measures, [`Faulty`] breaks, [`ScratchView`] writes to memory only.
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
    reason = "I/O edge: reads and writes files, and talks to Ceph"
)]

mod capacity;
mod closed;
pub mod conformance;
mod counting;
mod dir;
mod faulty;
mod fencing;
mod forward;
mod gather;
mod memory;
mod name;
mod pools;
mod rados;
mod scratch_view;
mod store;
mod sweeping;
mod tuned;
mod url;

pub use capacity::{Capacity, Reserved};
pub use closed::Closed;
pub use counting::{Counting, OPERATIONS, OpTally, Operation, StoreCounters, StoreCounts};
pub use dir::DirStore;
pub use faulty::{Action, FaultRules, Faulty, OperationHook, Rule};
pub use fencing::{Fencing, LockGuard, Presence};
pub use memory::Memory;
pub use name::{NAME_BYTES_MAX, check_name};
pub use pools::Pools;
pub use rados::Rados;
pub use scratch_view::ScratchView;
pub use store::{
    Expect, OBJECT_BYTES_MAX, ObjectStore, PutOutcome, Stat, Store, SyncScope, Version, absent,
};
pub use sweeping::{Sweeping, Swept};
pub use tuned::Tuned;
pub use types::Space;
pub use url::{beside, copies, open, open_existing};

#[cfg(test)]
mod tests;
