//! Nonvolatile Apply, seen from the server (M-05): a merge that is answered when the metadata store
//! has its result. Whatever is killed then, the result is there after a restart. The same for a
//! subtree whose new policy promises more than the memory of the server (P-16).
//!
//! The directories that changed are written at once, each of them once, however many of
//! the journal's events are about it; the rest of the namespace is not.

use types::{ConnId, Error, Ino, Seq, Set, Tid};
use wire::{Answer, Failure};

use crate::tables::Held;
use crate::{Effects, Mds};

/// Merges that are answered when the store has them.
#[derive(Debug, Default)]
pub(super) struct Settling {
    merges: Vec<Settled>,
    /// Whether there may be a directory to write. One that is being written or fetched is looked
    /// at again when that is done.
    ready: bool,
}

/// A merge that is applied and being written.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) at: (ConnId, Tid),
    pub(crate) subtree: Ino,
    pub(crate) then: Then,
    pub(crate) answer: Answer,
    /// Changes up to here are to be written.
    pub(crate) seq: Seq,
    /// The directories that are not written yet.
    pub(crate) dirs: Set<Ino>,
}

/// What happens when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Answer,
    /// It is answered when the tables are stored, too.
    AnswerWithTables,
    /// The subtree is everybody's again.
    Release,
}

impl Settling {
    pub(super) fn has_work(&self) -> bool {
        self.ready && !self.merges.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.merges.is_empty()
    }
}

impl Mds {
    /// Answers a merge when the directories that it changed are in the store: those of the subtree,
    /// the one that holds its root, and the one of inodes with several names.
    pub(crate) fn settle_merge(&mut self, mut merge: Settled, effects: &mut Effects) {
        let above = self.namespace.home_of(merge.subtree);
        let changed = |dir: &Ino| {
            let dir = *dir;
            dir == Ino::LINKS || above == Some(dir) || self.namespace.is_within(dir, merge.subtree)
        };
        let unstored = self.namespace.unstored_directories();
        merge.dirs = unstored.into_iter().filter(changed).collect();
        self.checkpoint.settling.merges.push(merge);
        self.settle(effects);
    }

    /// Answers the merges whose directories are in the store by now.
    pub(super) fn settle(&mut self, effects: &mut Effects) {
        let merges = std::mem::take(&mut self.checkpoint.settling.merges);
        for mut merge in merges {
            let mut dirs = std::mem::take(&mut merge.dirs);
            dirs.retain(|dir| self.is_unwritten(*dir, merge.seq));
            if dirs.is_empty() {
                let Settled { at, subtree, then, answer, seq, .. } = merge;
                match then {
                    Then::Answer => self.reply_with(at, Seq(0), answer, effects),
                    Then::AnswerWithTables => {
                        let (conn, tid) = at;
                        self.tables.hold(Held { conn, tid, answer, seq, begins: None });
                        self.tables_tick(effects);
                    }
                    Then::Release => self.release_merged(subtree, at, answer, effects),
                }
            } else {
                merge.dirs = dirs;
                self.checkpoint.settling.merges.push(merge);
            }
        }
        self.checkpoint.settling.ready = true;
    }

    fn is_unwritten(&self, dir: Ino, seq: Seq) -> bool {
        self.namespace.dirty_since(dir).is_some_and(|since| since <= seq)
            || self.checkpoint.committing.iter().any(|(ino, _)| *ino == dir)
    }

    /// A directory that a merge waits for and that may be captured now.
    pub(super) fn next_settling(&mut self) -> Option<(Seq, Ino)> {
        if !self.checkpoint.settling.has_work() {
            return None;
        }
        // The smallest: the order must not depend on where a set keeps what.
        let wanted = self.checkpoint.settling.merges.iter().flat_map(|merge| &merge.dirs);
        let dir = wanted
            .filter(|dir| self.namespace.dirty_since(**dir).is_some() && self.may_capture(**dir))
            .min();
        let found = dir.and_then(|dir| Some((self.namespace.dirty_since(*dir)?, *dir)));
        self.checkpoint.settling.ready = found.is_some();
        found
    }

    /// A directory cannot be written: whoever waits for it is told. Writing it is tried again, and
    /// the merge can be repeated.
    pub(super) fn fail_settling(&mut self, dir: Ino, error: &Error, effects: &mut Effects) {
        let merges = std::mem::take(&mut self.checkpoint.settling.merges);
        let (failed, rest): (Vec<_>, _) =
            merges.into_iter().partition(|merge| merge.dirs.contains(&dir));
        self.checkpoint.settling.merges = rest;
        for Settled { at: (conn, tid), .. } in failed {
            let failure = Failure { errno: error.errno, text: error.to_string() };
            self.reply_error(conn, tid, failure, effects);
        }
    }
}
