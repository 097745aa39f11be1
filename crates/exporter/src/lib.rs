//! Metrics of a process: their descriptions, a page of values, and an HTTP server for scrapers.
//!
//! A daemon keeps plain numbers. A scrape asks the daemon for a page ([`Feed`]), which the daemon
//! makes between two turns of its loop; a thread of the server turns the page into text
//! (OpenMetrics) and writes the text to the scraper.
//!
//! Invariants:
//! * scrapers cost the daemon one page in [`Feed::INTERVAL`] at most, and never block the daemon;
//! * connections, the bytes of a request, and the time of both are bounded;
//! * every value belongs to a [`MetricDescription`], from which the page of the manual is made.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: a server for scrapers, with threads and clocks"
)]

mod address;
mod description;
mod feed;
mod histogram;
mod page;
mod process;
mod request;
mod server;

pub use address::MetricsAddress;
pub use description::{MetricDescription, MetricKind, table};
pub use feed::{Feed, PageMaker, metrics};
pub use histogram::LatencyHistogram;
pub use page::{MetricLabel, MetricsPage, TextForm};
pub use server::MetricsServer;

#[cfg(test)]
mod tests;
