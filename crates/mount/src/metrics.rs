//! Metrics of a mount: the requests of the kernel, by kind.
//!
//! Threads of the mount note each request under one lock: a request takes a hundred times as long
//! on its way through the kernel. Without metrics nothing is noted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use exporter::{LatencyHistogram, MetricDescription, MetricsPage};

static DURATION: MetricDescription = MetricDescription::histogram(
    "cudele_mount_request_duration_seconds",
    "From the arrival of a request of the kernel to its answer, by kind; kinds that never came are \
     left out. The caches of the kernel answer without a request.",
    "the 99th percentile of `lookup` or `create` is far above that of the servers: the network",
)
.with(&["op"]);
static ERRORS: MetricDescription = MetricDescription::counter(
    "cudele_mount_request_errors",
    "Requests that failed, by kind. A name that does not exist counts, too.",
    "those of `write`, `fsync` or `flush` grow: programs lose content",
)
.with(&["op"]);
static UNANSWERED: MetricDescription = MetricDescription::counter(
    "cudele_mount_timeouts",
    "Requests that failed with EIO: the store failed, or no server answered in time.",
    "it grows",
);
static READ: MetricDescription = MetricDescription::counter(
    "cudele_mount_read_bytes",
    "Bytes that programs read, without those in the cache of the kernel.",
    "",
);
static WRITTEN: MetricDescription =
    MetricDescription::counter("cudele_mount_written_bytes", "Bytes that programs wrote.", "");
static UNDER_WAY: MetricDescription = MetricDescription::gauge(
    "cudele_mount_requests_under_way",
    "Requests of the kernel without an answer so far.",
    "above 0 while the rate of requests is 0: a server or the store does not answer",
);
static SENT: MetricDescription = MetricDescription::counter(
    "cudele_mount_server_requests",
    "Requests to metadata servers. The fewer for each request of the kernel, the more the caches help.",
    "",
);
static UNSAFE: MetricDescription = MetricDescription::gauge(
    "cudele_mount_unsafe_requests",
    "Changes that are applied and not known to be durable.",
    "it grows for seconds: the journal of a server hangs",
);

static METRICS: [&MetricDescription; 8] =
    [&DURATION, &ERRORS, &UNANSWERED, &READ, &WRITTEN, &UNDER_WAY, &SENT, &UNSAFE];

/// The metrics of a mount, beside those of every process.
#[must_use]
pub fn metrics() -> Vec<MetricDescription> {
    METRICS.map(|metric| *metric).to_vec()
}

/// The code of `EIO`.
const IO: i32 = -5;

#[derive(Clone, Debug)]
struct KindOfRequest {
    name: &'static str,
    durations: LatencyHistogram,
    errors: u64,
}

#[derive(Clone, Debug, Default)]
struct Noted {
    kinds: Vec<KindOfRequest>,
    unanswered: u64,
    read: u64,
    written: u64,
    under_way: u64,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct MountMeter(Mutex<Noted>);

/// A request that has ended.
pub(crate) struct EndedRequest {
    pub(crate) kind: &'static str,
    pub(crate) took: Duration,
    /// 0, or a negative errno.
    pub(crate) code: i32,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

impl MountMeter {
    /// A request begins.
    pub(crate) fn begun(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).under_way += 1;
    }

    /// A request has ended.
    pub(crate) fn ended(&self, request: &EndedRequest) {
        let EndedRequest { kind, took, code, read_bytes, written_bytes } = *request;
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.under_way = noted.under_way.saturating_sub(1);
        noted.unanswered += u64::from(code == IO);
        noted.read += read_bytes;
        noted.written += written_bytes;
        let at = noted.kinds.iter().position(|known| known.name == kind).unwrap_or_else(|| {
            let durations = LatencyHistogram::default();
            noted.kinds.push(KindOfRequest { name: kind, durations, errors: 0 });
            noted.kinds.len() - 1
        });
        noted.kinds[at].durations.note(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        noted.kinds[at].errors += u64::from(code < 0);
    }

    /// The page of this moment, with the numbers of requests to servers and of unsafe ones.
    #[must_use]
    pub fn page(&self, server_requests: u64, unsafe_requests: u64) -> MetricsPage {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut page = MetricsPage::default();
        for kind in &noted.kinds {
            let op = vec![("op", kind.name.to_owned())];
            page.durations(&DURATION, op, kind.durations.clone());
        }
        for kind in &noted.kinds {
            page.labelled(&ERRORS, vec![("op", kind.name.to_owned())], kind.errors);
        }
        page.whole(&UNANSWERED, noted.unanswered);
        page.whole(&READ, noted.read);
        page.whole(&WRITTEN, noted.written);
        page.whole(&UNDER_WAY, noted.under_way);
        page.whole(&SENT, server_requests);
        page.whole(&UNSAFE, unsafe_requests);
        page
    }
}
