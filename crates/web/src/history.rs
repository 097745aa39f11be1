//! The counters of the last half hour: the curves of a page begin before the page is opened.
//!
//! Invariant: the memory is bounded by [`SAMPLES_MAX`] and the number of servers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cudele::ClusterMap;
use serde_json::{Map, Value, json};

/// The time between two samples: that between two looks of a page.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
/// Half an hour of samples.
const SAMPLES_MAX: usize = 900;
/// The counters that have curves.
const COUNTERS: [&str; 5] = ["requests", "ahead", "journal_bytes", "merge_bytes", "forwards"];

/// The samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<VecDeque<Value>>);

impl History {
    /// Takes a sample of this time, in milliseconds since 1970.
    pub(crate) fn note(&self, time: u64, map: &ClusterMap) {
        let servers = map.mds.iter().map(|entry| {
            let counters = entry.counters.iter().filter(|(name, _)| COUNTERS.contains(&&name[..]));
            let counters = counters.map(|(name, value)| (name.clone(), json!(value)));
            json!({
                "rank": entry.rank.0, "term": entry.epoch.0,
                "counters": Value::Object(counters.collect::<Map<_, _>>()),
            })
        });
        let sample = json!({ "time": time, "servers": servers.collect::<Vec<_>>() });
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// All samples.
    pub(crate) fn samples(&self) -> Value {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({ "samples": &*samples })
    }
}
