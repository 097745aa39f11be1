//! Sessions: which client is behind which connection, and which of its requests are done.
//!
//! The changes of one client are carried out in the order in which it asked for them, even when
//! one of them has to wait for a directory. So one number per client, the *floor*, says which are
//! done, in memory and in the journal.

use std::collections::VecDeque;

use types::{ClientId, ConnId, Epoch, Ino, Map, Moment, Seq, Span, Tid, Timestamp};
use wire::{Hello, Message, Welcome};

use crate::{Effects, Mds, Phase};

/// Replies kept per client for requests that are sent twice.
const REMEMBERED_MAX: usize = 1024;

/// How long a client that left is remembered, should it come back with requests it sent before.
const FORGET_AFTER: Span = Span::from_millis(60_000);

/// The request number that stands for the end of a session in the journal.
pub(crate) const GONE: Tid = Tid(u64::MAX);

/// How a change was answered, should its request arrive again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered {
    pub(crate) tid: Tid,
    pub(crate) seq: Seq,
    pub(crate) ino: Ino,
    pub(crate) time: Timestamp,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) conn: Option<ConnId>,
    /// Every change up to here is done.
    pub(crate) floor: Tid,
    remembered: VecDeque<Remembered>,
    /// Changes that wait, as frames: the first for a directory, the others for the first.
    pub(crate) blocked: VecDeque<Vec<u8>>,
    /// It was connected when the previous tenure ended, and has not returned yet.
    awaited: bool,
    /// Unsafe requests it has yet to send again.
    pub(crate) resending: u64,
    /// When its connection ended.
    left: Moment,
}

impl Session {
    pub(crate) fn find(&self, tid: Tid) -> Option<Remembered> {
        self.remembered.iter().rev().find(|known| known.tid == tid).copied()
    }

    /// Notes a change as done.
    #[inline]
    pub(crate) fn finish(&mut self, remembered: Remembered) {
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(remembered);
        self.floor = self.floor.max(remembered.tid);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_client: Map<ClientId, Session>,
    by_conn: Map<ConnId, ClientId>,
}

impl Sessions {
    pub(crate) fn len(&self) -> usize {
        self.by_conn.len()
    }

    /// The client behind a connection; the monitor is client 0.
    #[inline]
    pub(crate) fn client(&self, conn: ConnId) -> Option<ClientId> {
        if conn == ConnId::MONITOR {
            return Some(ClientId(0));
        }
        self.by_conn.get(&conn).copied()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, client: ClientId) -> &mut Session {
        self.by_client.entry(client).or_default()
    }

    /// Connected clients and the number up to which their changes are done, sorted. Those that
    /// left are in the journal as gone: a restart must not wait for them.
    pub(crate) fn floors(&self) -> Vec<(ClientId, Tid)> {
        let known = self.by_client.iter();
        let known = known.filter(|(client, session)| client.0 != 0 && session.conn.is_some());
        let mut all: Vec<_> = known.map(|(client, session)| (*client, session.floor)).collect();
        all.sort_unstable();
        all
    }

    /// The recovered journal says that a client's change is done, or that the client left.
    pub(crate) fn recovered(&mut self, client: ClientId, tid: Tid) {
        if client.0 == 0 {
            return;
        }
        if tid == GONE {
            self.by_client.remove(&client);
            return;
        }
        let session = self.by_client.entry(client).or_default();
        session.awaited = true;
        session.floor = session.floor.max(tid);
    }

    /// Whether every client of the previous tenure is back and has sent everything again.
    pub(crate) fn all_returned(&self) -> bool {
        self.by_client.values().all(|session| !session.awaited && session.resending == 0)
    }

    /// Forgets clients that left long ago.
    pub(crate) fn forget_gone(&mut self, now: Moment) {
        self.by_client.retain(|_, session| {
            session.conn.is_some() || session.awaited || now.since(session.left) < FORGET_AFTER
        });
    }

    pub(crate) fn stop_waiting(&mut self) {
        for session in self.by_client.values_mut() {
            session.awaited = false;
            session.resending = 0;
        }
    }
}

impl Mds {
    pub(crate) fn hello(&mut self, conn: ConnId, hello: Hello, effects: &mut Effects) {
        if hello.client.0 == 0 {
            effects.close.push(conn);
            return;
        }
        if self.phase == Phase::Recovering {
            // Which of the client's requests survived is known when replay is done.
            self.early.push_back((conn, Message::Hello(hello).to_frame()));
            return;
        }
        let epoch = self.tables.epoch();
        self.sessions.by_conn.insert(conn, hello.client);
        let session = self.sessions.by_client.entry(hello.client).or_default();
        if let Some(old) = session.conn.replace(conn)
            && old != conn
        {
            self.sessions.by_conn.remove(&old);
            effects.close.push(old);
        }
        session.awaited = false;
        let restarted = hello.epoch != Epoch(0) && hello.epoch != epoch;
        session.resending = if restarted { hello.unsafe_requests } else { 0 };
        let completed = session.floor;
        let welcome = Welcome { epoch, completed, safe: self.log.safe() };
        effects.outbox.send(conn, &Message::Welcome(welcome));
    }

    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.drop_merges_of(conn);
        self.early.retain(|(from, _)| *from != conn);
        let Some(client) = self.sessions.by_conn.remove(&conn) else { return };
        let Some(session) = self.sessions.by_client.get_mut(&client) else { return };
        if session.conn != Some(conn) {
            return;
        }
        session.conn = None;
        session.resending = 0;
        session.left = self.clock.now;
        let journalled = self.log.has_segments() || !self.log.is_idle();
        if self.phase == Phase::Active && session.floor != Tid(0) && journalled {
            // After a restart nobody needs to wait for this client.
            let event = journal::Event::Session { client, tid: GONE };
            self.log.append(self.clock.now, types::Origin::default(), &event);
        }
    }
}
