//! The page of a metadata server.

use exporter::{MetricDescription, MetricsPage};
use mds::{CHOSEN, Figures};
use types::{Moment, Span};
use wire::MdsState;

use super::mds_counters::COUNTERS;
use super::requests::RequestTimes;
use super::store::{KINDS, StoreTimes};

/// The beginning of the name of a counter with the heartbeats of one rank.
const HEARTBEATS: &str = "heartbeats_from_";

const fn counter(name: &'static str, help: &'static str, worry: &'static str) -> MetricDescription {
    MetricDescription::counter(name, help, worry)
}

const fn gauge(name: &'static str, help: &'static str, worry: &'static str) -> MetricDescription {
    MetricDescription::gauge(name, help, worry)
}

static STATE: MetricDescription = gauge(
    "cudele_mds_state",
    "1 for the state of the server, 0 for the other states.",
    "a server is replaying or stopping for minutes",
)
.with(&["rank", "state"]);
static TERM: MetricDescription = gauge(
    "cudele_mds_term",
    "The term of the server: grows with every start of a server of the rank.",
    "it grows by itself: servers end and start again",
);
static HEALTH: MetricDescription = gauge(
    "cudele_mds_health",
    "1 while a condition of this code holds at this server; see `cudele health`.",
    "any is there: `cudele health` has the text and the remedy",
)
.with(&["code"]);
static HEARTBEATS_RECEIVED: MetricDescription =
    counter("cudele_mds_heartbeats_received", "Reports of load of another rank.", "")
        .with(&["rank"]);
static SETTING: MetricDescription = gauge(
    "cudele_mds_setting",
    "The settings that the command line of the server names (`--set`).",
    "",
)
.with(&["setting"]);
static ROOM_TOTAL: MetricDescription =
    gauge("cudele_mds_store_size_bytes", "The capacity of the store; 0 if it is not known.", "");
static ROOM_AVAILABLE: MetricDescription = gauge(
    "cudele_mds_store_available_bytes",
    "The free room of the store, without the reserve.",
    "below a tenth of the capacity",
);
static RESERVE: MetricDescription = gauge(
    "cudele_mds_store_reserve_bytes",
    "The reserve for removals, checkpoints and a clean stop.",
    "below `reserve_bytes`: the store is full, and requests that add to it fail",
);
static JOURNAL_WRITE: MetricDescription = gauge(
    "cudele_mds_journal_write_age_seconds",
    "How long the oldest write of the journal has been under way.",
    "above 5 s: the store hangs",
);
static STORE_OPS: MetricDescription = gauge(
    "cudele_mds_store_operations_under_way",
    "Operations of the store that have not ended.",
    "it grows for minutes",
);
static AWAITED: MetricDescription = gauge(
    "cudele_mds_directories_awaited",
    "Directories in the store that requests wait for.",
    "above 0 for minutes while nothing is fetched",
);
static REVOKING: MetricDescription = gauge(
    "cudele_mds_capabilities_revoking",
    "Capabilities that clients were asked to return.",
    "above 0 for more than 10 s: a client does not answer",
);
static EXPORTS: MetricDescription = gauge(
    "cudele_mds_exports_under_way",
    "Subtrees that are going to other ranks.",
    "above 0 for minutes",
);
static IMPORTS: MetricDescription = gauge(
    "cudele_mds_imports_under_way",
    "Subtrees that are coming from other ranks.",
    "above 0 for minutes",
);
static MERGES: MetricDescription = gauge(
    "cudele_mds_merges_under_way",
    "Merges that are received, or wait, or are applied.",
    "it grows for minutes: jobs end faster than they merge",
);
static SUBTREE_HITS: MetricDescription = gauge(
    "cudele_mds_subtree_hits_per_second",
    "Uses of a subtree per second, faded by half in each half-life (5 s): of the root, of subtrees that \
     the rank serves apart, and of directories with a policy; the 64 hottest. The path is empty unless \
     the daemon was started with `--metrics-paths`.",
    "one subtree has nearly all of a rank that is busy",
)
.with(&["ino", "path", "kind"]);
static REQUESTS: MetricDescription = MetricDescription::histogram(
    "cudele_mds_request_duration_seconds",
    "From the arrival of a request to its reply, by the kind of operation; kinds that never came are \
     left out.",
    "the 99th percentile of `create` or `lookup` is above 50 ms",
)
.with(&["op"]);
static TURNS: MetricDescription = MetricDescription::histogram(
    "cudele_mds_turn_duration_seconds",
    "Turns of the server's loop: requests that arrived together, and a slice of background work.",
    "the 99th percentile is above 20 ms: background work delays requests",
);
static UNDER_WAY: MetricDescription = gauge(
    "cudele_mds_requests_under_way",
    "Requests without a reply so far, at most 4096.",
    "it grows while the rate of requests does not",
);
static OLDEST: MetricDescription = gauge(
    "cudele_mds_request_age_seconds",
    "How long the oldest request without a reply has waited. A lock or a long merge waits, too.",
    "",
);
static UNMEASURED: MetricDescription = counter(
    "cudele_mds_requests_unmeasured",
    "Requests whose durations are unknown, because two shared a place in the table of requests.",
    "more than a tenth of the requests: the histograms show a part only",
);
static STORE_QUEUED: MetricDescription = MetricDescription::histogram(
    "cudele_mds_store_queue_duration_seconds",
    "How long operations of the store waited for a worker, by kind; `append` is the journal.",
    "the 99th percentile of `append` is above 100 ms",
)
.with(&["op"]);
static STORE_EXECUTED: MetricDescription = MetricDescription::histogram(
    "cudele_mds_store_duration_seconds",
    "How long the store executed operations, by kind; `append` makes changes durable.",
    "the 99th percentile of `append` is above 100 ms",
)
.with(&["op"]);
static STORE_FAILED: MetricDescription = counter(
    "cudele_mds_store_operation_failures",
    "Operations of the store that failed, by kind. A look for an object that is not there counts, too.",
    "those of `append` or `commit_dir` grow",
)
.with(&["op"]);

/// All metrics of a metadata server.
pub(crate) fn descriptions() -> Vec<MetricDescription> {
    let counters = COUNTERS.iter().map(|(_, metric)| *metric);
    let others = [
        &STATE,
        &TERM,
        &HEALTH,
        &HEARTBEATS_RECEIVED,
        &SETTING,
        &ROOM_TOTAL,
        &ROOM_AVAILABLE,
        &RESERVE,
        &JOURNAL_WRITE,
        &STORE_OPS,
        &AWAITED,
        &REVOKING,
        &EXPORTS,
        &IMPORTS,
        &MERGES,
        &SUBTREE_HITS,
        &REQUESTS,
        &TURNS,
        &UNDER_WAY,
        &OLDEST,
        &UNMEASURED,
        &STORE_QUEUED,
        &STORE_EXECUTED,
        &STORE_FAILED,
    ];
    counters.chain(others.into_iter().copied()).collect()
}

/// The page of this moment.
pub(crate) fn page(
    figures: &Figures,
    requests: &RequestTimes,
    store: &StoreTimes,
    now: Moment,
) -> MetricsPage {
    let mut page = MetricsPage::default();
    of_server(&mut page, figures);
    of_counters(&mut page, &figures.counters);
    for load in &figures.subtrees {
        for (kind, rate) in load.rates {
            let path = load.path.clone().unwrap_or_default();
            let ino = format!("{:#x}", load.root.0);
            let labels = vec![("ino", ino), ("path", path), ("kind", kind.to_owned())];
            page.real(&SUBTREE_HITS, labels, rate);
        }
    }
    for (op, durations) in requests.kinds() {
        page.durations(&REQUESTS, vec![("op", (*op).to_owned())], durations.clone());
    }
    page.durations(&TURNS, Vec::new(), requests.turns().clone());
    let (under_way, oldest) = requests.under_way(now);
    page.whole(&UNDER_WAY, under_way);
    page.real(&OLDEST, Vec::new(), seconds(oldest));
    page.whole(&UNMEASURED, requests.unmeasured());
    let store = store.read();
    let op = |kind: &str| vec![("op", kind.to_owned())];
    for (kind, times) in KINDS.iter().zip(&store) {
        page.durations(&STORE_QUEUED, op(kind), times.queued.clone());
    }
    for (kind, times) in KINDS.iter().zip(&store) {
        page.durations(&STORE_EXECUTED, op(kind), times.executed.clone());
    }
    for (kind, times) in KINDS.iter().zip(&store) {
        page.labelled(&STORE_FAILED, op(kind), times.failures);
    }
    page
}

fn of_server(page: &mut MetricsPage, figures: &Figures) {
    for state in [MdsState::Replaying, MdsState::Active, MdsState::Stopping] {
        let rank = figures.rank.0.to_string();
        let labels = vec![("rank", rank), ("state", state.word().to_owned())];
        page.labelled(&STATE, labels, u64::from(state == figures.state));
    }
    page.whole(&TERM, figures.term);
    for code in mon::SERVER_CONDITIONS {
        let holds = figures.warnings.iter().any(|known| known == code);
        page.labelled(&HEALTH, vec![("code", code.to_owned())], u64::from(holds));
    }
    page.whole(&ROOM_TOTAL, figures.room.total);
    page.whole(&ROOM_AVAILABLE, figures.room.available);
    page.whole(&RESERVE, figures.room.held);
    page.real(&JOURNAL_WRITE, Vec::new(), seconds(figures.journal_write));
    page.whole(&STORE_OPS, figures.store_ops);
    page.whole(&AWAITED, figures.directories_awaited);
    page.whole(&REVOKING, figures.revoking);
    page.whole(&EXPORTS, figures.exports);
    page.whole(&IMPORTS, figures.imports);
    page.whole(&MERGES, figures.merges);
}

/// The counters, and those with a part of the name that is a label.
fn of_counters(page: &mut MetricsPage, counters: &[(String, u64)]) {
    for (name, metric) in &COUNTERS {
        let value = counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value);
        if name.ends_with("micros") {
            page.real(metric, Vec::new(), seconds(Span(value.saturating_mul(1000))));
        } else {
            page.whole(metric, value);
        }
    }
    for (name, value) in counters {
        if let Some(rank) = name.strip_prefix(HEARTBEATS) {
            page.labelled(&HEARTBEATS_RECEIVED, vec![("rank", rank.to_owned())], *value);
        }
    }
    for (name, value) in counters {
        if let Some(setting) = name.strip_prefix(CHOSEN) {
            page.labelled(&SETTING, vec![("setting", setting.to_owned())], *value);
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds of 100 days fit 53 bits")]
pub(crate) fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e9
}
