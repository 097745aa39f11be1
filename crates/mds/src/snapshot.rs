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
use types::{Cred, Errno, Error, Ino, Moment, Span};
use wire::{Answer, Failure};

use crate::op::{Performed, Performing, Refused};
use crate::{Mds, MdsEffects, Phase, ReplyTo, Waiting};

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

    /// It cannot be written.
    pub(crate) fn failed(&mut self, error: &Error) {
        if let Some(taking) = self.queue.front_mut() {
            let failure = Failure { errno: error.errno, text: error.to_string() };
            taking.failed.get_or_insert(failure);
        }
    }
}

impl Mds {
    /// Begins to take a snapshot.
    pub(crate) fn snapshot(
        &mut self,
        at: ReplyTo,
        cred: &Cred,
        (root, id): (Ino, u64),
    ) -> Performing {
        let known = self.namespace.getattr(root)?;
        if !known.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        // A reader of the snapshot reads all of it.
        self.namespace.access(cred, root, 5)?;
        self.check_all_here(root)?;
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

    /// Continues the first snapshot, as far as possible. Called after every input.
    pub(crate) fn snapshot_step(&mut self, effects: &mut MdsEffects) {
        while let Some(taking) = self.snapshots.queue.front() {
            if let Some(number) = taking.taken {
                self.end_snapshot(Ok(number), effects);
                continue;
            }
            if self.phase != Phase::Active {
                let text = "the metadata server is stopping".into();
                self.end_snapshot(Err(Failure { errno: Errno::Again, text }), effects);
                continue;
            }
            if let Some(failure) = taking.failed.clone() {
                self.end_snapshot(Err(failure), effects);
                continue;
            }
            let (root, stage) = (taking.root, taking.stage);
            let Some(next) = self.snapshot_next(root, stage, effects) else { return };
            if let Some(taking) = self.snapshots.queue.front_mut() {
                taking.stage = next;
            }
        }
    }

    /// The next stage, if this one is done.
    fn snapshot_next(
        &mut self,
        root: Ino,
        stage: SnapshotStage,
        effects: &mut MdsEffects,
    ) -> Option<SnapshotStage> {
        let now = self.clock.now;
        match stage {
            SnapshotStage::Drain => {
                if !self.capabilities().end_exclusive_below(root, effects) {
                    return None;
                }
                self.begin_flush(
                    SnapshotStage::Copy { round: 0, since: now, written: false },
                    effects,
                )
            }
            SnapshotStage::Copy { written: false, .. }
            | SnapshotStage::Freeze { written: false } => None,
            SnapshotStage::Copy { round, since, .. } => {
                if now.since(since) >= ROUND_SHORT && round < ROUNDS_MAX {
                    let (round, since) = (round + 1, now);
                    let stage = SnapshotStage::Copy { round, since, written: false };
                    return self.begin_flush(stage, effects);
                }
                // A snapshot must not contain half of a merge.
                if self.merges.has_begun() {
                    return None;
                }
                let taking = self.snapshots.queue.front_mut()?;
                assert!(taking.frozen.is_none(), "{root}: changes are frozen once");
                taking.frozen = Some(now);
                self.begin_flush(SnapshotStage::Freeze { written: false }, effects)
            }
            SnapshotStage::Freeze { .. } => {
                // Directories that were fetched since may be out of date in the store.
                if self.checkpointing().unstored_for_snapshot(root).next().is_some() {
                    return self.begin_flush(SnapshotStage::Freeze { written: false }, effects);
                }
                self.commit_snapshot(root, effects);
                Some(SnapshotStage::Commit)
            }
            SnapshotStage::Commit => None,
        }
    }

    /// Begins to write unstored changes. The stage comes first: there may be nothing to write.
    fn begin_flush(
        &mut self,
        stage: SnapshotStage,
        effects: &mut MdsEffects,
    ) -> Option<SnapshotStage> {
        let taking = self.snapshots.queue.front_mut()?;
        taking.stage = stage;
        let root = taking.root;
        self.checkpointing().flush_for_snapshot(root, effects);
        self.snapshots.queue.front().map(|taking| taking.stage)
    }

    fn commit_snapshot(&mut self, root: Ino, effects: &mut MdsEffects) {
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

    /// The table was replaced, or not: if that is unknown, the client gets an error, and asks again
    /// with another id.
    pub(crate) fn snapshot_taken(
        &mut self,
        id: u64,
        result: Result<StoreResult, Box<StoreFailure>>,
    ) {
        let front = self.snapshots.queue.front_mut();
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

    fn end_snapshot(&mut self, result: Result<u64, Failure>, effects: &mut MdsEffects) {
        let Some(taking) = self.snapshots.queue.pop_front() else { return };
        let ReplyTo { conn, tid } = taking.at;
        if let Some(since) = taking.frozen {
            self.counters.snapshot_freeze_micros = self.clock.now.since(since).0 / 1000;
        }
        match result {
            Ok(number) => {
                self.counters.snapshots += 1;
                effects.reply_with(taking.at, types::Seq(0), Answer::Snapshot(number));
            }
            Err(failure) => effects.reply_error(ReplyTo { conn, tid }, failure),
        }
        self.fetches.wake_returned(FROZEN);
    }

    /// The server stops: waiting requests fail.
    pub(crate) fn stop_snapshots(&mut self, effects: &mut MdsEffects) {
        self.snapshot_step(effects);
    }
}
