//! Clients come and go: hello, the end of a connection, and the end of a session.

use types::{ClientId, ConnId, Epoch, Moment, Tid};
use wire::{Hello, Identities, Message, Welcome};

use super::{GONE, Sessions};
use crate::early_frames::EarlyFrames;
use crate::log::Log;
use crate::merge::Merges;
use crate::resend::Resend;
use crate::tables::{NumberHolder, Tables};
use crate::{MdsEffects, Phase};

/// Connections and sessions, with all that they may touch.
pub(crate) struct SessionCx<'a> {
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) early: &'a mut EarlyFrames,
    pub(crate) resend: &'a mut Resend,
    pub(crate) merges: &'a mut Merges,
    pub(crate) log: &'a mut Log,
    pub(crate) tables: &'a Tables,
    pub(crate) identities: &'a Identities,
    pub(crate) phase: Phase,
    pub(crate) now: Moment,
}

/// The result of a hello.
pub(crate) enum Greeting {
    /// The hello waits, or the connection is closed.
    Refused,
    /// The client may go on, when its old connection is let go.
    Known { old: Option<ConnId> },
}

impl SessionCx<'_> {
    /// A client connects.
    pub(crate) fn greet(
        &mut self,
        conn: ConnId,
        hello: Hello,
        effects: &mut MdsEffects,
    ) -> Greeting {
        // A connection is of one client, and the monitor has none here.
        let other = self.sessions.client(conn).is_some_and(|known| known != hello.client);
        if hello.client.0 == 0 || other {
            effects.close.push(conn);
            return Greeting::Refused;
        }
        if self.phase == Phase::Recovering {
            // Which of the client's requests survived is known when replay is done.
            self.early.keep(conn, Message::Hello(hello).to_frame(), effects);
            return Greeting::Refused;
        }
        if self.tables.fenced.contains(&hello.client) {
            // Its work was taken over: the server executes none of its requests any more.
            let welcome = Welcome { fenced: true, ..Welcome::default() };
            effects.outbox.send(conn, &Message::Welcome(welcome));
            effects.close.push(conn);
            return Greeting::Refused;
        }
        self.sessions.by_conn.insert(conn, hello.client);
        let session = self.sessions.by_client.entry(hello.client).or_default();
        session.holder = NumberHolder::of(self.identities, conn, hello.client);
        self.sessions.has_holders |= session.holder.is_some();
        let old = session.conn.replace(conn).filter(|old| *old != conn);
        if let Some(old) = old {
            // The client resends here the requests that still wait there; those that were resent
            // already are executed before anything else.
            if !self.resend.is_busy() {
                session.blocked.clear();
            }
            session.async_ops.waiting.clear();
            self.sessions.by_conn.remove(&old);
            effects.close.push(old);
        }
        Greeting::Known { old }
    }

    /// Tells a client which of its changes are done.
    pub(crate) fn welcome(&mut self, conn: ConnId, hello: Hello, effects: &mut MdsEffects) {
        let session = self.sessions.by_client.entry(hello.client).or_default();
        session.awaited = false;
        let reconnecting = matches!(self.phase, Phase::Reconnecting { .. });
        session.resending = reconnecting && hello.epoch != Epoch(0) && hello.unsafe_requests > 0;
        let (completed, safe) = (session.floor, self.log.safe());
        let crashed = self.tables.crashed();
        let epoch = self.tables.epoch();
        let welcome = Welcome { epoch, completed, safe, fenced: false, crashed };
        effects.outbox.send(conn, &Message::Welcome(welcome));
    }

    /// A connection ended. Returns its client, unless that has a newer one.
    pub(crate) fn closed(&mut self, conn: ConnId) -> Option<ClientId> {
        self.merges.drop_of(conn, self.now);
        self.early.forget(conn);
        let forgotten = self.resend.forget(conn);
        let client = self.sessions.by_conn.remove(&conn)?;
        let session = self.sessions.by_client.get_mut(&client)?;
        if session.conn != Some(conn) {
            return None;
        }
        session.conn = None;
        session.since = None;
        session.returning = None;
        if !self.resend.is_busy() {
            session.blocked.clear();
        }
        session.async_ops.waiting.clear();
        // A client that was returning is expected to return again, even if it had resent
        // everything: none of that is executed yet.
        session.awaited = session.resending || forgotten;
        session.resending = false;
        session.left = self.now;
        let journalled = self.log.has_segments() || !self.log.is_idle();
        if self.phase == Phase::Active && session.floor != Tid(0) && journalled {
            // After a restart the server need not wait for this client.
            let event = journal::Event::Session { client, tid: GONE };
            self.log.append(self.now, types::Origin::default(), &event);
        }
        Some(client)
    }

    /// Keeps a part of a journal that a client merges until the requests before it are executed.
    /// Returns whether it waits.
    pub(crate) fn chunk_waits(
        &mut self,
        conn: ConnId,
        tid: Tid,
        bytes: &[u8],
        effects: &mut MdsEffects,
    ) -> bool {
        let frame = || Message::Chunk { tid, bytes }.to_frame();
        let waits = matches!(self.phase, Phase::Recovering | Phase::Reconnecting { .. });
        if waits || self.early.is_any_of(conn) {
            self.early.keep(conn, frame(), effects);
            return true;
        }
        let Some(client) = self.sessions.client(conn) else { return false };
        let session = self.sessions.get_mut(client);
        // The chunk's merge may be among the waiting requests.
        let queue = if !session.async_ops.waiting.is_empty() {
            &mut session.async_ops.waiting
        } else if !session.blocked.is_empty() {
            &mut session.blocked
        } else {
            return false;
        };
        queue.push_back(frame());
        true
    }
}
