//! Merges that are interrupted: by a crash, by the end of a connection, by a store that fails.

use std::collections::BTreeMap;

use types::{ClientId, ConnId, Errno, Ino, Span, Tid};
use wire::{Failure, MergeFlags, Op, Unused};

use super::{Merge, Merges, Stage};
use crate::{Effects, Mds};

/// How long a merge that is halfway waits for a directory that cannot be read. Others wait for it.
const UNREAD_MAX: Span = Span::from_millis(30_000);

impl Merges {
    /// Whether a journal of a subtree is on its way into the namespace.
    pub(crate) fn is_about(&self, subtree: Ino) -> bool {
        self.receiving.iter().chain(&self.queue).any(|merge| merge.subtree == subtree)
    }

    /// Whether a merge is under way, or to be finished.
    pub(crate) fn is_any(&self) -> bool {
        let known = !self.receiving.is_empty() || !self.queue.is_empty();
        known || !self.unfinished.is_empty()
    }

    /// Whether a journal object is named by a merge that is under way.
    pub(crate) fn needs(&self, object: &[u8]) -> bool {
        self.receiving.iter().chain(&self.queue).any(|merge| merge.object == object)
    }

    /// Whether a part of a merge is applied: nothing of it would be seen to by anybody else.
    pub(crate) fn is_halfway(&self) -> bool {
        let begun = |merge: &Merge| merge.applied > 0 || merge.runs.is_some();
        let halfway = |merge: &Merge| merge.stage == Stage::Applying && begun(merge);
        self.queue.front().is_some_and(halfway)
    }

    /// What a crash interrupted is to be done to its end.
    pub(crate) fn leave(&mut self, unfinished: BTreeMap<String, (Ino, ClientId)>) {
        self.unfinished = unfinished;
    }
}

impl Mds {
    pub(crate) fn drop_merges_of(&mut self, conn: ConnId) {
        self.merges.receiving.retain(|merge| merge.conn != conn);
        // One that is being applied goes on: stopping halfway would leave half of it.
    }

    /// A directory that the merge at the head of the queue waits for cannot be read. Returns whether
    /// it is to be read again: a merge that ends halfway leaves half of it, so only one of which
    /// nothing is applied fails at once.
    pub(crate) fn merge_waits_on(&mut self, errno: Errno) -> bool {
        let now = self.clock.now;
        // What is damaged stays damaged.
        let transient = errno != Errno::BadMessage;
        transient
            && self.merges.is_halfway()
            && now.since(*self.merges.unread.get_or_insert(now)) < UNREAD_MAX
    }

    pub(crate) fn fail_merge(&mut self, failure: &Failure, effects: &mut Effects) {
        self.merges.resume();
        if let Some(merge) = self.merges.queue.pop_front() {
            self.reply_error(merge.conn, merge.tid, failure.clone(), effects);
        }
    }

    /// Goes on with merges that a crash interrupted, whose journals the store has: after a recovery
    /// all of a merge is there or, if nothing of it was recorded, nothing (F-03). Their client may
    /// be gone for good, so they go on with the credentials with which the subtree was decoupled.
    pub(crate) fn finish_interrupted(&mut self, effects: &mut Effects) {
        for (object, (subtree, client)) in std::mem::take(&mut self.merges.unfinished) {
            let (bytes, flags) = (0, MergeFlags::default());
            let (object, unused) = (object.as_bytes(), Unused::default());
            let op = Op::Merge { subtree, bytes, object, flags, unused };
            // Refused if its client does not have the subtree any more: then it was finished.
            let Some(known) = self.tables.decoupled.get(&subtree) else { continue };
            let cred = known.cred.clone();
            let _ = self.begin_merge((ConnId::NOBODY, Tid(0)), (client, &cred), &op, effects);
        }
    }
}
