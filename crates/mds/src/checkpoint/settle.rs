//! Nonvolatile Apply, seen from the server (M-05): a merge that is answered when the metadata store
//! has its result. Whatever is killed then, the result is there after a restart. The same for a
//! subtree whose new policy promises more than the memory of the server (P-16).
//!
//! The directories that changed are written at once, each of them once, however many of
//! the journal's events are about it; the rest of the namespace is not.

use types::{ClientId, ConnId, Error, Ino, Seq, Set, Tid};
use wire::{Answer, Failure, Message};

use crate::tables::{GivenBack, Held};
use crate::{Effects, Mds};

/// Merges and policies that are answered when the store has what they promise.
#[derive(Debug, Default)]
pub(super) struct Settling {
    waiting: Vec<Settled>,
    /// Whether there may be a directory to write. One that is being written or fetched is looked
    /// at again when that is done.
    ready: bool,
    /// The request that is carried out now that its subtree is written.
    performing: Option<(ConnId, Tid)>,
}

/// A subtree that is being written, and who waits for that.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Answer,
    /// It is answered when the tables are stored, too.
    AnswerWithTables,
    /// The request in this frame is carried out.
    Perform(Vec<u8>),
    /// The subtree is everybody's again, if this client still has it, and with it the numbers that
    /// it has not used.
    Release(ClientId, Vec<GivenBack>),
}

impl Settling {
    pub(super) fn has_work(&self) -> bool {
        self.ready && !self.waiting.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl super::Checkpoint {
    /// Whether a request is carried out because its subtree is written.
    pub(crate) fn is_settled_for(&self, at: (ConnId, Tid)) -> bool {
        self.settling.performing == Some(at)
    }
}

impl Mds {
    /// Answers a merge or a policy when the directories that it is about are in the store: those of
    /// the subtree, the one that holds its root, and the one of inodes with several names.
    pub(crate) fn settle_subtree(&mut self, mut settled: Settled, effects: &mut Effects) {
        let above = self.namespace.home_of(settled.subtree);
        let changed = |dir: &Ino| {
            let dir = *dir;
            dir == Ino::LINKS
                || above == Some(dir)
                || self.namespace.is_within(dir, settled.subtree)
        };
        let unstored = self.namespace.unstored_directories();
        settled.dirs = unstored.into_iter().filter(changed).collect();
        self.checkpoint.settling.waiting.push(settled);
        self.settle(effects);
    }

    /// Answers those whose directories are in the store by now.
    pub(super) fn settle(&mut self, effects: &mut Effects) {
        let waiting = std::mem::take(&mut self.checkpoint.settling.waiting);
        for mut settled in waiting {
            let mut dirs = std::mem::take(&mut settled.dirs);
            dirs.retain(|dir| self.is_unwritten(*dir, settled.seq));
            if dirs.is_empty() {
                let Settled { at, subtree, then, answer, seq, .. } = settled;
                match then {
                    Then::Answer => self.reply_with(at, Seq(0), answer, effects),
                    Then::AnswerWithTables => {
                        let (conn, tid) = at;
                        self.tables.hold(Held { conn, tid, answer, seq, begins: None });
                        self.tables_tick(effects);
                    }
                    Then::Perform(frame) => self.perform_settled(at, &frame, effects),
                    Then::Release(client, unused) => {
                        self.release_merged((subtree, client, &unused), at, answer, effects);
                    }
                }
            } else {
                settled.dirs = dirs;
                self.checkpoint.settling.waiting.push(settled);
            }
        }
        self.checkpoint.settling.ready = true;
    }

    fn perform_settled(&mut self, at: (ConnId, Tid), frame: &[u8], effects: &mut Effects) {
        let decoded = wire::frame::decode(frame).ok().flatten();
        let message = decoded.and_then(|(frame, _)| Message::decode(frame.payload).ok());
        if let Some(Message::Request(request)) = message {
            self.checkpoint.settling.performing = Some(at);
            self.execute(at.0, &request, effects);
            self.checkpoint.settling.performing = None;
        }
    }

    fn is_unwritten(&self, dir: Ino, seq: Seq) -> bool {
        self.namespace.dirty_since(dir).is_some_and(|since| since <= seq)
            || self.checkpoint.committing.iter().any(|(ino, _)| *ino == dir)
    }

    /// A directory that somebody waits for and that may be captured now.
    pub(super) fn next_settling(&mut self) -> Option<(Seq, Ino)> {
        if !self.checkpoint.settling.has_work() {
            return None;
        }
        // The smallest: the order must not depend on where a set keeps what.
        let wanted = self.checkpoint.settling.waiting.iter().flat_map(|settled| &settled.dirs);
        let dir = wanted
            .filter(|dir| self.namespace.dirty_since(**dir).is_some() && self.may_capture(**dir))
            .min();
        let found = dir.and_then(|dir| Some((self.namespace.dirty_since(*dir)?, *dir)));
        self.checkpoint.settling.ready = found.is_some();
        found
    }

    /// A directory cannot be written: whoever waits for it is told. Writing it is tried again, and
    /// what they asked for can be asked again.
    pub(super) fn fail_settling(&mut self, dir: Ino, error: &Error, effects: &mut Effects) {
        let waiting = std::mem::take(&mut self.checkpoint.settling.waiting);
        let (failed, rest): (Vec<_>, _) =
            waiting.into_iter().partition(|settled| settled.dirs.contains(&dir));
        self.checkpoint.settling.waiting = rest;
        for Settled { at: (conn, tid), .. } in failed {
            let failure = Failure { errno: error.errno, text: error.to_string() };
            self.reply_error(conn, tid, failure, effects);
        }
    }
}
