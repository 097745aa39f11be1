//! The metadata servers of a cluster, one for each rank.

use mds::Mds;
use objstore::Memory;
use types::{Epoch, Rank};
use wire::{ClusterMap, MdsEntry, MdsState};

use super::World;
use crate::disk::Disk;

/// A metadata server, and its access to the store.
#[derive(Debug)]
pub(crate) struct Server {
    /// Nothing while it is down.
    pub(crate) mds: Option<Mds>,
    /// How often one was started, died or stopped: events of another term mean nothing any more.
    pub(crate) term: u64,
    pub(crate) disk: Disk,
    /// It is to be killed after so many further store operations.
    pub(crate) doomed: Option<u64>,
    /// It has read its journal, as far as the workload noticed.
    pub(crate) recovered: bool,
    /// It got the order to stop, and did.
    pub(crate) stopped: bool,
    /// The order was to leave the rest to the next server.
    pub(crate) leaves_rest: bool,
}

impl Server {
    pub(super) fn on(memory: Memory) -> Self {
        let (recovered, stopped, leaves_rest) = (false, false, false);
        let disk = Disk::on(memory);
        Self { mds: None, term: 0, disk, doomed: None, recovered, stopped, leaves_rest }
    }

    pub(crate) fn is_recovered(&self) -> bool {
        self.recovered && self.mds.is_some()
    }

    pub(crate) fn is(&self, question: impl FnOnce(&Mds) -> bool) -> bool {
        self.mds.as_ref().is_some_and(question)
    }
}

impl World {
    /// The map always has all ranks: a client finds out by a request whether a rank is up.
    pub(crate) fn map(&self) -> ClusterMap {
        let entry = |rank| MdsEntry {
            rank: Rank(rank),
            epoch: Epoch(1),
            state: MdsState::Active,
            ..MdsEntry::default()
        };
        ClusterMap {
            mds: (0..self.servers.len() as u16).map(entry).collect(),
            balancers: self.monitor.balancers.clone(),
            ..ClusterMap::default()
        }
    }

    pub(super) fn ranks(&self) -> Vec<Rank> {
        (0..self.servers.len() as u16).map(Rank).collect()
    }

    pub(super) fn is_term(&self, server: usize, term: u64) -> bool {
        self.servers[server].term == term
    }

    /// So many of a hundred store operations fail from now on.
    pub(crate) fn fail_store(&mut self, percent: u64) {
        self.servers.iter_mut().for_each(|server| server.disk.errors_percent = percent);
    }

    /// Kills a server, if it runs: pending writes of the store are torn.
    pub(super) fn kill_server(&mut self, server: usize) -> Option<Mds> {
        let mds = self.servers[server].mds.take()?;
        self.crashes += 1;
        self.cut_disk(server);
        self.ended(server);
        Some(mds)
    }

    /// Tears the pending writes of a server.
    fn cut_disk(&mut self, server: usize) {
        self.cuts += 1;
        // The appends of other servers survive this crash.
        for other in (0..self.servers.len()).filter(|other| *other != server) {
            self.servers[other].disk.sync_appends();
        }
        self.servers[server].disk.crash(&mut self.rng);
    }

    /// The server ended cleanly. Its last store operations are still executed, or cut off, if the
    /// next server goes on.
    pub(super) fn stop_server(&mut self, server: usize) {
        self.note(format_args!("$ stopped"));
        self.tally.count("servers stopped", 1);
        if self.servers[server].leaves_rest && self.rng.below(2) == 0 {
            self.cut_disk(server);
        } else {
            self.servers[server].disk.finish(&mut self.rng);
        }
        let Server { mds, stopped, .. } = &mut self.servers[server];
        (*mds, *stopped) = (None, true);
        self.ended(server);
    }

    /// A server is gone, and another one comes soon.
    fn ended(&mut self, server: usize) {
        let Server { term, doomed, .. } = &mut self.servers[server];
        *term += 1;
        *doomed = None;
        let rank = Rank(server as u16);
        let of_rank = self.alive_conns(|conn| conn.rank == rank);
        of_rank.into_iter().for_each(|conn| self.break_conn(conn, false));
        let after = self.rng.between(super::MS, 100 * super::MS);
        self.schedule(after, super::Event::Start(server));
    }
}
