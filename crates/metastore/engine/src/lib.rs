//! The engine of the metadata store: requests of the state machines become reads and writes of
//! objects.
//!
//! [`Executor`] executes a [`StoreOp`](metastore::request::StoreOp) on any
//! [`Store`](objstore::Store): the engine loads, looks up and commits directories, merges their
//! runs, and deletes unlisted objects, except those that a snapshot retains. [`Overlay`] is a
//! store in the state of a snapshot, for a private server.
//!
//! Not here: the formats of the objects (crate `metastore`), the bytes of a store (`objstore`), and
//! the decision when to commit or compact, which is the metadata server's.
//!
//! Invariant: an interruption at any point leaves manifests that list only complete runs.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: executes store operations with threads"
)]

mod execute;
mod overlay;
mod retained;

pub use execute::{Executor, Tuning, ValueReader, execute, purge_data, resolve};
pub use overlay::Overlay;
pub use retained::{change_snapshots, links_dirs, load_dir_at, read_snapshots, take_snapshot};
