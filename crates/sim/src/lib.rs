//! A cluster in one thread.
//!
//! The metadata server, the clients and their journals are the values that run in production; the
//! network, the disk and the clock are made of one queue of events, and one seed decides
//! everything: how long each message and store operation takes, when connections break, when the
//! server crashes and how its last writes are torn. [`run`] does that for a seed and says which
//! promise was broken, if one was.
//!
//! Where to read on: `world` has the queue of events and drives servers and sessions. Its workloads
//! are `requests` (one server, judged by the model of the namespace), `cells` (policies and their
//! changes, judged update by update) and `ranks` (subtrees that move between servers). `oracle` is
//! the truth of the first, `invariants` states it promise by promise, `plan` is the decisions of a
//! seed.
//!
//! This crate does not test sockets, threads or files. It performs no I/O and reads no clock.
//!
//! Invariant: the same seed gives the same run, message by message.

#![allow(clippy::cast_possible_truncation, reason = "choices are small numbers")]
#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::match_wildcard_for_single_variants,
    clippy::missing_errors_doc,
    clippy::needless_pass_by_value,
    clippy::cast_sign_loss,
    clippy::should_implement_trait,
    clippy::wrong_self_convention,
    unreachable_pub,
    reason = "a test harness: invariants name the few cases that they are about"
)]

mod call;
pub mod cells;
mod disk;
mod expect;
mod history;
pub mod invariants;
mod jobs;
mod oracle;
mod plan;
mod print;
pub mod ranks;
mod region;
mod requests;
mod tally;
mod tree;
mod world;

pub use requests::run;
pub use tally::{Report, Tally};
