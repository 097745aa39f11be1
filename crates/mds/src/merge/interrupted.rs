//! Merges that are interrupted: by a crash, by the end of a connection, by a store that fails.
//!
//! Invariant: until a merge with a record in the journal ends, that record stays in the journal, so
//! that a recovery continues the merge.

use std::collections::BTreeMap;

use types::{ClientId, ConnId, Errno, Ino, Moment, Seq, Span};
use wire::{Failure, JobOp, MergeFlags, Op, Request, UnusedNumbers};

use super::{Merge, MergeCx, MergeStage, Merges};
use crate::admission::Incoming;
use crate::{MdsEffects, ReplyTo};

/// How long a merge that is halfway waits for a directory that cannot be read. Other merges wait
/// for it.
const UNREAD_MAX: Span = Span::from_millis(30_000);
/// How long after a failure an interrupted merge is tried again.
const AGAIN_AFTER: Span = Span::from_millis(500);

/// A merge that will be done to its end, with or without its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished {
    pub(crate) subtree: Ino,
    pub(crate) client: ClientId,
    /// The first record of it in the journal of the rank.
    pub(crate) begun: Seq,
    /// Not before that.
    pub(crate) after: Moment,
}

impl Merges {
    /// Whether a merge of a journal of a subtree is queued or under way.
    pub(crate) fn is_about(&self, subtree: Ino) -> bool {
        self.receiving
            .iter()
            .chain(&self.held)
            .chain(&self.queue)
            .any(|merge| merge.subtree == subtree)
    }

    /// Whether a merge is under way, or to be finished.
    pub(crate) fn is_any(&self) -> bool {
        let known = [self.receiving.len(), self.held.len(), self.queue.len()];
        known.iter().sum::<usize>() > 0 || !self.unfinished.is_empty()
    }

    /// Whether a journal object is named by a merge that is under way.
    pub(crate) fn needs(&self, object: &[u8]) -> bool {
        self.receiving.iter().chain(&self.queue).any(|merge| merge.object == object)
    }

    /// Whether a part of a merge is applied: no other server or client would complete it.
    pub(crate) fn is_halfway(&self) -> bool {
        let begun = |merge: &Merge| merge.applied > 0 || merge.runs.is_some();
        let halfway = |merge: &Merge| merge.stage == MergeStage::Applying && begun(merge);
        self.queue.front().is_some_and(halfway)
    }

    /// Whether a merge of which the journal has a record will carry out further events.
    pub(crate) fn may_continue(&self) -> bool {
        let begun = |merge: &Merge| merge.begun.is_some() && merge.stage != MergeStage::Finishing;
        !self.unfinished.is_empty() || self.receiving.iter().chain(&self.queue).any(begun)
    }

    /// Merges that a crash interrupted will be done to their end.
    pub(crate) fn leave(&mut self, unfinished: BTreeMap<String, Unfinished>) {
        self.unfinished = unfinished;
    }

    /// A merge of an object that a crash interrupted continues the old merge. Returns the first
    /// record.
    pub(super) fn take_up(&mut self, object: &[u8], dry_run: bool) -> Option<Seq> {
        if self.unfinished.is_empty() || dry_run {
            return None;
        }
        let unfinished = self.unfinished.remove(&*String::from_utf8_lossy(object));
        unfinished.map(|unfinished| unfinished.begun)
    }

    /// The first record of a merge that is not at its end: a recovery needs it.
    pub(crate) fn oldest_record(&self) -> Seq {
        let begun = self.receiving.iter().chain(&self.queue).filter_map(|merge| merge.begun);
        let left = self.unfinished.values().map(|unfinished| unfinished.begun);
        begun.chain(left).min().unwrap_or(Seq(u64::MAX))
    }

    /// Whether a merge is not at its end of which the journal has a record.
    pub(crate) fn is_any_record(&self) -> bool {
        self.oldest_record() != Seq(u64::MAX)
    }
}

impl Merges {
    /// The store refuses the directories for which the merge at the head of the queue waits; the
    /// caller reports the error to the client.
    pub(crate) fn drop_unstored(&mut self, errno: Errno, now: Moment) {
        if let Some(merge) = self.queue.pop_front() {
            self.put_off(&merge, errno, now);
        }
        self.resume();
    }

    /// A merge failed. If the journal has a record of it, half of it may be seen: it is tried again
    /// later, whether its client asks for that or not.
    pub(super) fn put_off(&mut self, merge: &Merge, errno: Errno, now: Moment) {
        // A damaged object stays damaged; an object that is gone was merged and stored.
        let lasts = matches!(errno, Errno::BadMessage | Errno::NotFound);
        let Some(begun) = merge.begun.filter(|_| !lasts) else { return };
        let Merge { subtree, client, .. } = *merge;
        let after = now + AGAIN_AFTER;
        let object = String::from_utf8_lossy(&merge.object).into_owned();
        self.unfinished.insert(object, Unfinished { subtree, client, begun, after });
    }
}

impl Merges {
    /// The connection of a client has ended.
    pub(crate) fn drop_of(&mut self, conn: ConnId, now: Moment) {
        let (dropped, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.receiving)
            .into_iter()
            .partition(|merge| merge.at.conn == conn);
        self.receiving = left;
        dropped.iter().for_each(|merge| self.put_off(merge, Errno::Io, now));
        // Of one that is held nothing was applied.
        self.held.retain(|merge| merge.at.conn != conn);
        // One that is being applied continues: stopping halfway would leave half of it.
    }

    /// A directory for which the merge at the head of the queue waits cannot be read. Returns
    /// whether it is to be read again: a merge that ends halfway leaves half of it, so only one of
    /// which nothing is applied fails at once.
    pub(crate) fn waits_on(&mut self, errno: Errno, now: Moment) -> bool {
        // A damaged object stays damaged.
        let transient = errno != Errno::BadMessage;
        transient && self.is_halfway() && now.since(*self.unread.get_or_insert(now)) < UNREAD_MAX
    }

    /// The merge at the head of the queue fails.
    pub(crate) fn fail(&mut self, failure: &Failure, now: Moment, effects: &mut MdsEffects) {
        self.resume();
        if let Some(merge) = self.queue.pop_front() {
            self.put_off(&merge, failure.errno, now);
            effects.reply_error(merge.at, failure.clone());
        }
    }
}

impl MergeCx<'_> {
    /// Continues merges that a crash interrupted and whose journals the store has: after a recovery
    /// a merge is complete or, if nothing of it was recorded, undone (F-03). Their client may be
    /// gone for good, so they continue with the credentials with which the subtree was decoupled.
    pub(crate) fn finish_interrupted(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let due = self.merges.unfinished.iter().filter(|(_, unfinished)| unfinished.after <= now);
        let due: Vec<_> = due.map(|(object, unfinished)| (object.clone(), *unfinished)).collect();
        for (object, Unfinished { subtree, client, .. }) in due {
            let (bytes, flags) = (0, MergeFlags::default());
            let (bytes_of, unused) = (object.as_bytes(), UnusedNumbers::default());
            let op = Op::Job(JobOp::Merge { subtree, bytes, object: bytes_of, flags, unused });
            if let Some(known) = self.tables.decoupled.get(&subtree) {
                let cred = known.cred.clone();
                let ReplyTo { conn, tid } = ReplyTo::NOBODY;
                let request = Request::new(tid, tid, cred, op);
                let _ = self.begin(Incoming { conn, client, request: &request }, effects);
            }
            // Refused if its client does not have the subtree any more: then it was finished.
            self.merges.unfinished.remove(&object);
        }
    }
}
