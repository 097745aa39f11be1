//! Which runs of a fragment are merged into one, and when.
//!
//! Runs fall into *tiers* by size, each four times as large as the one before. Four runs of a tier
//! become one of the next, together with all smaller and newer ones. So a row is rewritten about
//! once for every four-fold growth of its directory, and a fragment has at most three runs of a
//! tier, except for those that are waiting. Small runs are merged by the writer of the next run:
//! that costs less than another object. Runs that mostly hide rows of older ones are merged with
//! all of these, and so are all runs when half of the content of value segments is pointed to no
//! more, or may be.
//!
//! Not here: merging.
//!
//! Invariant: merged runs are at the front, the newest run first; one run alone only for the sake
//! of its values.

use crate::manifest::{Manifest, RunInfo};
use crate::values::ValueSegment;

/// How often a tier's size fits into the next one, and so many runs are merged.
const FAN: usize = 4;
/// So many small runs are merged with the one that comes on top of them.
const SMALL_RUNS: usize = 7;
/// One removal among so many rows is worth a look at the value segments.
const REMOVED_PART: u64 = 5;

/// Sizes that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// A run up to this many bytes is of the lowest tier.
    pub small_bytes: u64,
    /// The most bytes that the writer of the next run merges at once.
    pub at_once_bytes: u64,
    /// No merged run becomes larger than this many bytes.
    pub run_bytes_max: u64,
}

impl Default for Tiers {
    fn default() -> Self {
        Self { small_bytes: 256 << 10, at_once_bytes: 1 << 20, run_bytes_max: 768 << 20 }
    }
}

impl Tiers {
    /// The number of runs at the front that are merged with a new one above them; 0 for none.
    #[must_use]
    pub fn at_once(&self, runs: &[RunInfo]) -> usize {
        let mut bytes = 0;
        let small = runs.iter().take_while(|run| {
            bytes += run.bytes;
            run.bytes <= self.small_bytes && bytes <= self.at_once_bytes
        });
        let count = small.count();
        if count >= SMALL_RUNS { count } else { 0 }
    }

    /// The number of runs at the front that should be merged in the background; `None` for none.
    #[must_use]
    pub fn choose(&self, manifest: &Manifest) -> Option<usize> {
        let runs = &manifest.runs;
        if self.wastes(manifest) || self.hides_values(manifest) {
            return Some(runs.len());
        }
        self.choose_runs(runs)
    }

    /// Whether half of the value segments is garbage, and merging all runs would remove it at a
    /// price that is small beside its size.
    fn wastes(&self, manifest: &Manifest) -> bool {
        let sum = |value: fn(&ValueSegment) -> u64| {
            manifest.values.iter().map(value).fold(0, u64::saturating_add)
        };
        let (held, used) = (sum(|segment| segment.bytes), sum(ValueSegment::used));
        let all = manifest.runs.iter().fold(0, |sum, run| u64::saturating_add(sum, run.bytes));
        held > self.at_once_bytes && used < held / 2 && all <= self.run_bytes_max / FAN as u64
    }

    /// Whether so many names were removed that a large part of the value segments may be garbage. A
    /// merge of all runs finds out, at a cost that is small beside their content.
    fn hides_values(&self, manifest: &Manifest) -> bool {
        let runs = &manifest.runs;
        let sum = |value: fn(&RunInfo) -> u64| runs.iter().map(value).fold(0, u64::saturating_add);
        let (all, removed) = (sum(|run| run.bytes), sum(|run| run.removed));
        let held = manifest.values.iter().fold(0, |sum, it| u64::saturating_add(sum, it.bytes));
        runs.len() > 1
            && removed > 0
            && removed >= sum(|run| run.rows) / REMOVED_PART
            && held > self.at_once_bytes.max(all)
            && all <= self.run_bytes_max / FAN as u64
    }

    fn choose_runs(&self, runs: &[RunInfo]) -> Option<usize> {
        let sum = |value: fn(&RunInfo) -> u64| runs.iter().map(value).fold(0, u64::saturating_add);
        // Half of the rows only hide the other half: the merge removes both. The removals have paid
        // for its cost.
        if runs.len() > 1
            && sum(|run| run.bytes) > self.at_once_bytes
            && sum(|run| run.removed) > sum(|run| run.rows) / 2
            && let Some(count) = self.fitting(runs)
            && count == runs.len()
        {
            return Some(count);
        }
        let highest = runs.iter().map(|run| self.tier(run)).max()?;
        (0..=highest).find_map(|tier| {
            let mut bytes: u64 = 0;
            let front: Vec<_> = runs.iter().take_while(|run| self.tier(run) <= tier).collect();
            let of_tier = front.iter().filter(|run| self.tier(run) == tier).count();
            front.iter().for_each(|run| bytes = bytes.saturating_add(run.bytes));
            if of_tier < FAN || bytes <= self.at_once_bytes {
                return None;
            }
            self.fitting(&runs[..front.len()]).filter(|count| *count >= FAN)
        })
    }

    /// How many runs at the front fit into one.
    fn fitting(&self, runs: &[RunInfo]) -> Option<usize> {
        let mut bytes: u64 = 0;
        let fitting = runs.iter().take_while(|run| {
            bytes = bytes.saturating_add(run.bytes);
            bytes <= self.run_bytes_max
        });
        Some(fitting.count()).filter(|count| *count >= 2)
    }

    fn tier(&self, run: &RunInfo) -> u32 {
        let mut tier = 0;
        let mut most = self.small_bytes.max(1);
        while run.bytes > most {
            most = most.saturating_mul(FAN as u64);
            tier += 1;
        }
        tier
    }
}

#[cfg(test)]
mod tests;
