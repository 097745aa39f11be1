//! The conditions of a cluster that need an administrator, as far as its map shows them.

use wire::{ClusterMap, MdsState, Warning};

/// Conditions under which a client cannot work or has lost data. The others are warnings.
const ERRORS: [&str; 7] = [
    "MDS_LOST",
    "NO_SERVER",
    "STORE_FULL",
    "STORE_READ_ONLY",
    "STORE_FAILED",
    "DIRECTORY_DAMAGED",
    "CONTENT_DAMAGED",
];

/// The codes of the conditions that metadata servers report.
pub const SERVER_CONDITIONS: [&str; 11] = [
    "BALANCER_FAULT",
    "BALANCER_UNREADABLE",
    "DIRECTORY_DAMAGED",
    "JOURNAL_LONG",
    "READ_ONLY",
    "REQUESTS_BLOCKED",
    "STORE_FAILED",
    "STORE_FULL",
    "STORE_NEAR_FULL",
    "STORE_READ_ONLY",
    "STORE_SLOW",
];

/// The codes of the conditions that the map itself shows.
const MAP_CONDITIONS: [&str; 5] =
    ["BALANCER_REVERTED", "MDS_LOST", "MDS_REPLAYING", "MDS_STOPPING", "NO_SERVER"];

/// The codes of all conditions that a map can show.
pub fn condition_codes() -> impl Iterator<Item = &'static str> {
    SERVER_CONDITIONS.into_iter().chain(MAP_CONDITIONS)
}

/// Whether clients cannot work under a condition with this code, or have lost data.
#[must_use]
pub fn is_error(code: &str) -> bool {
    ERRORS.contains(&code)
}

/// The findings in the map, and the servers' warnings.
#[must_use]
pub fn conditions(map: &ClusterMap) -> Vec<Warning> {
    let mut found = Vec::new();
    if map.mds.is_empty() {
        found.push(Warning {
            code: "NO_SERVER".into(),
            text: "there is no metadata server".into(),
            remedy: "`cudele up` starts one".into(),
        });
    }
    for entry in &map.mds {
        let (code, what, remedy) = match entry.state {
            MdsState::Active => continue,
            MdsState::Lost => ("MDS_LOST", "has no server", "`cudele up` starts one"),
            MdsState::Replaying => {
                ("MDS_REPLAYING", "reads its journal", "wait; clients wait for it, too")
            }
            MdsState::Stopping => {
                ("MDS_STOPPING", "is stopping", "`cudele up` starts it when it has stopped")
            }
        };
        let text = format!("{} {what}", entry.rank);
        found.push(Warning { code: code.into(), text, remedy: remedy.into() });
    }
    if let [.., before, current] = &map.balancers[..]
        && before.failed
    {
        found.push(Warning {
            code: "BALANCER_REVERTED".into(),
            text: format!(
                "balancer policy {} (version {}) was given up, and {} is in force again: {}",
                before.name, before.version, current.name, current.why
            ),
            remedy: "correct the policy and `cudele balancer set` it".into(),
        });
    }
    for (rank, warning) in &map.warnings {
        found.push(Warning { text: format!("{rank}: {}", warning.text), ..warning.clone() });
    }
    found
}
