//! After a recovery: clients send again what was applied but not safe, and it is carried out in
//! its first order, before anything else.
//!
//! Clients name inodes by their numbers, and after a restart an inode may be in the metadata store
//! only, where it is found by name alone. Whoever asks for the first time is told `ESTALE` and
//! walks the path again; a change that is sent again cannot do that, so what it is about is looked
//! for before it is carried out.

use std::collections::{BTreeSet, VecDeque};

use namespace::Refusal;
use types::{ConnId, Cred, Ino, Seq};
use wire::{Message, Op, Request};

use crate::op::touched;
use crate::{Effects, Mds, Phase};

/// The state of the reconnection.
#[derive(Debug, Default)]
pub(crate) struct Resend {
    /// Requests that clients sent again, with their former positions.
    requests: Vec<(Seq, ConnId, Vec<u8>)>,
    /// The search for inodes, while one is under way.
    search: Option<Search>,
    /// Directories were recovered whose place in the tree is not known yet.
    orphans: bool,
}

/// A walk through all directories, from the root down.
#[derive(Debug)]
struct Search {
    wanted: BTreeSet<Ino>,
    queue: VecDeque<Ino>,
    /// A directory is being fetched.
    waiting: bool,
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
        if complete && self.resend.search.is_none() {
            self.sessions.stop_waiting(self.clock.now);
            self.resend.search = Some(self.new_search());
            self.search_on(effects);
        }
    }

    /// A search for what requests that were sent again are about, and for decoupled subtrees.
    fn new_search(&self) -> Search {
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
        Search { wanted, queue: VecDeque::from([Ino::ROOT]), waiting: false }
    }

    /// Whether a request names an inode whose place in the tree, and with it its policy, is not
    /// known since the restart.
    pub(crate) fn is_astray(&self, op: &Op<'_>) -> bool {
        let named = touched(op).0.into_iter().flatten();
        self.resend.orphans && named.into_iter().any(|ino| !self.namespace.is_anchored(ino))
    }

    /// A directory that the search waited for is here, or cannot be fetched.
    pub(crate) fn search_fetched(&mut self) {
        if let Some(search) = &mut self.resend.search {
            search.waiting = false;
        }
    }

    pub(crate) fn resend_tick(&mut self, effects: &mut Effects) {
        if self.resend.search.as_ref().is_some_and(|search| !search.waiting) {
            self.search_on(effects);
        }
        self.stop_waiting_if_complete(effects);
    }

    /// Goes on with the search; when it ends, the server serves.
    pub(crate) fn search_on(&mut self, effects: &mut Effects) {
        let Some(mut search) = self.resend.search.take() else { return };
        loop {
            search.wanted.retain(|ino| !self.namespace.is_anchored(*ino));
            let dir = search.queue.pop_front();
            let Some(dir) = dir.filter(|_| !search.wanted.is_empty()) else {
                if matches!(self.phase, Phase::Reconnecting { .. }) {
                    self.become_active(effects);
                }
                return;
            };
            match self.namespace.list(&Cred::root(), dir, None, usize::MAX, false) {
                Ok(entries) => {
                    let dirs = entries.into_iter().filter(|entry| entry.attr.is_dir());
                    search.queue.extend(dirs.map(|entry| entry.attr.ino));
                }
                Err(Refusal::Cold(cold)) => {
                    search.queue.push_front(dir);
                    search.waiting = true;
                    self.resend.search = Some(search);
                    return self.search_waits_for(cold, effects);
                }
                Err(Refusal::Errno(_)) => {}
            }
        }
    }

    /// Carries out what was sent again, in its first order, then whatever else waits.
    fn become_active(&mut self, effects: &mut Effects) {
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
