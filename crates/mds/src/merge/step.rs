//! The steps of merges, one after the other, and the answers.

use journal::segment;
use metastore::DirRun;
use types::{Errno, Ino, InoRange, Seq};
use wire::{Answer, ChangeKind, MergeFlags};

use super::verify::Verified;
use super::{Merge, MergeCx, MergeStage};
use crate::checkpoint::{SubtreeFlush, Then};
use crate::op::{Release, next_policy_stores};
use crate::tables::Held;
use crate::{MdsEffects, MdsNotice};

/// The work of another part that the merge at the head of the queue needs before it continues.
#[derive(Debug)]
pub(crate) enum MergeNeed {
    /// No client may cache anything of this subtree.
    Forgotten(Ino),
    /// A directory.
    Directory(Ino),
    /// Some names of a directory.
    Names(Ino, Vec<Vec<u8>>),
    /// An inode of the subtree, wherever it is.
    Inode { subtree: Ino, ino: Ino },
    /// The metadata store must have a subtree.
    Stored(SubtreeFlush),
    /// The runs become the directory at the root of the subtree.
    AttachRoot { subtree: Ino, root: Vec<DirRun>, ranges: Vec<InoRange> },
    /// It is applied: merges may be at their end.
    End,
}

/// A merge that is as durable as promised.
#[derive(Debug)]
pub(crate) struct MergeEnd {
    /// The subtree, the object of the journal and the position; not of a dry run.
    pub(crate) merged: Option<Merged>,
    /// The subtree is stored, or given back.
    pub(crate) then: Option<MergeThen>,
}

/// Names that were merged.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) seq: Seq,
    pub(crate) subtree: Ino,
    pub(crate) object: Vec<u8>,
}

/// The work after a merge, which answers it.
#[derive(Debug)]
pub(crate) enum MergeThen {
    Store(SubtreeFlush),
    Release(Release),
}

/// One slice of a merge ended.
pub(super) enum Slice {
    More,
    Done,
    Cold(Ino),
    Unknown(Ino, Vec<Vec<u8>>),
}

impl MergeCx<'_> {
    /// Verifies or applies a slice of the merge at the head of the queue. Returns what the merge
    /// needs before the next slice.
    pub(crate) fn step(&mut self, effects: &mut MdsEffects) -> Option<MergeNeed> {
        assert!(!self.merges.waiting, "the merge waits for something");
        let mut merge = self.merges.queue.pop_front()?;
        merge.is_admitted = true;
        match merge.stage {
            MergeStage::Receiving | MergeStage::Finishing => {
                self.merges.queue.push_front(merge);
                None
            }
            MergeStage::Verifying => self.verify_step(merge, effects),
            MergeStage::Attaching | MergeStage::Applying if !merge.is_forgotten => {
                // Clients may not cache the subtree again until the merge is done.
                let subtree = merge.subtree;
                self.merges.queue.push_front(merge);
                Some(MergeNeed::Forgotten(subtree))
            }
            MergeStage::Attaching => self.attach_step(merge, effects),
            MergeStage::Applying => self.apply_step(merge, effects),
        }
    }

    fn verify_step(&mut self, mut merge: Merge, effects: &mut MdsEffects) -> Option<MergeNeed> {
        let subtree = merge.subtree;
        if !self.is_still_wanted(&merge) {
            effects.reply_with(merge.at, Seq(0), Answer::Merged(Box::default()));
            return None;
        }
        if self.merges.lacks_record(&merge) {
            let need = self.store_first(&mut merge);
            self.merges.waiting = true;
            self.merges.queue.push_front(merge);
            return need;
        }
        match self.verify_slice(&mut merge) {
            Ok(Verified::More) => self.merges.queue.push_front(merge),
            Ok(Verified::Done) if self.may_still_merge(&merge) => {
                self.verified(&mut merge);
                self.merges.queue.push_front(merge);
            }
            Ok(Verified::Done) => {
                let answer = Err(Errno::Stale.into());
                self.tables.hold(Held { at: merge.at, answer, seq: Seq(0), begins: None });
            }
            Ok(Verified::Unknown(ino)) => {
                self.merges.waiting = true;
                self.merges.queue.push_front(merge);
                return Some(MergeNeed::Inode { subtree, ino });
            }
            Err(failure) => effects.reply_error(merge.at, failure),
        }
        None
    }

    /// Events of the same journal that an earlier merge applied without an object are not applied
    /// again, and no record would list them: they are stored before a merge that has an object
    /// begins.
    fn store_first(&self, merge: &mut Merge) -> Option<MergeNeed> {
        if std::mem::replace(&mut merge.is_flushing, true) {
            return None;
        }
        let Merge { at, subtree, .. } = *merge;
        let (then, answer, seq) = (Then::Merge, Answer::Done, self.log.last());
        let flush = SubtreeFlush::new(at, subtree, then, answer, seq);
        Some(MergeNeed::Stored(flush))
    }

    /// The subtree may have been taken away while the journal was transferred and verified.
    fn may_still_merge(&self, merge: &Merge) -> bool {
        merge.flags.strong_log || self.tables.check_merge(merge.subtree, merge.client).is_ok()
    }

    fn verified(&mut self, merge: &mut Merge) {
        assert!(merge.stage == MergeStage::Verifying, "a journal is verified once");
        merge.report.verify_nanos = self.clock.now.since(merge.started).0;
        merge.started = self.clock.now;
        merge.offset = segment::HEADER_BYTES;
        merge.skip = 0;
        let attaches = merge.runs.is_some();
        merge.stage = if attaches { MergeStage::Attaching } else { MergeStage::Applying };
        merge.seq = self.log.last();
        merge.end_run();
        self.begin_trial(merge);
        if !merge.flags.dry_run {
            let most = usize::try_from(merge.report.events).unwrap_or(usize::MAX);
            for (dir, (names, bytes)) in std::mem::take(&mut merge.announced) {
                // Names that were verified twice were counted twice.
                self.namespace.expect(dir, names.min(most), bytes);
            }
        }
    }

    fn apply_step(&mut self, mut merge: Merge, effects: &mut MdsEffects) -> Option<MergeNeed> {
        let need = match self.apply_slice(&mut merge) {
            Ok(Slice::More) => None,
            Ok(Slice::Cold(dir)) => {
                self.merges.waiting = true;
                Some(MergeNeed::Directory(dir))
            }
            Ok(Slice::Unknown(dir, names)) => {
                self.merges.waiting = true;
                Some(MergeNeed::Names(dir, names))
            }
            Ok(Slice::Done) => {
                self.note_whole(&merge);
                merge.report.apply_nanos = self.clock.now.since(merge.started).0;
                merge.stage = MergeStage::Finishing;
                Some(MergeNeed::End)
            }
            Err(error) => {
                self.note_watched(merge.subtree, &merge.flags, merge.report.created);
                merge.refuse(&error, effects);
                return None;
            }
        };
        self.merges.queue.push_front(merge);
        need
    }

    /// Reports a merge to watchers, also one that ended in the middle.
    fn note_watched(&mut self, subtree: Ino, flags: &MergeFlags, created: u64) {
        if flags.strong_log {
            // Its changes may be anywhere.
            self.watches.lose_all();
        } else if !flags.dry_run {
            self.watches.note_tree(self.namespace, ChangeKind::Merge, subtree, created);
        }
    }

    /// Takes the merge at the head of the queue out once it is as durable as promised. One whose
    /// subtree needs no further work is answered.
    pub(crate) fn end_next(&mut self, effects: &mut MdsEffects) -> Option<MergeEnd> {
        let merge = self.merges.queue.front()?;
        let must_wait = !merge.object.is_empty() && merge.seq > self.log.safe();
        if merge.stage != MergeStage::Finishing || (must_wait && self.log.failed().is_none()) {
            return None;
        }
        let merge = self.merges.queue.pop_front()?;
        if must_wait {
            let errno = self.log.failed().unwrap_or(Errno::Io);
            self.merges.put_off(&merge, errno, self.clock.now);
            effects.reply_error(merge.at, errno.into());
            return Some(MergeEnd { merged: None, then: None });
        }
        self.counters.merges += 1;
        let Merge { at, client, subtree, flags, report, unused, seq, object, .. } = merge;
        let (events, created) = (report.events, report.created);
        let answer = Answer::Merged(Box::new(report));
        if flags.dry_run {
            effects.reply_with(at, Seq(0), answer);
            return Some(MergeEnd { merged: None, then: None });
        }
        self.note_watched(subtree, &flags, created);
        effects.notices.push(MdsNotice::Merged { subtree, client, events });
        let stores = flags.store
            || (flags.release && next_policy_stores(self.namespace, self.tables, subtree));
        let then = if stores {
            let then = if flags.release { Then::Release(client, unused) } else { Then::Answer };
            let flush = SubtreeFlush::new(at, subtree, then, answer, seq);
            Some(MergeThen::Store(flush))
        } else if flags.release {
            let is_stored = false;
            let release = Release { subtree, client, unused, at, answer, is_stored };
            Some(MergeThen::Release(release))
        } else {
            effects.reply_with(at, Seq(0), answer);
            None
        };
        Some(MergeEnd { merged: Some(Merged { seq, subtree, object }), then })
    }
}
