//! Sessions: which client is behind which connection, and which of its requests are done.
//!
//! A request may arrive again: its answer was lost with a connection, or the server was restarted.
//! Whether it was executed is known from three things that are kept per client, in memory and in
//! the journal: the newest changes with their answers; a number up to which all older changes are
//! done; and which of those were refused. Each request acknowledges the replies up to a number; the
//! server drops cached replies below it.
//!
//! In the journal, the origins of events name the changes that were executed since the oldest
//! segment began, and `Event::Session` at the start of each segment has the rest: the number up to
//! which changes are done, then the refused ones ([`REFUSED`]), then the creates whose answers the
//! client may not have ([`CREATED`]), then [`GONE`] if it is not connected.
//!
//! The changes of one client are executed in the order of its requests, even when one of them has
//! to wait for a directory.

mod connect;
mod validate;

pub(crate) use connect::{Greeting, SessionCx};

use std::collections::VecDeque;

use types::{ClientId, ConnId, Ino, InoRange, Map, Moment, Seq, Set, Span, Tid, Timestamp};

use crate::files::Returning;
use crate::recent_inodes::RecentInodes;
use crate::tables::NumberHolder;

/// Replies kept per client for requests that are sent twice.
const REMEMBERED_MAX: usize = 1024;
/// Refused requests kept per client: as many as it has under way at the same time, mostly.
const REFUSED_MAX: usize = 16;
/// Replies kept per client over a clean stop.
const LEFT_MAX: usize = 16;
/// How long a client that left is remembered, should it come back with requests it sent before.
const FORGET_AFTER: Span = Span::from_millis(60_000);

/// The request number that marks the end of a session in the journal.
pub(crate) const GONE: Tid = Tid(u64::MAX);
/// The bit that marks a refused request in the journal; request numbers are far smaller.
const REFUSED: u64 = 1 << 63;
/// The bit that marks a create in the journal. Two more events follow, with the inode and the time
/// in place of a request number: the name may lead to another client's inode by now, so without
/// them a resent create could not get its first answer.
const CREATED: u64 = 1 << 62;

/// How a change was answered, should its request arrive again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub(crate) tid: Tid,
    pub(crate) seq: Seq,
    /// The inode it created; of one that gave a file another length, that length.
    pub(crate) ino: Ino,
    pub(crate) time: Timestamp,
}

/// A session as a clean stop leaves it to the next term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SavedSession {
    pub(crate) client: ClientId,
    /// The numbers that the journal would have.
    pub(crate) tids: Vec<Tid>,
    /// The newest changes.
    pub(crate) remembered: Vec<Remembered>,
}

/// The server's knowledge of a change that a client requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It was not executed.
    New,
    /// It was executed, with this answer if that is still known.
    Done(Option<Remembered>),
}

/// Asynchronous operations of a client in directories that it has alone.
#[derive(Debug, Default)]
pub(crate) struct AsyncOps {
    /// The position of the newest change of this kind.
    pub(crate) seq: Seq,
    /// Inode numbers that it may use.
    numbers: VecDeque<InoRange>,
    /// Their frames: the first waits for a directory, the next ones for the first.
    pub(crate) waiting: VecDeque<Vec<u8>>,
}

/// Ranges of numbers that a client has at most; it uses them in their order, two at a time.
const RANGES_MAX: usize = 64;

impl AsyncOps {
    /// A range of numbers is the client's.
    pub(crate) fn may_use(&mut self, range: InoRange) {
        if self.numbers.len() == RANGES_MAX {
            self.numbers.pop_front();
        }
        self.numbers.push_back(range);
    }

    /// Whether the client was given a number.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        // Those it was given last are those it uses.
        self.numbers.iter().rev().any(|range| range.contains(ino))
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) conn: Option<ConnId>,
    /// The newest change that is done.
    pub(crate) floor: Tid,
    /// Changes up to here are done, and their answers forgotten, unless they were refused.
    forgotten: Tid,
    remembered: VecDeque<Remembered>,
    refused: VecDeque<Tid>,
    /// The client has the answers of all requests up to here.
    acked: Tid,
    /// When it asked for something last.
    pub(crate) asked: Moment,
    /// A create in the recovered journal, as far as it is read: its request, its inode.
    created: Option<(Tid, Option<Ino>)>,
    /// Waiting changes, as frames: the first waits for a directory, the next ones for the first.
    pub(crate) blocked: VecDeque<Vec<u8>>,
    /// Its asynchronous operations.
    pub(crate) async_ops: AsyncOps,
    /// It was connected when the previous term ended, and has not returned yet.
    awaited: bool,
    /// It has unsafe requests to send again.
    pub(crate) resending: bool,
    /// Whether the recovered journal had the number up to which changes are done.
    based: bool,
    /// The event that makes the client known to the journal as connected. Before it is safe, no
    /// change may be answered as applied: after a crash the server would not wait for the client.
    since: Option<Seq>,
    /// When its connection ended.
    left: Moment,
    /// It reports its open files and locks over its connection.
    pub(crate) returning: Option<Returning>,
    /// The holder of the numbers that it may claim; `None` if it speaks for every user.
    pub(crate) holder: Option<NumberHolder>,
    /// The inodes that it asked for last.
    pub(crate) shown: RecentInodes,
}

impl Session {
    /// Whether a change was executed.
    pub(crate) fn fate(&self, tid: Tid) -> Fate {
        if tid > self.floor {
            return Fate::New;
        }
        let known = self.remembered.iter().rev().find(|known| known.tid == tid);
        match known {
            Some(known) => Fate::Done(Some(*known)),
            None if tid <= self.forgotten && !self.refused.contains(&tid) => Fate::Done(None),
            None => Fate::New,
        }
    }

    /// Notes a change as done.
    #[inline]
    pub(crate) fn finish(&mut self, remembered: Remembered) {
        debug_assert!(
            self.remembered.iter().rev().all(|known| known.tid != remembered.tid),
            "{} is executed once",
            remembered.tid
        );
        if self.remembered.len() == REMEMBERED_MAX
            && let Some(oldest) = self.remembered.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest.tid);
        }
        if !self.refused.is_empty() {
            self.refused.retain(|tid| *tid != remembered.tid);
        }
        self.remembered.push_back(remembered);
        self.floor = self.floor.max(remembered.tid);
    }

    /// The event that must be safe before a change at `seq` may be answered as applied.
    pub(crate) fn known_since(&mut self, seq: Seq) -> Seq {
        *self.since.get_or_insert(seq)
    }

    /// The client has all answers up to a request.
    pub(crate) fn note_acknowledged(&mut self, tid: Tid, now: Moment) {
        self.acked = self.acked.max(tid);
        self.asked = now;
    }

    /// Whether the client has said that it has the answer to a request.
    pub(crate) fn has_answer(&self, tid: Tid) -> bool {
        tid <= self.acked
    }

    /// Whether it has not yet reported all its open files and locks over its connection.
    pub(crate) fn is_reporting(&self) -> bool {
        self.returning.is_some_and(|returning| returning.reported.is_none())
    }

    /// Rejects a report of an open file or a lock.
    pub(crate) fn reject_report(&mut self) {
        if let Some(returning) = &mut self.returning {
            returning.has_rejected = true;
        }
    }

    /// Notes a change as refused, or as waiting for another rank: should it arrive again, it is
    /// tried again, although later changes are executed.
    pub(crate) fn refuse(&mut self, tid: Tid) {
        if self.refused.contains(&tid) {
            return;
        }
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(tid);
    }

    /// The journal's summary of the session from now on.
    fn summary(&self) -> impl Iterator<Item = Tid> {
        let refused = self.not_done().into_iter().map(|tid| Tid(tid.0 | REFUSED));
        let gone = self.conn.is_none().then_some(GONE);
        [self.floor].into_iter().chain(refused).chain(self.creates()).chain(gone)
    }

    /// The newest requests that were not executed although a later change was, and that may be
    /// resent. A recovered server does not know the requests that its predecessor refused since its
    /// last segment began, but the executed ones.
    fn not_done(&self) -> Vec<Tid> {
        let done: Set<Tid> = self.remembered.iter().map(|known| known.tid).collect();
        let refused: Set<Tid> = self.refused.iter().copied().collect();
        let known = self.acked.max(self.forgotten).min(self.floor);
        let older = self.refused.iter().copied().filter(|tid| *tid <= known);
        let newer = (known.0 + 1..=self.floor.0).rev().map(Tid);
        let newer = newer.filter(|tid| refused.contains(tid) || !done.contains(tid));
        let newer = newer.take(REFUSED_MAX);
        let mut all: Vec<Tid> = older.chain(newer).collect();
        all.sort_unstable();
        all.split_off(all.len().saturating_sub(REFUSED_MAX))
    }

    /// The journalled creates whose answers the client may not have, in the journal's form.
    fn creates(&self) -> impl Iterator<Item = Tid> {
        let unacknowledged = self
            .remembered
            .iter()
            .filter(|known| known.tid > self.acked && known.ino != Ino(0) && known.seq != Seq(0));
        unacknowledged.flat_map(|known| {
            [Tid(known.tid.0 | CREATED), Tid(known.ino.0), Tid(known.time.0.cast_unsigned())]
        })
    }

    /// A further part of a create in the journal.
    fn recovered_create(&mut self, tid: Tid, ino: Option<Ino>, part: u64) {
        let Some(ino) = ino else {
            self.created = Some((tid, Some(Ino(part))));
            return;
        };
        self.created = None;
        if !self.remembered.iter().any(|known| known.tid == tid) {
            let time = Timestamp(part.cast_signed());
            // At any position it is safe: so is the first position.
            self.finish(Remembered { tid, seq: Seq(1), ino, time });
        }
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    by_client: Map<ClientId, Session>,
    by_conn: Map<ConnId, ClientId>,
    /// The client without a connection for which a request is being executed.
    absent: Option<ClientId>,
    /// Whether a client without the right to speak for every user was ever connected: where none
    /// was, a create need not look its session up.
    has_holders: bool,
}

impl Sessions {
    pub(crate) fn len(&self) -> usize {
        self.by_conn.len()
    }

    /// The client behind a connection; the monitor is client 0.
    #[inline]
    pub(crate) fn client(&self, conn: ConnId) -> Option<ClientId> {
        if conn == ConnId::MONITOR || conn == ConnId::PEER {
            return Some(ClientId(0));
        }
        if conn == ConnId::NOBODY {
            return self.absent;
        }
        self.by_conn.get(&conn).copied()
    }

    /// From now on requests of [`ConnId::NOBODY`] are those of a client that is not connected.
    /// Returns the client before.
    pub(crate) fn act_for(&mut self, absent: Option<ClientId>) -> Option<ClientId> {
        std::mem::replace(&mut self.absent, absent)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, client: ClientId) -> &mut Session {
        self.by_client.entry(client).or_default()
    }

    /// The last requests of connected clients.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &RecentInodes> {
        let connected = self.by_client.values().filter(|session| session.conn.is_some());
        connected.map(|session| &session.shown)
    }

    /// The holder of the numbers of a client's files; `None` if the client speaks for every user.
    #[inline]
    pub(crate) fn holder(&self, client: ClientId) -> Option<NumberHolder> {
        if self.has_holders { self.get(client)?.holder } else { None }
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Session> {
        self.by_client.get(&client)
    }

    /// The connection of a client, if it has one.
    pub(crate) fn conn_of(&self, client: ClientId) -> Option<ConnId> {
        if client.0 == 0 {
            return Some(ConnId::MONITOR);
        }
        self.by_client.get(&client)?.conn
    }

    /// The change that a client's other changes wait for.
    pub(crate) fn first_blocked(&self, client: ClientId) -> Option<&[u8]> {
        self.by_client.get(&client)?.blocked.front().map(Vec::as_slice)
    }

    /// The first waiting asynchronous operation of a client.
    pub(crate) fn first_async(&self, client: ClientId) -> Option<&[u8]> {
        self.by_client.get(&client)?.async_ops.waiting.front().map(Vec::as_slice)
    }

    /// Whether a change of some client waits.
    pub(crate) fn is_any_blocked(&self) -> bool {
        let waits = |session: &Session| {
            !session.blocked.is_empty() || !session.async_ops.waiting.is_empty()
        };
        self.by_client.values().any(waits)
    }

    /// The journal's summary of each client, sorted by client: up to where changes are done, and
    /// the exceptions.
    pub(crate) fn summaries(&self) -> Vec<(ClientId, Vec<Tid>)> {
        let known = self.by_client.iter();
        let known = known.filter(|(client, session)| client.0 != 0 && session.floor != Tid(0));
        let mut all: Vec<_> =
            known.map(|(client, session)| (*client, session.summary().collect())).collect();
        all.sort_unstable_by_key(|(client, _)| *client);
        all
    }

    /// The state that the next term needs after a clean stop, sorted by client.
    pub(crate) fn left(&self) -> Vec<SavedSession> {
        let mut all = Vec::new();
        for (client, tids) in self.summaries() {
            let known = self.by_client.get(&client).map(|session| session.remembered.iter());
            let newest = known.into_iter().flatten().rev().take(LEFT_MAX).copied();
            all.push(SavedSession { client, tids, remembered: newest.collect() });
        }
        all
    }

    /// Restores the state that an earlier term stored at its end.
    pub(crate) fn restore(&mut self, left: &[SavedSession]) {
        for SavedSession { client, tids, remembered } in left {
            for tid in tids {
                self.recovered(*client, *tid);
            }
            let session = self.get_mut(*client);
            session.remembered.extend(remembered.iter().rev());
            // It stopped cleanly: every change was safe. Later events of the journal override this.
            (session.awaited, session.based, session.since) = (false, false, None);
        }
    }

    /// Takes a session's summary from the recovered journal.
    pub(crate) fn recovered(&mut self, client: ClientId, tid: Tid) {
        if client.0 == 0 {
            return;
        }
        let session = self.by_client.entry(client).or_default();
        if tid == GONE {
            (session.awaited, session.since) = (false, None);
            return;
        }
        (session.awaited, session.since) = (true, Some(Seq(0)));
        if let Some((created, ino)) = session.created {
            return session.recovered_create(created, ino, tid.0);
        }
        if tid.0 & REFUSED == 0 && tid.0 & CREATED != 0 {
            session.created = Some((Tid(tid.0 & !CREATED), None));
            return;
        }
        if tid.0 & REFUSED != 0 {
            return session.refuse(Tid(tid.0 & !REFUSED));
        }
        session.floor = session.floor.max(tid);
        // Since the first of these the journal is complete.
        if !session.based {
            session.forgotten = session.forgotten.max(tid);
            session.based = true;
        }
    }

    /// Changes of a client that the recovered journal holds.
    pub(crate) fn recovered_changes(&mut self, client: ClientId, changes: &mut Vec<Remembered>) {
        if client.0 == 0 || changes.is_empty() {
            return changes.clear();
        }
        let session = self.by_client.entry(client).or_default();
        (session.awaited, session.since) = (true, Some(Seq(0)));
        for change in changes.drain(..) {
            session.finish(change);
        }
    }

    /// The clients with a connection that have made changes, sorted.
    pub(crate) fn connected(&self) -> Vec<ClientId> {
        let connected = |session: &Session| session.conn.is_some() && session.floor != Tid(0);
        let known = self.by_client.iter().filter(|(_, session)| connected(session));
        let mut known: Vec<ClientId> = known.map(|(client, _)| *client).collect();
        known.sort_unstable();
        known
    }

    /// Whether every client of the previous term is back and has sent everything again.
    pub(crate) fn all_returned(&self) -> bool {
        self.by_client.values().all(|session| !session.awaited && !session.resending)
    }

    /// Clients of the previous term that are not back, or have not sent everything again.
    pub(crate) fn missing(&self) -> Vec<ClientId> {
        let sessions = self.by_client.iter();
        let missing = sessions.filter(|(_, session)| session.awaited || session.resending);
        let mut missing: Vec<ClientId> = missing.map(|(client, _)| *client).collect();
        missing.sort_unstable();
        missing
    }

    /// Whether the server waits for a client of the previous term.
    pub(crate) fn is_awaited(&self, client: ClientId) -> bool {
        self.by_client.get(&client).is_some_and(|session| session.awaited)
    }

    /// Forgets clients that left long ago, but never the monitor, although it has no connection
    /// here: a request that it forwarded may wait for a directory.
    pub(crate) fn forget_gone(&mut self, now: Moment) {
        self.by_client.retain(|client, session| {
            let stays = client.0 == 0 || session.conn.is_some() || session.awaited;
            stays || now.since(session.left) < FORGET_AFTER
        });
    }

    /// Waits for a client until it is back: it may still use the cache from the previous server.
    pub(crate) fn await_return(&mut self, client: ClientId) {
        let session = self.by_client.entry(client).or_default();
        session.awaited |= session.conn.is_none();
    }

    pub(crate) fn stop_waiting(&mut self, now: Moment) {
        for session in self.by_client.values_mut() {
            session.awaited = false;
            session.resending = false;
            session.left = now;
            if session.conn.is_none() {
                session.since = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(3);

    fn change(tid: u64) -> Remembered {
        Remembered { tid: Tid(tid), seq: Seq(tid), ino: Ino(0), time: Timestamp(0) }
    }

    /// The state of a later server that found only the beginning of a segment.
    fn successor(sessions: &Sessions) -> Sessions {
        let mut next = Sessions::default();
        for (client, tids) in sessions.summaries() {
            tids.into_iter().for_each(|tid| next.recovered(client, tid));
        }
        next
    }

    #[test]
    fn later_servers_know_the_refused_requests() {
        let mut sessions = Sessions::default();
        let session = sessions.get_mut(CLIENT);
        session.finish(change(33));
        session.note_acknowledged(Tid(31), Moment::default());
        // The first server refused 34 and 35, and noted that nowhere before it crashed.
        session.finish(change(36));
        for _ in 0..3 {
            sessions = successor(&sessions);
            let session = sessions.get_mut(CLIENT);
            for refused in [34, 35] {
                assert!(matches!(session.fate(Tid(refused)), Fate::New), "{refused}");
            }
            for done in [30, 33, 36] {
                assert!(matches!(session.fate(Tid(done)), Fate::Done(None)), "{done}");
            }
        }
    }

    #[test]
    fn waiting_requests_from_the_monitor_are_not_forgotten() {
        let mut sessions = Sessions::default();
        sessions.get_mut(ClientId(0)).blocked.push_back(vec![1]);
        sessions.get_mut(CLIENT);
        sessions.forget_gone(Moment::default() + FORGET_AFTER);
        assert!(sessions.is_any_blocked() && sessions.get(CLIENT).is_none());
    }
}
