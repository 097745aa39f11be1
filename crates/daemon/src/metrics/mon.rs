//! The page of a monitor.

use std::collections::BTreeMap;

use exporter::{MetricDescription, MetricsPage};
use mon::MonFigures;
use wire::MdsState;

use super::mds::seconds;

static SERVING: MetricDescription = MetricDescription::gauge(
    "cudele_mon_serving",
    "1 if the monitor has read the map and answers.",
    "0 for a minute: the map cannot be read",
);
static EPOCH: MetricDescription = MetricDescription::gauge(
    "cudele_mon_map_epoch",
    "The epoch of the cluster map: grows with every change.",
    "it grows every few seconds: servers come and go",
);
static RANKS: MetricDescription = MetricDescription::gauge(
    "cudele_mon_ranks",
    "Ranks of the cluster by the state of their servers.",
    "any is `lost`, or `replaying` for minutes",
)
.with(&["state"]);
static STANDBYS: MetricDescription = MetricDescription::gauge(
    "cudele_mon_standbys",
    "Metadata servers on the monitor's host that wait to take over.",
    "0 in a cluster that was started with standbys",
);
static STARTING: MetricDescription = MetricDescription::gauge(
    "cudele_mon_servers_starting",
    "Metadata servers that have connected and do not know their term yet.",
    "above 0 for minutes",
);
static BEACON_AGE: MetricDescription = MetricDescription::gauge(
    "cudele_mon_beacon_age_seconds",
    "How long ago the server of a rank reported. Servers report twice a second.",
    "above 3 s: after 5 s the monitor gives the server up",
)
.with(&["rank"]);
static HEALTH: MetricDescription = MetricDescription::gauge(
    "cudele_health",
    "How many findings of this code there are, as in `cudele health`. NO_STANDBY and CONTENT_DAMAGED \
     are found by that command only.",
    "any of severity `error`; a `warning` for an hour",
)
.with(&["code", "severity"]);
static SUBTREES: MetricDescription = MetricDescription::gauge(
    "cudele_mon_moved_subtrees",
    "Subtrees that ranks serve apart from their share of the namespace.",
    "",
);
static DECOUPLED: MetricDescription = MetricDescription::gauge(
    "cudele_mon_decoupled_subtrees",
    "Subtrees that clients have for themselves.",
    "it never shrinks: jobs end without a merge; see `cudele status`",
);
static POLICIES: MetricDescription =
    MetricDescription::gauge("cudele_mon_policies", "Directories with a policy of their own.", "");
static CLIENTS: MetricDescription = MetricDescription::counter(
    "cudele_mon_client_ids",
    "Client ids that were set aside, in blocks of 1000.",
    "",
);
static FORWARDED: MetricDescription = MetricDescription::gauge(
    "cudele_mon_requests_forwarded",
    "Requests that servers execute for clients of the monitor.",
    "above 0 for minutes",
);
static STORING: MetricDescription = MetricDescription::gauge(
    "cudele_mon_replies_waiting",
    "Replies that wait until the store has the map.",
    "above 0 for minutes: the store hangs",
);
static REVOKED: MetricDescription =
    MetricDescription::gauge("cudele_mon_revoked_keys", "Keys that were revoked.", "near 100000");

/// All metrics of a monitor.
pub(crate) static METRICS: [&MetricDescription; 14] = [
    &SERVING,
    &EPOCH,
    &RANKS,
    &STANDBYS,
    &STARTING,
    &BEACON_AGE,
    &HEALTH,
    &SUBTREES,
    &DECOUPLED,
    &POLICIES,
    &CLIENTS,
    &FORWARDED,
    &STORING,
    &REVOKED,
];

/// The page of this moment.
pub(crate) fn page(figures: &MonFigures, standbys: Option<u64>) -> MetricsPage {
    let (mut page, map) = (MetricsPage::default(), &figures.map);
    page.whole(&SERVING, u64::from(figures.is_serving));
    page.whole(&EPOCH, map.epoch.0);
    for state in [MdsState::Active, MdsState::Replaying, MdsState::Stopping, MdsState::Lost] {
        let count = map.mds.iter().filter(|entry| entry.state == state).count();
        page.labelled(&RANKS, vec![("state", state.word().to_owned())], count as u64);
    }
    if let Some(standbys) = standbys {
        page.whole(&STANDBYS, standbys);
    }
    page.whole(&STARTING, figures.starting);
    for (rank, silence) in &figures.silences {
        page.real(&BEACON_AGE, vec![("rank", rank.0.to_string())], seconds(*silence));
    }
    let mut codes: BTreeMap<String, u64> =
        mon::condition_codes().map(|code| (code.to_owned(), 0)).collect();
    for condition in mon::conditions(map) {
        *codes.entry(condition.code).or_default() += 1;
    }
    for (code, count) in codes {
        let severity = if mon::is_error(&code) { "error" } else { "warning" };
        page.labelled(&HEALTH, vec![("code", code), ("severity", severity.to_owned())], count);
    }
    let apart = map.mds.iter().flat_map(|entry| &entry.counters);
    let apart = apart.filter(|(name, _)| name == "subtrees_taken_in").map(|(_, count)| count);
    page.whole(&SUBTREES, apart.sum());
    page.whole(&DECOUPLED, map.decoupled.len() as u64);
    page.whole(&POLICIES, map.policies.len() as u64);
    page.whole(&CLIENTS, map.next_client.0);
    page.whole(&FORWARDED, figures.forwarded);
    page.whole(&STORING, figures.storing);
    page.whole(&REVOKED, map.revoked.len() as u64);
    page
}
