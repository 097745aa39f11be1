//! Giving a subtree to another rank (B-03).
//!
//! 1. *Drain*: nobody may remember anything of it any more, and nobody is told anything to remember.
//!    Requests go on.
//! 2. *Copy*: what changed in it is written to the metadata store, until little is left. Requests go on.
//! 3. *Freeze*: from here on requests for the subtree wait. Files in it are closed, what it changed is
//!    in the store, and a recovery will pass over what the journal says of it (`behind`); or, where it cannot,
//!    the journal begins behind its last event.
//! 4. *Commit*: the list of subtrees is replaced. If that is done, the subtree is the other rank's;
//!    as long as it is not known whether it is done, nobody is answered.
//!
//! Until the commit the subtree is this rank's, whoever crashes: nothing was written that a recovery
//! would not write. Afterwards nothing of it is in this rank's memory, and nothing that counts in its
//! journal.

use journal::Event;
use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{SUBTREES_NAME, Subtrees};
use types::{ClientId, ConnId, Cred, Errno, Ino, Moment, Origin, Rank, Seq, Span, Tid};
use wire::Failure;

use super::place::{Place, cold};
use super::{MOVED_MAX, RETRY};
use crate::op::{Performed, Performing};
use crate::tables::Gone;
use crate::{Effects, Mds, Phase, Waiting};

/// How long clients may keep files open in a subtree that waits for them, frozen. Programs that open,
/// write and close do so in less; who has a file open for long keeps the subtree where it is.
const CLOSE_WITHIN: Span = Span::from_millis(500);
/// Rounds of copying; another one is worth it only if the last took long.
const ROUNDS_MAX: u32 = 4;
const ROUND_SHORT: Span = Span::from_millis(10);
/// The name of a root in the directory above it.
pub(super) const ROOT_NAME: &[u8] = b"root";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It stays, and the list is to say that somebody wants it here, or nobody any more.
    Note,
    Drain,
    /// What was changed up to here is written.
    Copy {
        seq: Seq,
        round: u32,
        since: Moment,
    },
    /// Files are closed, and what is fetched arrives.
    Close,
    /// The journal has everything up to here.
    Flush {
        seq: Seq,
    },
    /// It is written, and older segments go.
    Write {
        seq: Seq,
    },
    /// The list is replaced, or it is found out whether it was.
    Commit,
    /// The store is asked again at that time.
    Retry(Moment),
}

/// A subtree on its way to another rank.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) root: Ino,
    pub(crate) to: Rank,
    /// Who asked.
    pub(super) at: (ConnId, Tid),
    /// Whether somebody wants it there, and not the balancer.
    pub(super) pinned: bool,
    pub(super) stage: Stage,
    pub(super) frozen: Option<Moment>,
    /// Sessions that had to give something back.
    pub(super) flushed: u64,
    /// What a recovery will pass over; nothing if the journal is to begin behind it.
    pub(super) gone: Option<Gone>,
}

impl Export {
    /// Whether requests for the subtree wait.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }
}

impl Mds {
    /// Begins to give a subtree to another rank. Only root and the owner of the namespace may ask.
    pub(crate) fn export(
        &mut self,
        at: (ConnId, Tid),
        cred: &Cred,
        (root, to): (Ino, Rank),
    ) -> Performing {
        let owner = self.settings.root_owner.0;
        if cred.uid != 0 && cred.uid != owner && !self.is_empty_part(root) {
            return Err(Errno::NotPermitted.into());
        }
        if !self.namespace.knows(root) {
            return Err(Errno::Stale.into());
        }
        if !self.namespace.is_dir(root) {
            return Err(Errno::NotDirectory.into());
        }
        if to == Rank::NONE {
            return self.note_pin(at, root, false);
        }
        self.begin_export(at, (root, to), true)
    }

    /// Begins to give a subtree to another rank, on somebody's behalf or by itself.
    pub(crate) fn begin_export(
        &mut self,
        at: (ConnId, Tid),
        (root, to): (Ino, Rank),
        pinned: bool,
    ) -> Performing {
        // Who balances decided that a while ago.
        if self.place(root) != Place::Here {
            return Err(Errno::Again.into());
        }
        if to == self.rank {
            return self.note_pin(at, root, pinned);
        }
        self.check_target(to)?;
        self.check_subtree(root)?;
        if let Some(answer) = self.first_elsewhere(root, to) {
            return Ok(Performed::Answer(answer));
        }
        // All that its inode says, and all names, must be known here.
        self.namespace.getattr(root)?;
        if !self.namespace.is_complete(root) {
            return Err(cold(root));
        }
        self.check_links(root)?;
        let (stage, frozen) = (Stage::Drain, None);
        let (flushed, gone) = (0, None);
        self.authority.export = Some(Export { root, to, at, pinned, stage, frozen, flushed, gone });
        self.authority.note_plain();
        Ok(Performed::Later)
    }

    /// Goes on with what is on its way, as far as it can.
    pub(super) fn export_step(&mut self, effects: &mut Effects) {
        while let Some(stage) = self.authority.export.as_ref().map(|export| export.stage) {
            let Some(next) = self.export_next(stage, effects) else { return };
            match &mut self.authority.export {
                Some(export) => export.stage = next,
                None => return,
            }
        }
    }

    /// The next stage, if this one is done.
    #[allow(clippy::too_many_lines, reason = "an arm for each stage")]
    fn export_next(&mut self, stage: Stage, effects: &mut Effects) -> Option<Stage> {
        let (root, to) = self.authority.export.as_ref().map(|export| (export.root, export.to))?;
        let now = self.clock.now;
        match stage {
            Stage::Note => {
                if self.authority.is_busy() {
                    return None;
                }
                self.commit(root, to, effects).then_some(Stage::Commit)
            }
            Stage::Drain => {
                if self.phase != Phase::Active {
                    self.abort_export("the metadata server is stopping", effects);
                    return None;
                }
                let before = self.counters.revokes;
                let held = self.revoke_below(ClientId(0), root, effects).is_some();
                let flushed = self.counters.revokes - before;
                self.authority.export.as_mut()?.flushed += flushed;
                (!held && self.is_merged_below(root)).then(|| self.copy(root, 0, effects))
            }
            Stage::Copy { seq, round, since } => {
                if self.phase != Phase::Active {
                    self.abort_export("the metadata server is stopping", effects);
                    return None;
                }
                if !self.is_copied(root, seq, effects) {
                    return None;
                }
                if now.since(since) >= ROUND_SHORT && round < ROUNDS_MAX {
                    return Some(self.copy(root, round + 1, effects));
                }
                self.authority.export.as_mut()?.frozen = Some(now);
                Some(Stage::Close)
            }
            Stage::Close => {
                let open = self.opens.files().filter(|ino| self.namespace.is_within(*ino, root));
                let open = open.count();
                let at_rest = self.is_merged_below(root)
                    && !self.is_fetching_below(root)
                    && self.authority.passages.is_empty();
                if open == 0 && at_rest {
                    // A file may have got another name since that was looked at first; now nothing changes.
                    if let Some(why) = self.linked_since(root) {
                        self.abort_export(&why, effects);
                        return None;
                    }
                    return Some(Stage::Flush { seq: self.log.last() });
                }
                let since = self.authority.export.as_ref()?.frozen?;
                if now.since(since) >= CLOSE_WITHIN {
                    let text = format!("clients have {open} files open in it");
                    self.abort_export(&text, effects);
                }
                None
            }
            Stage::Flush { seq } => {
                // Nothing is sent again of what was done with its name, or with what is above it.
                if self.log.safe() < seq {
                    return None;
                }
                let gone = self.leaves_behind(root);
                let alone = gone.is_some();
                self.authority.export.as_mut()?.gone = gone;
                if alone {
                    self.settle_for_export(root, effects);
                    return Some(Stage::Write { seq });
                }
                if self.log.written() < seq {
                    return None;
                }
                // What follows goes to a segment that says nothing of the subtree.
                if self.log.has_segments() {
                    self.log.end_segment();
                    self.log.append(now, Origin::default(), &Event::NOTHING);
                }
                self.checkpoint_all();
                Some(Stage::Write { seq })
            }
            Stage::Write { seq } => {
                if self.journal_says_more(root, seq) {
                    return Some(Stage::Flush { seq: self.log.last() });
                }
                if !self.is_written_out(root, seq, effects) || self.authority.is_busy() {
                    return None;
                }
                // What came a moment ago may be in it, or have others in it; nothing is looked for in what is frozen.
                let lost = |it: Ino| !self.namespace.is_anchored(it);
                let mut imports = self.authority.imports.iter().map(|import| import.root);
                if self.authority.other_roots().any(lost) || imports.any(lost) {
                    self.abort_export("a subtree in it has just come; try again", effects);
                    return None;
                }
                if self.is_importing_below(root) || !self.note_leaving(root, effects) {
                    return None;
                }
                // If it cannot be, the next one may have begun.
                self.commit(root, to, effects).then_some(Stage::Commit)
            }
            Stage::Commit => None,
            Stage::Retry(until) => {
                if now < until || self.authority.is_busy() {
                    return None;
                }
                self.authority.writing = true;
                let object = SUBTREES_NAME.to_owned();
                self.store(Waiting::Subtrees, StoreOp::Get { object }, effects);
                Some(Stage::Commit)
            }
        }
    }

    /// Whether the journal is to be written without delay.
    pub(crate) fn export_wants_journal(&self) -> bool {
        self.authority.export.as_ref().is_some_and(Export::is_frozen)
    }

    /// Replaces the list. Returns whether that is under way.
    fn commit(&mut self, root: Ino, to: Rank, effects: &mut Effects) -> bool {
        if self.first_elsewhere(root, to).is_some() {
            self.abort_export("a subtree in it went there first; try again", effects);
            return false;
        }
        let Some(list) = self.list_with(root, to) else {
            self.abort_export("its root is not here any more", effects);
            return false;
        };
        self.put_list(list, effects);
        true
    }

    pub(super) fn put_list(&mut self, list: Subtrees, effects: &mut Effects) {
        let condition = match self.authority.version {
            Some(version) => Condition::Version(version),
            None => Condition::Absent,
        };
        self.authority.writing = true;
        let (object, data) = (SUBTREES_NAME.to_owned(), list.encode());
        self.authority.proposed = Some(list);
        self.store(Waiting::Subtrees, StoreOp::Put { object, data, condition }, effects);
    }

    /// The list was replaced, or not; or it was read to find that out.
    pub(super) fn list_written(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut Effects,
    ) {
        let again = Stage::Retry(self.clock.now + RETRY);
        match result {
            Ok(StoreResult::Stored(version)) => self.list_replaced(version, effects),
            Ok(StoreResult::Conflict) => {
                // Another rank replaced it; or it was this one, and its answer was lost.
                self.authority.writing = true;
                let object = SUBTREES_NAME.to_owned();
                self.store(Waiting::Subtrees, StoreOp::Get { object }, effects);
            }
            Ok(read @ (StoreResult::Bytes(..) | StoreResult::Missing)) => {
                if let Err(error) = self.take_list(&read) {
                    effects.fatal = Some(error);
                    return;
                }
                self.list_found(effects);
            }
            Ok(_) | Err(_) => self.list_again(again),
        }
    }

    fn list_again(&mut self, stage: Stage) {
        if let Some(export) = self.authority.export.as_mut().filter(|it| it.stage == Stage::Commit)
        {
            export.stage = stage;
        }
        self.imports_again(false);
        self.reshape_listed(true);
        self.passages_listed(Some(self.clock.now + RETRY));
    }

    /// What was to be written is written.
    fn list_replaced(&mut self, version: u64, effects: &mut Effects) {
        self.authority.version = Some(version);
        if let Some(list) = self.authority.proposed.take() {
            self.authority.list = list;
            self.note_fragments();
        }
        self.reshape_listed(false);
        self.passages_listed(None);
        if !self.import_acknowledged(effects)
            && let Some(Export { stage: Stage::Commit, .. }) = self.authority.export
        {
            self.exported(effects);
        }
    }

    /// The list is known anew while something was to be written to it.
    fn list_found(&mut self, effects: &mut Effects) {
        self.imports_again(true);
        self.reshape_listed(false);
        self.passages_listed(Some(self.clock.now));
        let Some(Export { root, to, pinned, stage: Stage::Commit, .. }) = self.authority.export
        else {
            return;
        };
        let list = &self.authority.list;
        let here = list.apart_at(root).is_none_or(|subtree| subtree.rank == self.rank);
        let noted = list.get(root).is_some_and(|subtree| subtree.pinned == pinned);
        let noted = to == self.rank && noted;
        if here && self.is_importing_below(root) {
            self.list_again(Stage::Retry(self.clock.now + RETRY));
        } else if here && !noted && to == self.rank {
            self.commit(root, to, effects);
        } else if here && !noted {
            // A subtree in it may have come meanwhile: whether the store has all of it is looked at again.
            let seq = self.log.last();
            self.authority.export.iter_mut().for_each(|it| it.stage = Stage::Flush { seq });
        } else {
            self.exported(effects);
        }
    }

    /// The subtree is the other rank's.
    fn exported(&mut self, effects: &mut Effects) {
        let Some(export) = self.authority.export.take() else { return };
        self.preload_fetched();
        let Export { root, to, at, frozen, flushed, .. } = export;
        if to == self.rank {
            self.authority.note_plain();
            self.go_on_with_held(effects);
            return self.answer_export(at, Ok(()), effects);
        }
        self.compaction.forget();
        self.tables.note_went();
        // Who waits is told first: to forget takes a while if there is much.
        let out = self.namespace.take_out(root);
        let froze = frozen.map_or(Span(0), |since| self.clock.now.since(since));
        self.counters.export_freeze_micros = froze.0 / 1000;
        self.counters.export_freezes_micros += froze.0 / 1000;
        self.authority.note_plain();
        self.retry_returned(root, effects);
        let gone = self.namespace.forget_out(out);
        if self.authority.moved.len() + gone.len() > MOVED_MAX {
            self.authority.moved.clear();
        }
        self.authority.moved.extend(gone.into_iter().take(MOVED_MAX).map(|ino| (ino, root)));
        self.drop_left();
        self.tables_tick(effects);
        self.go_on_with_held(effects);
        self.counters.exports += 1;
        self.counters.sessions_flushed += flushed;
        self.last_beacon = None;
        self.answer_export(at, Ok(()), effects);
    }

    /// The server stops: what is not decided yet stays here.
    pub(crate) fn stop_export(&mut self, effects: &mut Effects) {
        let decided = |export: &Export| matches!(export.stage, Stage::Commit | Stage::Retry(_));
        if self.authority.export.as_ref().is_some_and(|export| !decided(export)) {
            self.abort_export("the metadata server is stopping", effects);
        }
    }

    /// The subtree stays here. Not once the list may have been replaced.
    pub(crate) fn abort_export(&mut self, why: &str, effects: &mut Effects) {
        let Some(export) = self.authority.export.take() else { return };
        self.preload_fetched();
        self.counters.exports_aborted += 1;
        self.authority.note_plain();
        self.tables.stay();
        let failure = Failure { errno: Errno::Busy, text: format!("it was not moved: {why}") };
        self.answer_export(export.at, Err(failure), effects);
        self.retry_returned(export.root, effects);
        self.go_on_with_held(effects);
    }
}
