//! Tests of the directory store under faults that no unit test can fake: killed processes, full
//! disks and power cuts.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start processes, mount file systems and say what they skip"
)]

mod full_disk;
mod kill;
mod mount;
mod power_cut;
