//! Nonvolatile Apply, seen from the server (M-05): a merge that is answered when the metadata store
//! has its result. From then on the result survives every crash. The same for a subtree whose new
//! policy promises more than the memory of the server (P-16).
//!
//! The directories that changed are written at once, each of them once, however many of
//! the journal's events are about it; the rest of the namespace is not.

use namespace::Namespace;
use types::{ClientId, Error, Ino, Seq, Set};
use wire::{Answer, Failure};

use super::{Checkpoint, CheckpointCx};
use crate::fetch::Waiter;
use crate::op::{Release, drop_change};
use crate::tables::GivenBack;
use crate::{MdsEffects, ReplyTo};

/// Merges and policies that are answered when the store has the promised state.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    pub(super) waiting: Vec<SubtreeFlush>,
    /// Whether there may be a directory to write. One that is being written or fetched is looked
    /// at again when that is done.
    ready: bool,
}

/// A subtree that is being written, and the requests that wait for that.
#[derive(Debug)]
pub(crate) struct SubtreeFlush {
    pub(crate) at: ReplyTo,
    pub(crate) subtree: Ino,
    pub(crate) then: Then,
    pub(crate) answer: Answer,
    /// Changes up to here are to be written.
    pub(crate) seq: Seq,
    /// The directories that are not written yet.
    pub(crate) dirs: Set<Ino>,
}

impl SubtreeFlush {
    /// A write of everything in a subtree that changed up to a position.
    pub(crate) fn new(at: ReplyTo, subtree: Ino, then: Then, answer: Answer, seq: Seq) -> Self {
        Self { at, subtree, then, answer, seq, dirs: Set::default() }
    }
}

/// The step after the write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Answer,
    /// A change of policy continues.
    GoOn,
    /// The merge at the head of the queue continues.
    Merge,
    /// The requests that wait for the merged subtree are executed.
    Retry,
    /// A snapshot continues.
    Snapshot,
    /// The subtree moves to another rank; the export checks for itself.
    Export,
    /// The subtree is released, if this client still has it, and with it the numbers that the
    /// client has not used.
    Release(ClientId, Vec<GivenBack>),
}

impl Flushes {
    pub(super) fn has_work(&self) -> bool {
        self.ready && !self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a write of a subtree for this step is under way.
    pub(super) fn has(&self, subtree: Ino, then: &Then) -> bool {
        self.waiting.iter().any(|flush| flush.subtree == subtree && flush.then == *then)
    }
}

impl Checkpoint {
    /// Whether a request waits for a write in a subtree.
    pub(crate) fn is_flushing_below(&self, namespace: &Namespace, root: Ino) -> bool {
        let mut waiting = self.flushes.waiting.iter();
        waiting.any(|flush| flush.then != Then::Export && namespace.is_within(flush.subtree, root))
    }
}

impl CheckpointCx<'_> {
    /// Answers a merge or a policy when the directories that it is about are in the store: those of
    /// the subtree, the one that holds its root, and the one of inodes with several names.
    pub(crate) fn flush_subtree(&mut self, mut flush: SubtreeFlush, effects: &mut MdsEffects) {
        flush.dirs = self.unwritten_of(flush.subtree, flush.seq);
        self.flush_dirs(flush, effects);
    }

    /// Takes the next step when the store has these directories.
    pub(super) fn flush_dirs(&mut self, flush: SubtreeFlush, effects: &mut MdsEffects) {
        self.checkpoint.flushes.waiting.push(flush);
        self.answer_flushed(effects);
    }

    /// The directories of a subtree that the store has not as they were at a position, with the
    /// directory that holds the subtree's root, and that of inodes with several names.
    pub(super) fn unwritten_of(&self, subtree: Ino, seq: Seq) -> Set<Ino> {
        let above = self.namespace.home_of(subtree);
        let unwritten = |dir: &Ino| {
            let is_part = *dir == Ino::LINKS
                || above == Some(*dir)
                || self.namespace.is_within(*dir, subtree);
            is_part && self.is_unwritten(*dir, seq)
        };
        self.namespace.dirs().unstored_directories().into_iter().filter(unwritten).collect()
    }

    /// The same for a snapshot, which also needs directories whose place is unknown after a
    /// recovery.
    pub(crate) fn flush_for_snapshot(&mut self, root: Ino, effects: &mut MdsEffects) {
        let seq = self.log.last();
        let dirs = self.checkpoint.unstored_for_snapshot(self.namespace, root).collect();
        let at = ReplyTo::NOBODY;
        let (then, answer) = (Then::Snapshot, Answer::Done);
        let flush = SubtreeFlush { at, subtree: root, then, answer, seq, dirs };
        self.flush_dirs(flush, effects);
    }

    /// Writes the changes of a subtree that moves to another rank.
    pub(crate) fn flush_for_export(&mut self, root: Ino, effects: &mut MdsEffects) {
        let mut waiting = self.checkpoint.flushes.waiting.iter();
        if waiting.any(|flush| flush.then == Then::Export && flush.subtree == root) {
            return;
        }
        let seq = self.log.last();
        let unstored = self.namespace.dirs().unstored_directories().into_iter();
        let dirs = unstored.filter(|dir| self.goes_with(*dir, root)).collect();
        let at = ReplyTo::NOBODY;
        let (then, answer) = (Then::Export, Answer::Done);
        let flush = SubtreeFlush { at, subtree: root, then, answer, seq, dirs };
        self.flush_dirs(flush, effects);
    }

    /// Whether the store has everything that changed in a subtree up to there.
    pub(crate) fn is_written_below(&self, root: Ino, seq: Seq) -> bool {
        let writing = self.checkpoint.committing.iter();
        let mut writing = writing.filter(|(_, since)| *since <= seq).map(|(dir, _)| *dir);
        let unstored = self.namespace.dirs().unstored_directories().into_iter();
        let since = |dir: Ino| self.namespace.dirs().dirty_since(dir);
        let mut unstored = unstored.filter(|dir| since(*dir).is_some_and(|since| since <= seq));
        !writing.any(|dir| self.goes_with(dir, root))
            && !unstored.any(|dir| self.goes_with(dir, root))
    }

    /// Whether a directory is of a subtree, including the one that holds its root's inode where its
    /// name is another rank's.
    fn goes_with(&self, dir: Ino, root: Ino) -> bool {
        dir == Ino::mount_stub(root) || self.namespace.is_within(dir, root)
    }

    /// Answers a request when the store has a directory as it is now.
    pub(crate) fn flush_directory(
        &mut self,
        at: ReplyTo,
        dir: Ino,
        answer: Answer,
        effects: &mut MdsEffects,
    ) {
        let seq = self.log.last();
        let dirs = self.is_unwritten(dir, seq).then_some(dir).into_iter().collect();
        let flush = SubtreeFlush { at, subtree: dir, then: Then::Answer, answer, seq, dirs };
        self.flush_dirs(flush, effects);
    }

    /// Answers the requests whose directories are in the store by now.
    pub(super) fn answer_flushed(&mut self, effects: &mut MdsEffects) {
        let wanted = |dir: Ino| {
            self.checkpoint.flushes.waiting.iter().any(|flush| flush.dirs.contains(&dir))
        };
        let withheld = self.damage.all_withheld().filter(|(dir, _)| wanted(*dir));
        let withheld: Vec<_> = withheld.map(|(dir, error)| (dir, error.clone())).collect();
        for (dir, error) in withheld {
            self.fail_flush(dir, &error, effects);
        }
        let waiting = std::mem::take(&mut self.checkpoint.flushes.waiting);
        for mut flush in waiting {
            let mut dirs = std::mem::take(&mut flush.dirs);
            dirs.retain(|dir| self.is_unwritten(*dir, flush.seq));
            if dirs.is_empty() {
                let SubtreeFlush { at, subtree, then, answer, .. } = flush;
                match then {
                    Then::Answer => effects.reply_with(at, Seq(0), answer),
                    Then::GoOn => self.fetches.resume(Waiter::Change(at)),
                    Then::Merge => self.merges.stored(subtree),
                    Then::Retry => self.fetches.wake_returned(subtree),
                    Then::Snapshot => self.snapshots.written(),
                    Then::Export => {}
                    Then::Release(client, unused) => {
                        let is_stored = true;
                        let release = Release { subtree, client, unused, at, answer, is_stored };
                        self.fetches.resume(Waiter::Merged(release));
                    }
                }
            } else {
                flush.dirs = dirs;
                self.checkpoint.flushes.waiting.push(flush);
            }
        }
        self.checkpoint.flushes.ready = true;
    }

    fn is_unwritten(&self, dir: Ino, seq: Seq) -> bool {
        self.namespace.dirs().dirty_since(dir).is_some_and(|since| since <= seq)
            || self.checkpoint.committing.iter().any(|(ino, _)| *ino == dir)
    }

    /// A directory for which a request waits and that may be captured now.
    pub(super) fn next_flush(&mut self) -> Option<(Seq, Ino)> {
        if !self.checkpoint.flushes.has_work() {
            return None;
        }
        // The smallest: the choice must not depend on the order of a hash set.
        let wanted = self.checkpoint.flushes.waiting.iter().flat_map(|flush| &flush.dirs);
        let dir = wanted
            .filter(|dir| {
                self.namespace.dirs().dirty_since(**dir).is_some() && self.may_capture(**dir)
            })
            .filter(|dir| self.damage.withheld(**dir).is_none())
            .min();
        let found = dir.and_then(|dir| Some((self.namespace.dirs().dirty_since(*dir)?, *dir)));
        self.checkpoint.flushes.ready = found.is_some();
        found
    }

    /// A directory cannot be written: the requests that wait for it fail. The write is tried again,
    /// and clients can repeat their requests.
    pub(super) fn fail_flush(&mut self, dir: Ino, error: &Error, effects: &mut MdsEffects) {
        let waiting = std::mem::take(&mut self.checkpoint.flushes.waiting);
        let (failed, rest): (Vec<_>, _) =
            waiting.into_iter().partition(|flush| flush.dirs.contains(&dir));
        self.checkpoint.flushes.waiting = rest;
        for SubtreeFlush { at, subtree, then, .. } in failed {
            drop_change(self.changes, at);
            if then == Then::Merge {
                self.merges.drop_unstored(error.errno, self.clock.now);
            }
            if then == Then::Snapshot {
                self.snapshots.failed(error);
                continue;
            }
            if then == Then::Retry {
                // The write is tried again, and the requests wait for that, too.
                self.fetches.wake_returned(subtree);
                continue;
            }
            if then == Then::Export {
                continue;
            }
            let failure = Failure { errno: error.errno, text: error.to_string() };
            effects.reply_error(at, failure);
        }
    }
}

impl Checkpoint {
    /// Directories that a snapshot needs, and that the store has not as they are.
    pub(crate) fn unstored_for_snapshot<'a>(
        &'a self,
        namespace: &'a Namespace,
        root: Ino,
    ) -> impl Iterator<Item = Ino> + 'a {
        let unstored = namespace.dirs().unstored_directories().into_iter();
        let writing = self.committing.iter().map(|(dir, _)| *dir);
        unstored.chain(writing).filter(move |dir| {
            let within = namespace.is_within(*dir, root);
            *dir == Ino::LINKS || within || !namespace.is_anchored(*dir)
        })
    }
}
