//! The time of store operations, from the state machine's effect to its end.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use exporter::LatencyHistogram;
use metastore::request::StoreOp;

/// The kinds of store operations.
pub(crate) const KINDS: [&str; 14] = [
    "append",
    "put",
    "get",
    "list",
    "delete",
    "purge_data",
    "purge_dir",
    "load_dir",
    "look_up",
    "compact_dir",
    "attach_dirs",
    "prove_runs",
    "take_snapshot",
    "commit_dir",
];

/// The number of an operation's kind in [`KINDS`].
pub(crate) fn kind(op: &StoreOp) -> usize {
    match op {
        StoreOp::Append { .. } => 0,
        StoreOp::Put { .. } => 1,
        StoreOp::Get { .. } => 2,
        StoreOp::List { .. } => 3,
        StoreOp::Delete { .. } => 4,
        StoreOp::PurgeData { .. } => 5,
        StoreOp::PurgeDir { .. } => 6,
        StoreOp::LoadDir { .. } => 7,
        StoreOp::LookUp { .. } => 8,
        StoreOp::CompactDir { .. } => 9,
        StoreOp::AttachDirs { .. } => 10,
        StoreOp::ProveRuns { .. } => 11,
        StoreOp::TakeSnapshot { .. } => 12,
        StoreOp::CommitDir { .. } => 13,
    }
}

/// The durations of one kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindTimes {
    /// In the queue of a worker.
    pub(crate) queued: LatencyHistogram,
    /// In the store.
    pub(crate) executed: LatencyHistogram,
    pub(crate) failures: u64,
}

/// Shared by the workers. One lock for each operation: the store takes a thousand times as long.
#[derive(Debug, Default)]
pub(crate) struct StoreTimes {
    kinds: Mutex<[KindTimes; KINDS.len()]>,
}

fn nanos(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

impl StoreTimes {
    /// An operation of a kind ended.
    pub(crate) fn note(&self, kind: usize, [submitted, begun]: [Instant; 2], failed: bool) {
        let ended = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let times = &mut kinds[kind];
        times.queued.note(nanos(submitted, begun));
        times.executed.note(nanos(begun, ended));
        times.failures += u64::from(failed);
    }

    /// The durations of all kinds so far, in the order of [`KINDS`].
    pub(crate) fn read(&self) -> [KindTimes; KINDS.len()] {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
