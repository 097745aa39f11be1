//! The store in a Ceph cluster, against real clusters: tests that no unit test can replace.
//!
//! `cargo xtask ci rados` runs these tests; each brings up its own cluster and takes it down again.
//! Where Ceph is not installed they fail and name the missing packages, unless
//! `CUDELE_TEST_RADOS=skip`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests start daemons, stop them and say what they skip"
)]

mod cluster;
mod contract;
mod faults;
mod fence;
mod large;
mod open;
