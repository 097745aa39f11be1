//! The engine on stores in a Ceph cluster, against real clusters.
//!
//! `cargo xtask ci rados` runs these tests; each brings up its own cluster and takes it down again.
//! Where Ceph is not installed they fail and name the missing packages, unless
//! `CUDELE_TEST_RADOS=skip`.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "I/O edge: tests start daemons and stop them"
)]

mod cluster;
mod purge;
