//! Trimming the journal: segments that nothing depends on any more are deleted, and so are the
//! journal objects of merges that the metadata store has.

use metastore::request::{StoreFailure, StoreOp, StoreResult, segment_name};
use types::{Errno, Ino, Seq};
use wire::Answer;

use super::{Checkpoint, CheckpointCx};
use crate::MdsEffects;
use crate::stop::is_journal_ended;
use crate::store::{StoreOps, Waiting};

impl Checkpoint {
    /// Notes a merge that was applied: until the metadata store has it, it may have to be repeated.
    pub(crate) fn note_merge(&mut self, seq: Seq, subtree: Ino, object: &[u8]) {
        let object = (!object.is_empty()).then(|| String::from_utf8_lossy(object).into_owned());
        if object.is_none() {
            self.note_volatile(seq, subtree);
        }
        // A journal may be merged again, and then is needed for that.
        self.merges.retain(|(.., known)| known.is_none() || *known != object);
        self.merges.push((seq, subtree, object));
    }

    /// Deletes segments, of which a recovery may find the events from `first` on until they are
    /// gone. No other segment is deleted before.
    pub(crate) fn delete_segments(
        &mut self,
        store: &mut StoreOps,
        objects: Vec<String>,
        first: Seq,
        effects: &mut MdsEffects,
    ) {
        if objects.is_empty() {
            return;
        }
        assert!(!self.trimming, "one deletion of segments at a time");
        (self.trimming, self.trimmed_from) = (true, first);
        store.begin(Waiting::Trim, StoreOp::Delete { objects }, effects);
    }
}

impl CheckpointCx<'_> {
    /// Deletes the segments that are not needed any more, and answers the requests that wait for
    /// that.
    pub(crate) fn trim(&mut self, effects: &mut MdsEffects) {
        let unwritten = self.oldest_needed();
        // The last segment has the newest positions and requests; the tables have them when it is
        // gone.
        let ended = is_journal_ended(self.phase, self.tables, self.sessions, self.log);
        let needed = unwritten.min(self.merges.oldest_record());
        let oldest = self.log.oldest().map_or(Seq(0), |segment| segment.last);
        let needed = needed.min(self.purging().keep_for_purges(oldest, effects));
        let (mut objects, mut first) = (Vec::new(), Seq(0));
        // One deletion after the other: if one fails, the remaining segments must have no gap.
        while !self.checkpoint.trimming
            && let Some(segment) = self.log.oldest()
            && segment.last < needed
            && (ended || self.log.is_continued())
        {
            if objects.is_empty() {
                first = segment.first;
            }
            if let Some(index) = self.log.drop_oldest() {
                objects.push(segment_name(self.rank, index));
            }
        }
        self.counters.trimmed_segments += objects.len() as u64;
        self.checkpoint.delete_segments(self.store, objects, first, effects);
        self.forget_merges(unwritten, effects);
        let waiters = std::mem::take(&mut self.checkpoint.waiters);
        let uncommitted = self.checkpoint.oldest_unwritten(self.namespace);
        for (seq, at) in waiters {
            if uncommitted > seq && unwritten <= seq {
                effects.reply_error(at, Errno::Io.into());
            } else if unwritten > seq && self.log.safe() >= seq {
                effects.reply_with(at, seq, Answer::Safe(seq));
            } else {
                self.checkpoint.waiters.push((seq, at));
            }
        }
    }

    /// Notes a merge that was applied.
    pub(crate) fn note_merge(&mut self, seq: Seq, subtree: Ino, object: &[u8]) {
        self.checkpoint.note_merge(seq, subtree, object);
    }

    /// Merges that the metadata store has need no journal object and no repetition any more.
    fn forget_merges(&mut self, unwritten: Seq, effects: &mut MdsEffects) {
        // A journal object goes only when the segment that names it is gone.
        let kept = if self.checkpoint.trimming { Seq(0) } else { self.log.first_retained() };
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
        self.forget_released();
        let objects: Vec<String> = done.into_iter().filter_map(|(.., object)| object).collect();
        if !objects.is_empty() {
            self.checkpoint.forget(self.store, StoreOp::Delete { objects }, effects);
        }
    }

    /// Forgets the released subtrees of which no client has to repeat a merge.
    pub(crate) fn forget_released(&mut self) {
        let (noted, merges) = (&self.checkpoint.merges, &*self.merges);
        // The subtree may have been decoupled before: a merge of that time is no reason to forget
        // the last one.
        let may_be_lost = |subtree: Ino| {
            noted.iter().any(|(_, of, _)| *of == subtree) || merges.is_about(subtree)
        };
        self.tables.forget_released(self.sessions, may_be_lost);
    }

    /// Continues to write dirty directories, and deletes segments that are not needed any more.
    pub(crate) fn more(&mut self, effects: &mut MdsEffects) {
        if self.checkpoint.target.is_none() && self.namespace.dirtiest().is_some() {
            self.checkpoint.write_all();
        }
        self.trim(effects);
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
