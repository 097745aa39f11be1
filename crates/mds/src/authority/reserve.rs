//! The taker's part of a transfer before the commit ([`crate::transfer`]).
//!
//! A subtree needs no place on this rank, so a reservation freezes nothing: it answers the giver,
//! and makes this rank read the list as soon as the giver has committed. If the reservation is
//! lost, with a message or by a restart, the list shows the subtree at the next regular read.

use std::collections::BTreeMap;

use types::{Errno, Ino, Moment, Span};
use wire::{PeerBody, TransferStep};

use super::Authority;
use super::export::send_step;
use crate::peers::PeerLine;
use crate::store::StoreOps;
use crate::transfer::{
    Fence, ListView, Record, TransferAction, TransferEvent, TransferId, TransferMessage,
    TransferState,
};
use crate::{MdsEffects, Phase};

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

/// The taker's reservations, with all that they may touch.
pub(crate) struct ReserveCx<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) line: PeerLine<'a>,
    pub(crate) phase: Phase,
    pub(crate) now: Moment,
}

impl ReserveCx<'_> {
    /// Another rank asks for the place of a subtree.
    pub(super) fn asked(&mut self, id: TransferId, root: Ino, effects: &mut MdsEffects) {
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
            return self.line.send(id.from, body, effects);
        }
        if let Some(known) = self.authority.reservations.all.get_mut(&id) {
            known.asked = self.now;
            return self.heard(id, TransferMessage::Ask, effects);
        }
        let (state, _) = TransferState::reserve();
        let new = Reservation { root, state, asked: self.now };
        self.authority.reservations.all.insert(id, new);
        // Nothing is frozen, so the journal has nothing to make safe first.
        self.take_event(id, TransferEvent::Safe, effects);
    }

    /// The giver of a subtree has sent a message.
    pub(super) fn heard(
        &mut self,
        id: TransferId,
        message: TransferMessage,
        effects: &mut MdsEffects,
    ) {
        // The list has the present state of the subtree.
        if message == TransferMessage::Committed
            && !self.authority.reservations.all.contains_key(&id)
        {
            return self.read_list_again(effects);
        }
        self.take_event(id, TransferEvent::Message(message), effects);
    }

    /// Ends the reservations of silent givers.
    pub(super) fn tick(&mut self, effects: &mut MdsEffects) {
        let now = self.now;
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
                    send_step(self.line, id.from, id, root, message, effects);
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
        let begins = self.authority.read_list(self.store, effects);
        self.authority.reservations.is_list_old = !begins;
    }
}
