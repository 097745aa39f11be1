//! Metrics of the daemons: the measurements of the edge, and the pages for scrapers.
//!
//! The state machines have no clocks and know nothing of this module. The driver notes when
//! requests arrive and replies leave, worker threads note the time of store operations, and a page
//! is made of these and of the figures of the state machine, only when a scraper wants one.

pub(crate) mod mds;
mod mds_counters;
pub(crate) mod mon;
pub(crate) mod requests;
pub(crate) mod store;

use std::sync::Arc;

use exporter::{Feed, MetricDescription, MetricsPage, MetricsServer};
use httpserver::HttpAddress;
use net::Waker;
use types::Result;

use crate::Log;

/// Where a daemon shows its metrics.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Where scrapers connect.
    pub address: HttpAddress,
    /// Subtrees are shown with their paths: names of users.
    pub paths: bool,
}

/// The metrics of a metadata server, beside those of every process.
#[must_use]
pub fn mds_metrics() -> Vec<MetricDescription> {
    mds::descriptions()
}

/// The metrics of a monitor, beside those of every process.
#[must_use]
pub fn mon_metrics() -> Vec<MetricDescription> {
    mon::METRICS.map(|metric| *metric).to_vec()
}

/// The server for the scrapers of a daemon.
#[derive(Debug)]
pub(crate) struct Scrapers {
    feed: Arc<Feed>,
    pub(crate) paths: bool,
    _server: MetricsServer,
}

impl Scrapers {
    /// Starts the server, if there is to be one.
    ///
    /// # Errors
    /// As [`MetricsServer::start`].
    pub(crate) fn start(
        options: Option<&MetricsOptions>,
        waker: Waker,
        log: &Log,
    ) -> Result<Option<Self>> {
        let Some(MetricsOptions { address, paths }) = options else { return Ok(None) };
        let feed = Feed::new(move || waker.wake());
        let server = MetricsServer::start(address, feed.clone())?;
        log.info(
            "metrics.at",
            format_args!("metrics are at {}", MetricsServer::page(server.address())),
        );
        Ok(Some(Self { feed, paths: *paths, _server: server }))
    }

    /// Whether a scraper wants a page.
    #[inline]
    pub(crate) fn want(&self) -> bool {
        self.feed.is_wanted()
    }

    pub(crate) fn publish(&self, page: MetricsPage) {
        self.feed.publish(page);
    }
}

#[cfg(test)]
mod tests;
