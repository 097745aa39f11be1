//! Faults: servers that are killed, connections that break, and the end of all of it.

use types::{ConnId, Rank};

use super::client::Client;
use super::{Event, MS, RanksWorld};

impl RanksWorld {
    pub(super) fn crash_some(&mut self) {
        if !self.faults {
            return;
        }
        let server = self.rng.index(self.servers.len());
        // At once, or in the middle of a write.
        match self.rng.below(3) {
            0 => self.crash(server),
            _ => self.servers[server].doomed = Some(self.rng.between(1, 40)),
        }
        let after = self.rng.between(50, 600) * MS;
        self.schedule(after, Event::Crash);
    }

    pub(super) fn crash(&mut self, server: usize) {
        self.servers[server].doomed = None;
        let Some(mds) = self.servers[server].mds.take() else { return };
        self.report.count(&mds);
        self.report.crashes += 1;
        self.report.crashes_moving += u64::from(mds.is_moving());
        self.note(|| format!("$ crash mds.{server}, moving: {}", mds.is_moving()));
        self.servers[server].term += 1;
        // The appends of other servers survive this crash.
        for other in (0..self.servers.len()).filter(|other| *other != server) {
            self.servers[other].disk.sync_appends();
        }
        self.servers[server].disk.crash(&mut self.rng);
        let rank = Rank(server as u16);
        let alive = self.conns.iter().filter(|(_, conn)| conn.alive && conn.rank == rank);
        let alive: Vec<ConnId> = alive.map(|(conn, _)| *conn).collect();
        alive.into_iter().for_each(|conn| self.break_conn(conn, false));
        let after = self.rng.between(1, 150) * MS;
        self.schedule(after, Event::Start(server));
    }

    pub(super) fn break_conn(&mut self, conn: ConnId, server_notices: bool) {
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.alive = false;
        let (server, client) = (self.rng.between(1, 30 * MS), self.rng.between(1, 30 * MS));
        if server_notices {
            self.schedule(server, Event::ServerSawClose(conn));
        }
        self.schedule(client, Event::ClientSawClose(conn));
    }

    /// No more faults and no more moves, and clients end their pending work.
    pub(super) fn heal(&mut self) {
        self.faults = false;
        self.servers.iter_mut().for_each(|server| server.doomed = None);
        self.clients.iter_mut().for_each(Client::finish);
        self.end_balancing();
        for server in 0..self.servers.len() {
            self.schedule(1, Event::Start(server));
        }
    }
}
