//! The way of a page from a daemon to the threads of scrapers.
//!
//! A thread that needs a page sets a flag and wakes the daemon. The daemon looks at the flag once
//! in each turn, makes a page, and continues. So a daemon without scrapers makes no page.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::{MetricDescription, MetricsPage, process};

static AGE: MetricDescription = MetricDescription::gauge(
    "cudele_metrics_age_seconds",
    "The age of the values on this page: the daemon makes them between two turns of its loop.",
    "above 2 s: the daemon's loop is busy with one piece of work, or hangs",
);
static SCRAPES: MetricDescription =
    MetricDescription::counter("cudele_metrics_scrapes", "Pages that were served.", "");
static REFUSED: MetricDescription = MetricDescription::counter(
    "cudele_metrics_refused",
    "Connections that were closed because too many scrapers were connected.",
    "it grows: too many scrapers, or a stranger",
);
static BUILD: MetricDescription = MetricDescription::gauge(
    "cudele_build_info",
    "1; the label says the version of the program.",
    "the processes of a cluster have different versions",
)
.with(&["version"]);

static METRICS: [&MetricDescription; 4] = [&AGE, &SCRAPES, &REFUSED, &BUILD];

/// The metrics that every process has.
#[must_use]
pub fn metrics() -> Vec<MetricDescription> {
    METRICS.into_iter().chain(process::METRICS).copied().collect()
}

/// See the module documentation.
pub struct Feed {
    wanted: AtomicBool,
    waker: Box<dyn Fn() + Send + Sync>,
    /// The last page, and when it was made.
    last: Mutex<Option<(Arc<MetricsPage>, Instant)>>,
    arrived: Condvar,
    scrapes: AtomicU64,
    refused: AtomicU64,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// Makes a page on the thread of a scraper.
pub type PageMaker = Box<dyn Fn() -> MetricsPage + Send + Sync>;

impl Feed {
    /// A page serves all scrapes for so long.
    pub const INTERVAL: Duration = Duration::from_millis(200);
    /// How long a scrape waits for the daemon. Then it gets the page before.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// A feed of a daemon that this function wakes.
    #[must_use]
    pub fn new(waker: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self::with_waker(Box::new(waker)))
    }

    fn with_waker(waker: Box<dyn Fn() + Send + Sync>) -> Self {
        Self {
            wanted: AtomicBool::new(false),
            waker,
            last: Mutex::new(None),
            arrived: Condvar::new(),
            scrapes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// A feed of a process without a loop: the threads of scrapers make the pages.
    #[must_use]
    pub fn of_threads(maker: PageMaker) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            let publish = move || {
                if let Some(feed) = this.upgrade() {
                    feed.publish(maker());
                }
            };
            Self::with_waker(Box::new(publish))
        })
    }

    /// Whether a scraper waits for a page.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Hands a page to the scrapers.
    pub fn publish(&self, page: MetricsPage) {
        self.wanted.store(false, Ordering::Relaxed);
        let made = Some((Arc::new(page), Instant::now()));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = made;
        self.arrived.notify_all();
    }

    /// Asks the daemon for a page, and returns the page, and whether the daemon answered in time.
    pub(crate) fn page(&self) -> (Option<Arc<MetricsPage>>, bool) {
        let fresh = |last: &Option<(Arc<MetricsPage>, Instant)>, since: Duration| {
            last.as_ref().is_some_and(|(_, made)| made.elapsed() < since)
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_fresh = fresh(&last, Self::INTERVAL);
        if !is_fresh {
            let asked = Instant::now();
            self.wanted.store(true, Ordering::Relaxed);
            // A waker may make the page itself.
            drop(last);
            (self.waker)();
            let again = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let waits = |last: &mut Option<(Arc<MetricsPage>, Instant)>| {
                last.as_ref().is_none_or(|(_, made)| *made < asked)
            };
            let waited = self.arrived.wait_timeout_while(again, Self::PATIENCE, waits);
            let (locked, time) = waited.unwrap_or_else(PoisonError::into_inner);
            last = locked;
            is_fresh = !time.timed_out();
        }
        let found = last.clone();
        // The daemon needs the lock for its next page.
        drop(last);
        (found.map(|(page, made)| Arc::new(self.completed(&page, made))), is_fresh)
    }

    /// The page with the metrics of the server.
    fn completed(&self, page: &MetricsPage, made: Instant) -> MetricsPage {
        let mut page = page.clone();
        page.real(&AGE, Vec::new(), made.elapsed().as_secs_f64());
        page.whole(&SCRAPES, self.scrapes.fetch_add(1, Ordering::Relaxed) + 1);
        page.whole(&REFUSED, self.refused.load(Ordering::Relaxed));
        page.labelled(&BUILD, vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1);
        process::measure(&mut page);
        page
    }

    pub(crate) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}
