//! Checkpoints and trimming: directories that changed are written to the metadata store, oldest
//! change first, and journal segments that nothing depends on any more are deleted (J-04).
//!
//! Capturing a directory happens in slices between requests; sorting, encoding and writing happen
//! on workers. Requests never wait for a checkpoint, except those that need a directory fetched
//! while it is being written.

mod flush;
mod purge;
mod room;
mod trim;
mod validate;
mod volatile;

use std::collections::VecDeque;

use journal::Event;
use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{DirRun, DirTouch, Rows};
use namespace::{Capture, Hit, Namespace};
use types::{Clock, Ino, InoRange, Moment, Origin, Rank, Seq, Span, Timestamp};

use crate::authority::Authority;
use crate::caps::Caps;
use crate::compaction::Compaction;
use crate::contexts::lend;
use crate::damage::{Damage, is_damage};
use crate::fetch::{FetchCx, Fetches};
use crate::log::Log;
use crate::merge::Merges;
use crate::op::Change;
use crate::opens::Opens;
use crate::purge::{PurgeCx, Purges};
use crate::session::Sessions;
use crate::snapshot::Snapshots;
use crate::stop::StopOrder;
use crate::store::{StoreOps, Waiting};
use crate::tables::{Tables, TablesCx};
use crate::{Counters, MdsEffects, Phase, ReplyTo, Settings};

use flush::Flushes;
pub(crate) use flush::{SubtreeFlush, Then};
pub(crate) use validate::CheckpointOps;

/// Directories written at the same time.
const COMMITS_MAX: usize = 4;
const RETRY: Span = Span::from_millis(500);

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    /// Everything changed up to here is to be written.
    target: Option<Seq>,
    /// The directory being captured.
    capturing: Option<(Capture, Rows, Seq)>,
    /// Directories being written, with the position since which they were dirty.
    committing: Vec<(Ino, Seq)>,
    /// Directories that were captured, and the newest event that they may show: the journal goes
    /// first, or a crash would leave the second half of a rename without the first.
    captured: VecDeque<(Seq, Ino, StoreOp)>,
    /// Writes that failed and are tried again.
    failed: VecDeque<(Ino, StoreOp, Moment)>,
    /// Journal segments are being deleted; or that failed and is tried again. They began here.
    trimming: bool,
    trimmed_from: Seq,
    untrimmed: Option<(StoreOp, Moment)>,
    /// Other deletions under way, and those that failed and are tried again.
    forgetting: usize,
    unforgotten: VecDeque<(StoreOp, Moment)>,
    /// Merges that are in memory only: since which position, of which subtree, and the journal
    /// object that recovery would need.
    merges: Vec<(Seq, Ino, Option<String>)>,
    /// The subtrees of merges without a journal object, each with the position of its last merge.
    volatile: Vec<(Seq, Ino)>,
    evicted_at: Moment,
    /// Since when a merge waits for room, since when no write ended, and how many had ended then.
    waits: Option<(Moment, Moment, u64)>,
    /// It has waited long enough.
    is_stuck: bool,
    /// Merges that are answered when the store has them.
    flushes: Flushes,
    /// Requests that wait until everything is written.
    waiters: Vec<(Seq, ReplyTo)>,
    /// The order to stop.
    pub(crate) stop: Option<StopOrder>,
}

/// Whether damage keeps a directory from being written. Faults of a client's runs do not count.
fn is_beyond(failure: &StoreFailure) -> bool {
    is_damage(failure.error.errno) && matches!(failure.op, StoreOp::CommitDir { attach: None, .. })
}

impl Checkpoint {
    pub(crate) fn has_work(&self) -> bool {
        let wanted = self.target.is_some() || self.flushes.has_work();
        self.capturing.is_some() || (wanted && self.committing.len() < COMMITS_MAX)
    }

    /// Whether a merge is in memory only, without a journal object.
    pub(crate) fn is_any_volatile(&self) -> bool {
        !self.volatile.is_empty()
    }

    /// Whether a directory waits for the journal, which is durable up to `safe`.
    pub(crate) fn wants_journal(&self, safe: Seq) -> bool {
        self.captured.back().is_some_and(|(seq, ..)| *seq > safe)
    }

    /// Whether the server stops and leaves its journal to the next one.
    pub(crate) fn keeps_journal(&self) -> bool {
        self.stop.as_ref().is_some_and(StopOrder::keeps_journal)
    }

    /// Whether directories are written, or will be.
    pub(crate) fn is_writing(&self) -> bool {
        self.target.is_some() || self.capturing.is_some() || !self.committing.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_writing()
            && self.flushes.is_empty()
            && !self.trimming
            && self.forgetting == 0
            && self.unforgotten.is_empty()
    }

    /// Writes everything that changed until now.
    pub(crate) fn write_all(&mut self) {
        self.target = Some(Seq(u64::MAX));
    }

    /// A directory that kept a checkpoint from going on need not be waited for any more.
    pub(crate) fn write_up_to(&mut self, target: Option<Seq>) {
        self.target = self.target.max(target);
    }

    /// The oldest position whose effect is not in the metadata store yet.
    pub(crate) fn oldest_unwritten(&self, namespace: &mut Namespace) -> Seq {
        let dirty = namespace.dirtiest().map_or(Seq(u64::MAX), |(since, _)| since);
        let committing = self.committing.iter().map(|(_, since)| *since).min();
        committing.map_or(dirty, |since| since.min(dirty))
    }

    /// The position of the oldest change of a directory that is not in the store; the journal's
    /// last position if all are.
    pub(crate) fn unstored_since(&self, namespace: &Namespace, dir: Ino) -> Seq {
        let writing = self.committing.iter().filter(|(ino, _)| *ino == dir);
        let writing = writing.map(|(_, since)| *since);
        writing.chain(namespace.dirs().dirty_since(dir)).min().unwrap_or(Seq(u64::MAX))
    }

    /// Position of the first event that a recovery may find.
    pub(crate) fn first_in_journal(&self, log: &Log) -> Seq {
        if self.trimming {
            return self.trimmed_from;
        }
        log.first_replayed()
    }

    /// Whether segments are being deleted.
    pub(crate) fn is_trimming(&self) -> bool {
        self.trimming
    }

    /// Whether the store has all of a directory.
    pub(crate) fn is_stored(&self, namespace: &Namespace, dir: Ino) -> bool {
        namespace.dirs().dirty_since(dir).is_none()
            && !namespace.dirs().is_flushing(dir)
            && !self.committing.iter().any(|(ino, _)| *ino == dir)
    }

    /// Deletes an object that is not needed any more.
    pub(crate) fn forget(&mut self, store: &mut StoreOps, op: StoreOp, effects: &mut MdsEffects) {
        self.forgetting += 1;
        store.begin(Waiting::Forget, op, effects);
    }

    pub(crate) fn forgotten(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        now: Moment,
    ) {
        assert!(self.forgetting > 0, "the deletion was counted");
        self.forgetting -= 1;
        if let Err(failure) = result {
            self.unforgotten.push_back((failure.op, now));
        }
    }
}

/// Checkpoints, trims and purges, with all that they may touch.
pub(crate) struct CheckpointCx<'a> {
    pub(crate) checkpoint: &'a mut Checkpoint,
    pub(crate) purges: &'a mut Purges,
    pub(crate) compaction: &'a mut Compaction,
    pub(crate) damage: &'a mut Damage,
    pub(crate) merges: &'a mut Merges,
    pub(crate) snapshots: &'a mut Snapshots,
    pub(crate) changes: &'a mut Vec<Change>,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) tables: &'a mut Tables,
    pub(crate) opens: &'a mut Opens,
    pub(crate) authority: &'a mut Authority,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) caps: &'a Caps,
    pub(crate) settings: &'a Settings,
    pub(crate) phase: Phase,
    pub(crate) rank: Rank,
    pub(crate) clock: Clock,
    /// Changes that were resent after a crash are being executed.
    pub(crate) is_resend_busy: bool,
}

impl CheckpointCx<'_> {
    fn fetching(&mut self) -> FetchCx<'_> {
        lend!(self => FetchCx {
            mut: fetches, sessions, namespace, store, counters, damage;
            ref: settings;
            copy: rank, is_resend_busy;
            now: self.clock.now,
        })
    }

    pub(crate) fn storing_tables(&mut self) -> TablesCx<'_> {
        lend!(self => TablesCx)
    }

    pub(crate) fn purging(&mut self) -> PurgeCx<'_> {
        lend!(self => PurgeCx)
    }
}

impl CheckpointCx<'_> {
    /// Answers when everything that changed until now is in the metadata store.
    pub(crate) fn answer_when_written(&mut self, at: ReplyTo) {
        self.checkpoint.write_all();
        self.checkpoint.waiters.push((self.log.last(), at));
    }

    pub(crate) fn step(&mut self, effects: &mut MdsEffects) {
        if self.checkpoint.capturing.is_none() && !self.next_capture(effects) {
            return;
        }
        let Some((capture, rows, _)) = &mut self.checkpoint.capturing else { return };
        if !self.namespace.store().capture(capture, rows, self.settings.capture_rows) {
            return;
        }
        let Some((capture, rows, position)) = self.checkpoint.capturing.take() else { return };
        let ino = capture.dir;
        if !self.namespace.dirs().is_flushing(ino) {
            // The directory is gone, and with it its uncaptured changes.
            self.checkpoint.committing.retain(|(dir, _)| *dir != ino);
            self.fetching().committed(ino, effects);
            return self.answer_flushed(effects);
        }
        self.counters.commits += 1;
        self.counters.committed_rows += rows.len() as u64;
        let counts = self.namespace.dirs().counts(ino);
        let touched = self.namespace.dirs().unstored_change(ino);
        let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach: None };
        self.checkpoint.captured.push_back((self.log.last(), ino, op));
        self.commit_captured(effects);
    }

    /// Writes the directories whose captured changes are all safe.
    pub(crate) fn commit_captured(&mut self, effects: &mut MdsEffects) {
        let safe = self.log.safe();
        while let Some(seq) = self.checkpoint.captured.front().map(|(seq, ..)| *seq)
            && seq <= safe
            // Removed inodes are listed before a directory is written without their names.
            && !self.purging().list_removals(seq, effects)
            && let Some((_, ino, op)) = self.checkpoint.captured.pop_front()
        {
            self.store.begin(Waiting::Checkpoint(ino), op, effects);
        }
    }

    /// Picks a directory for which a request waits, or the one that is dirty longest. Returns
    /// whether there is one to capture.
    fn next_capture(&mut self, effects: &mut MdsEffects) -> bool {
        if let Some((since, ino)) = self.next_flush() {
            return self.begin_capture(since, ino);
        }
        let Some(target) = self.checkpoint.target else { return false };
        match self.namespace.dirtiest() {
            Some((since, ino)) if since <= target => {
                if !self.may_capture(ino) {
                    self.fetches.hold(ino, self.clock.now, Some(target));
                    self.checkpoint.target = None;
                    return false;
                }
                self.begin_capture(since, ino)
            }
            Some(_) | None => {
                self.checkpoint.target = None;
                self.trim(effects);
                false
            }
        }
    }

    /// One write of a directory at a time, and none during a fetch of it: the fetched rows would be
    /// older than those that the write lets memory drop.
    fn may_capture(&self, ino: Ino) -> bool {
        !self.namespace.dirs().is_flushing(ino) && !self.fetches.is_under_way(ino)
    }

    fn begin_capture(&mut self, since: Seq, ino: Ino) -> bool {
        assert!(self.may_capture(ino), "{ino}: one write of a directory, and no fetch");
        let Some(capture) = self.namespace.store().begin_capture(ino) else { return false };
        self.checkpoint.committing.push((ino, since));
        if capture.overtakes.is_some_and(|seq| seq >= self.log.first_replayed()) {
            let event = Event::Stored { dir: ino };
            self.log.append(self.clock.now, Origin::default(), &event);
        }
        self.checkpoint.capturing = Some((capture, Rows::new(), self.log.last()));
        true
    }

    /// Writes a run that a client stored into the manifest of a directory without names, above all
    /// other runs. That its names are in no journal is announced, as for every change that is in
    /// none.
    pub(crate) fn attach_root(
        &mut self,
        ino: Ino,
        runs: Vec<DirRun>,
        ranges: Vec<InoRange>,
        effects: &mut MdsEffects,
    ) {
        let seq = self.log.last();
        self.namespace.store().begin_attach(ino, seq);
        let since = self.namespace.dirs().dirty_since(ino).unwrap_or(seq);
        let Some(mut capture) = self.namespace.store().begin_capture(ino) else { return };
        self.checkpoint.committing.push((ino, since));
        self.log.append(self.clock.now, Origin::default(), &Event::Stored { dir: ino });
        let mut rows = Rows::new();
        while !self.namespace.store().capture(&mut capture, &mut rows, usize::MAX / 2) {}
        self.namespace.store().leave_to_store(ino);
        self.counters.commits += 1;
        self.counters.committed_rows += rows.len() as u64;
        let position = self.log.last();
        let (mut names, mut subdirs, mut time) = (0u64, 0u64, Timestamp(0));
        for DirRun { run, subdirs: dirs, touched, .. } in &runs {
            names = names.saturating_add(run.rows);
            subdirs = subdirs.saturating_add((*dirs).min(run.rows));
            time = time.max(*touched);
        }
        let counts = (names, subdirs, false);
        let touched = DirTouch { time, seq: position };
        let attach = Some(Box::new((runs, ranges)));
        let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach };
        self.checkpoint.captured.push_back((position, ino, op));
        self.commit_captured(effects);
    }

    pub(crate) fn committed(
        &mut self,
        dir: Ino,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let known = self.checkpoint.committing.iter().any(|(ino, _)| *ino == dir);
        assert!(known, "{dir}: the directory was being written");
        match result {
            Ok(result) => {
                self.note_written(dir, &result, effects);
                self.checkpoint.committing.retain(|(ino, _)| *ino != dir);
                self.namespace.store().end_capture(dir);
                self.namespace.note_hit(dir, Hit::Store);
                self.merges.root_attached(dir);
                self.fetching().committed(dir, effects);
                self.trim(effects);
                self.answer_flushed(effects);
            }
            Err(failure) if is_beyond(&failure) => {
                // A retry would fail, too. The journal keeps the changes.
                let writing = self.checkpoint.committing.iter().filter(|(ino, _)| *ino == dir);
                let since = writing.map(|(_, since)| *since).min().unwrap_or(self.log.last());
                self.checkpoint.committing.retain(|(ino, _)| *ino != dir);
                self.namespace.store().end_capture(dir);
                self.damage.withhold(self.namespace, dir, since, &failure.error);
                self.fetching().committed(dir, effects);
                self.trim(effects);
                self.answer_flushed(effects);
            }
            Err(failure) => {
                self.fail_flush(dir, &failure.error, effects);
                self.checkpoint.failed.push_back((dir, failure.op, self.clock.now));
            }
        }
    }

    /// The oldest position that the journal must keep: of changes that are not written yet, and of
    /// changes of damaged directories.
    pub(crate) fn oldest_needed(&mut self) -> Seq {
        self.checkpoint.oldest_unwritten(self.namespace).min(self.damage.journal_retained_from())
    }

    pub(crate) fn tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        // A client may have said since that it has an answer.
        self.forget_released();
        if self.checkpoint.failed.front().is_some_and(|(.., at)| now.since(*at) >= RETRY)
            && let Some((dir, op, _)) = self.checkpoint.failed.pop_front()
        {
            self.store.begin(Waiting::Checkpoint(dir), op, effects);
        }
        if self.checkpoint.unforgotten.front().is_some_and(|(_, at)| now.since(*at) >= RETRY)
            && let Some((op, _)) = self.checkpoint.unforgotten.pop_front()
        {
            self.checkpoint.forget(self.store, op, effects);
        }
        if let Some((op, _)) = self.checkpoint.untrimmed.take_if(|(_, at)| now.since(*at) >= RETRY)
        {
            self.store.begin(Waiting::Trim, op, effects);
        }
        let many = self.log.segment_count() > self.settings.segments_max;
        if many && self.checkpoint.target.is_none() && self.log.oldest().is_some() {
            self.checkpoint.target = self.log.trim_target(self.settings.segments_max / 2);
        }
        let is_end = self.phase == Phase::Stopping && !self.checkpoint.keeps_journal();
        if !self.checkpoint.waiters.is_empty() || is_end {
            // Also in place of a target for trimming: if damage keeps the segments, each tick takes
            // one that no write can reach.
            if self.namespace.dirtiest().is_some() {
                self.checkpoint.write_all();
            }
            self.trim(effects);
        }
        self.answer_flushed(effects);
    }
}
