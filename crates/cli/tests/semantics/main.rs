//! The promises of `docs/promises/`, chapter by chapter: every test has the words of a heading for
//! its name, and `cargo xtask tidy` compares the two. Tests of other crates show further promises.
//! Every test has a cluster, a home and a state directory of its own.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "I/O edge: tests run the program, kill servers and take disks away"
)]

mod cells;
mod compositions;
mod decoupling;
mod exclusive;
#[allow(dead_code, reason = "the jobs, for which it was made, use all of it")]
#[path = "../jobs/fixture.rs"]
mod fixture;
mod interference;
mod layouts;
mod merging;
mod mounted;
#[allow(dead_code, reason = "the tests of the mount, for which it was made, use all of it")]
#[path = "../mount/mounts.rs"]
mod mounts;
mod policies;
mod referring;
mod remembering;
mod removing;
mod scanning;
mod strong;
mod tools;
mod transitions;
mod verifying;
