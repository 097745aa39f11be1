//! Merges into subtrees that go to another rank, or come from one (F-13).
//!
//! A merge that began before the subtree moves is finished first. A merge whose journal arrives
//! during the move is held until the owner of the subtree is decided: then it begins here, or its
//! client is redirected to the new rank, and sends the journal there.

use types::{ConnId, Errno, Ino, Seq, Timestamp};
use wire::{Answer, Redirect};

use super::{Done, JournalId, Merge, MergeCx, Merges};
use crate::MdsEffects;

impl Merge {
    /// Whether it continues where it began: the journal may have half of it.
    fn must_end(&self) -> bool {
        self.at.conn == ConnId::NOBODY || self.begun.is_some()
    }
}

impl Merges {
    /// Whether a merge must be finished before these subtrees go: it has begun, or a crash
    /// interrupted it and it is to be finished.
    pub(crate) fn keeps(&self, is_in: impl Fn(Ino) -> bool) -> bool {
        let interrupted = self.receiving.iter().filter(|merge| merge.must_end());
        let mut under_way = self.queue.iter().chain(interrupted);
        under_way.any(|merge| is_in(merge.subtree))
            || self.unfinished.values().any(|unfinished| is_in(unfinished.subtree))
    }

    /// Which journal of a subtree was merged last, and up to where.
    pub(crate) fn last_of(&self, subtree: Ino) -> Option<(JournalId, Seq)> {
        self.done.get(&subtree).map(|done| (done.journal, done.seq))
    }

    /// The same, as another rank reports it; the store has its effects.
    pub(crate) fn set_last_of(&mut self, subtree: Ino, last: Option<(JournalId, Seq)>) {
        self.done.remove(&subtree);
        if let Some((journal, seq)) = last {
            self.done.insert(subtree, Done { journal, seq, in_memory: false });
        }
    }
}

impl MergeCx<'_> {
    /// A merge whose journal is here, unless its subtree is moving or another rank's.
    pub(super) fn unless_moving(
        &mut self,
        merge: Merge,
        effects: &mut MdsEffects,
    ) -> Option<Merge> {
        if merge.must_end() || merge.flags.strong_log {
            return Some(merge);
        }
        if self.authority.is_plain() {
            return if merge.ranges.is_empty() {
                self.as_known(merge, effects)
            } else {
                Some(merge)
            };
        }
        if self.authority.is_moving_decoupled(self.namespace, merge.subtree) {
            self.merges.held.push(merge);
            return None;
        }
        let Some(rank) = self.authority.rank_of_decoupled(self.namespace, merge.subtree) else {
            return self.as_known(merge, effects);
        };
        self.counters.forwards += 1;
        let answer = Answer::Redirect(Box::new(Redirect { rank, ..Redirect::default() }));
        let at = merge.at;
        effects.reply(at, Seq(0), Timestamp(0), Ok(answer));
        None
    }

    /// The owner of a subtree is decided: merges held for that continue.
    pub(crate) fn go_on_with_held(&mut self, effects: &mut MdsEffects) {
        for merge in std::mem::take(&mut self.merges.held) {
            self.enqueue(merge, effects);
        }
    }

    /// A merge with the table's entry of its subtree: its client may have asked before that was
    /// known here.
    fn as_known(&mut self, mut merge: Merge, effects: &mut MdsEffects) -> Option<Merge> {
        let Merge { subtree, client, .. } = merge;
        let known = self.tables.decoupled.get(&subtree).filter(|it| it.client == client);
        let Some(known) = known else {
            effects.reply_error(merge.at, Errno::Stale.into());
            return None;
        };
        merge.ranges.clone_from(&known.ranges);
        merge.flags.check |= self.must_check(merge.at, subtree);
        Some(merge)
    }
}
