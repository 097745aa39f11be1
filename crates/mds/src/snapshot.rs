//! Taking a snapshot of a subtree (BF-03): the moment in which the metadata store has all of it.
//!
//! 1. *Drain*: clients hand in their changes in directories that they have alone, and get none.
//! 2. *Copy*: changes that the store lacks are written. Requests continue; so few are left for the
//!    next step.
//! 3. *Freeze*: changes wait, anywhere on this rank, and the rest is written.
//! 4. *Commit*: the table of snapshots is replaced (`metastore::Snapshots`), and changes go on.
//!
//! No data is copied: from then on, a replacement of a directory's manifest first keeps the old
//! one. Reading continues throughout. A crash before the commit leaves nothing; after it, a valid
//! snapshot.

use std::collections::VecDeque;

use metastore::Snapshot;
use metastore::request::{StoreFailure, StoreOp, StoreResult};
use namespace::Namespace;
use types::{Clock, Cred, Errno, Error, Ino, Moment, Span};
use wire::{Answer, Failure};

use crate::authority::Authority;
use crate::checkpoint::Checkpoint;
use crate::fetch::Fetches;
use crate::merge::Merges;
use crate::op::{Performed, Performing, Refused};
use crate::store::StoreOps;
use crate::{Counters, MdsEffects, Phase, ReplyTo, Waiting};

/// Changes wait under this key: no inode has this number.
pub(crate) const FROZEN: Ino = Ino(u64::MAX);
/// Rounds of copying; another one is worth it only if the last took long.
const ROUNDS_MAX: u32 = 4;
const ROUND_SHORT: Span = Span::from_millis(10);
/// How many may wait.
const QUEUE_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnapshotStage {
    Drain,
    Copy { round: u32, since: Moment, written: bool },
    Freeze { written: bool },
    Commit,
}

/// A snapshot that is being taken, or will be.
#[derive(Debug)]
struct Taking {
    root: Ino,
    id: u64,
    /// Who asked.
    at: ReplyTo,
    stage: SnapshotStage,
    frozen: Option<Moment>,
    /// The failure that prevented the snapshot.
    failed: Option<Failure>,
    /// It is taken; its number.
    taken: Option<u64>,
}

/// The first is being taken.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    queue: VecDeque<Taking>,
}

impl Snapshots {
    /// Whether one is being taken.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether nothing may be changed.
    #[inline]
    pub(crate) fn is_frozen(&self) -> bool {
        self.queue.front().is_some_and(|taking| taking.frozen.is_some())
    }

    /// Checks that snapshots are taken one after the other.
    ///
    /// # Panics
    /// If they are not.
    pub(crate) fn validate(&self) {
        assert!(self.queue.len() <= QUEUE_MAX, "the number of waiting snapshots is bounded");
        for taking in self.queue.iter().skip(1) {
            let waits = taking.stage == SnapshotStage::Drain && taking.frozen.is_none();
            assert!(waits, "{}: one snapshot is taken at a time", taking.root);
        }
        if let Some(taking) = self.queue.front() {
            let root = taking.root;
            let frozen = taking.frozen.is_some();
            let late = matches!(taking.stage, SnapshotStage::Freeze { .. } | SnapshotStage::Commit);
            assert!(frozen == late, "{root}: changes wait from the freeze to the commit");
            let taken = taking.taken.is_none() || taking.stage == SnapshotStage::Commit;
            assert!(taken, "{root}: a snapshot is taken at the commit");
        }
    }

    /// The write is done.
    pub(crate) fn written(&mut self) {
        let Some(taking) = self.queue.front_mut() else { return };
        match &mut taking.stage {
            SnapshotStage::Copy { written, .. } | SnapshotStage::Freeze { written } => {
                *written = true
            }
            SnapshotStage::Drain | SnapshotStage::Commit => {}
        }
    }

    /// No client has changes of its own any more: what the store lacks is being written.
    pub(crate) fn drained(&mut self, now: Moment) {
        if let Some(taking) = self.queue.front_mut() {
            assert!(taking.stage == SnapshotStage::Drain, "{}: clients hand in first", taking.root);
            taking.stage = SnapshotStage::Copy { round: 0, since: now, written: false };
        }
    }

    /// The table was replaced, or not: if that is unknown, the client gets an error, and asks again
    /// with another id.
    pub(crate) fn taken(&mut self, id: u64, result: Result<StoreResult, Box<StoreFailure>>) {
        let front = self.queue.front_mut();
        let Some(taking) = front.filter(|it| it.id == id && it.stage == SnapshotStage::Commit)
        else {
            return;
        };
        taking.failed = match result {
            Ok(StoreResult::Stored(number)) => {
                taking.taken = Some(number);
                return;
            }
            Ok(_) => Some(Errno::Io.into()),
            Err(failure) => {
                Some(Failure { errno: failure.error.errno, text: failure.error.to_string() })
            }
        };
    }

    /// It cannot be written.
    pub(crate) fn failed(&mut self, error: &Error) {
        if let Some(taking) = self.queue.front_mut() {
            let failure = Failure { errno: error.errno, text: error.to_string() };
            taking.failed.get_or_insert(failure);
        }
    }
}

/// The snapshot that is being taken, with all that it may touch.
pub(crate) struct SnapshotCx<'a> {
    pub(crate) snapshots: &'a mut Snapshots,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) merges: &'a Merges,
    pub(crate) authority: &'a Authority,
    pub(crate) phase: Phase,
    pub(crate) clock: Clock,
}

/// The work of another part that the snapshot needs before it continues.
pub(crate) enum SnapshotNeed {
    /// The changes that clients have in directories of this subtree that they have alone.
    Drained(Ino),
    /// A write of what the store lacks of this subtree.
    Flush(Ino),
}

impl SnapshotCx<'_> {
    /// Begins to take a snapshot.
    pub(crate) fn begin(&mut self, at: ReplyTo, cred: &Cred, root: Ino, id: u64) -> Performing {
        let known = self.namespace.getattr(root)?;
        if !known.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        // A reader of the snapshot reads all of it.
        self.namespace.access(cred, root, 5)?;
        if self.authority.is_exporting() {
            let text = "a subtree is on its way to another rank; try again when it is there";
            let failure = Failure { errno: Errno::Busy, text: text.into() };
            return Err(Refused::Failure(failure));
        }
        if self.snapshots.queue.len() >= QUEUE_MAX {
            return Err(Errno::Again.into());
        }
        let stage = SnapshotStage::Drain;
        let taking = Taking { root, id, at, stage, frozen: None, failed: None, taken: None };
        self.snapshots.queue.push_back(taking);
        Ok(Performed::Later)
    }

    /// Continues the first snapshot until it needs something.
    pub(crate) fn step(&mut self, effects: &mut MdsEffects) -> Option<SnapshotNeed> {
        while let Some(taking) = self.snapshots.queue.front_mut() {
            if let Some(number) = taking.taken {
                self.end(Ok(number), effects);
            } else if self.phase != Phase::Active {
                let text = "the metadata server is stopping".into();
                self.end(Err(Failure { errno: Errno::Again, text }), effects);
            } else if let Some(failure) = taking.failed.take() {
                self.end(Err(failure), effects);
            } else {
                let (root, stage) = (taking.root, taking.stage);
                return self.next(root, stage, effects);
            }
        }
        None
    }

    /// Begins the next stage, if this one is done.
    fn next(
        &mut self,
        root: Ino,
        stage: SnapshotStage,
        effects: &mut MdsEffects,
    ) -> Option<SnapshotNeed> {
        let now = self.clock.now;
        let taking = self.snapshots.queue.front_mut()?;
        match stage {
            SnapshotStage::Drain => Some(SnapshotNeed::Drained(root)),
            SnapshotStage::Copy { written: false, .. }
            | SnapshotStage::Freeze { written: false }
            | SnapshotStage::Commit => None,
            SnapshotStage::Copy { round, since, .. }
                if now.since(since) >= ROUND_SHORT && round < ROUNDS_MAX =>
            {
                let round = round + 1;
                taking.stage = SnapshotStage::Copy { round, since: now, written: false };
                Some(SnapshotNeed::Flush(root))
            }
            // A snapshot must not contain half of a merge.
            SnapshotStage::Copy { .. } if self.merges.has_begun() => None,
            SnapshotStage::Copy { .. } => {
                assert!(taking.frozen.is_none(), "{root}: changes are frozen once");
                taking.frozen = Some(now);
                taking.stage = SnapshotStage::Freeze { written: false };
                Some(SnapshotNeed::Flush(root))
            }
            SnapshotStage::Freeze { .. } => {
                // Directories that were fetched since may be out of date in the store.
                if self.checkpoint.unstored_for_snapshot(self.namespace, root).next().is_some() {
                    taking.stage = SnapshotStage::Freeze { written: false };
                    return Some(SnapshotNeed::Flush(root));
                }
                taking.stage = SnapshotStage::Commit;
                self.commit(root, effects);
                None
            }
        }
    }

    fn commit(&mut self, root: Ino, effects: &mut MdsEffects) {
        let Some(taking) = self.snapshots.queue.front_mut() else { return };
        let id = taking.id;
        let (Ok(attr), Some(path)) = (self.namespace.getattr(root), self.namespace.path_of(root))
        else {
            let text = "the directory is not there any more".into();
            taking.failed = Some(Failure { errno: Errno::Stale, text });
            return;
        };
        let (source, in_force) = self.namespace.effective_policy(root);
        let policy = source.map(|_| in_force.policy.to_yaml()).unwrap_or_default();
        let snapshot = Box::new(Snapshot {
            number: 0,
            id,
            time: self.clock.time,
            path: path.to_bytes(),
            policy,
            root: attr,
        });
        self.store.begin(Waiting::Snapshot(id), StoreOp::TakeSnapshot { snapshot }, effects);
    }

    fn end(&mut self, result: Result<u64, Failure>, effects: &mut MdsEffects) {
        let Some(taking) = self.snapshots.queue.pop_front() else { return };
        if let Some(since) = taking.frozen {
            self.counters.snapshot_freeze_micros = self.clock.now.since(since).0 / 1000;
        }
        match result {
            Ok(number) => {
                self.counters.snapshots += 1;
                effects.reply_with(taking.at, types::Seq(0), Answer::Snapshot(number));
            }
            Err(failure) => effects.reply_error(taking.at, failure),
        }
        self.fetches.wake_returned(FROZEN);
    }
}
