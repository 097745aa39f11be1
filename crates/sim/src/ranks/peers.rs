//! Messages between ranks: some are late, some are lost, and some overtake others.

use mds::{MdsInput, PeerFrame};
use types::ConnId;
use wire::Message;

use super::{Event, RanksWorld};

/// The connection of every message between ranks: a server does not answer on it.
const PEER_CONN: ConnId = ConnId::PEER;

impl RanksWorld {
    pub(super) fn to_peers(&mut self, frames: Vec<PeerFrame>) {
        for PeerFrame { to, frame, .. } in frames {
            if self.faults && self.peer_rng.percent(5) {
                continue;
            }
            let max = if self.peer_rng.percent(70) { self.delay_max / 20 } else { self.delay_max };
            let after = self.peer_rng.between(1, max.max(1));
            self.schedule(after, Event::Peer(usize::from(to.0), frame.clone()));
            // The protocol knows a repeated message.
            if self.faults && self.peer_rng.percent(5) {
                let after = self.peer_rng.between(1, self.delay_max * 4);
                self.schedule(after, Event::Peer(usize::from(to.0), frame));
            }
        }
    }

    pub(super) fn peer_arrived(&mut self, server: usize, frame: &[u8]) {
        let payload = wire::frame::decode(frame).ok().flatten().map(|(frame, _)| frame.payload);
        let Some(Ok(message)) = payload.map(Message::decode) else {
            return self.fail("a message between ranks that cannot be read".into());
        };
        self.note(|| format!("mds.{server} <- {message:?}"));
        let term = self.servers[server].term;
        self.handle(server, term, MdsInput::Message(PEER_CONN, message));
    }
}
