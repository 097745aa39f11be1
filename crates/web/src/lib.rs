//! The web page of a cluster: its pages, and the answers in JSON that they are drawn from.
//!
//! [`ClusterSite`] asks a [`ClusterSource`] for the cluster map and the log of the balancers, as
//! `cudele status` and `cudele balancer log` do. The pages are fixed text and have no secrets; the
//! answers in JSON need the [`WebKey`], which a page takes from the fragment of its address and
//! sends as a bearer token (RFC 6750). So the key is in no request line and in no log, and another
//! site in the same browser, which would be sent a cookie of this host, does not get the key.
//!
//! Invariants:
//! * the pages change nothing;
//! * however many clients ask, the source is asked once in [`INTERVAL`] at most, and without a
//!   client every two seconds, for the curves of the last half hour;
//! * an answer has at most [`ROWS_MAX`] rows of a list, however many there are.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: clocks, and locks between the threads of clients"
)]

mod answers;
mod decisions;
mod history;
mod key;
mod site;
mod source;

pub use key::WebKey;
pub use site::ClusterSite;
pub use source::{ClusterSource, INTERVAL};

/// Rows of a list in one answer.
pub const ROWS_MAX: usize = 200;

#[cfg(test)]
mod tests;
