//! The connections of a client of several ranks, and the messages that come over them.

use client::{RouteInput, SessionEffects, SessionInput};
use mds::MdsInput;
use types::{ConnId, Error, Rank};
use wire::Message;

use super::client::{Asked, SentKind, Waits, connection_lost};
use super::{Conn, Event, MS, RanksWorld};

impl RanksWorld {
    pub(super) fn connect(&mut self, client: usize, rank: Rank) {
        let server = &self.servers[usize::from(rank.0)];
        let term = server.term;
        if self.clients[client].to[&rank].conn.is_some() {
            return;
        }
        if server.mds.is_none() {
            return self.schedule(5 * MS, Event::Connect(client, rank));
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let (to_server_at, to_client_at) = (self.now, self.now);
        let conn = Conn { client, rank, term, alive: true, to_server_at, to_client_at };
        self.conns.insert(id, conn);
        if let Some(to) = self.clients[client].to.get_mut(&rank) {
            to.conn = Some(id);
        }
        self.drive(client, rank, SessionInput::Connected);
    }

    pub(super) fn client_closed(&mut self, conn: ConnId) {
        let Conn { client, rank, .. } = self.conns[&conn];
        let Some(to) = self.clients[client].to.get_mut(&rank).filter(|to| to.conn == Some(conn))
        else {
            return;
        };
        to.conn = None;
        self.drive(client, rank, SessionInput::Disconnected);
        self.schedule(MS, Event::Connect(client, rank));
        // A journal that follows its request goes over one connection.
        if let Some(Asked { waits: Waits::Answer { rank: at, tid, kind }, .. }) =
            self.clients[client].asked
            && at == rank
            && kind == SentKind::Chunks
        {
            if let Some(to) = self.clients[client].to.get_mut(&rank) {
                to.session.forget(tid);
            }
            self.pursue(client, RouteInput::Answer(Err(connection_lost())));
        }
    }

    pub(super) fn arrived_at_client(&mut self, conn: ConnId, frame: &[u8]) {
        let Conn { client, rank, alive, .. } = self.conns[&conn];
        let payload = wire::frame::decode(frame).ok().flatten().map(|(frame, _)| frame.payload);
        let message = payload.map(Message::decode);
        match message {
            Some(Ok(message)) if alive => {
                self.note(|| format!("{rank} -> client.{client} {message:?}"));
                self.drive(client, rank, SessionInput::Message(message));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => self.fail("a server sent nonsense".into()),
        }
    }

    fn drive(&mut self, client: usize, rank: Rank, input: SessionInput<'_>) {
        let mut effects = SessionEffects::default();
        if let Some(to) = self.clients[client].to.get_mut(&rank) {
            to.session.handle(input, &mut effects);
            to.session.validate();
        }
        self.flush(client, rank, effects);
    }

    pub(super) fn flush(&mut self, client: usize, rank: Rank, effects: SessionEffects) {
        let SessionEffects { frames, completed, .. } = effects;
        let conn = self.clients[client].to.get(&rank).and_then(|to| to.conn);
        let mut rest = frames.as_slice();
        while let (Some(conn), Ok(Some((_, length)))) = (conn, wire::frame::decode(rest)) {
            self.to_server(conn, rest[..length].to_vec());
            rest = &rest[length..];
        }
        let lost = self.clients[client].to.get_mut(&rank).and_then(|to| to.session.take_lost());
        if let Some(lost) = lost {
            self.fail(format!("client.{client} lost a change that {rank} had answered: {lost:?}"));
        }
        for (tid, result) in completed {
            let Some(asked) = &self.clients[client].asked else { continue };
            let Waits::Answer { rank: at, tid: of, .. } = asked.waits else { continue };
            if (at, of) != (rank, tid) {
                continue;
            }
            self.pursue(client, RouteInput::Answer(result.map_err(Error::from)));
        }
    }

    pub(super) fn to_client(&mut self, conn: ConnId, frame: Vec<u8>) {
        let at = self.now + self.delay();
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.to_client_at = known.to_client_at.max(at);
        let after = known.to_client_at - self.now;
        self.schedule(after, Event::ToClient(conn, frame));
    }

    pub(super) fn to_server(&mut self, conn: ConnId, frame: Vec<u8>) {
        let at = self.now + self.delay();
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.to_server_at = known.to_server_at.max(at);
        let after = known.to_server_at - self.now;
        self.schedule(after, Event::ToServer(conn, frame));
    }

    pub(super) fn arrived_at_server(&mut self, conn: ConnId, frame: &[u8]) {
        let Conn { rank, term, alive, client, .. } = self.conns[&conn];
        let payload = wire::frame::decode(frame).ok().flatten().map(|(frame, _)| frame.payload);
        if let Some(Ok(message)) = payload.map(Message::decode).filter(|_| alive) {
            self.note(|| format!("client.{client} -> {rank} {}", crate::print::message(&message)));
            self.handle(usize::from(rank.0), term, MdsInput::Message(conn, message));
        }
    }
}
