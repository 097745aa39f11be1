//! Tests of the server as a whole, through [`Mds::handle`](crate::Mds::handle).

mod cluster;
mod fixture;
mod parts;
mod requests;
mod store;
mod transcripts;
mod words;

pub(crate) use cluster::Cluster;
