//! Faults: servers that are killed, connections that break, and the end of all of it.

use super::{Drive, Event, MS, Ranks};
use crate::plan::Faults;

impl Ranks {
    pub(super) fn crash_some(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let server = self.world.rng.index(self.world.servers.len());
        // At once, on order, or in the middle of a write.
        match self.world.rng.below(4) {
            0 => self.crash(server),
            1 => self.world.schedule(1, Event::Terminate(server)),
            _ => self.world.servers[server].doomed = Some(self.world.rng.between(1, 40)),
        }
        let after = self.world.rng.between(50, 600) * MS;
        self.world.schedule(after, Event::Crash);
    }

    pub(super) fn break_some(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let alive = self.world.alive_conns(|_| true);
        if !alive.is_empty() {
            let conn = self.world.rng.pick(&alive);
            self.world.break_conn(conn, true);
        }
        let after = self.world.rng.between(10, 300) * MS;
        self.world.schedule(after, Event::Break(0));
    }

    /// No more faults and no more moves, and clients end their pending work.
    pub(super) fn heal(&mut self) {
        self.world.faults = Faults::default();
        self.world.servers.iter_mut().for_each(|server| server.doomed = None);
        self.workers.iter_mut().for_each(|worker| worker.finished = true);
        self.end_balancing();
        for server in 0..self.world.servers.len() {
            self.world.schedule(1, Event::Start(server));
        }
    }
}
