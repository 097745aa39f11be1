//! The protocol of a transfer: one state, one event, and the next state with its actions.
//!
//! The *giver* has the payload and coordinates. The *taker* reserves the place of the payload, and
//! takes the payload when the list of subtrees has a record of the transfer. The replacement of
//! the list is the commit point, so messages decide nothing: a late, lost or repeated message
//! delays a transfer, or ends it where it began.
//!
//! `step` knows no clock, no store and no namespace. The driver executes the actions, and passes
//! their outcomes in as events.
//!
//! Invariants:
//! * a giver drops the payload only after the list had the record, and a taker takes it only then;
//! * a giver whose replacement may have succeeded ends the transfer by the list only;
//! * a taker thaws a fenced reservation only if no list can have the record any more: the giver
//!   gave up, or the fence was raised in a list without the record.

use types::Rank;

/// The number of a transfer: the giver's count, in its term. Of two transfers that need the same
/// place, the smaller one proceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TransferId {
    pub(crate) number: u64,
    pub(crate) from: Rank,
}

/// A rank's number in the list of subtrees: a commit requires that it is the number under which
/// the taker reserved the place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Fence(pub(crate) u64);

impl Fence {
    /// The reservation of a payload that needs no place: the taker can take it at any time.
    pub(crate) const NONE: Self = Self(0);
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TransferEnd {
    /// The payload is the taker's.
    Moved,
    /// The payload is the giver's.
    Stayed,
}

/// The state of a transfer on one of its two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TransferState {
    /// Giver: asks the taker, and prepares the payload: from *ready* on it is frozen.
    Asking { reserved: Option<Fence>, ready: bool },
    /// Giver: a replacement of the list with the record is under way, or may have succeeded.
    Committing { fence: Fence },
    /// Giver: the list has the record, and the payload is gone. The journal does not say so yet.
    Given,
    /// Giver: the list is being replaced with the record marked as given.
    Marking,
    /// Taker: the place is frozen. Earlier changes of it are not safe in the journal yet.
    Reserving,
    /// Taker: the giver may commit.
    Reserved,
    /// Taker: the fence is being raised, because the giver is silent.
    Withdrawing,
    /// Taker: the list has the record. The payload is here, and not safe in the journal yet.
    Taking,
    /// Taker: the list is being replaced with the record marked as taken. Then the rank serves.
    Acknowledging,
    /// The rank forgets the transfer.
    Ended(TransferEnd),
}

/// A message from one of the two ranks to the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TransferMessage {
    /// Giver: reserve the place. Repeated while the giver waits, so the taker knows that it does.
    Ask,
    /// Taker: the place is reserved under this fence.
    Reserved(Fence),
    /// Taker: the payload cannot come.
    Refused,
    /// Giver: the list has the record.
    Committed,
    /// Giver: the payload stays, and the list will never have a record of this transfer.
    Stayed,
}

/// An input of [`TransferState::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TransferEvent {
    /// A message from the other rank.
    Message(TransferMessage),
    /// Giver: it is time to repeat the question.
    Due,
    /// Giver: the payload is frozen, and all of its changes are in the store.
    Ready,
    /// Giver: the payload has to stay, or the taker was silent for too long.
    Stay,
    /// Taker: the giver was silent for too long.
    Silent,
    /// The journal is safe up to the transfer's last event.
    Safe,
    /// The replacement of the list that this transfer wanted is in the store.
    Replaced,
    /// The outcome of that replacement is unknown.
    Unknown,
    /// The list was read, or a replacement found another version of it. Not while a replacement
    /// that this transfer wanted is under way: the list does not tell its outcome.
    List(ListView),
}

/// The content of the list that concerns one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListView {
    pub(crate) record: Record,
    /// The taker's fence.
    pub(crate) fence: Fence,
}

/// The record of a transfer in the list. It leaves the list when it has both marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Record {
    /// The list has none: it never had one, or both ranks have marked it.
    Absent,
    /// The transfer is committed, and this rank has not marked the record.
    Committed,
    /// This rank has marked the record.
    Marked,
}

/// A wish of [`TransferState::step`], for the driver to execute in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TransferAction {
    /// Send a message to the other rank.
    Send(TransferMessage),
    /// Giver: prepare the payload again, and report [`TransferEvent::Ready`].
    Prepare,
    /// Giver: replace the list by one with the record, if the taker's fence is this one.
    Commit(Fence),
    /// Giver: drop the payload, answer the request, and journal that.
    Drop,
    /// Giver: thaw the payload, and answer that it stays.
    Release,
    /// Taker: freeze the place, and report when the journal is safe.
    Freeze,
    /// Taker: replace the list by one with a higher fence of this rank, unless the known list has
    /// the record.
    RaiseFence,
    /// Taker: journal the payload, and report when the journal is safe. First this rank marks every
    /// record by which it gave a part of the payload: a recovery would drop that part again.
    Take,
    /// Mark the record: the journal of this rank has its part.
    Mark,
    /// Taker: thaw the place, and serve the payload if it came.
    Thaw,
    /// Read the list, and report it.
    ReadList,
}

/// Actions of one step.
pub(crate) type TransferActions = Vec<TransferAction>;

use TransferAction::{
    Commit, Drop, Freeze, Mark, Prepare, RaiseFence, ReadList, Release, Send, Take, Thaw,
};
use TransferState::{
    Acknowledging, Asking, Committing, Ended, Given, Marking, Reserved, Reserving, Taking,
    Withdrawing,
};

impl TransferState {
    /// The first state on the giver.
    pub(crate) fn give() -> (Self, TransferActions) {
        (Asking { reserved: None, ready: false }, vec![Send(TransferMessage::Ask)])
    }

    /// The first state on a taker that can reserve the place.
    pub(crate) fn reserve() -> (Self, TransferActions) {
        (Reserving, vec![Freeze])
    }

    /// The state of a rank that finds the record in the list, and knows nothing of the transfer:
    /// after a crash, or because the reservation ended unfenced.
    pub(crate) fn found(is_giver: bool, record: Record) -> (Self, TransferActions) {
        match (is_giver, record) {
            (_, Record::Absent) => (Ended(TransferEnd::Stayed), Vec::new()),
            (_, Record::Marked) => (Ended(TransferEnd::Moved), Vec::new()),
            (true, Record::Committed) => (Given, vec![Drop]),
            (false, Record::Committed) => (Taking, vec![Take]),
        }
    }

    /// Whether requests for the payload, or for its place, wait on this rank.
    pub(crate) fn is_frozen(self) -> bool {
        match self {
            Asking { ready, .. } => ready,
            Committing { .. } | Reserving | Reserved | Withdrawing | Taking | Acknowledging => true,
            Given | Marking | Ended(_) => false,
        }
    }

    /// Whether the giver may still decide that the payload stays.
    pub(crate) fn may_stay(self) -> bool {
        matches!(self, Asking { .. })
    }

    /// Whether the giver has the payload, as far as it knows.
    pub(crate) fn is_undecided(self) -> bool {
        matches!(self, Asking { .. } | Committing { .. })
    }

    /// Whether the list has the record, or may have it, and the transfer is not at its end.
    pub(crate) fn is_committed(self) -> bool {
        matches!(self, Committing { .. } | Given | Marking | Taking | Acknowledging)
    }

    /// The next state, and the actions of the rank. `fence` is the present fence of the taker, on
    /// the taker; [`Fence::NONE`] for a payload without a place.
    pub(crate) fn step(self, event: TransferEvent, fence: Fence) -> (Self, TransferActions) {
        match self {
            Asking { reserved, ready } => asking((reserved, ready), event),
            Committing { fence } => committing(fence, event),
            Given => given(event),
            Marking => marking(event, self),
            Reserving => reserving(event, fence),
            Reserved => in_reserve(event, fence),
            Withdrawing => withdrawing(event),
            Taking => taking(event),
            Acknowledging => marking(event, self),
            Ended(_) => (self, Vec::new()),
        }
    }
}

fn asking(
    (reserved, ready): (Option<Fence>, bool),
    event: TransferEvent,
) -> (TransferState, TransferActions) {
    let same = Asking { reserved, ready };
    match event {
        TransferEvent::Due => (same, vec![Send(TransferMessage::Ask)]),
        TransferEvent::Ready => next_of_asking(reserved, true),
        TransferEvent::Message(TransferMessage::Reserved(fence)) => {
            next_of_asking(Some(fence), ready)
        }
        TransferEvent::Message(TransferMessage::Refused) | TransferEvent::Stay => {
            (Ended(TransferEnd::Stayed), vec![Send(TransferMessage::Stayed), Release])
        }
        TransferEvent::Message(
            TransferMessage::Ask | TransferMessage::Committed | TransferMessage::Stayed,
        )
        | TransferEvent::Silent
        | TransferEvent::Safe
        | TransferEvent::Replaced
        | TransferEvent::Unknown
        | TransferEvent::List(_) => (same, Vec::new()),
    }
}

fn next_of_asking(reserved: Option<Fence>, ready: bool) -> (TransferState, TransferActions) {
    match reserved {
        Some(fence) if ready => (Committing { fence }, vec![Commit(fence)]),
        _ => (Asking { reserved, ready }, Vec::new()),
    }
}

fn committing(fence: Fence, event: TransferEvent) -> (TransferState, TransferActions) {
    match event {
        TransferEvent::Replaced => (Given, vec![Send(TransferMessage::Committed), Drop]),
        TransferEvent::List(view) => match view.record {
            Record::Committed | Record::Marked => {
                (Given, vec![Send(TransferMessage::Committed), Drop])
            }
            // Prepare again: in the list of another rank, other subtrees may belong to the payload.
            Record::Absent if view.fence == fence => {
                (Asking { reserved: Some(fence), ready: false }, vec![Prepare])
            }
            Record::Absent => {
                let ask = Send(TransferMessage::Ask);
                (Asking { reserved: None, ready: false }, vec![ask, Prepare])
            }
        },
        TransferEvent::Unknown => (Committing { fence }, vec![ReadList]),
        // The outcome is unknown, so neither a refusal nor a wish to stay counts.
        TransferEvent::Message(_)
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Silent
        | TransferEvent::Safe => (Committing { fence }, Vec::new()),
    }
}

fn given(event: TransferEvent) -> (TransferState, TransferActions) {
    match event {
        TransferEvent::Safe => (Marking, vec![Mark]),
        TransferEvent::Message(TransferMessage::Reserved(_)) => {
            (Given, vec![Send(TransferMessage::Committed)])
        }
        TransferEvent::Message(
            TransferMessage::Ask
            | TransferMessage::Refused
            | TransferMessage::Committed
            | TransferMessage::Stayed,
        )
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Silent
        | TransferEvent::Replaced
        | TransferEvent::Unknown
        | TransferEvent::List(_) => (Given, Vec::new()),
    }
}

/// Whether a taker's state ends because the list has the record.
fn is_committed(event: TransferEvent) -> bool {
    matches!(event, TransferEvent::List(view) if view.record == Record::Committed)
}

fn reserving(event: TransferEvent, fence: Fence) -> (TransferState, TransferActions) {
    if is_committed(event) {
        return (Taking, vec![Take]);
    }
    match event {
        TransferEvent::Safe => (Reserved, vec![Send(TransferMessage::Reserved(fence))]),
        // No giver knows of the reservation yet.
        TransferEvent::Message(TransferMessage::Stayed) | TransferEvent::Silent => {
            (Ended(TransferEnd::Stayed), vec![Thaw])
        }
        TransferEvent::Message(
            TransferMessage::Ask
            | TransferMessage::Reserved(_)
            | TransferMessage::Refused
            | TransferMessage::Committed,
        )
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Replaced
        | TransferEvent::Unknown
        | TransferEvent::List(_) => (Reserving, Vec::new()),
    }
}

fn in_reserve(event: TransferEvent, fence: Fence) -> (TransferState, TransferActions) {
    if is_committed(event) {
        return (Taking, vec![Take]);
    }
    match event {
        TransferEvent::Message(TransferMessage::Ask) => {
            (Reserved, vec![Send(TransferMessage::Reserved(fence))])
        }
        TransferEvent::Message(TransferMessage::Committed) => (Reserved, vec![ReadList]),
        TransferEvent::Message(TransferMessage::Stayed) => (Ended(TransferEnd::Stayed), vec![Thaw]),
        TransferEvent::Silent if fence == Fence::NONE => (Ended(TransferEnd::Stayed), vec![Thaw]),
        TransferEvent::Silent => (Withdrawing, vec![RaiseFence]),
        TransferEvent::Message(TransferMessage::Reserved(_) | TransferMessage::Refused)
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Safe
        | TransferEvent::Replaced
        | TransferEvent::Unknown
        | TransferEvent::List(_) => (Reserved, Vec::new()),
    }
}

fn withdrawing(event: TransferEvent) -> (TransferState, TransferActions) {
    match event {
        TransferEvent::Replaced => (Ended(TransferEnd::Stayed), vec![Thaw]),
        TransferEvent::List(view) => match view.record {
            Record::Committed => (Taking, vec![Take]),
            Record::Absent | Record::Marked => (Withdrawing, vec![RaiseFence]),
        },
        TransferEvent::Unknown => (Withdrawing, vec![ReadList]),
        TransferEvent::Message(_)
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Silent
        | TransferEvent::Safe => (Withdrawing, Vec::new()),
    }
}

fn taking(event: TransferEvent) -> (TransferState, TransferActions) {
    match event {
        TransferEvent::Safe => (Acknowledging, vec![Mark]),
        TransferEvent::Message(_)
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Silent
        | TransferEvent::Replaced
        | TransferEvent::Unknown
        | TransferEvent::List(_) => (Taking, Vec::new()),
    }
}

/// The last step of both ranks; the taker thaws the payload with it.
fn marking(event: TransferEvent, state: TransferState) -> (TransferState, TransferActions) {
    let ended = || {
        let last = if state == Acknowledging { vec![Thaw] } else { Vec::new() };
        (Ended(TransferEnd::Moved), last)
    };
    match event {
        TransferEvent::Replaced => ended(),
        TransferEvent::List(view) => match view.record {
            // The other rank removes a record that has both marks.
            Record::Marked | Record::Absent => ended(),
            Record::Committed => (state, vec![Mark]),
        },
        TransferEvent::Unknown => (state, vec![ReadList]),
        TransferEvent::Message(TransferMessage::Reserved(_)) if state == Marking => {
            (state, vec![Send(TransferMessage::Committed)])
        }
        TransferEvent::Message(_)
        | TransferEvent::Due
        | TransferEvent::Ready
        | TransferEvent::Stay
        | TransferEvent::Silent
        | TransferEvent::Safe => (state, Vec::new()),
    }
}

/// The answer of a rank to a question about a place that transfers of its own may need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransferMeeting {
    /// Nothing is in the way.
    Reserve,
    /// These transfers of this rank end first: their payloads stay.
    Yield(Vec<TransferId>),
    /// The giver asks again later: the outcome of another transfer is near.
    Wait,
    /// A transfer of this rank goes first.
    Refuse,
}

impl TransferMeeting {
    /// `own` are the transfers of this rank that freeze the place. Of two ranks that ask each other
    /// exactly one yields, so one of the two transfers proceeds.
    pub(crate) fn of(
        asked: TransferId,
        own: impl Iterator<Item = (TransferId, TransferState)>,
    ) -> Self {
        let mut yielding = Vec::new();
        for (id, state) in own {
            if !state.may_stay() {
                return Self::Wait;
            }
            if id < asked {
                return Self::Refuse;
            }
            yielding.push(id);
        }
        if yielding.is_empty() { Self::Reserve } else { Self::Yield(yielding) }
    }
}
