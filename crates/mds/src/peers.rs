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

use types::{ConnId, Cred, Epoch, Rank, Tid};
use wire::{
    Answer, ClusterMap, Failure, Message, Op, PeerBody, PeerMessage, RankOp, ReadOp, Request,
};

use crate::op::Performed;
use crate::transfer::TransferId;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

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
    fn is_current(&mut self, from: Rank, term: Epoch) -> bool {
        let known = self.terms.entry(from).or_default();
        *known = term.max(*known);
        *known == term
    }

    /// The number of a question as a request here. `None` for a repeated question.
    fn take_question(&mut self, from: Rank, number: u64) -> Option<Tid> {
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

impl Mds {
    /// The way to other ranks.
    pub(crate) fn line(&self) -> PeerLine<'_> {
        PeerLine { map: self.map.as_ref(), from: self.rank, term: self.tables.epoch() }
    }

    pub(crate) fn send_to_peer(&self, to: Rank, body: PeerBody<'_>, effects: &mut MdsEffects) {
        self.line().send(to, body, effects);
    }

    /// A message of another rank.
    pub(crate) fn peer_message(
        &mut self,
        conn: ConnId,
        message: PeerMessage<'_>,
        effects: &mut MdsEffects,
    ) {
        let PeerMessage { from, term, to, body } = message;
        if to != self.rank || from == self.rank {
            effects.close.push(conn);
            return;
        }
        if !self.peers.is_current(from, term) {
            return;
        }
        match body {
            PeerBody::Hello => {}
            PeerBody::Transfer { giver, number, step } => {
                self.transfer_step(from, (giver, number), &step, effects);
            }
            PeerBody::Ask { number, cred, op } => {
                self.question_of_rank((from, number), cred, op, effects);
            }
            PeerBody::Answer { number, result } => self.rank_answered(number, result, effects),
        }
    }

    /// Executes a question of another rank, or of this one.
    pub(crate) fn question_of_rank(
        &mut self,
        (from, number): (Rank, u64),
        cred: Cred,
        op: Op<'_>,
        effects: &mut MdsEffects,
    ) {
        // A server that begins or stops does not answer, and the other rank asks again.
        let is_known = matches!(
            op,
            Op::Read(ReadOp::GetAttr { .. } | ReadOp::Lookup { .. })
                | Op::Rank(RankOp::Colocate { .. } | RankOp::Arrive { .. })
        );
        if self.phase != Phase::Active || !is_known {
            return;
        }
        if let Op::Rank(RankOp::Arrive { dir, .. }) = op {
            match self.names().considers(TransferId { number, from }, dir, effects) {
                Ok(Some(needs)) => self.meet_names(needs, effects),
                Ok(None) => return,
                Err(failure) => {
                    let answer = PeerBody::Answer { number, result: Err(failure) };
                    return self.send_to_peer(from, answer, effects);
                }
            }
        }
        let Some(tid) = self.peers.take_question(from, number) else { return };
        self.request(ConnId::PEER, &Request::new(tid, Tid(0), cred, op), effects);
    }

    /// A question of another rank has no answer yet: the other rank asks again.
    pub(crate) fn leave_unanswered(&mut self, at: ReplyTo) -> Performed {
        self.peers.questions.remove(&at.tid);
        Performed::Later
    }

    /// A question of another rank has its answer.
    pub(crate) fn answer_peer(
        &mut self,
        tid: Tid,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        let Some((to, number)) = self.peers.questions.remove(&tid) else { return };
        if to == self.rank {
            self.rank_answered(number, result, effects);
        } else {
            self.send_to_peer(to, PeerBody::Answer { number, result }, effects);
        }
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
        peers.questions.remove(&first);
        assert!(peers.take_question(Rank(1), 7).is_some_and(|tid| tid > first));
    }
}
