//! Tests of the server as a whole, through [`Mds::handle`](crate::Mds::handle).

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test names the answer that it awaits, and fails at every other"
)]

mod caching;
mod claims;
mod cluster;
mod failures;
pub(crate) mod fixture;
mod hostile;
mod invariants;
mod parts;
mod requests;
mod restart;
mod sessions;
mod store;
mod transcripts;
mod words;

pub(crate) use cluster::Cluster;
