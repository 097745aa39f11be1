//! A client: a session with each rank that it speaks to, and the router of crate `client`, which
//! decides where a request goes.

use std::collections::{BTreeMap, VecDeque};

use client::{Router, Session, SessionEffects};
use types::{ClientId, ConnId, Ino, Rank, Tid};
use wire::WantsExclusive;

use super::{Event, Routed, World};

/// The session with a rank.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) conn: Option<ConnId>,
    pub(crate) effects: SessionEffects,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    pub(crate) alive: bool,
    /// It caches replies.
    pub(crate) remembers: bool,
    /// It lends its answers to a kernel.
    pub(crate) lends: bool,
    pub(crate) wants_exclusive: WantsExclusive,
    /// The number of its first request.
    pub(crate) first: Tid,
    pub(crate) links: BTreeMap<Rank, Link>,
    pub(crate) router: Router,
    /// Requests without an answer, by their numbers.
    pub(crate) routed: BTreeMap<u64, Routed>,
    pub(crate) begun: u64,
    /// Connections that it lost while the server ran.
    pub(crate) lost_conns: u64,
    /// The moves of open files and locks that each rank reported, in order.
    pub(crate) moved: BTreeMap<Rank, VecDeque<(Rank, Vec<Ino>)>>,
}

impl Client {
    pub(crate) fn new(id: ClientId, remembers: bool) -> Self {
        Self {
            id,
            alive: true,
            remembers,
            lends: false,
            wants_exclusive: WantsExclusive::Never,
            first: Tid(1),
            links: BTreeMap::new(),
            router: Router::default(),
            routed: BTreeMap::new(),
            begun: 0,
            lost_conns: 0,
            moved: BTreeMap::new(),
        }
    }

    /// The session with a rank, and whether it is new. The caller connects a new one.
    pub(crate) fn link(&mut self, rank: Rank) -> (&mut Link, bool) {
        let Self { id, first, remembers, lends, wants_exclusive, .. } = *self;
        let mut fresh = false;
        let link = self.links.entry(rank).or_insert_with(|| {
            fresh = true;
            let mut session = Session::new(id, first);
            if remembers {
                session.remember();
                if wants_exclusive != WantsExclusive::Never {
                    session.take_exclusive(wants_exclusive);
                }
            }
            if lends {
                session.lend_to_kernel();
            }
            Link { session, conn: None, effects: SessionEffects::default() }
        });
        (link, fresh)
    }

    /// The directory or fragment in which a name is, as far as the client knows.
    pub(crate) fn dir_of(&self, (dir, name): &(Ino, String)) -> Ino {
        self.router.fragments().home(*dir, name.as_bytes())
    }
}

impl World {
    /// The session of a client with a rank. A new one connects soon.
    pub(crate) fn link(&mut self, client: usize, rank: Rank) -> &mut Link {
        if self.clients[client].link(rank).1 {
            self.schedule(1, Event::Connect(client, rank));
        }
        self.clients[client].link(rank).0
    }

    /// The session of a client with the first rank.
    pub(crate) fn home(&mut self, client: usize) -> &mut Link {
        self.link(client, Rank(0))
    }

    pub(crate) fn session(&self, client: usize) -> &Session {
        &self.clients[client].links[&Rank(0)].session
    }

    /// Whether a client has a connection to the first rank that is not broken.
    pub(crate) fn is_connected(&self, client: usize) -> bool {
        self.conn(client).is_some_and(|conn| self.conns[&conn].alive)
    }

    /// The connection of a client to the first rank.
    pub(crate) fn conn(&self, client: usize) -> Option<ConnId> {
        self.clients[client].links[&Rank(0)].conn
    }
}
