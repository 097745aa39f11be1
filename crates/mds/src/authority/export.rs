//! Giving a subtree to another rank (B-03).
//!
//! 1. *Drain*: clients lose their capabilities and leases in the subtree, and get no new ones.
//!    Requests continue.
//! 2. *Copy*: the changes in it are written to the metadata store, until few are left. Requests
//!    continue.
//! 3. *Freeze*: from here on requests for the subtree wait. Clients have returned their contested
//!    files, the changes of the subtree are in the store, and a recovery will skip the journal's
//!    events about it (`behind`); or, where it cannot, the journal begins behind the subtree's last
//!    event.
//! 4. *Commit* (`commit`): the list of subtrees is replaced. Afterwards the subtree is the other
//!    rank's; as long as the outcome of the replacement is unknown, no request is answered.
//!
//! Subtrees that do not overlap move side by side, because most of the time is spent waiting for
//! the store and for clients. Exports that are ready together share one replacement of the list.
//!
//! Until the commit the subtree is this rank's, whichever server crashes: the export wrote nothing
//! that a recovery would not write. Afterwards this rank's memory has nothing of the subtree, and
//! its journal nothing that a recovery replays.

mod commit;
mod give;

use journal::Event;
use metastore::SUBTREES_NAME;
use metastore::request::StoreOp;
use types::{ClientId, Cred, Errno, Ino, Moment, Origin, Rank, Seq, Span};
use wire::Failure;

use super::MOVED_MAX;
use super::place::{InodeAuthority, cold};
use crate::op::{Performed, Performing};
use crate::tables::Gone;
use crate::{Mds, MdsEffects, Phase, ReplyTo, Waiting};
use give::Giving;

/// How long a frozen subtree waits for clients to return contested open files, and for fetches to
/// end.
const CLOSE_WITHIN: Span = Span::from_millis(500);
/// Rounds of copying. Another round is worthwhile only if the last one took long, and at most half
/// as long as the one before: where a round writes as much as changes during it, the next one is
/// not shorter.
const ROUNDS_MAX: u32 = 4;
const ROUND_SHORT: Span = Span::from_millis(10);
/// The name of a root in the directory above it.
pub(super) const ROOT_NAME: &[u8] = b"root";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExportStage {
    /// The subtree stays, and the list will note that it is pinned here, or not any more.
    Note,
    Drain,
    /// The changes up to here are written.
    Copy {
        seq: Seq,
        round: u32,
        since: Moment,
        /// The duration of the previous round.
        before: Span,
    },
    /// Clients return contested files, and fetches under way end.
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

/// A subtree that moves to another rank.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) root: Ino,
    pub(crate) to: Rank,
    /// Who asked.
    pub(super) at: ReplyTo,
    /// Whether a user wants it there, and not the balancer.
    pub(super) pinned: bool,
    /// Clients know to which rank it goes.
    pub(super) announced: bool,
    pub(super) stage: ExportStage,
    pub(super) frozen: Option<Moment>,
    /// The list may be replaced, as was found in this step.
    pub(super) ready: bool,
    /// Sessions that had to give something back.
    pub(super) flushed: u64,
    /// The inodes with several names that go with it, in order: nothing is done with them any more.
    pub(super) linked: Vec<Ino>,
    /// The directories and inodes that a recovery will skip, or forget.
    pub(super) gone: Option<Gone>,
    /// A recovery skips the directories; else the journal must begin behind their events.
    pub(super) is_skipped: bool,
    /// The transfer to the other rank; `None` for a subtree that stays.
    pub(super) giving: Option<Giving>,
}

impl Export {
    /// A subtree that stays at its rank, unless a field is set otherwise.
    pub(super) fn new((root, to): (Ino, Rank), at: ReplyTo) -> Self {
        Self {
            root,
            to,
            at,
            pinned: false,
            announced: false,
            stage: ExportStage::Note,
            frozen: None,
            ready: false,
            flushed: 0,
            linked: Vec::new(),
            gone: None,
            is_skipped: false,
            giving: None,
        }
    }

    /// Whether requests for the subtree wait.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }
}

impl Mds {
    /// Begins to give a subtree to another rank. Only root and the owner of the namespace may ask.
    pub(crate) fn export(
        &mut self,
        at: ReplyTo,
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

    /// Begins to move a subtree to another rank, for a request or for the balancer.
    pub(crate) fn begin_export(
        &mut self,
        at: ReplyTo,
        (root, to): (Ino, Rank),
        pinned: bool,
    ) -> Performing {
        // The balancer's decision may be old. And the requests that were answered before a crash
        // are replayed first, at the rank that answered them.
        if self.authority.place(&self.namespace, root) != InodeAuthority::Here
            || self.resend.is_busy()
        {
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
        // All attributes of its inode, and all names, must be known here.
        self.namespace.getattr(root)?;
        if !self.namespace.is_complete(root) {
            return Err(cold(root));
        }
        self.check_links(root)?;
        assert!(self.authority.export_of(root).is_none(), "{root}: a subtree moves once");
        let id = self.transfer_id();
        let export = Export { pinned, ..Export::new((root, to), at) }.giving(id);
        self.authority.exports.push(export);
        self.authority.note_plain();
        Ok(Performed::Later)
    }

    /// Continues the exports, as far as possible.
    pub(super) fn export_step(&mut self, effects: &mut MdsEffects) {
        self.ask_takers(effects);
        let roots: Vec<Ino> = self.authority.exporting().collect();
        for root in roots {
            while let Some((to, stage)) = self.authority.export_of(root).map(|it| (it.to, it.stage))
                && let Some(next) = self.export_next((root, to), stage, effects)
            {
                self.set_export_stage(root, next);
            }
        }
        self.commit_ready(effects);
    }

    pub(super) fn set_export_stage(&mut self, root: Ino, stage: ExportStage) {
        if let Some(export) = self.export_mut(root) {
            export.stage = stage;
        }
    }

    fn export_mut(&mut self, root: Ino) -> Option<&mut Export> {
        self.authority.exports.iter_mut().find(|export| export.root == root)
    }

    /// The next stage, if this one is done.
    #[allow(clippy::too_many_lines, reason = "an arm for each stage")]
    fn export_next(
        &mut self,
        (root, to): (Ino, Rank),
        stage: ExportStage,
        effects: &mut MdsEffects,
    ) -> Option<ExportStage> {
        let now = self.clock.now;
        match stage {
            ExportStage::Note => {
                self.export_mut(root)?.ready = true;
                None
            }
            ExportStage::Drain => {
                if !std::mem::replace(&mut self.export_mut(root)?.announced, true) {
                    self.announce_move((root, to), effects);
                }
                if self.phase != Phase::Active {
                    self.abort_export(root, "the metadata server is stopping", effects);
                    return None;
                }
                let before = self.counters.revokes;
                let held = self.capabilities().revoke_below(ClientId(0), root, effects).is_some();
                let flushed = self.counters.revokes - before;
                self.export_mut(root)?.flushed += flushed;
                let first = (0, Span(u64::MAX));
                (!held && self.is_merged_below(root)).then(|| self.copy(root, first, effects))
            }
            ExportStage::Copy { seq, round, since, before } => {
                if self.phase != Phase::Active {
                    self.abort_export(root, "the metadata server is stopping", effects);
                    return None;
                }
                if !self.is_copied(root, seq, effects) {
                    return None;
                }
                let took = now.since(since);
                let shorter = took.0 <= before.0 / 2;
                if took >= ROUND_SHORT && shorter && round < ROUNDS_MAX {
                    return Some(self.copy(root, (round + 1, took), effects));
                }
                // A rename may have moved one subtree into another since the check; a frozen one
                // cannot move.
                let overlaps = |other: Ino| other != root && self.overlap(root, other);
                if self.authority.exporting().any(overlaps) {
                    let why = "what is above or below it is on its way, too; try again";
                    self.abort_export(root, why, effects);
                    return None;
                }
                let before = self.export_mut(root)?.frozen.replace(now);
                assert!(before.is_none(), "{root}: a subtree is frozen once");
                Some(ExportStage::Close)
            }
            ExportStage::Close => {
                let linked = &self.authority.export_of(root)?.linked;
                let contested = self.contested_below(root, linked);
                let at_rest = self.is_merged_below(root)
                    && !self.fetches.is_fetching_below(&self.namespace, root)
                    && self.authority.cross_renames.is_empty();
                if let Some(why) = self.too_many_open(root, linked) {
                    self.abort_export(root, &why, effects);
                    return None;
                }
                if contested == 0 && at_rest {
                    // A file may have got another name since the first check; the frozen subtree
                    // does not change.
                    let linked = match self.linked_now(root) {
                        Ok(linked) => linked,
                        Err(why) => {
                            self.abort_export(root, &why, effects);
                            return None;
                        }
                    };
                    // Some of them may be open.
                    if self.authority.export_of(root)?.linked != linked {
                        self.export_mut(root)?.linked = linked;
                        return Some(ExportStage::Close);
                    }
                    return Some(ExportStage::Flush { seq: self.log.last() });
                }
                let since = self.authority.export_of(root)?.frozen?;
                if now.since(since) >= CLOSE_WITHIN {
                    let text = if contested == 0 {
                        "something of it is still being read, or on its way".to_owned()
                    } else {
                        format!("clients have {contested} files open in it that others wait for")
                    };
                    self.abort_export(root, &text, effects);
                }
                None
            }
            ExportStage::Flush { seq } => {
                // Once these events are safe, no client resends a request about the subtree's name,
                // or about the directories above it.
                if self.log.safe() < seq {
                    return None;
                }
                let gone = self.leaves_events(root);
                let is_skipped = gone.is_some();
                let gone = gone.or_else(|| self.leaves_linked(root));
                let export = self.export_mut(root)?;
                (export.gone, export.is_skipped) = (gone, is_skipped);
                if is_skipped {
                    self.checkpointing().flush_for_export(root, effects);
                    return Some(ExportStage::Write { seq });
                }
                if self.log.written() < seq {
                    return None;
                }
                // Later events go to a segment that has none of the subtree.
                if self.log.has_segments() {
                    self.log.end_segment();
                    self.log.append(now, Origin::default(), &Event::NOTHING);
                }
                self.checkpoint.write_all();
                Some(ExportStage::Write { seq })
            }
            ExportStage::Write { seq } => {
                let frozen = self.authority.export_of(root).is_some_and(Export::is_frozen);
                assert!(frozen, "{root}: the last changes are written when no more come");
                if self.journal_says_more(root, seq) {
                    return Some(ExportStage::Flush { seq: self.log.last() });
                }
                if !self.is_written_out(root, seq, effects) {
                    return None;
                }
                // Abort: a subtree that arrived a moment ago may nest with this one, and lookups in
                // a frozen subtree are forbidden.
                let lost = |it: Ino| !self.namespace.is_anchored(it);
                let mut imports = self.authority.imports.iter().map(|import| import.root);
                if self.authority.other_roots().any(lost) || imports.any(lost) {
                    self.abort_export(root, "a subtree in it has just come; try again", effects);
                    return None;
                }
                if self.is_importing_below(root) || !self.note_leaving(root, effects) {
                    return None;
                }
                if self.first_elsewhere(root, to).is_some() {
                    let why = "a subtree in it went there first; try again";
                    self.abort_export(root, why, effects);
                    return None;
                }
                self.export_mut(root)?.ready = true;
                None
            }
            ExportStage::Commit => None,
            ExportStage::Retry(until) => {
                if now < until || self.authority.is_busy() {
                    return None;
                }
                self.authority.writing = true;
                let object = SUBTREES_NAME.to_owned();
                self.store.begin(Waiting::Subtrees, StoreOp::Get { object }, effects);
                Some(ExportStage::Commit)
            }
        }
    }

    /// Whether the journal is to be written without delay.
    pub(crate) fn export_wants_journal(&self) -> bool {
        self.authority.exports.iter().any(Export::is_frozen)
    }

    /// The subtree is the other rank's.
    pub(super) fn exported(&mut self, root: Ino, effects: &mut MdsEffects) {
        let Some(export) = self.end_export(root) else { return };
        self.preload_fetched();
        let Export { to, at, frozen, flushed, linked, gone, .. } = export;
        if to == self.rank {
            self.authority.note_plain();
            self.merging().go_on_with_held(effects);
            return self.answer_export(at, Ok(()), effects);
        }
        self.authority.went_at = Some(self.clock.now);
        self.compaction.forget();
        self.tables.note_went(root);
        self.send_opens_after((root, to), &linked, effects);
        let decoupled = self.decoupled_below(root);
        // Answer the blocked requests first: forgetting a large subtree takes a while.
        let out = self.namespace.handover().take_out(root);
        // Only their absence here shows that these inodes moved.
        self.namespace.handover().forget_linked(&linked, gone.map_or(Seq(0), |gone| gone.last));
        self.counters.exported_linked += linked.len() as u64;
        self.note_moved(root, linked);
        let froze = frozen.map_or(Span(0), |since| self.clock.now.since(since));
        self.counters.export_freeze_micros = froze.0 / 1000;
        self.counters.export_freezes_micros += froze.0 / 1000;
        self.authority.note_plain();
        self.fetches.wake_returned(root);
        let forgotten = self.namespace.handover().forget_out(out);
        self.note_moved(root, forgotten);
        self.drop_left();
        // Requests that wait for a merge of these continue to wait at the other rank.
        decoupled.into_iter().for_each(|root| self.merge_requests().end_elsewhere(root));
        self.storing_tables().tick(effects);
        self.merging().go_on_with_held(effects);
        self.counters.exports += 1;
        self.counters.export_flushed = flushed;
        self.counters.sessions_flushed += flushed;
        self.last_beacon = None;
        self.answer_export(at, Ok(()), effects);
    }

    /// Remembers with which subtree inodes went, unless there are too many.
    fn note_moved(&mut self, root: Ino, inos: Vec<Ino>) {
        let moved = &mut self.authority.moved;
        if moved.len() + inos.len() > MOVED_MAX {
            moved.clear();
        }
        moved.extend(inos.into_iter().take(MOVED_MAX).map(|ino| (ino, root)));
    }

    fn end_export(&mut self, root: Ino) -> Option<Export> {
        let at = self.authority.exports.iter().position(|export| export.root == root)?;
        Some(self.authority.exports.remove(at))
    }

    /// The server stops: an export that is not decided yet is cancelled.
    pub(crate) fn stop_export(&mut self, effects: &mut MdsEffects) {
        let decided =
            |export: &&Export| matches!(export.stage, ExportStage::Commit | ExportStage::Retry(_));
        let open = self.authority.exports.iter().filter(|export| !decided(export));
        let open: Vec<Ino> = open.map(|export| export.root).collect();
        for root in open {
            self.abort_export(root, "the metadata server is stopping", effects);
        }
    }

    /// The subtree stays here. Not once the list may have been replaced.
    pub(super) fn abort_export(&mut self, root: Ino, why: &str, effects: &mut MdsEffects) {
        if !self.stays(root, why, effects) {
            self.end_aborted(root, why, effects);
        }
    }

    fn end_aborted(&mut self, root: Ino, why: &str, effects: &mut MdsEffects) {
        let Some(export) = self.end_export(root) else { return };
        self.preload_fetched();
        self.counters.exports_aborted += 1;
        self.authority.note_plain();
        self.tables.stay(root);
        let failure = Failure { errno: Errno::Busy, text: format!("it was not moved: {why}") };
        self.answer_export(export.at, Err(failure), effects);
        self.fetches.wake_returned(root);
        self.merging().go_on_with_held(effects);
    }
}
