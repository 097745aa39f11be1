//! Messages between this rank and other ranks.
//!
//! The map of the monitor has the address of each rank. The driver keeps the connections: it
//! connects when this rank has something to send, and drops messages to a rank that does not
//! listen. So no message may be needed: the sender repeats it, and objects in the store decide.
//!
//! A question of another rank enters this rank's admission like a request of a client: it waits for
//! the clients that cache a directory, for a moving subtree, and for everything else that such a
//! request waits for.

use std::collections::BTreeMap;

use types::{Epoch, Rank, Tid};
use wire::{ClusterMap, Message, Op, PeerBody, PeerMessage, RankOp, ReadOp};

use crate::MdsEffects;
use crate::op::Performed;

/// A frame for another rank ([`MdsEffects::to_peers`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerFrame {
    /// The rank.
    pub to: Rank,
    /// Its address, as the map has it.
    pub address: String,
    /// The first frame of a new connection.
    pub hello: Vec<u8>,
    /// The frame.
    pub frame: Vec<u8>,
}

/// Questions of other ranks at once: each rank has few requests that need this one.
const QUESTIONS_MAX: usize = 4096;

/// The knowledge about other ranks that their messages brought.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The newest term of each.
    terms: BTreeMap<Rank, Epoch>,
    /// Their questions that have no answer yet, each under the number that it has as a request
    /// here: the rank, and its number of the question.
    questions: BTreeMap<Tid, (Rank, u64)>,
    last: Tid,
}

impl Peers {
    /// Whether a message is of the newest known term of its sender: those of earlier ones are late.
    pub(crate) fn is_current(&mut self, from: Rank, term: Epoch) -> bool {
        let known = self.terms.entry(from).or_default();
        *known = term.max(*known);
        *known == term
    }

    /// The number of a question as a request here. `None` for a repeated question.
    pub(crate) fn take_question(&mut self, from: Rank, number: u64) -> Option<Tid> {
        if self.questions.values().any(|known| *known == (from, number)) {
            return None;
        }
        if self.questions.len() == QUESTIONS_MAX {
            self.questions.pop_first();
        }
        self.last.0 += 1;
        self.questions.insert(self.last, (from, number));
        Some(self.last)
    }

    /// The rank that asked a question.
    pub(crate) fn asker(&self, tid: Tid) -> Option<Rank> {
        self.questions.get(&tid).map(|(rank, _)| *rank)
    }

    /// A question has its answer: returns the rank, and its number of the question.
    pub(crate) fn answered(&mut self, tid: Tid) -> Option<(Rank, u64)> {
        self.questions.remove(&tid)
    }

    /// A question of another rank has no answer yet: the other rank asks again.
    pub(crate) fn leave_unanswered(&mut self, tid: Tid) -> Performed {
        self.questions.remove(&tid);
        Performed::Later
    }
}

/// Whether a rank may ask another one for this.
pub(crate) fn is_for_ranks(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Read(ReadOp::GetAttr { .. } | ReadOp::Lookup { .. })
            | Op::Rank(RankOp::Colocate { .. } | RankOp::Arrive { .. })
    )
}

/// The way to other ranks, by the map of the monitor.
#[derive(Clone, Copy)]
pub(crate) struct PeerLine<'a> {
    pub(crate) map: Option<&'a ClusterMap>,
    /// The sender, and its term.
    pub(crate) from: Rank,
    pub(crate) term: Epoch,
}

impl PeerLine<'_> {
    /// Sends something to another rank, if the map has the rank.
    pub(crate) fn send(&self, to: Rank, body: PeerBody<'_>, effects: &mut MdsEffects) {
        let mut entries = self.map.into_iter().flat_map(|map| &map.mds);
        let Some(entry) = entries.find(|entry| entry.rank == to) else { return };
        let Self { from, term, .. } = *self;
        let frame = |body: PeerBody<'_>| {
            Message::Peer(Box::new(PeerMessage { from, term, to, body })).to_frame()
        };
        let (hello, frame) = (frame(PeerBody::Hello), frame(body));
        effects.to_peers.push(PeerFrame { to, address: entry.address.clone(), hello, frame });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_an_earlier_term_is_late() {
        let mut peers = Peers::default();
        assert!(peers.is_current(Rank(1), Epoch(3)) && peers.is_current(Rank(2), Epoch(1)));
        assert!(peers.is_current(Rank(1), Epoch(4)) && !peers.is_current(Rank(1), Epoch(3)));
        assert!(peers.is_current(Rank(1), Epoch(4)));
    }

    #[test]
    fn a_repeated_question_is_asked_once_until_it_is_answered() {
        let mut peers = Peers::default();
        let first = peers.take_question(Rank(1), 7).unwrap();
        assert_eq!(peers.take_question(Rank(1), 7), None);
        assert!(peers.take_question(Rank(2), 7).is_some());
        peers.answered(first);
        assert!(peers.take_question(Rank(1), 7).is_some_and(|tid| tid > first));
    }
}
