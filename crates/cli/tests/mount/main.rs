//! The mount and `cudele run`, as programs use them: real processes, a real kernel, and test
//! programs of other projects (`cargo xtask tools` builds them).
//!
//! These tests mount, and give files to other users: they need `/dev/fuse` and root. Where that is
//! missing they fail, unless `CUDELE_TESTS_WITHOUT_FUSE` is set. Random ones print their seed;
//! `CUDELE_TEST_SEED` repeats one, `CUDELE_TEST_STEPS` says how long they are. The long ones are
//! ignored; `cargo xtask long` runs them.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "I/O edge: tests mount, run programs and kill servers"
)]

mod content;
mod crashes;
#[allow(dead_code, reason = "the jobs, for which it was made, use all of it")]
#[path = "../jobs/fixture.rs"]
mod fixture;
mod fsx;
mod full;
mod holes;
mod ids;
mod jobs;
mod large;
mod lists;
mod locks;
mod model;
mod mounting;
mod mounts;
mod nameless;
mod permissions;
mod policies;
mod posix;
mod preload;
mod queues;
mod quotas;
mod ranks;
mod root;
mod sharing;
mod signals;
mod steps;
mod suites;
mod times;
mod walks;
