//! Clients come and go: hello, the end of a connection, and the end of a session.

use types::{ClientId, ConnId, Epoch, Tid};
use wire::{Hello, Message, Welcome};

use super::GONE;
use crate::authority::ImportCx;
use crate::caps::CapsCx;
use crate::files::FilesCx;
use crate::{Mds, MdsEffects, Phase};

impl Mds {
    pub(crate) fn hello(&mut self, conn: ConnId, hello: Hello, effects: &mut MdsEffects) {
        // A connection is of one client, and the monitor has none here.
        let other = self.sessions.client(conn).is_some_and(|known| known != hello.client);
        if hello.client.0 == 0 || other {
            effects.close.push(conn);
            return;
        }
        if self.phase == Phase::Recovering {
            // Which of the client's requests survived is known when replay is done.
            return self.early.keep(conn, Message::Hello(hello).to_frame(), effects);
        }
        if self.tables.fenced.contains(&hello.client) {
            // Its work was taken over: the server executes none of its requests any more.
            let welcome = Welcome { fenced: true, ..Welcome::default() };
            effects.outbox.send(conn, &Message::Welcome(welcome));
            effects.close.push(conn);
            return;
        }
        let epoch = self.tables.epoch();
        self.sessions.by_conn.insert(conn, hello.client);
        let session = self.sessions.by_client.entry(hello.client).or_default();
        if let Some(old) = session.conn.replace(conn)
            && old != conn
        {
            // The client resends here the requests that still wait there; those that were resent
            // already are executed before anything else.
            if !self.resend.is_busy() {
                session.blocked.clear();
            }
            session.async_ops.waiting.clear();
            self.sessions.by_conn.remove(&old);
            effects.close.push(old);
            FilesCx::of(self).let_go(hello.client, old, effects);
        }
        CapsCx::of(self).left(hello.client);
        let session = self.sessions.by_client.entry(hello.client).or_default();
        session.awaited = false;
        let reconnecting = matches!(self.phase, Phase::Reconnecting { .. });
        session.resending = reconnecting && hello.epoch != Epoch(0) && hello.unsafe_requests > 0;
        let (completed, safe) = (session.floor, self.log.safe());
        let crashed = self.tables.crashed();
        let welcome = Welcome { epoch, completed, safe, fenced: false, crashed };
        effects.outbox.send(conn, &Message::Welcome(welcome));
        ImportCx::of(self).ask_for_opens_of(hello.client, effects);
    }

    /// Ends the sessions of clients that got a recall of a file and did not answer.
    pub(crate) fn end_silent(&mut self, effects: &mut MdsEffects) {
        for client in self.opens.silent(self.clock.now) {
            if let Some(conn) = self.sessions.conn_of(client) {
                effects.close.push(conn);
                self.closed(conn, effects);
            }
        }
    }

    /// Rejects all requests of a client from now on, also those under way.
    pub(crate) fn fence(&mut self, client: ClientId, effects: &mut MdsEffects) {
        self.tables.fenced.insert(client);
        if let Some(conn) = self.sessions.conn_of(client) {
            effects.close.push(conn);
            self.closed(conn, effects);
        }
    }

    pub(crate) fn closed(&mut self, conn: ConnId, effects: &mut MdsEffects) {
        self.merges.drop_of(conn, self.clock.now);
        self.early.forget(conn);
        let forgotten = self.resend.forget(conn);
        let Some(client) = self.sessions.by_conn.remove(&conn) else { return };
        let Some(session) = self.sessions.by_client.get_mut(&client) else { return };
        if session.conn != Some(conn) {
            return;
        }
        session.conn = None;
        session.since = None;
        if !self.resend.is_busy() {
            session.blocked.clear();
        }
        session.async_ops.waiting.clear();
        // A client that was returning is expected to return again, even if it had resent
        // everything: none of that is executed yet.
        session.awaited = session.resending || forgotten;
        session.resending = false;
        session.left = self.clock.now;
        let journalled = self.log.has_segments() || !self.log.is_idle();
        if self.phase == Phase::Active && session.floor != Tid(0) && journalled {
            // After a restart the server need not wait for this client.
            let event = journal::Event::Session { client, tid: GONE };
            self.log.append(self.clock.now, types::Origin::default(), &event);
        }
        FilesCx::of(self).let_go(client, conn, effects);
    }
}
