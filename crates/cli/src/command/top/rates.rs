//! Rates from two looks at the counters of the servers.

use std::collections::VecDeque;
use std::time::Instant;

use cudele::{ClusterMap, MdsState, Warning};
use serde_json::{Value, json};
use types::{Epoch, Rank};

/// Looks that are kept for the curve.
const KEPT: usize = 512;

/// The rates that are shown: a name, and the counters whose sum grows.
pub(super) const RATES: [(&str, &[&str]); 6] = [
    ("requests", &["requests"]),
    ("ahead", &["ahead"]),
    ("changes", &["mutations"]),
    ("merged", &["merged_events"]),
    ("forwards", &["forwards"]),
    ("journal_bytes", &["journal_bytes", "merge_bytes"]),
];
/// The levels that are shown.
pub(super) const LEVELS: [&str; 3] = ["inodes", "sessions", "open_files"];

/// A look at the cluster.
#[derive(Debug)]
pub(super) struct Sample {
    at: Instant,
    pub(super) map: ClusterMap,
}

/// A metadata server between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Server {
    pub(super) rank: Rank,
    pub(super) state: MdsState,
    /// Per second, as in [`RATES`]; `None` if another server had the rank before.
    pub(super) rates: Option<[f64; RATES.len()]>,
    /// As in [`LEVELS`].
    pub(super) levels: [u64; LEVELS.len()],
}

impl Sample {
    pub(super) fn new(at: Instant, map: ClusterMap) -> Self {
        Self { at, map }
    }

    /// The counters of a rank, with the term of its server.
    fn counters(&self, rank: Rank) -> Option<(Epoch, &[(String, u64)])> {
        let entry = self.map.mds.iter().find(|entry| entry.rank == rank)?;
        Some((entry.epoch, &entry.counters))
    }

    /// The servers since an earlier look.
    pub(super) fn servers(&self, before: &Self) -> Vec<Server> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let servers = self.map.mds.iter().map(|entry| {
            let earlier = before.counters(entry.rank).filter(|(term, _)| *term == entry.epoch);
            let rates = earlier.map(|(_, earlier)| {
                RATES.map(|(_, names)| {
                    let sum = |counters: &[(String, u64)]| -> u64 {
                        names.iter().map(|name| value(counters, name)).sum()
                    };
                    #[allow(clippy::cast_precision_loss, reason = "it is shown to three digits")]
                    let grown = sum(&entry.counters).saturating_sub(sum(earlier)) as f64;
                    grown / seconds
                })
            });
            let levels = LEVELS.map(|name| value(&entry.counters, name));
            Server { rank: entry.rank, state: entry.state, rates, levels }
        });
        servers.collect()
    }

    pub(super) fn findings(&self) -> Vec<Warning> {
        crate::command::health::checks(&self.map)
    }

    pub(super) fn to_json(&self, before: &Self) -> Value {
        let servers = self.servers(before).into_iter().map(|server| {
            let mut object = json!({ "rank": server.rank.0, "state": server.state.word() });
            if let Some(rates) = server.rates {
                for ((name, _), rate) in RATES.iter().zip(rates) {
                    object[format!("{name}_per_second")] = json!((rate * 10.0).round() / 10.0);
                }
            }
            for (name, level) in LEVELS.iter().zip(server.levels) {
                object[*name] = json!(level);
            }
            object
        });
        json!({
            "seconds": self.at.duration_since(before.at).as_secs_f64(),
            "mds": servers.collect::<Vec<_>>(),
            "decoupled": self.map.decoupled.len(),
            "health": crate::command::health::to_json(&self.findings()),
        })
    }
}

fn value(counters: &[(String, u64)], name: &str) -> u64 {
    counters.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
}

/// The newest two looks, and a curve of all.
#[derive(Debug)]
pub(super) struct History {
    before: Option<Sample>,
    now: Sample,
    /// Requests and changes ahead of the servers, per second, all ranks together.
    curve: VecDeque<u64>,
}

impl History {
    pub(super) fn new(first: Sample) -> Self {
        Self { before: None, now: first, curve: VecDeque::new() }
    }

    pub(super) fn push(&mut self, sample: Sample) {
        self.before = Some(std::mem::replace(&mut self.now, sample));
        let all = self.servers().into_iter().filter_map(|server| server.rates);
        // The first two of `RATES`.
        let sum: f64 = all.map(|[requests, ahead, ..]| requests + ahead).sum();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is shown")]
        self.curve.push_back(sum.round() as u64);
        if self.curve.len() > KEPT {
            self.curve.pop_front();
        }
    }

    pub(super) fn now(&self) -> &Sample {
        &self.now
    }

    pub(super) fn servers(&self) -> Vec<Server> {
        self.now.servers(self.before.as_ref().unwrap_or(&self.now))
    }

    /// The newest so many values of the curve, the newest last.
    pub(super) fn curve(&self, length: usize) -> Vec<u64> {
        self.curve.iter().skip(self.curve.len().saturating_sub(length)).copied().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use wire::{DecoupledSubtree, MdsEntry};

    use super::*;

    pub(crate) fn map(counters: &[&[(&str, u64)]], term: u64) -> ClusterMap {
        let entry = |(rank, counters): (usize, &&[(&str, u64)])| MdsEntry {
            rank: Rank(u16::try_from(rank).unwrap()),
            epoch: Epoch(term),
            state: MdsState::Active,
            counters: counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..MdsEntry::default()
        };
        let decoupled = DecoupledSubtree {
            path: b"/job\x1b[2J".to_vec(),
            policy: "consistency: append_client_journal+volatile_apply".to_owned(),
            ..DecoupledSubtree::default()
        };
        ClusterMap {
            mds: counters.iter().enumerate().map(entry).collect(),
            decoupled: vec![decoupled],
            ..ClusterMap::default()
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let start = Instant::now();
        let first = Sample::new(start, map(&[&[("requests", 100), ("inodes", 7)]], 1));
        let counters: &[(&str, u64)] = &[("requests", 300), ("merge_bytes", 50), ("inodes", 9)];
        let next = Sample::new(start + Duration::from_secs(2), map(&[counters], 1));
        let servers = next.servers(&first);
        assert_eq!(servers[0].rates, Some([100.0, 0.0, 0.0, 0.0, 0.0, 25.0]));
        assert_eq!(servers[0].levels, [9, 0, 0]);
        let json = next.to_json(&first);
        assert_eq!(json["mds"][0]["requests_per_second"], 100.0);
        // Another server began to count anew.
        let other = Sample::new(start + Duration::from_secs(3), map(&[&[("requests", 5)]], 2));
        assert_eq!(other.servers(&next)[0].rates, None);
    }
}
