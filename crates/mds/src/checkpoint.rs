//! Checkpoints and trimming: directories that changed are written to the metadata store, oldest
//! change first, and journal segments that nothing depends on any more are deleted (J-04).
//!
//! Capturing a directory happens in slices between requests; sorting, encoding and writing happen
//! on workers. Requests never wait for a checkpoint, except those that need a directory fetched
//! while it is being written.

mod flush;
mod room;
mod validate;
mod volatile;

use std::collections::VecDeque;

use journal::Event;
use metastore::request::{StoreFailure, StoreOp, StoreResult, segment_name};
use metastore::{DirRun, Rows};
use namespace::{Capture, Hit};
use types::{ConnId, Errno, Ino, InoRange, Moment, Origin, Seq, Span, Tid, Timestamp};
use wire::Answer;

use crate::damage::is_damage;
use crate::{Mds, MdsEffects, Waiting};

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
    settling: Flushes,
    /// Requests that wait until everything is written.
    waiters: Vec<(Seq, ConnId, Tid)>,
}

/// Whether damage keeps a directory from being written. Faults of a client's runs do not count.
fn is_beyond(failure: &StoreFailure) -> bool {
    is_damage(failure.error.errno) && matches!(failure.op, StoreOp::CommitDir { attach: None, .. })
}

impl Checkpoint {
    pub(crate) fn has_work(&self) -> bool {
        let wanted = self.target.is_some() || self.settling.has_work();
        self.capturing.is_some() || (wanted && self.committing.len() < COMMITS_MAX)
    }

    /// Whether a directory waits for the journal, which is durable up to `safe`.
    pub(crate) fn wants_journal(&self, safe: Seq) -> bool {
        self.captured.back().is_some_and(|(seq, ..)| *seq > safe)
    }

    /// Whether directories are written, or will be.
    pub(crate) fn is_writing(&self) -> bool {
        self.target.is_some() || self.capturing.is_some() || !self.committing.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_writing()
            && self.settling.is_empty()
            && !self.trimming
            && self.forgetting == 0
            && self.unforgotten.is_empty()
    }
}

impl Mds {
    /// Writes everything that changed until now.
    pub(crate) fn checkpoint_all(&mut self) {
        self.checkpoint.target = Some(Seq(u64::MAX));
    }

    /// A directory that kept a checkpoint from going on need not be waited for any more.
    pub(crate) fn checkpoint_again(&mut self, target: Option<Seq>) {
        self.checkpoint.target = self.checkpoint.target.max(target);
    }

    /// Answers when everything that changed until now is in the metadata store.
    pub(crate) fn checkpoint_for(&mut self, conn: ConnId, tid: Tid) {
        self.checkpoint_all();
        self.checkpoint.waiters.push((self.last_seq(), conn, tid));
    }

    /// Whether nothing is left to write.
    pub(crate) fn checkpoint_finished(&mut self) -> bool {
        self.namespace.dirtiest().is_none()
    }

    pub(crate) fn checkpoint_step(&mut self, effects: &mut MdsEffects) {
        if self.checkpoint.capturing.is_none() && !self.next_capture(effects) {
            return;
        }
        let Some((capture, rows, _)) = &mut self.checkpoint.capturing else { return };
        if !self.namespace.capture(capture, rows, self.settings.capture_rows) {
            return;
        }
        let Some((capture, rows, position)) = self.checkpoint.capturing.take() else { return };
        let ino = capture.dir;
        if !self.namespace.is_flushing(ino) {
            // The directory is gone, and with it its uncaptured changes.
            self.checkpoint.committing.retain(|(dir, _)| *dir != ino);
            self.fetch_after_commit(ino, effects);
            return self.answer_flushed(effects);
        }
        self.counters.commits += 1;
        self.counters.committed_rows += rows.len() as u64;
        let counts = self.namespace.counts(ino);
        let touched = self.namespace.untold_change(ino);
        let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach: None };
        self.checkpoint.captured.push_back((self.last_seq(), ino, op));
        self.commit_captured(effects);
    }

    /// Writes the directories whose captured changes are all safe.
    pub(crate) fn commit_captured(&mut self, effects: &mut MdsEffects) {
        let safe = self.log.safe();
        while let Some((seq, ..)) = self.checkpoint.captured.front()
            && *seq <= safe
            // Removed inodes are listed before a directory is written without their names.
            && !self.list_removals(*seq, effects)
            && let Some((_, ino, op)) = self.checkpoint.captured.pop_front()
        {
            self.store(Waiting::Checkpoint(ino), op, effects);
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
        !self.namespace.is_flushing(ino) && !self.fetches.is_under_way(ino)
    }

    fn begin_capture(&mut self, since: Seq, ino: Ino) -> bool {
        assert!(self.may_capture(ino), "{ino}: one write of a directory, and no fetch");
        let Some(capture) = self.namespace.begin_capture(ino) else { return false };
        self.checkpoint.committing.push((ino, since));
        if capture.overtakes.is_some_and(|seq| seq >= self.log.first_replayed()) {
            let event = Event::Stored { dir: ino };
            self.log.append(self.clock.now, Origin::default(), &event);
        }
        self.checkpoint.capturing = Some((capture, Rows::new(), self.last_seq()));
        true
    }

    /// Writes a run that a client stored into the manifest of a directory without names, above all
    /// other runs. That its names are in no journal is announced, as for every change that is in
    /// none.
    pub(crate) fn attach_root(
        &mut self,
        ino: Ino,
        (runs, ranges): (Vec<DirRun>, Vec<InoRange>),
        effects: &mut MdsEffects,
    ) {
        let seq = self.last_seq();
        self.namespace.begin_attach(ino, seq);
        let since = self.namespace.dirty_since(ino).unwrap_or(seq);
        let Some(mut capture) = self.namespace.begin_capture(ino) else { return };
        self.checkpoint.committing.push((ino, since));
        self.log.append(self.clock.now, Origin::default(), &Event::Stored { dir: ino });
        let mut rows = Rows::new();
        while !self.namespace.capture(&mut capture, &mut rows, usize::MAX / 2) {}
        self.namespace.leave_to_store(ino);
        self.counters.commits += 1;
        self.counters.committed_rows += rows.len() as u64;
        let position = self.last_seq();
        let (mut names, mut subdirs, mut time) = (0u64, 0u64, Timestamp(0));
        for DirRun { run, subdirs: dirs, touched, .. } in &runs {
            names = names.saturating_add(run.rows);
            subdirs = subdirs.saturating_add((*dirs).min(run.rows));
            time = time.max(*touched);
        }
        let (counts, touched) = ((names, subdirs, false), (time, position));
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
                self.namespace.end_capture(dir);
                self.namespace.note_hit(dir, Hit::Store);
                self.merges.root_attached(dir);
                self.fetch_after_commit(dir, effects);
                self.trim(effects);
                self.answer_flushed(effects);
            }
            Err(failure) if is_beyond(&failure) => {
                // A retry would fail, too. The journal keeps the changes.
                let writing = self.checkpoint.committing.iter().filter(|(ino, _)| *ino == dir);
                let since = writing.map(|(_, since)| *since).min().unwrap_or(self.last_seq());
                self.checkpoint.committing.retain(|(ino, _)| *ino != dir);
                self.namespace.end_capture(dir);
                self.withhold(dir, since, &failure.error);
                self.fetch_after_commit(dir, effects);
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
        self.oldest_unwritten().min(self.damage.kept_from())
    }

    /// The oldest position whose effect is not in the metadata store yet.
    pub(crate) fn oldest_unwritten(&mut self) -> Seq {
        let dirty = self.namespace.dirtiest().map_or(Seq(u64::MAX), |(since, _)| since);
        let committing = self.checkpoint.committing.iter().map(|(_, since)| *since).min();
        committing.map_or(dirty, |since| since.min(dirty))
    }

    /// The position of the oldest change of a directory that is not in the store; the journal's
    /// last position if all are.
    pub(crate) fn unstored_since(&self, dir: Ino) -> Seq {
        let writing = self.checkpoint.committing.iter().filter(|(ino, _)| *ino == dir);
        let writing = writing.map(|(_, since)| *since);
        writing.chain(self.namespace.dirty_since(dir)).min().unwrap_or(Seq(u64::MAX))
    }

    /// Deletes the segments that are not needed any more, and answers the requests that wait for
    /// that.
    pub(crate) fn trim(&mut self, effects: &mut MdsEffects) {
        let unwritten = self.oldest_needed();
        // The last segment has the newest positions and requests; the tables have them when it is
        // gone.
        let ended = self.is_journal_ended();
        let needed = unwritten.min(self.merges.oldest_record());
        let oldest = self.log.oldest().map_or(Seq(0), |segment| segment.last);
        let needed = needed.min(self.keep_for_purges(oldest, effects));
        let mut objects = Vec::new();
        // One deletion after the other: if one fails, the remaining segments must have no gap.
        while !self.checkpoint.trimming
            && let Some(segment) = self.log.oldest()
            && segment.last < needed
            && (ended || self.log.is_continued())
        {
            if objects.is_empty() {
                self.checkpoint.trimmed_from = segment.first;
            }
            if let Some(index) = self.log.drop_oldest() {
                objects.push(segment_name(self.rank, index));
            }
        }
        if !objects.is_empty() {
            assert!(!self.checkpoint.trimming, "one deletion of segments at a time");
            self.counters.trimmed_segments += objects.len() as u64;
            self.checkpoint.trimming = true;
            self.store(Waiting::Trim, StoreOp::Delete { objects }, effects);
        }
        self.forget_merges(unwritten, effects);
        let waiters = std::mem::take(&mut self.checkpoint.waiters);
        let uncommitted = self.oldest_unwritten();
        for (seq, conn, tid) in waiters {
            if uncommitted > seq && unwritten <= seq {
                self.reply_error(conn, tid, Errno::Io.into(), effects);
            } else if unwritten > seq && self.log.safe() >= seq {
                self.reply_with((conn, tid), seq, Answer::Safe(seq), effects);
            } else {
                self.checkpoint.waiters.push((seq, conn, tid));
            }
        }
    }

    /// Notes a merge that was applied: until the metadata store has it, it may have to be repeated.
    pub(crate) fn note_merge(&mut self, seq: Seq, subtree: Ino, object: &[u8]) {
        let object = (!object.is_empty()).then(|| String::from_utf8_lossy(object).into_owned());
        if object.is_none() {
            self.note_volatile(seq, subtree);
        }
        // A journal may be merged again, and then is needed for that.
        self.checkpoint.merges.retain(|(.., known)| known.is_none() || *known != object);
        self.checkpoint.merges.push((seq, subtree, object));
    }

    /// Merges that the metadata store has need no journal object and no repetition any more.
    fn forget_merges(&mut self, unwritten: Seq, effects: &mut MdsEffects) {
        // A journal object goes only when the segment that names it is gone.
        let kept = if self.checkpoint.trimming { Seq(0) } else { self.log.first_kept() };
        // A journal that is being merged again is read again, now and by a recovery.
        let free = |object: &str| !self.merges.needs(object.as_bytes());
        let (done, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.checkpoint.merges)
            .into_iter()
            .partition(|(seq, _, object)| {
                let free = object.as_deref().is_none_or(|object| *seq < kept && free(object));
                unwritten > *seq && free
            });
        self.checkpoint.merges = left;
        self.checkpoint.volatile.retain(|(seq, _)| *seq >= unwritten);
        if done.is_empty() {
            return;
        }
        let subtrees: Vec<Ino> = done.iter().map(|(_, subtree, _)| *subtree).collect();
        self.tables.forget_released(&subtrees);
        let objects: Vec<String> = done.into_iter().filter_map(|(.., object)| object).collect();
        if !objects.is_empty() {
            self.forget(StoreOp::Delete { objects }, effects);
        }
    }

    pub(crate) fn checkpoint_tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        if self.checkpoint.failed.front().is_some_and(|(.., at)| now.since(*at) >= RETRY)
            && let Some((dir, op, _)) = self.checkpoint.failed.pop_front()
        {
            self.store(Waiting::Checkpoint(dir), op, effects);
        }
        if self.checkpoint.unforgotten.front().is_some_and(|(_, at)| now.since(*at) >= RETRY)
            && let Some((op, _)) = self.checkpoint.unforgotten.pop_front()
        {
            self.forget(op, effects);
        }
        if let Some((op, _)) = self.checkpoint.untrimmed.take_if(|(_, at)| now.since(*at) >= RETRY)
        {
            self.store(Waiting::Trim, op, effects);
        }
        let many = self.log.segment_count() > self.settings.segments_max;
        if many && self.checkpoint.target.is_none() && self.log.oldest().is_some() {
            self.checkpoint.target = self.log.trim_target(self.settings.segments_max / 2);
        }
        if !self.checkpoint.waiters.is_empty() || self.phase == crate::Phase::Stopping {
            if self.checkpoint.target.is_none() && self.namespace.dirtiest().is_some() {
                self.checkpoint_all();
            }
            self.trim(effects);
        }
        self.answer_flushed(effects);
    }

    /// Position of the first event that a recovery may find.
    pub(crate) fn first_in_journal(&self) -> Seq {
        if self.checkpoint.trimming {
            return self.checkpoint.trimmed_from;
        }
        self.log.first_replayed()
    }

    /// Whether segments are being deleted.
    pub(crate) fn is_trimming(&self) -> bool {
        self.checkpoint.trimming
    }

    /// Whether the store has all of a directory.
    pub(crate) fn is_stored(&self, dir: Ino) -> bool {
        self.namespace.dirty_since(dir).is_none()
            && !self.namespace.is_flushing(dir)
            && !self.checkpoint.committing.iter().any(|(ino, _)| *ino == dir)
    }

    /// Continues to write dirty directories, and deletes segments that are not needed any more.
    pub(crate) fn checkpoint_more(&mut self, effects: &mut MdsEffects) {
        if self.checkpoint.target.is_none() && self.namespace.dirtiest().is_some() {
            self.checkpoint_all();
        }
        self.trim(effects);
    }

    /// Deletes an object that is not needed any more.
    pub(crate) fn forget(&mut self, op: StoreOp, effects: &mut MdsEffects) {
        self.checkpoint.forgetting += 1;
        self.store(Waiting::Forget, op, effects);
    }

    pub(crate) fn forgotten(&mut self, result: Result<StoreResult, Box<StoreFailure>>) {
        assert!(self.checkpoint.forgetting > 0, "the deletion was counted");
        self.checkpoint.forgetting -= 1;
        if let Err(failure) = result {
            self.checkpoint.unforgotten.push_back((failure.op, self.clock.now));
        }
    }

    pub(crate) fn trimmed(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        assert!(self.checkpoint.trimming, "segments were being deleted");
        match result {
            Ok(_) => {
                self.checkpoint.trimming = false;
                self.trim(effects);
            }
            Err(failure) => {
                self.checkpoint.untrimmed = Some((failure.op, self.clock.now));
            }
        }
    }
}
