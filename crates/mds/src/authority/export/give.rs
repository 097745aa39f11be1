//! An export as a transfer: the giver's part ([`crate::transfer`]).
//!
//! The rank asks the taker when the export begins, so it has the answer before it freezes the
//! subtree. A subtree needs no place, so its reservation has no fence: the taker can take it at any
//! time, also after a restart. The mark of the giver is the count of moves in the list, which the
//! table compares (`tables::gone`), so nothing follows the commit.

use types::{Errno, Ino, Moment, Rank, Span};
use wire::{PeerBody, TransferStep};

use super::{Export, ExportCx, ExportStage};
use crate::MdsEffects;
use crate::authority::RETRY;
use crate::peers::PeerLine;
use crate::transfer::{
    Fence, ListView, Record, TransferAction, TransferEvent, TransferId, TransferMessage,
    TransferState,
};

/// How often the giver repeats its question.
const ASK_INTERVAL: Span = Span::from_millis(20);
/// How long a frozen subtree waits for the answer of the other rank.
const ANSWER_WITHIN: Span = Span::from_millis(500);

/// The transfer of an export.
#[derive(Debug)]
pub(in crate::authority) struct Giving {
    pub(in crate::authority) id: TransferId,
    pub(in crate::authority) state: TransferState,
    /// When the rank asked last.
    asked: Option<Moment>,
    /// Since when only the answer is missing.
    waits_since: Option<Moment>,
    /// Why the subtree stays.
    why: String,
}

impl Giving {
    fn new(id: TransferId) -> Self {
        // The first step of the export asks.
        let (state, _) = TransferState::give();
        Self { id, state, asked: None, waits_since: None, why: String::new() }
    }

    fn is_reserved(&self) -> bool {
        matches!(self.state, TransferState::Asking { reserved: Some(_), .. })
    }
}

impl Export {
    /// An export to another rank, which the taker is asked for first.
    pub(in crate::authority) fn giving(self, id: TransferId) -> Self {
        Self { giving: Some(Giving::new(id)), stage: ExportStage::Drain, ..self }
    }
}

impl ExportCx<'_> {
    /// A number for a transfer: those of different terms are different.
    pub(super) fn transfer_id(&mut self) -> TransferId {
        let number = self.base.authority.cross_renames.number(self.base.tables.epoch());
        TransferId { number, from: self.base.rank }
    }

    fn line(&self) -> PeerLine<'_> {
        PeerLine { map: self.map, from: self.base.rank, term: self.base.tables.epoch() }
    }

    /// Repeats the questions that wait for an answer.
    pub(super) fn ask_takers(&mut self, effects: &mut MdsEffects) {
        let now = self.base.clock.now;
        let due = |giving: &Giving| giving.asked.is_none_or(|at| now.since(at) >= ASK_INTERVAL);
        let mut roots = Vec::new();
        for export in &mut self.base.authority.exports {
            if let Some(giving) = export.giving.as_mut().filter(|it| it.state.may_stay() && due(it))
            {
                giving.asked = Some(now);
                roots.push(export.root);
            }
        }
        for root in roots {
            self.give_event(root, TransferEvent::Due, effects);
        }
    }

    /// Whether the list may be replaced for an export that is ready: the taker has reserved it. If
    /// the taker is silent for too long, the export ends.
    pub(super) fn is_given_leave(&mut self, root: Ino, effects: &mut MdsEffects) -> bool {
        let now = self.base.clock.now;
        let Some(export) = self.export_mut(root) else { return false };
        let to = export.to;
        let Some(giving) = &mut export.giving else { return true };
        if giving.is_reserved() {
            return true;
        }
        let since = *giving.waits_since.get_or_insert(now);
        if now.since(since) >= ANSWER_WITHIN {
            let why = format!("{to} does not answer; `cudele mds ls` shows its state");
            self.abort(root, &why, effects);
        }
        false
    }

    /// Passes an event to the transfer of an export, and executes its actions. Returns whether the
    /// export has one.
    pub(super) fn give_event(
        &mut self,
        root: Ino,
        event: TransferEvent,
        effects: &mut MdsEffects,
    ) -> bool {
        let Some(export) = self.export_mut(root) else { return false };
        let Some(giving) = &mut export.giving else { return false };
        let (state, actions) = giving.state.step(event, Fence::NONE);
        giving.state = state;
        let (to, id) = (export.to, giving.id);
        for action in actions {
            self.execute_giving(root, to, id, action, effects);
        }
        true
    }

    fn execute_giving(
        &mut self,
        root: Ino,
        to: Rank,
        id: TransferId,
        action: TransferAction,
        effects: &mut MdsEffects,
    ) {
        match action {
            TransferAction::Send(message) => send_step(self.line(), to, id, root, message, effects),
            TransferAction::Prepare => {
                // A subtree may have arrived in it since: check again whether the store has all of
                // it.
                let seq = self.base.log.last();
                self.set_stage(root, ExportStage::Flush { seq });
                if let Some(giving) = self.export_mut(root).and_then(|it| it.giving.as_mut()) {
                    giving.waits_since = None;
                }
            }
            // `commit_ready` replaces the list for all exports that are ready.
            TransferAction::Commit(_) => self.set_stage(root, ExportStage::Commit),
            TransferAction::Drop => self.exported(root, effects),
            TransferAction::Release => self.released(root, effects),
            TransferAction::ReadList => {
                let until = self.base.clock.now + RETRY;
                self.set_stage(root, ExportStage::Retry(until));
            }
            TransferAction::Mark
            | TransferAction::Freeze
            | TransferAction::RaiseFence
            | TransferAction::Take
            | TransferAction::Thaw => debug_assert!(false, "{action:?} of a giver"),
        }
    }

    /// The subtree of an export stays, for this reason. Returns whether that is decided.
    pub(super) fn stays(&mut self, root: Ino, why: &str, effects: &mut MdsEffects) -> bool {
        let Some(giving) = self.export_mut(root).and_then(|export| export.giving.as_mut()) else {
            return false;
        };
        why.clone_into(&mut giving.why);
        self.give_event(root, TransferEvent::Stay, effects)
    }

    fn released(&mut self, root: Ino, effects: &mut MdsEffects) {
        let giving = self.export_mut(root).and_then(|export| export.giving.take());
        let why = giving.map(|giving| giving.why).unwrap_or_default();
        self.end_aborted(root, &why, effects);
    }

    /// A taker's answer about an export.
    pub(in crate::authority) fn giver_heard(
        &mut self,
        id: TransferId,
        message: TransferMessage,
        why: &str,
        effects: &mut MdsEffects,
    ) {
        let of_id = |export: &&mut Export| export.giving.as_ref().is_some_and(|it| it.id == id);
        let Some(export) = self.base.authority.exports.iter_mut().find(of_id) else { return };
        let (root, to) = (export.root, export.to);
        if let Some(giving) = export.giving.as_mut().filter(|_| !why.is_empty()) {
            giving.why = format!("{to} refuses it: {why}");
        }
        self.give_event(root, TransferEvent::Message(message), effects);
    }
}

/// Sends a step of a transfer.
pub(in crate::authority) fn send_step(
    line: PeerLine<'_>,
    to: Rank,
    id: TransferId,
    root: Ino,
    message: TransferMessage,
    effects: &mut MdsEffects,
) {
    let step = match message {
        TransferMessage::Ask => TransferStep::AskSubtree { root },
        TransferMessage::Reserved(Fence(fence)) => TransferStep::Reserved { fence },
        TransferMessage::Refused => {
            TransferStep::Refused { errno: Errno::Busy, why: String::new() }
        }
        TransferMessage::Committed => TransferStep::Committed,
        TransferMessage::Stayed => TransferStep::Stayed,
    };
    let body = PeerBody::Transfer { giver: id.from, number: id.number, step };
    line.send(to, body, effects);
}

/// The list, as it concerns an export: whether the subtree is the other rank's.
pub(super) fn view(is_committed: bool) -> ListView {
    let record = if is_committed { Record::Committed } else { Record::Absent };
    ListView { record, fence: Fence::NONE }
}
