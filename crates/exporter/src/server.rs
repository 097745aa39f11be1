//! The pages for scrapers.

use std::sync::Arc;

use httpserver::{HttpAddress, HttpRequest, HttpResponse, HttpServer, HttpStatus, Site};
use types::Result;

use crate::{Feed, TextForm};

const PLAIN: &str = "text/plain; charset=utf-8";
const INDEX: &str = "/metrics\n/healthz\n";

/// The server for scrapers. It ends when it is dropped.
#[derive(Debug)]
pub struct MetricsServer(HttpServer);

impl MetricsServer {
    /// The option of the programs that names the address.
    const OPTION: &str = "--metrics";

    /// Listens, and answers scrapers from a feed.
    ///
    /// # Errors
    /// As [`HttpServer::start`].
    pub fn start(address: &HttpAddress, feed: Arc<Feed>) -> Result<Self> {
        HttpServer::start(Self::OPTION, address, Arc::new(MetricsSite(feed))).map(Self)
    }

    /// The address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> &HttpAddress {
        self.0.address()
    }

    /// The address of the page of metrics.
    #[must_use]
    pub fn page(address: &HttpAddress) -> String {
        address.page("/metrics")
    }
}

/// The pages: metrics, whether the daemon answers, and the links to these two.
struct MetricsSite(Arc<Feed>);

impl Site for MetricsSite {
    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        match request.path {
            "/metrics" => {
                let form = form(request);
                match self.0.page() {
                    (Some(page), _) => {
                        HttpResponse::page(form.content_type(), page.text(form).into_bytes())
                    }
                    (None, _) => HttpResponse::text(HttpStatus::Unavailable, "no page yet"),
                }
            }
            "/healthz" => match self.0.page() {
                (_, true) => HttpResponse::text(HttpStatus::Found, "ok"),
                (_, false) => {
                    HttpResponse::text(HttpStatus::Unavailable, "the daemon does not answer")
                }
            },
            "/" => HttpResponse::page(PLAIN, INDEX.as_bytes()),
            _ => HttpResponse::refusal(HttpStatus::NotFound),
        }
    }

    fn note_refused(&self) {
        self.0.note_refused();
    }
}

/// The form of the page: OpenMetrics, unless the scraper wants plain text only.
fn form(request: &HttpRequest<'_>) -> TextForm {
    let wants = |value: &[u8], kind: &str| {
        String::from_utf8_lossy(value).to_ascii_lowercase().contains(kind)
    };
    let is_plain = request
        .fields("accept")
        .any(|value| wants(value, "text/plain") && !wants(value, "application/openmetrics-text"));
    if is_plain { TextForm::Prometheus } else { TextForm::OpenMetrics }
}
