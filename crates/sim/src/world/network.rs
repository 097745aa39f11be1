//! Connections between clients and servers, and messages between ranks.

use mds::PeerFrame;
use types::{ConnId, Rank};

use super::{Event, MS, World};

/// A connection of a client to the server of a rank, in one term.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: usize,
    pub(crate) rank: Rank,
    pub(crate) term: u64,
    pub(crate) alive: bool,
    /// When the last message of each direction arrives.
    to_server_at: u64,
    to_client_at: u64,
}

impl Conn {
    pub(super) fn server(&self) -> usize {
        usize::from(self.rank.0)
    }
}

impl World {
    pub(super) fn open_conn(&mut self, client: usize, rank: Rank) -> ConnId {
        let id = ConnId(self.conns.len() as u64 + 1);
        let term = self.servers[usize::from(rank.0)].term;
        let (to_server_at, to_client_at) = (0, 0);
        let conn = Conn { client, rank, term, alive: true, to_server_at, to_client_at };
        self.conns.insert(id, conn);
        self.send_to_server(id, Event::Opened(id));
        id
    }

    pub(super) fn send_to_client(&mut self, conn: ConnId, frame: Vec<u8>) {
        let at = self.now + self.delay();
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.to_client_at = known.to_client_at.max(at);
        let after = known.to_client_at - self.now;
        self.schedule(after, Event::ToClient(conn, frame));
    }

    pub(crate) fn send_to_server(&mut self, conn: ConnId, event: Event) {
        let at = self.now + self.delay();
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.to_server_at = known.to_server_at.max(at);
        let after = known.to_server_at - self.now;
        self.schedule(after, event);
    }

    /// Breaks a connection: messages under way are lost, and both ends notice in their own time.
    pub(crate) fn break_conn(&mut self, conn: ConnId, server_notices: bool) {
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.alive = false;
        self.clients[known.client].lost_conns += 1;
        self.note(format_args!("$ break {conn}"));
        let (server, client) = (self.rng.between(1, 30 * MS), self.rng.between(1, 30 * MS));
        if server_notices {
            self.schedule(server, Event::ServerSawClose(conn));
        }
        self.schedule(client, Event::ClientSawClose(conn));
    }

    pub(crate) fn alive_conns(&self, wanted: impl Fn(&Conn) -> bool) -> Vec<ConnId> {
        let alive = self.conns.iter().filter(|(_, conn)| conn.alive && wanted(conn));
        alive.map(|(conn, _)| *conn).collect()
    }

    /// Whether a connection lives at its server.
    pub(super) fn is_reached(&self, conn: ConnId) -> bool {
        let conn = &self.conns[&conn];
        conn.alive && self.is_term(conn.server(), conn.term)
    }

    /// Messages between ranks: some are late, some are lost, and some overtake others.
    pub(super) fn send_to_peers(&mut self, frames: Vec<PeerFrame>) {
        for PeerFrame { to, frame, .. } in frames {
            if self.is_lost() {
                continue;
            }
            let (to, after) = (usize::from(to.0), self.delay());
            // The protocol knows a repeated message.
            if self.is_lost() {
                let after = self.rng.between(1, self.delay_max * 4);
                self.schedule(after, Event::Peer(to, frame.clone()));
            }
            self.schedule(after, Event::Peer(to, frame));
        }
    }

    /// Whether a message that no connection carries is lost.
    pub(super) fn is_lost(&mut self) -> bool {
        self.faults.lost_percent > 0 && self.rng.percent(self.faults.lost_percent)
    }
}
