//! Metrics of a process: their descriptions, a page of values, and the server for scrapers.
//!
//! A daemon keeps plain numbers. A scrape asks the daemon for a page ([`Feed`]), which the daemon
//! makes between two turns of its loop; a thread of the server turns the page into text
//! (OpenMetrics).
//!
//! Invariants:
//! * scrapers cost the daemon one page in [`Feed::INTERVAL`] at most, and never block the daemon;
//! * every value belongs to a [`MetricDescription`], from which the page of the manual is made.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: threads and clocks"
)]

mod description;
mod feed;
mod histogram;
mod page;
mod process;
mod server;

pub use description::{MetricDescription, MetricKind, table};
pub use feed::{Feed, PageMaker, metrics};
pub use histogram::LatencyHistogram;
pub use page::{MetricLabel, MetricsPage, TextForm};
pub use server::MetricsServer;

#[cfg(test)]
mod tests;
