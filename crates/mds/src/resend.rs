//! After a recovery: clients send again what was applied but not safe, and it is carried out in
//! its first order, before anything else.
//!
//! Clients name inodes by their numbers, and after a restart an inode may be in the metadata store
//! only, where it is found by name alone. Whoever asks for the first time is told `ESTALE` and
//! walks the path again; a change that is sent again cannot do that, so what it is about is looked
//! for before it is carried out.

use std::collections::BTreeSet;

use types::{ConnId, Ino, Seq};
use wire::{Message, Op, Request};

use crate::op::touched;
use crate::search::Goal;
use crate::{Effects, Mds, Phase};

/// The state of the reconnection.
#[derive(Debug, Default)]
pub(crate) struct Resend {
    /// Requests that clients sent again, with their former positions.
    requests: Vec<(Seq, ConnId, Vec<u8>)>,
    /// Directories were recovered whose place in the tree is not known yet.
    orphans: bool,
}

impl Mds {
    /// The journal is replayed: waits for the clients of the previous tenure.
    pub(crate) fn wait_for_clients(&mut self, effects: &mut Effects) {
        self.phase = Phase::Reconnecting { until: self.clock.now + self.settings.reconnect };
        let dirs = self.namespace.directory_list();
        self.resend.orphans = dirs.iter().any(|dir| !self.namespace.is_anchored(*dir));
        for (conn, frame) in std::mem::take(&mut self.early) {
            self.take_frame(conn, &frame, effects);
        }
        self.stop_waiting_if_complete(effects);
    }

    fn take_frame(&mut self, conn: ConnId, frame: &[u8], effects: &mut Effects) {
        if let Ok(Some((frame, _))) = wire::frame::decode(frame)
            && let Ok(message) = Message::decode(frame.payload)
        {
            self.message(conn, message, effects);
        }
    }

    /// A request that came while clients of the previous tenure are still returning.
    pub(crate) fn request_early(
        &mut self,
        conn: ConnId,
        request: &Request<'_>,
        effects: &mut Effects,
    ) {
        let frame = Message::Request(request.clone()).to_frame();
        let reconnecting = matches!(self.phase, Phase::Reconnecting { .. });
        match (request.replay, self.sessions.client(conn)) {
            // The client has nothing more to send again.
            (Some(_), Some(client)) if reconnecting && request.op == Op::Sync => {
                self.sessions.get_mut(client).resending = false;
                self.stop_waiting_if_complete(effects);
            }
            (Some(replay), Some(_)) if reconnecting => {
                self.resend.requests.push((replay.seq, conn, frame));
            }
            (Some(_) | None, _) => self.early.push_back((conn, frame)),
        }
    }

    /// A connection ended: what was sent again over it will be sent once more.
    pub(crate) fn forget_resent(&mut self, conn: ConnId) {
        self.resend.requests.retain(|(_, from, _)| *from != conn);
    }

    /// Becomes active if every client is back, or had its time.
    pub(crate) fn stop_waiting_if_complete(&mut self, effects: &mut Effects) {
        let Phase::Reconnecting { until } = self.phase else { return };
        let complete = self.sessions.all_returned() || self.clock.now >= until;
        if complete && self.search.is_none() {
            self.sessions.stop_waiting(self.clock.now);
            let wanted = self.wanted_by_resent();
            self.search_for(Goal::Serve, Ino::ROOT, wanted, effects);
        }
    }

    /// What requests that were sent again are about, and decoupled subtrees.
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
        let named = touched(op).0.into_iter().flatten();
        self.resend.orphans && named.into_iter().any(|ino| !self.namespace.is_anchored(ino))
    }

    pub(crate) fn resend_tick(&mut self, effects: &mut Effects) {
        self.search_tick(effects);
        self.stop_waiting_if_complete(effects);
    }

    /// Carries out what was sent again, in its first order, then whatever else waits.
    pub(crate) fn become_active(&mut self, effects: &mut Effects) {
        self.phase = Phase::Active;
        let mut resent = std::mem::take(&mut self.resend.requests);
        resent.sort_by_key(|(seq, ..)| *seq);
        self.counters.replayed += resent.len() as u64;
        let frames = resent.into_iter().map(|(_, conn, frame)| (conn, frame));
        let frames: Vec<_> = frames.chain(std::mem::take(&mut self.early)).collect();
        for (conn, frame) in frames {
            self.take_frame(conn, &frame, effects);
        }
        self.beacon_tick(effects);
    }
}
