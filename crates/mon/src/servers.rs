//! The metadata servers: their reports, their connections, and the messages to them.
//!
//! A server connects to the monitor and sends beacons. Its term, address, state and process id
//! are part of the map and are stored; its counters and the subtrees that belong to clients are
//! its own affair and only repeated in the status. Not here: requests that are passed on to a
//! server (`forward`).
//!
//! Invariant: a rank has at most one connection, and one whose entry is lost has none.

use std::collections::{BTreeMap, BTreeSet};

use types::{Clock, ConnId, Epoch, Errno, Ino, Moment, Rank, Span};
use wire::{Beacon, ClusterMap, DecoupledSubtree, Failure, MdsEntry, MdsState, Message, Warning};

use crate::{Mon, MonEffects, MonNotice, RANKS_MAX, failure};

/// A standby that takes a rank over has connected so long after the loss of its server.
const TAKE_OVER: Span = Span::from_millis(2000);
/// How long an address may be.
const ADDRESS_BYTES_MAX: usize = 1024;
/// How many bytes of one server's reports are kept.
const REPORT_BYTES_MAX: usize = 1024 * 1024;
/// How many bytes of all servers' reports a status shows: it must fit one message.
const STATUS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The bytes of an element of a report besides its text, at most.
const ELEMENT_BYTES: usize = 64;

/// The monitor's knowledge of a server besides its entry in the map.
#[derive(Debug)]
struct Server {
    conn: Option<ConnId>,
    /// When the last beacon came, or when it was first expected.
    last_beacon: Moment,
    /// The epoch of the map that was last sent to this connection.
    sent: Epoch,
    counters: Vec<(String, u64)>,
    decoupled: Vec<DecoupledSubtree>,
    warnings: Vec<Warning>,
    /// Policies that will be in force when these subtrees are released.
    waiting: BTreeMap<Ino, (Vec<u8>, String)>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    by_rank: BTreeMap<Rank, Server>,
    /// Ranks that are out of the map when their servers are gone.
    removing: BTreeSet<Rank>,
    /// Servers that have not found out their terms yet, since their first beacons.
    starting: BTreeMap<ConnId, Moment>,
    /// Ranks without a server, and since when.
    lost: BTreeMap<Rank, Moment>,
}

impl Servers {
    /// Gives the servers of a map that was read the time to report.
    pub(crate) fn expect(&mut self, map: &ClusterMap, now: Moment) {
        for entry in &map.mds {
            self.server(entry.rank, now);
        }
    }

    /// The rank whose server is connected like this.
    pub(crate) fn rank_of(&self, conn: ConnId) -> Option<Rank> {
        self.connected().find_map(|(rank, other)| (other == conn).then_some(rank))
    }

    /// The connection of a rank.
    pub(crate) fn conn_of(&self, rank: Rank) -> Option<ConnId> {
        self.by_rank.get(&rank)?.conn
    }

    /// The ranks with a connection.
    pub(crate) fn connected(&self) -> impl Iterator<Item = (Rank, ConnId)> {
        self.by_rank.iter().filter_map(|(rank, server)| Some((*rank, server.conn?)))
    }

    /// All connections of servers.
    pub(crate) fn all_connected(&self) -> impl Iterator<Item = ConnId> {
        self.connected().map(|(_, conn)| conn).chain(self.starting.keys().copied())
    }

    /// Notes which ranks have lost their servers. While a cluster stops, they end on purpose.
    pub(crate) fn note_lost(&mut self, map: &ClusterMap, now: Moment) {
        let lost = map.mds.iter().filter(|entry| entry.state == MdsState::Lost);
        let lost: BTreeSet<Rank> = lost.map(|entry| entry.rank).collect();
        self.lost.retain(|rank, _| lost.contains(rank));
        for rank in lost {
            self.lost.entry(rank).or_insert(now);
        }
    }

    /// Whether a server of the map has not reported to this monitor, which started a moment ago. A
    /// silent one is given up after the beacon grace.
    pub(crate) fn is_any_expected(&self, map: &ClusterMap) -> bool {
        let mut alive = map.mds.iter().filter(|entry| entry.state != MdsState::Lost);
        alive.any(|entry| self.conn_of(entry.rank).is_none())
    }

    /// Whether a standby may be taking a rank over: the rank has lost its server a moment ago, or
    /// the standby has no term yet.
    pub(crate) fn may_be_taken_over(&self, now: Moment) -> bool {
        let mut since = self.lost.values().chain(self.starting.values());
        since.any(|since| now.since(*since) < TAKE_OVER)
    }

    /// A connection of a server without a term is gone, or has one now.
    pub(crate) fn forget_starting(&mut self, conn: ConnId) {
        self.starting.remove(&conn);
    }

    /// Sends the map to every server that does not have it. A server that connects late
    /// gets it as well, because nothing was sent to its connection yet.
    pub(crate) fn distribute(&mut self, stored: &ClusterMap, effects: &mut MonEffects) {
        let mut message = None;
        for server in self.by_rank.values_mut() {
            let Some(conn) = server.conn else { continue };
            if server.sent < stored.epoch {
                let map = || Message::Map(Box::new(stored.clone()));
                effects.send(conn, message.get_or_insert_with(map));
                server.sent = stored.epoch;
            }
        }
    }

    /// How long ago each server of the map reported, or was first expected to.
    pub(crate) fn silences(&self, now: Moment) -> impl Iterator<Item = (Rank, Span)> {
        self.by_rank.iter().map(move |(rank, server)| (*rank, now.since(server.last_beacon)))
    }

    /// The servers that have not found out their terms yet.
    pub(crate) fn starting(&self) -> usize {
        self.starting.len()
    }

    /// The map with the servers' reports.
    pub(crate) fn status(&self, map: &ClusterMap) -> ClusterMap {
        let mut map = map.clone();
        let mut room = STATUS_BYTES_MAX;
        for entry in &mut map.mds {
            let Some(server) = self.by_rank.get(&entry.rank) else { continue };
            entry.counters =
                fitting(server.counters.iter(), &mut room, |(name, _)| counter_bytes(name));
            map.decoupled.append(&mut fitting(server.decoupled.iter(), &mut room, subtree_bytes));
            let warnings = fitting(server.warnings.iter(), &mut room, warning_bytes);
            map.warnings.extend(warnings.into_iter().map(|warning| (entry.rank, warning)));
        }
        map.decoupled.sort_by(|a, b| a.path.cmp(&b.path));
        map
    }

    /// Takes the connection of a rank away from it.
    fn disconnect(&mut self, rank: Rank) -> Option<ConnId> {
        self.by_rank.get_mut(&rank)?.conn.take()
    }

    fn server(&mut self, rank: Rank, now: Moment) -> &mut Server {
        self.by_rank.entry(rank).or_insert_with(|| Server {
            conn: None,
            last_beacon: now,
            sent: Epoch(0),
            counters: Vec::new(),
            decoupled: Vec::new(),
            warnings: Vec::new(),
            waiting: BTreeMap::new(),
        })
    }
}

impl Mon {
    /// A server says how it is.
    pub(crate) fn beacon(
        &mut self,
        clock: Clock,
        conn: ConnId,
        beacon: Beacon,
        effects: &mut MonEffects,
    ) {
        if !matches!(self.phase, crate::Phase::Serving) {
            // It says it again soon.
            return;
        }
        let foreign = beacon.rank.0 >= RANKS_MAX
            || beacon.address.len() > ADDRESS_BYTES_MAX
            || beacon.state == MdsState::Lost
            || self.servers.rank_of(conn).is_some_and(|rank| rank != beacon.rank);
        if foreign {
            self.close(conn, effects);
            return;
        }
        if beacon.epoch == Epoch(0) {
            // It does not know its term yet, so it cannot be told from an earlier server.
            self.servers.starting.entry(conn).or_insert(clock.now);
            if self.stop.is_some() {
                effects.send(conn, &Message::Stop);
            }
            return;
        }
        let rank = beacon.rank;
        if self.entry(rank).is_some_and(|entry| entry.epoch > beacon.epoch) {
            // A later server of this rank was seen: this one must not write any more.
            effects.send(conn, &Message::Stop);
            return;
        }
        if self.servers.conn_of(rank) != Some(conn) {
            if let Some(before) = self.servers.disconnect(rank) {
                self.forwards.server_gone(before, effects);
                self.close(before, effects);
            }
            if self.stop.is_some() {
                effects.send(conn, &Message::Stop);
            }
        }
        self.servers.starting.remove(&conn);
        self.record(clock, conn, beacon);
    }

    /// Records a beacon.
    fn record(&mut self, clock: Clock, conn: ConnId, beacon: Beacon) {
        let now = clock.now;
        let Beacon { rank, epoch, address, state, pid, counters, decoupled, warnings, given_up } =
            beacon;
        let (version, why) = given_up;
        self.balancer_given_up(clock.time, &format!("{rank} gave it up: {why}"), version);
        let server = self.servers.server(rank, now);
        if server.conn != Some(conn) {
            server.conn = Some(conn);
            server.sent = Epoch(0);
        }
        server.last_beacon = now;
        let mut room = REPORT_BYTES_MAX;
        server.counters = fitting(counters.iter(), &mut room, |(name, _)| counter_bytes(name));
        server.decoupled = fitting(decoupled.iter(), &mut room, subtree_bytes);
        server.warnings = fitting(warnings.iter(), &mut room, warning_bytes);
        if state == MdsState::Active {
            let waits = decoupled
                .into_iter()
                .filter_map(|known| Some((known.ino, (known.path, known.next?))));
            let before = std::mem::replace(&mut server.waiting, waits.collect());
            let still = &self.servers.server(rank, now).waiting;
            let switched: Vec<_> =
                before.into_iter().filter(|(ino, _)| !still.contains_key(ino)).collect();
            for (ino, (path, policy)) in switched {
                self.record_policy(path, ino, policy);
            }
        }
        let entry = MdsEntry { rank, epoch, address, state, pid, counters: Vec::new() };
        if self.entry(rank) == Some(&entry) {
            return;
        }
        let list = &mut self.ledger.change().mds;
        match list.binary_search_by_key(&rank, |entry| entry.rank) {
            Ok(index) => list[index] = entry,
            Err(index) => list.insert(index, entry),
        }
    }

    /// Gives up the servers that were not heard of for too long, and those that do not stop when
    /// they were told to.
    pub(crate) fn tick_servers(&mut self, now: Moment, effects: &mut MonEffects) {
        if self.stop.is_none() {
            self.servers.note_lost(self.ledger.map(), now);
        }
        let grace = self.settings.beacon_grace;
        let stopping_since = self.stop.as_ref().map(|stop| stop.since);
        let mut gone = Vec::new();
        for (rank, server) in &self.servers.by_rank {
            let state = self.entry(*rank).map_or(MdsState::Lost, |entry| entry.state);
            let silent = now.since(server.last_beacon) >= grace;
            let deaf = state != MdsState::Stopping
                && stopping_since.is_some_and(|stopping_since| now.since(stopping_since) >= grace);
            if state != MdsState::Lost && (silent || deaf) {
                gone.push(*rank);
            }
        }
        for rank in gone {
            effects.notices.push(MonNotice::Silent(rank));
            // If it is still there after all, it will connect and be back.
            match self.servers.conn_of(rank) {
                Some(conn) => self.close(conn, effects),
                None => self.lose(rank, effects),
            }
        }
    }

    /// Takes the last rank out of the map, once its server has ended.
    ///
    /// # Errors
    /// `EBUSY` for rank 0, which has the root, and for any rank but the last.
    pub(crate) fn remove_rank(
        &mut self,
        rank: Rank,
        effects: &mut MonEffects,
    ) -> Result<(), Failure> {
        let last = self.ledger.map().mds.last().map(|entry| entry.rank);
        if rank == Rank(0) || last.is_some_and(|last| last > rank) {
            let text = match last.filter(|last| *last != Rank(0)) {
                Some(last) => format!("{last} is removed first: ranks go in their order"),
                None => "mds.0 has the root of the namespace".to_owned(),
            };
            return Err(failure(Errno::Busy, text));
        }
        if self.entry(rank).is_none() {
            return Ok(());
        }
        self.servers.removing.insert(rank);
        match self.servers.conn_of(rank) {
            Some(conn) => effects.send(conn, &Message::Stop),
            None => self.lose(rank, effects),
        }
        Ok(())
    }

    /// The server of a rank is gone.
    pub(crate) fn lose(&mut self, rank: Rank, effects: &mut MonEffects) {
        if let Some(conn) = self.servers.disconnect(rank) {
            self.forwards.server_gone(conn, effects);
        }
        if self.servers.removing.remove(&rank) {
            self.servers.by_rank.remove(&rank);
            return self.ledger.change().mds.retain(|entry| entry.rank != rank);
        }
        let list = &self.ledger.map().mds;
        if let Ok(index) = list.binary_search_by_key(&rank, |entry| entry.rank)
            && list[index].state != MdsState::Lost
        {
            self.ledger.change().mds[index].state = MdsState::Lost;
        }
    }

    /// The map's entry of a rank.
    pub(crate) fn entry(&self, rank: Rank) -> Option<&MdsEntry> {
        let list = &self.ledger.map().mds;
        list.binary_search_by_key(&rank, |entry| entry.rank).ok().map(|index| &list[index])
    }
}

/// The first elements, as many as fit the room left, which shrinks.
fn fitting<'a, T: Clone + 'a>(
    elements: impl Iterator<Item = &'a T>,
    room: &mut usize,
    bytes: impl Fn(&T) -> usize,
) -> Vec<T> {
    let fits = |element: &&T| match room.checked_sub(bytes(element)) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    };
    elements.take_while(fits).cloned().collect()
}

fn counter_bytes(name: &str) -> usize {
    name.len() + ELEMENT_BYTES
}

fn subtree_bytes(subtree: &DecoupledSubtree) -> usize {
    subtree.path.len() + subtree.policy.len() + ELEMENT_BYTES
}

fn warning_bytes(warning: &Warning) -> usize {
    warning.code.len() + warning.text.len() + warning.remedy.len() + ELEMENT_BYTES
}
