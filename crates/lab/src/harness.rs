//! The parts of benchmarks: clusters and client processes, their orders and reports, rows and
//! statistics, shares of a processor, mounts, and the peers that are measured in the same run.
//!
//! Invariant: nothing here imports a benchmark or the work of a client process.

pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod crew;
pub(crate) mod disk;
pub(crate) mod files;
pub(crate) mod job;
pub(crate) mod lab;
pub(crate) mod mounting;
pub(crate) mod numbered;
pub(crate) mod peers;
pub(crate) mod process;
pub(crate) mod rationed;
pub(crate) mod row;
pub(crate) mod share;
pub(crate) mod sheet;
pub(crate) mod soak;
pub(crate) mod stats;
