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

mod ask;
mod commit;
mod give;

use journal::Event;
use types::{Errno, Ino, Moment, Origin, Rank, Seq, Span};
use wire::{Answer, ClusterMap, Failure};

use super::decoupled::is_merged_below;
use super::view::Places;
use super::{Authority, MOVED_MAX};
use crate::checkpoint::CheckpointCx;
use crate::contexts::lend;
use crate::locks::Locks;
use crate::tables::Gone;
use crate::{MdsEffects, MdsNotice, Phase, ReplyTo};
use give::Giving;
pub(super) use give::send_step;

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ExportStage {
    /// The subtree stays, and the list will note that it is pinned here, or not any more.
    #[default]
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
#[derive(Debug, Default)]
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
    /// It is to be replaced when the operation on the list has ended that is under way.
    pub(super) is_held_back: bool,
    /// Sessions that had to give something back.
    pub(super) flushed: u64,
    /// This rank has read all of it, for files that clients have open.
    pub(super) is_searched: bool,
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
    /// Whether requests for the subtree wait.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }
}

/// The subtrees that go to other ranks, with all that their moves may touch.
pub(crate) struct ExportCx<'a> {
    /// The checkpoint, which writes them.
    pub(crate) base: CheckpointCx<'a>,
    pub(crate) locks: &'a mut Locks<ReplyTo>,
    pub(crate) map: Option<&'a ClusterMap>,
}

impl ExportCx<'_> {
    pub(super) fn places(&self) -> Places<'_> {
        lend!(self => Places {
            mut:;
            ref: locks;
            copy: map;
            authority: self.base.authority,
            namespace: self.base.namespace,
            tables: self.base.tables,
            opens: self.base.opens,
        })
    }

    /// The subtrees of which no client may cache anything any more, before they are copied.
    pub(super) fn draining(&mut self, effects: &mut MdsEffects) -> Vec<Ino> {
        let all = self.base.authority.exports.iter();
        let draining = all.filter(|export| export.stage == ExportStage::Drain);
        let draining: Vec<Ino> = draining.map(|export| export.root).collect();
        for root in &draining {
            let Some(export) = self.export_mut(*root) else { continue };
            let to = export.to;
            if !std::mem::replace(&mut export.announced, true) {
                self.announce_move(*root, to, effects);
            }
            if self.base.phase != Phase::Active {
                self.abort(*root, "the metadata server is stopping", effects);
            }
        }
        draining
    }

    /// Clients must give up their capabilities in a subtree; `is_held` is whether one has not yet.
    pub(super) fn drained(
        &mut self,
        root: Ino,
        is_held: bool,
        flushed: u64,
        effects: &mut MdsEffects,
    ) {
        let Some(export) = self.export_mut(root) else { return };
        export.flushed += flushed;
        if !is_held && self.is_merged(root) && self.has_found_files(root) {
            let next = self.base.copy(root, 0, Span(u64::MAX), effects);
            self.set_stage(root, next);
        }
    }

    fn is_merged(&self, root: Ino) -> bool {
        is_merged_below(self.base.merges, self.base.checkpoint, self.base.namespace, root)
    }

    /// Continues the exports, as far as possible.
    pub(super) fn step(&mut self, effects: &mut MdsEffects) {
        self.ask_takers(effects);
        let roots: Vec<Ino> = self.base.authority.exporting().collect();
        for root in roots {
            while let Some((to, stage)) =
                self.base.authority.export_of(root).map(|it| (it.to, it.stage))
                && let Some(next) = self.next(root, to, stage, effects)
            {
                self.set_stage(root, next);
            }
        }
        self.commit_ready(effects);
    }

    pub(super) fn set_stage(&mut self, root: Ino, stage: ExportStage) {
        if let Some(export) = self.export_mut(root) {
            export.stage = stage;
        }
    }

    pub(super) fn export_mut(&mut self, root: Ino) -> Option<&mut Export> {
        self.base.authority.exports.iter_mut().find(|export| export.root == root)
    }

    /// The next stage, if this one is done.
    #[allow(clippy::too_many_lines, reason = "an arm for each stage")]
    fn next(
        &mut self,
        root: Ino,
        to: Rank,
        stage: ExportStage,
        effects: &mut MdsEffects,
    ) -> Option<ExportStage> {
        let now = self.base.clock.now;
        match stage {
            ExportStage::Note => {
                self.export_mut(root)?.ready = true;
                None
            }
            // Clients and merges first: [`Self::drained`].
            ExportStage::Drain | ExportStage::Commit => None,
            ExportStage::Copy { seq, round, since, before } => {
                if self.base.phase != Phase::Active {
                    self.abort(root, "the metadata server is stopping", effects);
                    return None;
                }
                if !self.base.is_copied(root, seq, effects) || !self.has_found_files(root) {
                    return None;
                }
                let took = now.since(since);
                let shorter = took.0 <= before.0 / 2;
                if took >= ROUND_SHORT && shorter && round < ROUNDS_MAX {
                    return Some(self.base.copy(root, round + 1, took, effects));
                }
                // A rename may have moved one subtree into another since the check; a frozen one
                // cannot move.
                let overlaps = |other: Ino| other != root && self.places().overlap(root, other);
                if self.base.authority.exporting().any(overlaps) {
                    let why = "what is above or below it is on its way, too; try again";
                    self.abort(root, why, effects);
                    return None;
                }
                let before = self.export_mut(root)?.frozen.replace(now);
                assert!(before.is_none(), "{root}: a subtree is frozen once");
                self.base.authority.note_plain();
                Some(ExportStage::Close)
            }
            ExportStage::Close => {
                let linked = &self.base.authority.export_of(root)?.linked;
                let contested = self.places().contested_below(root, linked);
                let at_rest = self.is_merged(root)
                    && !self.base.fetches.is_fetching_below(self.base.namespace, root)
                    && self.base.authority.cross_renames.is_empty();
                if let Some(why) = self.places().too_many_open(root, linked) {
                    self.abort(root, &why, effects);
                    return None;
                }
                // The frozen subtree is not read.
                let is_searched = self.base.authority.export_of(root)?.is_searched;
                if !is_searched && self.places().has_unfound_files() {
                    let why =
                        "a client has just reported an open file that may be in it; try again";
                    self.abort(root, why, effects);
                    return None;
                }
                if contested == 0 && at_rest {
                    // A file may have got another name since the first check; the frozen subtree
                    // does not change.
                    let linked = match self.places().linked_now(root) {
                        Ok(linked) => linked,
                        Err(why) => {
                            self.abort(root, &why, effects);
                            return None;
                        }
                    };
                    // Some of them may be open.
                    if self.base.authority.export_of(root)?.linked != linked {
                        self.export_mut(root)?.linked = linked;
                        self.base.authority.note_plain();
                        return Some(ExportStage::Close);
                    }
                    return Some(ExportStage::Flush { seq: self.base.log.last() });
                }
                let since = self.base.authority.export_of(root)?.frozen?;
                if now.since(since) >= CLOSE_WITHIN {
                    let text = if contested == 0 {
                        "something of it is still being read, or on its way".to_owned()
                    } else {
                        format!("clients have {contested} files open in it that others wait for")
                    };
                    self.abort(root, &text, effects);
                }
                None
            }
            ExportStage::Flush { seq } => {
                // Once these events are safe, no client resends a request about the subtree's name,
                // or about the directories above it.
                if self.base.log.safe() < seq {
                    return None;
                }
                let gone = self.base.leaves_events(root);
                let is_skipped = gone.is_some();
                let gone = gone.or_else(|| self.base.leaves_linked(root));
                let export = self.export_mut(root)?;
                (export.gone, export.is_skipped) = (gone, is_skipped);
                if is_skipped {
                    self.base.flush_for_export(root, effects);
                    return Some(ExportStage::Write { seq });
                }
                if self.base.log.written() < seq {
                    return None;
                }
                // Later events go to a segment that has none of the subtree.
                if self.base.log.has_segments() {
                    self.base.log.end_segment();
                    self.base.log.append(now, Origin::default(), &Event::NOTHING);
                }
                self.base.checkpoint.write_all();
                Some(ExportStage::Write { seq })
            }
            ExportStage::Write { seq } => {
                let frozen = self.base.authority.export_of(root).is_some_and(Export::is_frozen);
                assert!(frozen, "{root}: the last changes are written when no more come");
                if self.base.journal_says_more(root, seq) {
                    return Some(ExportStage::Flush { seq: self.base.log.last() });
                }
                if !self.base.is_written_out(root, seq, effects) {
                    return None;
                }
                // Abort: a subtree that arrived a moment ago may nest with this one, and lookups in
                // a frozen subtree are forbidden.
                let lost = |it: Ino| !self.base.namespace.is_anchored(it);
                let mut imports = self.base.authority.imports.iter().map(|import| import.root);
                if self.base.authority.other_roots().any(lost) || imports.any(lost) {
                    self.abort(root, "a subtree in it has just come; try again", effects);
                    return None;
                }
                if self.places().is_importing_below(root) || !self.note_leaving(root, effects) {
                    return None;
                }
                if self.places().first_elsewhere(root, to).is_some() {
                    let why = "a subtree in it went there first; try again";
                    self.abort(root, why, effects);
                    return None;
                }
                self.export_mut(root)?.ready = true;
                None
            }
            ExportStage::Retry(until) => {
                if now < until || self.base.authority.is_busy() {
                    return None;
                }
                self.base.authority.look_at_list(self.base.store, effects);
                Some(ExportStage::Commit)
            }
        }
    }

    /// The subtree is the other rank's.
    pub(super) fn exported(&mut self, root: Ino, effects: &mut MdsEffects) {
        let Some(export) = self.end_export(root) else { return };
        self.base.authority.fetched();
        let Export { to, at, frozen, flushed, linked, gone, .. } = export;
        if to == self.base.rank {
            self.base.authority.note_ended(&[]);
            return effects.answer(at, Ok(Answer::Done));
        }
        self.base.authority.went_at = Some(self.base.clock.now);
        self.base.authority.note_move(root, to);
        self.base.compaction.forget();
        self.base.tables.note_went(root);
        self.send_opens_after(root, to, &linked, effects);
        let decoupled = self.places().decoupled_below(root);
        // Answer the blocked requests first: forgetting a large subtree takes a while.
        let out = self.base.namespace.handover().take_out(root);
        // Only their absence here shows that these inodes moved.
        self.base
            .namespace
            .handover()
            .forget_linked(&linked, gone.map_or(Seq(0), |gone| gone.last));
        self.base.counters.exported_linked += linked.len() as u64;
        self.base.authority.note_moved(root, linked);
        let froze = frozen.map_or(Span(0), |since| self.base.clock.now.since(since));
        self.base.counters.export_freeze_micros = froze.0 / 1000;
        self.base.counters.export_freezes_micros += froze.0 / 1000;
        effects.notices.push(MdsNotice::Gave { root, to, froze });
        self.base.fetches.wake_returned(root);
        let forgotten = self.base.namespace.handover().forget_out(out);
        self.base.authority.note_moved(root, forgotten);
        self.base.authority.drop_left(self.base.tables, self.base.merges);
        self.base.storing_tables().tick(effects);
        self.base.authority.note_ended(&decoupled);
        self.base.counters.exports += 1;
        self.base.counters.export_flushed = flushed;
        self.base.counters.sessions_flushed += flushed;
        effects.answer(at, Ok(Answer::Done));
    }

    fn end_export(&mut self, root: Ino) -> Option<Export> {
        let at = self.base.authority.exports.iter().position(|export| export.root == root)?;
        Some(self.base.authority.exports.remove(at))
    }

    /// The server stops: an export that is not decided yet is cancelled.
    pub(crate) fn stop(&mut self, effects: &mut MdsEffects) {
        let decided =
            |export: &&Export| matches!(export.stage, ExportStage::Commit | ExportStage::Retry(_));
        let open = self.base.authority.exports.iter().filter(|export| !decided(export));
        let open: Vec<Ino> = open.map(|export| export.root).collect();
        for root in open {
            self.abort(root, "the metadata server is stopping", effects);
        }
    }

    /// The subtree stays here. Not once the list may have been replaced.
    pub(super) fn abort(&mut self, root: Ino, why: &str, effects: &mut MdsEffects) {
        if !self.stays(root, why, effects) {
            self.end_aborted(root, why, effects);
        }
    }

    fn end_aborted(&mut self, root: Ino, why: &str, effects: &mut MdsEffects) {
        let Some(export) = self.end_export(root) else { return };
        self.base.authority.fetched();
        self.base.counters.exports_aborted += 1;
        self.base.tables.stay(root);
        effects.notices.push(MdsNotice::Kept { root, to: export.to, why: why.to_owned() });
        let failure = Failure { errno: Errno::Busy, text: format!("it was not moved: {why}") };
        effects.answer(export.at, Err(failure));
        self.base.fetches.wake_returned(root);
        self.base.authority.note_ended(&[]);
    }
}

impl Authority {
    /// Whether the exports want the journal to be written without delay.
    pub(super) fn exports_want_journal(&self) -> bool {
        self.exports.iter().any(Export::is_frozen)
    }

    /// Remembers with which subtree inodes went, unless there are too many.
    fn note_moved(&mut self, root: Ino, inos: Vec<Ino>) {
        let moved = &mut self.moved;
        if moved.len() + inos.len() > MOVED_MAX {
            moved.clear();
        }
        moved.extend(inos.into_iter().take(MOVED_MAX).map(|ino| (ino, root)));
    }
}
