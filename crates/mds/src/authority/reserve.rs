//! The taker's part of a transfer before the commit ([`crate::transfer`]).
//!
//! A subtree needs no place on this rank, so a reservation freezes nothing: it answers the giver,
//! and makes this rank read the list as soon as the giver has committed. If the reservation is
//! lost, with a message or by a restart, the list shows the subtree at the next regular read.

use std::collections::BTreeMap;

use types::{Errno, Ino, Moment, Rank, Span};
use wire::{PeerBody, TransferStep};

use super::export::send_step;
use crate::authority::{ExportCx, NamesCx};
use crate::peers::PeerLine;
use crate::transfer::{
    Fence, ListView, Record, TransferAction, TransferEvent, TransferId, TransferMessage,
    TransferState,
};
use crate::{Mds, MdsEffects, Phase};

/// How long a reservation lasts after the giver's last question.
const SILENT_AFTER: Span = Span::from_millis(2000);
/// Reservations at once: several ranks may give as many subtrees as they may export.
const RESERVATIONS_MAX: usize = 1024;

/// A subtree that another rank is about to give to this one.
#[derive(Debug)]
pub(super) struct Reservation {
    root: Ino,
    state: TransferState,
    /// When the giver asked last.
    asked: Moment,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    all: BTreeMap<TransferId, Reservation>,
    /// A giver has committed since the last read of the list began.
    pub(super) is_list_old: bool,
}

impl Reservations {
    /// The state of an import that the list has: that of its reservation, if there is one.
    pub(super) fn taken(&mut self, root: Ino) -> TransferState {
        let of_root = |(id, it): (&TransferId, &Reservation)| (it.root == root).then_some(*id);
        let id = self.all.iter().find_map(of_root);
        let reserved = id.and_then(|id| self.all.remove(&id));
        let view = ListView { record: Record::Committed, fence: Fence::NONE };
        let (state, actions) = match reserved {
            Some(it) => it.state.step(TransferEvent::List(view), Fence::NONE),
            None => TransferState::found(false, Record::Committed),
        };
        debug_assert_eq!(actions, [TransferAction::Take], "the list has the record");
        state
    }
}

impl Mds {
    /// A message of another rank about a transfer. A rank that replays drops it: the recovery reads
    /// the list itself, and a newer list would not fit what it has read.
    pub(crate) fn transfer_step(
        &mut self,
        from: Rank,
        (giver, number): (Rank, u64),
        step: &TransferStep,
        effects: &mut MdsEffects,
    ) {
        if self.phase == Phase::Recovering {
            return;
        }
        let id = TransferId { number, from: giver };
        let is_name = self.authority.cross_renames.knows(id);
        match *step {
            TransferStep::AskSubtree { root } if giver == from => self.asked(id, root, effects),
            TransferStep::Committed if giver == from && is_name => {
                self.name_heard(id, TransferMessage::Committed, effects);
            }
            TransferStep::Committed if giver == from => {
                self.taker_heard(id, TransferMessage::Committed, effects);
            }
            TransferStep::Stayed if giver == from && is_name => {
                self.name_heard(id, TransferMessage::Stayed, effects);
            }
            TransferStep::Stayed if giver == from => {
                self.taker_heard(id, TransferMessage::Stayed, effects);
            }
            TransferStep::Reserved { fence } if giver == self.rank && is_name => {
                self.name_heard(id, TransferMessage::Reserved(Fence(fence)), effects);
            }
            TransferStep::Reserved { fence }
                if giver == self.rank && Fence(fence) != Fence::NONE =>
            {
                self.reserved_in_vain(id, from, effects);
            }
            TransferStep::Reserved { fence } if giver == self.rank => {
                let message = TransferMessage::Reserved(Fence(fence));
                ExportCx::of(self).giver_heard(id, message, "", effects);
            }
            TransferStep::Refused { ref why, .. } if giver == self.rank => {
                ExportCx::of(self).giver_heard(id, TransferMessage::Refused, why, effects);
            }
            // Of a rank that does not take part in the transfer.
            TransferStep::AskSubtree { .. }
            | TransferStep::Committed
            | TransferStep::Stayed
            | TransferStep::Reserved { .. }
            | TransferStep::Refused { .. } => {}
        }
        self.authority_step(effects);
    }

    fn name_heard(&mut self, id: TransferId, message: TransferMessage, effects: &mut MdsEffects) {
        let needs = NamesCx::of(self).heard(id, message, effects);
        self.meet_names(needs, effects);
    }

    /// Another rank asks for the place of a subtree.
    fn asked(&mut self, id: TransferId, root: Ino, effects: &mut MdsEffects) {
        let refusal = match self.phase {
            Phase::Stopping | Phase::Stopped => Some("it is stopping"),
            // The subtree is taken when the clients of the earlier term are back.
            Phase::Recovering | Phase::Reconnecting { .. } | Phase::Active => {
                let full = self.authority.reservations.all.len() >= RESERVATIONS_MAX;
                full.then_some("too many subtrees are about to move there")
            }
        };
        if let Some(why) = refusal {
            let step = TransferStep::Refused { errno: Errno::Busy, why: why.to_owned() };
            let body = PeerBody::Transfer { giver: id.from, number: id.number, step };
            return PeerLine::of(self).send(id.from, body, effects);
        }
        let now = self.clock.now;
        if let Some(known) = self.authority.reservations.all.get_mut(&id) {
            known.asked = now;
            return self.taker_heard(id, TransferMessage::Ask, effects);
        }
        let (state, _) = TransferState::reserve();
        self.authority.reservations.all.insert(id, Reservation { root, state, asked: now });
        // Nothing is frozen, so the journal has nothing to make safe first.
        self.take_event(id, TransferEvent::Safe, effects);
    }

    fn taker_heard(&mut self, id: TransferId, message: TransferMessage, effects: &mut MdsEffects) {
        // The list has the present state of the subtree.
        if message == TransferMessage::Committed
            && !self.authority.reservations.all.contains_key(&id)
        {
            return self.read_list_again(effects);
        }
        self.take_event(id, TransferEvent::Message(message), effects);
    }

    /// Ends the reservations of silent givers.
    pub(super) fn reservations_tick(&mut self, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let all = self.authority.reservations.all.iter();
        let silent = all.filter(|(_, it)| now.since(it.asked) >= SILENT_AFTER);
        let silent: Vec<TransferId> = silent.map(|(id, _)| *id).collect();
        for id in silent {
            self.take_event(id, TransferEvent::Silent, effects);
        }
    }

    fn take_event(&mut self, id: TransferId, event: TransferEvent, effects: &mut MdsEffects) {
        let Some(reservation) = self.authority.reservations.all.get_mut(&id) else { return };
        let (state, actions) = reservation.state.step(event, Fence::NONE);
        reservation.state = state;
        let root = reservation.root;
        for action in actions {
            match action {
                TransferAction::Send(message) => {
                    send_step(PeerLine::of(self), id.from, id, root, message, effects);
                }
                TransferAction::ReadList => self.read_list_again(effects),
                TransferAction::Thaw => {
                    self.authority.reservations.all.remove(&id);
                }
                TransferAction::Freeze
                | TransferAction::Take
                | TransferAction::Mark
                | TransferAction::RaiseFence
                | TransferAction::Prepare
                | TransferAction::Commit(_)
                | TransferAction::Drop
                | TransferAction::Release => debug_assert!(false, "{action:?} of a reservation"),
            }
        }
    }

    /// Reads the list, after the read or the replacement that is under way.
    fn read_list_again(&mut self, effects: &mut MdsEffects) {
        self.authority.reservations.is_list_old = self.authority.is_busy();
        self.authority.read_list(&mut self.store, effects);
    }
}
