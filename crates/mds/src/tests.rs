//! Tests of the server as a whole, through [`Mds::handle`](crate::Mds::handle).

mod caching;
mod cluster;
mod failures;
mod fixture;
mod invariants;
mod parts;
mod requests;
mod restart;
mod sessions;
mod store;
mod transcripts;
mod words;

pub(crate) use cluster::Cluster;
