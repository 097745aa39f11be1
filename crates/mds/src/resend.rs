//! After a recovery: clients resend changes that were applied but not safe, and the server executes
//! them in their first order, before anything else.
//!
//! Clients name inodes by their numbers, and after a restart an inode may be in the metadata store
//! only, where it is found by name alone. A new request for such an inode gets `ESTALE`, and the
//! client walks the path again; a resent change cannot do that, so its inodes are looked for before
//! it is executed.
//!
//! An answered change may depend on a request of another client that never got its answer: that
//! client resends the request without a position, like a new one. So a change that cannot be
//! executed in its first order comes again behind the requests of the other clients (`Turn`).

use std::collections::{BTreeSet, VecDeque};

use types::{ClientId, ConnId, Ino, Seq};
use wire::{Message, Op, Request, WantsExclusive};

use crate::leases::ANYBODY;
use crate::op::touched;
use crate::search::Goal;
use crate::{Mds, MdsEffects, Phase};

/// The requests that are being executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// Resent changes, in their first order.
    #[default]
    Sent,
    /// Requests of clients without late changes.
    Asked,
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
    /// The server got the order to stop since.
    stop: bool,
    /// Directories were recovered whose place in the tree is not known yet.
    orphans: bool,
}

impl Resend {
    /// Whether resent changes are being executed, or the server stops when they are done.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.busy || self.stop
    }

    /// Whether resent changes are being executed.
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
        assert!(!self.stop || self.busy, "the server stops behind the resent changes");
    }

    fn is_late(&self, client: ClientId) -> bool {
        self.late.iter().any(|(late, _)| *late == client)
    }
}

/// Puts resent changes in the order of their first execution.
///
/// A crash during this execution leaves some changes with the position that they got then, which is
/// behind the former positions of all other changes. They came first all the same: no change of a
/// client comes before an earlier one of the same client.
fn in_first_order(requests: &mut Vec<(Seq, ConnId, Vec<u8>)>) {
    let tid = |frame: &[u8]| match wire::frame::decode(frame) {
        Ok(Some((frame, _))) => match Message::decode(frame.payload) {
            // An asynchronous operation has no position, or a place among all those of its client.
            Ok(Message::Request(request)) if !request.is_async => Some(request.tid),
            Ok(_) | Err(_) => None,
        },
        Ok(None) | Err(_) => None,
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

/// Whether a request reports open files or locks that a client has, from any rank.
fn is_held(op: &Op<'_>) -> bool {
    matches!(op, Op::Reopen { .. } | Op::Close { .. } | Op::Lock { .. })
}

impl Mds {
    /// The journal is replayed: waits for the clients of the previous term.
    pub(crate) fn wait_for_clients(&mut self, effects: &mut MdsEffects) {
        let mut until = self.clock.now + self.settings.reconnect;
        for client in self.tables.remembering().filter(|client| *client != ANYBODY) {
            self.sessions.await_return(client);
            until = until.max(self.clock.now + self.settings.lease);
        }
        let leased = self.capabilities().leases_recovered();
        let until = until.max(leased);
        self.phase = Phase::Reconnecting { until, leased };
        let dirs = self.namespace.directory_list();
        self.resend.orphans = dirs.iter().any(|dir| !self.namespace.is_anchored(*dir));
        for (conn, frame) in self.early.take() {
            self.take_frame(conn, &frame, effects);
        }
        self.stop_waiting_if_complete(effects);
    }

    fn take_frame(&mut self, conn: ConnId, frame: &[u8], effects: &mut MdsEffects) {
        if let Ok(Some((frame, _))) = wire::frame::decode(frame)
            && let Ok(message) = Message::decode(frame.payload)
        {
            self.message(conn, message, effects);
        }
    }

    /// A request that came while clients of the previous term are still returning.
    pub(crate) fn request_early(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut MdsEffects,
    ) {
        let frame = Message::Request(request.clone()).to_frame();
        let reconnecting = matches!(self.phase, Phase::Reconnecting { .. });
        match (request.replay, self.sessions.client(conn)) {
            // The client has nothing more to send again.
            (Some(_), Some(client)) if reconnecting && request.op == Op::Sync => {
                self.sessions.get_mut(client).resending = false;
                self.stop_waiting_if_complete(effects);
            }
            // Reports of open files and locks do not depend on the namespace.
            (Some(_), Some(_)) if reconnecting && is_held(&request.op) => {
                self.execute(conn, request, effects);
            }
            (Some(replay), Some(_)) if reconnecting => {
                self.resend.requests.push((replay.seq, conn, frame));
            }
            (Some(_) | None, _) => self.keep_early(conn, frame, effects),
        }
    }

    /// A connection ended: changes that were resent over it and are not being executed yet will be
    /// resent again. Returns whether there are any, for which the server waits.
    pub(crate) fn forget_resent(&mut self, conn: ConnId) -> bool {
        let before = self.resend.requests.len();
        self.resend.requests.retain(|(_, from, _)| *from != conn);
        self.resend.requests.len() < before
    }

    /// Becomes active if every client is back, or had its time.
    pub(crate) fn stop_waiting_if_complete(&mut self, effects: &mut MdsEffects) {
        let Phase::Reconnecting { until, leased } = self.phase else { return };
        let now = self.clock.now;
        let complete = now >= until || (now >= leased && self.sessions.all_returned());
        if complete && self.search.is_none() {
            self.sessions.stop_waiting(self.clock.now);
            let wanted = self.wanted_by_resent();
            self.search_for(Goal::Serve, Ino::ROOT, wanted, effects);
        }
    }

    /// The search for the inodes of resent changes ended.
    pub(crate) fn resent_found(&mut self, effects: &mut MdsEffects) {
        let Phase::Reconnecting { until, .. } = self.phase else {
            // The server was stopped during the search.
            return;
        };
        // A connection may have broken since, and taken its resent changes with it.
        if self.sessions.all_returned() || self.clock.now >= until {
            self.become_active(effects);
        }
    }

    /// The inodes of resent changes, and decoupled subtrees.
    fn wanted_by_resent(&self) -> BTreeSet<Ino> {
        let mut wanted: BTreeSet<Ino> = self.tables.decoupled.keys().copied().collect();
        let mut created = BTreeSet::new();
        for (_, _, frame) in &self.resend.requests {
            if let Ok(Some((frame, _))) = wire::frame::decode(frame)
                && let Ok(Message::Request(request)) = Message::decode(frame.payload)
            {
                wanted.extend(touched(&request.op).0.into_iter().flatten());
                created.extend(request.replay.map(|replay| replay.ino));
            }
        }
        wanted.retain(|ino| !created.contains(ino));
        wanted
    }

    /// Whether a request names an inode whose place in the tree, and with it its policy, is not
    /// known since the restart.
    pub(crate) fn is_astray(&self, op: &Op<'_>) -> bool {
        if !self.resend.orphans {
            return false;
        }
        // An inode that is not in memory may be another rank's.
        let lost = |ino| self.namespace.knows(ino) && !self.namespace.is_anchored(ino);
        touched(op).0.into_iter().flatten().any(lost)
    }

    pub(crate) fn resend_tick(&mut self, effects: &mut MdsEffects) {
        // Failed fetches are repeated.
        if self.search.as_ref().is_some_and(|search| !search.is_waiting()) {
            self.search_on(effects);
        }
        self.stop_waiting_if_complete(effects);
    }

    /// Executes resent changes, in their first order, then all other waiting requests.
    fn become_active(&mut self, effects: &mut MdsEffects) {
        assert!(!self.resend.busy, "resent changes are executed once");
        assert!(self.resend.late.is_empty(), "no change is late before the first is executed");
        self.phase = Phase::Active;
        self.subtrees().restore_policies();
        let mut resent = std::mem::take(&mut self.resend.requests);
        in_first_order(&mut resent);
        self.counters.replayed += resent.len() as u64;
        let sessions = &self.sessions;
        let with_client = |(_, conn, frame)| Some((sessions.client(conn)?, frame));
        self.resend.ordered = resent.into_iter().filter_map(with_client).collect();
        self.resend.busy = true;
        self.resend.turn = Turn::Sent;
        self.resend_on(effects);
        self.beacon_tick(effects);
    }

    /// Whether something that came over a connection waits to be handled.
    pub(crate) fn is_any_early(&self, conn: ConnId) -> bool {
        self.early.is_any_of(conn)
    }

    /// Whether a request must wait because not all that was sent again is done.
    pub(crate) fn is_resending(&self, conn: ConnId, request: &Request<'_>) -> bool {
        let is_late =
            || self.sessions.client(conn).is_none_or(|client| self.resend.is_late(client));
        let has_turn = || self.resend.turn == Turn::Asked && !is_late();
        self.resend.busy && request.replay.is_none() && !has_turn()
    }

    /// Whether a request that cannot be executed comes again later: it was answered before the
    /// crash, so it may depend on a request of another client that missed its answer.
    pub(crate) fn comes_late(&mut self, client: ClientId, request: &Request<'_>) -> bool {
        let answered = request.replay.is_some_and(|replay| replay.seq != Seq(0));
        let resend = &mut self.resend;
        let may = resend.busy && resend.turn == Turn::Sent && !self.early.is_empty();
        if !may || !answered || request.is_async || client.0 == 0 {
            return false;
        }
        resend.late.push_back((client, Message::Request(request.clone()).to_frame()));
        true
    }

    /// Whether resent changes are being executed.
    pub(crate) fn is_resend_busy(&self) -> bool {
        self.resend.busy
    }

    /// Stops the server when the resent changes are done.
    pub(crate) fn stop_after_resend(&mut self) {
        self.resend.stop = true;
    }

    /// Executes the resent changes of a client whose connection broke since. Asynchronous
    /// operations are left out: the client resends them when it is back, and until then no other
    /// client gets into its directories.
    fn take_frame_of_absent(&mut self, client: ClientId, frame: &[u8], effects: &mut MdsEffects) {
        if let Ok(Some((frame, _))) = wire::frame::decode(frame)
            && let Ok(Message::Request(request)) = Message::decode(frame.payload)
            && !request.is_async
        {
            let request =
                Request { remembers: false, wants_exclusive: WantsExclusive::Never, ..request };
            let before = self.sessions.act_for(Some(client));
            self.request(ConnId::NOBODY, &request, effects);
            self.sessions.act_for(before);
        }
    }

    /// The turn's requests are done: begins the next turn.
    fn resend_turn(&mut self, effects: &mut MdsEffects) {
        match self.resend.turn {
            Turn::Sent if !self.resend.late.is_empty() => {
                self.resend.turn = Turn::Asked;
                for (conn, frame) in self.early.take() {
                    // Requests of a later turn are put back.
                    self.take_frame(conn, &frame, effects);
                }
            }
            Turn::Asked => {
                assert!(self.resend.ordered.is_empty(), "the resent changes are done");
                self.resend.turn = Turn::Late;
                self.resend.ordered = std::mem::take(&mut self.resend.late);
            }
            Turn::Sent | Turn::Late => self.resend.busy = false,
        }
    }

    /// Continues with resent changes, unless one waits for a directory; then with all other
    /// requests.
    pub(crate) fn resend_on(&mut self, effects: &mut MdsEffects) {
        while self.resend.busy && !self.sessions.is_any_blocked() {
            match self.resend.ordered.pop_front() {
                Some((client, frame))
                    if self.resend.turn == Turn::Sent && self.resend.is_late(client) =>
                {
                    self.resend.late.push_back((client, frame));
                }
                Some((client, frame)) => match self.sessions.conn_of(client) {
                    Some(conn) => self.take_frame(conn, &frame, effects),
                    None => self.take_frame_of_absent(client, &frame, effects),
                },
                None => self.resend_turn(effects),
            }
        }
        if !self.resend.busy && std::mem::take(&mut self.resend.stop) {
            self.terminate(effects);
        }
        if self.resend.busy || self.early.is_empty() || !self.is_active() {
            return;
        }
        for (conn, frame) in self.early.take() {
            self.take_frame(conn, &frame, effects);
        }
    }
}
