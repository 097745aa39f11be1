//! Messages between this rank and other ranks.
//!
//! The map of the monitor has the address of each rank. The driver keeps the connections: it
//! connects when this rank has something to send, and drops messages to a rank that does not
//! listen. So no message may be needed: a transfer repeats its messages, and decides by the list of
//! subtrees.

use std::collections::BTreeMap;

use types::{ConnId, Epoch, Rank};
use wire::{Message, PeerBody, PeerMessage};

use crate::{Mds, MdsEffects};

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

/// The knowledge about other ranks that their messages brought.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// The newest term of each.
    terms: BTreeMap<Rank, Epoch>,
}

impl Peers {
    /// Whether a message is of the newest known term of its sender: those of earlier ones are late.
    fn is_current(&mut self, from: Rank, term: Epoch) -> bool {
        let known = self.terms.entry(from).or_default();
        *known = term.max(*known);
        *known == term
    }
}

impl Mds {
    /// Sends something to another rank, if the map has the rank.
    pub(crate) fn send_to_peer(&self, to: Rank, body: PeerBody, effects: &mut MdsEffects) {
        let mut entries = self.map.iter().flat_map(|map| &map.mds);
        let Some(entry) = entries.find(|entry| entry.rank == to) else { return };
        let (from, term) = (self.rank, self.tables.epoch());
        let frame = |body| Message::Peer(PeerMessage { from, term, to, body }).to_frame();
        let (hello, frame) = (frame(PeerBody::Hello), frame(body));
        effects.to_peers.push(PeerFrame { to, address: entry.address.clone(), hello, frame });
    }

    /// A message of another rank.
    pub(crate) fn peer_message(
        &mut self,
        conn: ConnId,
        message: PeerMessage,
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
}
