//! After a recovery: clients resend changes that were applied but not safe, and the server executes
//! them in their first order, before anything else.
//!
//! Clients name inodes by their numbers, and after a restart an inode may be in the metadata store
//! only, where it is found by name alone. A new request for such an inode gets `ESTALE`, and the
//! client walks the path again; a resent change cannot do that, so its inodes are looked for before
//! it is executed.
//!
//! An answered change may depend on a request of another client that never got its answer: that
//! client resends the request without a position, like a new one. When the server cannot execute a
//! change in its first order, it looks among the waiting requests for one that may be missing
//! ([`awaited`]). It executes the earlier requests of that client, this request, and then the
//! change, because no other client may see the namespace without an answered change.
//!
//! A change for which no such request helps is refused, and its client learns that the change is
//! lost. The server does not execute such a change behind new requests, because these may have made
//! another inode of the same name. For the same reason the server looks for no request if a client
//! of the previous term did not return: the change may depend on a request of that client.

mod awaited;

use std::collections::{BTreeSet, VecDeque};

use awaited::may_enable;
use namespace::Namespace;
use types::{ClientId, ConnId, Errno, Ino, Moment, Seq, Timestamp};
use wire::{Message, Op, Request, SessionOp};

use crate::early_frames::EarlyFrames;
use crate::fetch::decode;
use crate::leases::ANYBODY;
use crate::op::touched;
use crate::session::Sessions;
use crate::tables::Tables;
use crate::{Counters, MdsEffects, Phase, Settings};

/// The requests that are being executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// Resent changes, in their first order.
    #[default]
    Sent,
    /// A request on which a late change may depend, and those of its client before it.
    Awaited,
    /// Changes that could not be executed in their first order, and later ones of their clients.
    Late,
}

/// The state of the reconnection.
#[derive(Debug, Default)]
pub(crate) struct Resend {
    /// Requests that clients sent again, with their former positions.
    requests: Vec<(Seq, ConnId, Vec<u8>)>,
    /// Changes that are being executed, in their first order, one after the other, with their
    /// clients. Until the last is done, all other requests wait. If a connection breaks until then,
    /// its answers are lost, but not its changes, as other changes could come before them.
    ordered: VecDeque<(ClientId, Vec<u8>)>,
    busy: bool,
    turn: Turn,
    /// Changes that could not be executed, and later ones of their clients.
    late: VecDeque<(ClientId, Vec<u8>)>,
    /// The error of the last of them, until the server looks for the request that it needs.
    stuck: Option<Errno>,
    /// All clients of the previous term returned, so each change that was executed comes again.
    all_returned: bool,
    /// Directories were recovered whose place in the tree is not known yet.
    orphans: bool,
    /// The clients of the previous term whose reports of open files and locks are taken before all
    /// are back. The reports of others wait until the server is active.
    believed: BTreeSet<ClientId>,
}

impl Resend {
    /// Whether resent changes are being executed.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Checks that changes wait here only during a reconnection, or while they are executed.
    ///
    /// # Panics
    /// If that does not hold.
    pub(crate) fn validate(&self, reconnecting: bool) {
        let waits = self.requests.len();
        assert!(waits == 0 || reconnecting, "{waits} resent changes wait for a reconnection");
        let ordered = self.ordered.len() + self.late.len();
        assert!(ordered == 0 || self.busy, "{ordered} resent changes wait to be executed");
        let late = self.late.is_empty() || self.turn != Turn::Late;
        assert!(late, "a late change is executed, and does not come again");
        let stuck = self.stuck.is_none() || !self.late.is_empty();
        assert!(stuck, "a change that could not be executed is late");
    }

    fn is_late(&self, client: ClientId) -> bool {
        self.late.iter().any(|(late, _)| *late == client)
    }

    /// A connection ended: changes that were resent over it and are not being executed yet will be
    /// resent again. Returns whether there are any, for which the server waits.
    pub(crate) fn forget(&mut self, conn: ConnId) -> bool {
        let before = self.requests.len();
        self.requests.retain(|(_, from, _)| *from != conn);
        self.requests.len() < before
    }

    /// Whether a request names an inode whose place in the tree, and with it its policy, is not
    /// known since the restart.
    #[inline]
    pub(crate) fn is_astray(&self, namespace: &Namespace, op: &Op<'_>) -> bool {
        if !self.orphans {
            return false;
        }
        // An inode that is not in memory may be another rank's.
        let lost = |ino| namespace.knows(ino) && !namespace.is_anchored(ino);
        touched(op).inodes().any(lost)
    }

    /// Whether a request must wait because not all that was sent again is done.
    #[inline]
    pub(crate) fn must_wait(
        &self,
        sessions: &Sessions,
        conn: ConnId,
        request: &Request<'_>,
    ) -> bool {
        let is_late = || sessions.client(conn).is_none_or(|client| self.is_late(client));
        let has_turn = || self.turn == Turn::Awaited && !is_late();
        self.busy && request.replay.is_none() && !has_turn()
    }

    /// Whether a client has resent changes left, which come before its new requests.
    fn has_changes(&self, client: ClientId) -> bool {
        self.late.iter().chain(&self.ordered).any(|(of, _)| *of == client)
    }

    /// Whether changes that are still to come were executed before a change that was first executed
    /// at this time: a crash during their execution left them with later positions.
    fn has_earlier(&self, time: Timestamp) -> bool {
        let first = |frame: &[u8]| match decode(frame) {
            Some(Message::Request(request)) => request.replay.map(|replay| replay.time),
            Some(_) | None => None,
        };
        let before = |at: Timestamp| at != Timestamp(0) && at < time;
        self.ordered.iter().any(|(_, frame)| first(frame).is_some_and(before))
    }

    /// The inodes of resent changes, and decoupled subtrees, without those that these changes
    /// create.
    fn wanted(&self, decoupled: impl Iterator<Item = Ino>) -> BTreeSet<Ino> {
        let (mut wanted, mut created) = (decoupled.collect::<BTreeSet<_>>(), BTreeSet::new());
        for (_, _, frame) in &self.requests {
            if let Some(Message::Request(request)) = decode(frame) {
                wanted.extend(touched(&request.op).inodes());
                created.extend(request.replay.map(|replay| replay.ino));
            }
        }
        wanted.retain(|ino| !created.contains(ino));
        wanted
    }
}

/// Puts resent changes in the order of their first execution.
///
/// A crash during this execution leaves some changes with the position that they got then, which is
/// behind the former positions of all other changes. They came first all the same: no change of a
/// client comes before an earlier one of the same client.
fn in_first_order(requests: &mut Vec<(Seq, ConnId, Vec<u8>)>) {
    let tid = |frame: &[u8]| match decode(frame) {
        // An asynchronous operation has no position, or a place among all those of its client.
        Some(Message::Request(request)) if !request.is_async => Some(request.tid),
        Some(_) | None => None,
    };
    let mut known: Vec<_> = std::mem::take(requests)
        .into_iter()
        .map(|(seq, conn, frame)| (seq, tid(&frame), conn, frame))
        .collect();
    known.sort_by_key(|(_, tid, conn, _)| (*conn, *tid));
    let mut next: Option<(ConnId, Seq)> = None;
    for (seq, tid, conn, _) in known.iter_mut().rev() {
        if tid.is_none() || *seq == Seq(0) {
            continue;
        }
        if let Some((_, later)) = next.filter(|(of, _)| of == conn) {
            *seq = later.min(*seq);
        }
        next = Some((*conn, *seq));
    }
    known.sort_by_key(|(seq, tid, ..)| (*seq, *tid));
    requests.extend(known.into_iter().map(|(seq, _, conn, frame)| (seq, conn, frame)));
}

/// Whether a change may depend on a request that waits.
fn enables(frame: &[u8], change: &Op<'_>, errno: Errno) -> bool {
    let Some(Message::Request(request)) = decode(frame) else { return false };
    may_enable(&request.op, change, errno)
}

/// Whether a request reports open files or locks that a client has, from any rank.
fn is_held(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Session(SessionOp::Reopen { .. } | SessionOp::Close { .. } | SessionOp::Lock { .. })
    )
}

/// The course of a request that came while clients of the previous term are still returning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyCourse {
    /// Its client has nothing more to send again. If its reports wait, it waits behind them.
    Complete { is_believed: bool },
    /// The server executes it: a report of an open file or a lock does not depend on the namespace.
    Now,
    /// It has its place among all resent changes.
    Resent,
    /// It waits until the server is active.
    Later,
}

fn early_course(
    request: &Request<'_>,
    (is_known, is_believed): (bool, bool),
    is_reconnecting: bool,
) -> EarlyCourse {
    if request.replay.is_none() || !is_known || !is_reconnecting {
        EarlyCourse::Later
    } else if request.op == Op::Session(SessionOp::Sync) {
        EarlyCourse::Complete { is_believed }
    } else if is_held(&request.op) {
        if is_believed { EarlyCourse::Now } else { EarlyCourse::Later }
    } else {
        EarlyCourse::Resent
    }
}

/// The reconnection, with all that it may touch.
pub(crate) struct ResendCx<'a> {
    pub(crate) resend: &'a mut Resend,
    pub(crate) early: &'a mut EarlyFrames,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) counters: &'a mut Counters,
    pub(crate) phase: &'a mut Phase,
    pub(crate) namespace: &'a Namespace,
    pub(crate) tables: &'a Tables,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Moment,
}

/// A need of the reconnection that the server meets before the reconnection continues.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResendNeed {
    /// The server takes a frame, as it came over this connection.
    Frame(ConnId, Vec<u8>),
    /// The server executes a change of a client that is not connected.
    Absent(ClientId, Vec<u8>),
    /// The server takes these frames. It keeps those that have to wait for their turn.
    Frames(VecDeque<(ConnId, Vec<u8>)>),
}

impl ResendCx<'_> {
    /// The journal is replayed: the server waits for the clients of the previous term. Leases that
    /// the previous server gave may be in use until `leased`.
    pub(crate) fn wait_for_clients(&mut self, leased: Moment) {
        let mut until = (self.now + self.settings.reconnect).max(leased);
        for client in self.tables.expected().filter(|client| *client != ANYBODY) {
            self.sessions.await_return(client);
            until = until.max(self.now + self.settings.lease);
        }
        *self.phase = Phase::Reconnecting { until, leased };
        let awaited = self.sessions.missing().into_iter();
        self.resend.believed = awaited.filter(|it| !self.tables.lapsed.has(*it)).collect();
        let dirs = self.namespace.dirs().directory_list();
        self.resend.orphans = dirs.iter().any(|dir| !self.namespace.is_anchored(*dir));
    }

    /// Takes a request that came while clients of the previous term are still returning, unless it
    /// is to be executed. Returns its course.
    pub(crate) fn take_early(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) -> EarlyCourse {
        let client = self.sessions.client(conn);
        let is_reconnecting = matches!(self.phase, Phase::Reconnecting { .. });
        let is_believed = client.is_some_and(|it| self.resend.believed.contains(&it));
        let course = early_course(request, (client.is_some(), is_believed), is_reconnecting);
        let frame = || Message::Request(request.clone()).to_frame();
        match (course, client, request.replay) {
            (EarlyCourse::Complete { .. }, Some(client), _) => {
                self.sessions.get_mut(client).resending = false;
                if !is_believed {
                    // Behind its reports.
                    self.early.keep(conn, frame(), effects);
                }
            }
            (EarlyCourse::Resent, _, Some(replay)) => {
                self.resend.requests.push((replay.seq, conn, frame()));
            }
            (EarlyCourse::Now, ..) => {}
            (EarlyCourse::Later | EarlyCourse::Complete { .. } | EarlyCourse::Resent, ..) => {
                self.early.keep(conn, frame(), effects);
            }
        }
        course
    }

    /// Ends the wait if every client is back, or had its time. Returns the inodes that the server
    /// must find in the tree then: those of resent changes, and decoupled subtrees.
    pub(crate) fn stop_waiting(&mut self) -> Option<BTreeSet<Ino>> {
        let Phase::Reconnecting { until, leased } = *self.phase else { return None };
        let is_complete = self.now >= until || (self.now >= leased && self.sessions.all_returned());
        if !is_complete {
            return None;
        }
        self.resend.all_returned = self.sessions.all_returned();
        self.sessions.stop_waiting(self.now);
        Some(self.resend.wanted(self.tables.decoupled.keys().copied()))
    }

    /// The search for these inodes ended: resent changes are executed from now on, in their first
    /// order. Returns whether that is so.
    pub(crate) fn become_active(&mut self) -> bool {
        let Phase::Reconnecting { until, .. } = *self.phase else {
            // The server was stopped during the search.
            return false;
        };
        if !self.sessions.all_returned() && self.now < until {
            // A connection broke since, and took its resent changes with it.
            return false;
        }
        self.resend.all_returned &= self.sessions.all_returned();
        assert!(!self.resend.busy, "resent changes are executed once");
        assert!(self.resend.late.is_empty(), "no change is late before the first is executed");
        *self.phase = Phase::Active;
        let mut resent = std::mem::take(&mut self.resend.requests);
        in_first_order(&mut resent);
        self.counters.replayed += resent.len() as u64;
        let sessions = &self.sessions;
        let with_client = |(_, conn, frame)| Some((sessions.client(conn)?, frame));
        self.resend.ordered = resent.into_iter().filter_map(with_client).collect();
        self.resend.busy = true;
        self.resend.turn = Turn::Sent;
        true
    }

    /// Whether a request that cannot be executed comes again later: it was answered before the
    /// crash, so it may depend on a request of another client that missed its answer, or on a
    /// resent change that got a later position since.
    pub(crate) fn comes_late(
        &mut self,
        client: ClientId,
        request: &Request<'_>,
        errno: Errno,
    ) -> bool {
        let Some(replay) = request.replay.filter(|replay| replay.seq != Seq(0)) else {
            return false;
        };
        let (resend, sessions) = (&mut *self.resend, &*self.sessions);
        let is_sent = resend.turn == Turn::Sent;
        let may = resend.busy && resend.turn != Turn::Awaited;
        if !may || request.is_async || client.0 == 0 {
            return false;
        }
        let is_free = |other| other != client && (is_sent || !resend.has_changes(other));
        let is_awaited = resend.all_returned
            && self.early.is_any(|conn, frame| {
                sessions.client(conn).is_some_and(is_free) && enables(frame, &request.op, errno)
            });
        let is_late = is_awaited || (is_sent && resend.has_earlier(replay.time));
        if is_late {
            resend.turn = Turn::Sent;
            resend.stuck = is_awaited.then_some(errno);
            resend.late.push_back((client, Message::Request(request.clone()).to_frame()));
        }
        is_late
    }

    /// Takes a request out of the waiting ones on which the last late change may depend, behind
    /// those of its client before it: the server executed all of them before that change.
    fn take_awaited(&mut self) -> Option<VecDeque<(ConnId, Vec<u8>)>> {
        let errno = self.resend.stuck.take()?;
        let (resend, sessions) = (&*self.resend, &*self.sessions);
        let (_, frame) = resend.late.back()?;
        let Some(Message::Request(change)) = decode(frame) else { return None };
        self.early.take_up_to(|conn, frame| {
            let is_free = |client| !resend.has_changes(client);
            sessions.client(conn).is_some_and(is_free) && enables(frame, &change.op, errno)
        })
    }

    /// Continues with resent changes, unless one waits for a directory.
    pub(crate) fn step(&mut self) -> Option<ResendNeed> {
        if self.resend.turn == Turn::Awaited {
            // Late changes are the first ones in the order. The turn ends although a request may
            // wait for a directory: requests that arrive from now on have no turn.
            let resend = &mut *self.resend;
            resend.turn = Turn::Sent;
            resend.late.append(&mut resend.ordered);
            std::mem::swap(&mut resend.late, &mut resend.ordered);
        }
        while self.resend.busy && !self.sessions.is_any_blocked() {
            if let Some(frames) = self.take_awaited() {
                self.resend.turn = Turn::Awaited;
                return Some(ResendNeed::Frames(frames));
            }
            match self.resend.ordered.pop_front() {
                Some((client, frame))
                    if self.resend.turn == Turn::Sent && self.resend.is_late(client) =>
                {
                    self.resend.late.push_back((client, frame));
                }
                Some((client, frame)) => {
                    return Some(match self.sessions.conn_of(client) {
                        Some(conn) => ResendNeed::Frame(conn, frame),
                        None => ResendNeed::Absent(client, frame),
                    });
                }
                None => self.next_turn(),
            }
        }
        None
    }

    /// The turn's changes are done: begins the next turn.
    fn next_turn(&mut self) {
        let resend = &mut *self.resend;
        if resend.turn == Turn::Sent && !resend.late.is_empty() {
            resend.turn = Turn::Late;
            resend.ordered = std::mem::take(&mut resend.late);
        } else {
            // A step ends the turn of awaited requests before it takes the next change.
            resend.busy = false;
        }
    }

    /// The frames that waited until the server is active and the resent changes are done, if that
    /// is so.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<(ConnId, Vec<u8>)> {
        if self.resend.busy || *self.phase != Phase::Active {
            return VecDeque::new();
        }
        self.early.take()
    }
}

#[cfg(test)]
mod tests;
