//! The paths of the pages, and the admission of clients.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use cudele::{BalancerLog, ClusterMap, Result};
use httpserver::{HttpRequest, HttpResponse, HttpStatus, Site};
use serde_json::{Value, json};

use crate::answers::{self, SubtreeQuery};
use crate::decisions;
use crate::history::{History, SAMPLE_INTERVAL};
use crate::source::{Latest, grown};
use crate::{ClusterSource, WebKey};

const JSON: &str = "application/json";
/// The pages load nothing from other hosts, and no other site shows them in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The fixed pages: path, media type, text.
const PAGES: [(&str, &str, &str); 5] = [
    ("/", "text/html; charset=utf-8", include_str!("../pages/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../pages/style.css")),
    ("/app.js", "text/javascript; charset=utf-8", include_str!("../pages/app.js")),
    ("/charts.js", "text/javascript; charset=utf-8", include_str!("../pages/charts.js")),
    ("/favicon.ico", "image/svg+xml", include_str!("../pages/icon.svg")),
];

/// The pages of a cluster.
pub struct ClusterSite {
    source: Box<dyn ClusterSource>,
    key: WebKey,
    map: Latest<ClusterMap>,
    log: Latest<BalancerLog>,
    history: History,
}

impl std::fmt::Debug for ClusterSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterSite")
    }
}

impl ClusterSite {
    /// The pages of the cluster behind a source, for clients with a key.
    #[must_use]
    pub fn new(source: Box<dyn ClusterSource>, key: WebKey) -> Self {
        let (map, log, history) = (Latest::default(), Latest::default(), History::default());
        Self { source, key, map, log, history }
    }

    /// Looks at the cluster until the pages are dropped, for the curves.
    ///
    /// # Errors
    /// The system's, if there is no thread.
    pub fn keep_history(self: &Arc<Self>) -> std::io::Result<()> {
        let site = Arc::downgrade(self);
        let thread = thread::Builder::new().name("web history".to_owned());
        thread.spawn(move || look_again(&site)).map(drop)
    }

    /// One sample for the curves. A look that fails leaves a gap in them.
    pub(crate) fn look(&self) {
        if let Ok(map) = self.map.get(|_| self.source.map()) {
            self.history.note(milliseconds(), &map);
        }
    }

    /// The answer to a path below `/api/`; `None` if there is no such path.
    fn facts(&self, request: &HttpRequest<'_>) -> Option<Result<Value>> {
        let map = || self.map.get(|_| self.source.map());
        let log = || self.log.get(|log| grown(&*self.source, log));
        Some(match request.path {
            "/api/cluster" => map().map(|map| {
                let mut value = answers::cluster(&map);
                value["time"] = json!(milliseconds());
                value
            }),
            "/api/decoupled" => {
                let query = SubtreeQuery::of(request);
                map().map(|map| answers::decoupled(&map, &query))
            }
            "/api/decisions" => log().map(|log| decisions::newest(&log)),
            "/api/history" => Ok(self.history.samples()),
            "/api/heat" => log().map(|log| decisions::heat(&log)),
            _ => return None,
        })
    }
}

fn look_again(site: &Weak<ClusterSite>) {
    while let Some(site) = site.upgrade() {
        site.look();
        drop(site);
        thread::sleep(SAMPLE_INTERVAL);
    }
}

/// The present time, in milliseconds since 1970.
fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Site for ClusterSite {
    fn answer(&self, request: &HttpRequest<'_>) -> HttpResponse {
        if let Some((_, kind, text)) = PAGES.iter().find(|(path, ..)| *path == request.path) {
            return HttpResponse::page(kind, text.as_bytes())
                .with("Content-Security-Policy", POLICY.to_owned())
                .with("Referrer-Policy", "no-referrer".to_owned());
        }
        if !request.fields("authorization").any(|value| self.key.is_in(value)) {
            let text =
                "this needs the key of the page: `cudele web` prints its address with the key";
            let response = HttpResponse::text(HttpStatus::Unauthorized, text);
            return response.with("WWW-Authenticate", "Bearer".to_owned());
        }
        match self.facts(request) {
            Some(Ok(value)) => HttpResponse::page(JSON, value.to_string().into_bytes()),
            Some(Err(error)) => {
                let body = json!({ "error": error.to_string() }).to_string().into_bytes();
                let status = HttpStatus::Unavailable;
                HttpResponse { status, ..HttpResponse::page(JSON, body) }
            }
            None => HttpResponse::refusal(HttpStatus::NotFound),
        }
    }
}
