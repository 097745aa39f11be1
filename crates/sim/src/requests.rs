//! Clients that make requests of every kind to one server, under faults. The [`Oracle`] and the
//! [`Recorder`] judge the answers; a few clients also work in decoupled subtrees.

mod async_ops;
mod audit;
mod choose;
mod kernel;
mod project;
pub(crate) mod quotas;

mod rounds;
mod snapshots;
mod worker;

use std::collections::BTreeMap;

use client::SessionEffects;
use mds::{Mds, Observed};
use metastore::request::{StoreOp, Token};
use types::rng::Rng;
use types::{ClientId, Ino, Moment, Rank, Result, Seq, Tid, Timestamp};
use wire::{Answer, Failure, Message};

use crate::history::Recorder;
use crate::invariants::removed::Removed;
use crate::oracle::{Applied, Oracle};
use crate::plan::Plan;
use crate::world::{Client, Drive, Event, MS, Routed, Workload, World};
use project::Project;
pub use rounds::run;
use snapshots::Taken;
pub(crate) use worker::Worker;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) world: World,
    /// The decisions of the seed.
    pub(crate) plan: Plan,
    /// The work of each client; the first one belongs to the simulation itself.
    pub(crate) workers: Vec<Worker>,
    next_client: u64,
    /// The truth.
    pub(crate) oracle: Oracle,
    /// What clients see.
    history: Recorder,
    /// Files that were removed.
    removed: Removed,
    /// The required content of snapshots.
    snapshots: Taken,
    /// Directories with limits, and their paths.
    limited: BTreeMap<Ino, String>,
    /// Clients make requests of their own accord.
    pub(crate) issuing: bool,
    /// Operations of servers that changed the store.
    pub(crate) store_writes: u64,
    /// The changes that servers executed for clients.
    pub(crate) executed: Vec<Executed>,
}

/// A change that a server executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executed {
    pub(crate) client: ClientId,
    /// The inode that it created, or 0.
    pub(crate) ino: Ino,
    pub(crate) time: Timestamp,
}

impl Requests {
    /// A cluster that is down.
    pub(crate) fn new(plan: Plan, rng: Rng, trace: bool) -> Self {
        let mut world = World::new(plan.settings.clone(), 1, rng, trace);
        world.note(format_args!("{plan:?}"));
        world.faults = plan.faults.clone();
        world.delay_max = plan.delay_max;
        let mut requests = Self {
            world,
            plan,
            workers: Vec::new(),
            next_client: 0,
            oracle: Oracle::default(),
            history: Recorder::default(),
            removed: Removed::default(),
            snapshots: Taken::default(),
            limited: BTreeMap::new(),
            issuing: false,
            store_writes: 0,
            executed: Vec::new(),
        };
        let id = requests.new_id();
        requests.add(Client::new(id, false));
        requests
    }

    /// Sends the messages of a session.
    pub(crate) fn send(&mut self, client: usize) {
        self.flush(client, Rank(0));
    }

    /// Notices that recovery ended, from the position that the server calls safe then.
    fn note_recovery(&mut self, safe: Option<Seq>) {
        let server = &self.world.servers[0];
        let Some(mds) = server.mds.as_ref().filter(|_| !server.recovered) else { return };
        let last = safe.or_else(|| {
            let counters = if mds.is_active() { mds.counters() } else { return None };
            let safe = counters.iter().find(|(name, _)| name == "journal_safe");
            safe.map(|(_, value)| Seq(*value))
        });
        if let Some(last) = last {
            self.world.servers[0].recovered = true;
            self.world.note(format_args!("$ recovered up to {last}"));
            self.history.recovered(last);
            let result = self.oracle.recovered(last);
            self.world.check(result);
        }
    }
}

/// Whether an operation changes the store.
fn writes(op: &StoreOp) -> bool {
    match op {
        StoreOp::Append { .. }
        | StoreOp::Put { .. }
        | StoreOp::Delete { .. }
        | StoreOp::PurgeData { .. }
        | StoreOp::PurgeDir { .. }
        | StoreOp::CompactDir { .. }
        | StoreOp::AttachDirs { .. }
        | StoreOp::TakeSnapshot { .. }
        | StoreOp::CommitDir { .. } => true,
        StoreOp::Get { .. }
        | StoreOp::List { .. }
        | StoreOp::LoadDir { .. }
        | StoreOp::LookUp { .. }
        | StoreOp::ProveRuns { .. } => false,
    }
}

impl Workload for Requests {
    fn world(&self) -> &World {
        &self.world
    }

    fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Turn(client) => self.turn(client),
            Event::SendAsync(client) => self.send_async_of(client),
            Event::ReturnLapsed(client) => self.return_lapsed(client),
            Event::Break(which) => self.break_one(which),
            Event::Kill(which) => self.kill(which),
            Event::Snapshot => self.use_snapshots(),
            _ => self.crash(0),
        }
    }

    fn answered(&mut self, client: usize, number: u64, routed: Routed, result: Result<Answer>) {
        if let Some(answer) = self.workers[client].asked.get_mut(&number) {
            *answer = Some(result);
        } else {
            let failure = |error: &types::Error| Failure::from(error.errno);
            self.lend(client, &routed.call, &result.clone().map_err(|error| failure(&error)));
            self.project_answered(client, number, &routed.call, &result);
        }
    }

    fn sent(&mut self, client: usize, tid: Tid, routed: &Routed) {
        self.note_sent(client, tid, routed.sent());
    }

    fn replied(&mut self, client: usize, tid: Tid, ok: bool) {
        self.note_reply(client, tid, ok);
    }

    fn clock_of(&self, client: usize) -> Moment {
        self.moment_at(client)
    }

    fn disconnected(&mut self, client: usize) -> u64 {
        self.workers[client].async_ops.wrong = false;
        let away = self.world.faults.away_max.max(MS);
        let after = if client == 0 { MS } else { self.world.rng.between(MS / 10, away) };
        let after = after.max(self.lent_for(client));
        self.oracle.late |= after + 300 * MS > self.world.settings.reconnect.0;
        after
    }

    fn told_monitor(&mut self, message: &Message<'_>) {
        if let Message::Reply(reply) = message {
            self.oracle.safe = self.oracle.safe.max(reply.safe);
        }
    }

    fn arriving(&mut self, client: usize, message: &Message<'_>) {
        if let Message::Request(request) = message {
            self.oracle.arrived((self.world.clients[client].id, request.tid));
        }
    }

    fn observed(&mut self, change: &Observed) {
        let Observed { client, tid, seq, ino, time, .. } = *change;
        self.world.note(format_args!("mds.0  applied {client} {tid} {seq}"));
        self.history.applied((client, tid), &Applied { seq, ino, time }, self.world.now);
        // The recovered state is known by now: changes come after that.
        self.note_recovery(None);
        self.executed.push(Executed { client, ino, time });
        let result = self.oracle.applied(change);
        self.world.check(result);
        self.note_applied((client, tid), seq, time);
    }

    fn emitted(&mut self, client: usize, message: &Message<'_>) {
        if let Message::Welcome(welcome) = message {
            self.note_recovery(Some(welcome.safe));
        }
        let id = self.world.clients[client].id;
        let result = self.oracle.emitted(id, message);
        self.world.check(result);
        if let Message::Reply(reply) = message
            && reply.result.is_err()
            && self.oracle.is_async((id, reply.tid))
        {
            self.drop_async(client);
            self.workers[client].async_ops.wrong = true;
        }
    }

    fn handled(&mut self) {
        self.note_recovery(None);
    }

    fn submitted(&mut self, op: &StoreOp) {
        self.note_snapshot(op);
    }

    fn executing(&mut self, server: usize, token: Token) {
        let op = self.world.servers[server].disk.submitted(token);
        self.store_writes += u64::from(op.is_some_and(writes));
    }

    fn crashed(&mut self, _: &Mds) {
        if self.world.servers[0].recovered {
            // A server without clients had nothing to lose.
            self.history.crashed(self.world.now);
        }
    }

    fn connected(&mut self, client: usize) {
        if self.workers[client].logs {
            self.world.home(client).session.set_aside();
            self.workers[client].returning = true;
        }
    }

    fn received(&mut self, client: usize, message: &Message<'_>) {
        let Message::Reply(reply) = message else { return };
        let id = self.world.clients[client].id;
        if client != 0 {
            let epoch = self.world.session(client).epoch().0;
            self.history.note_reply(id, epoch, reply, self.world.now);
        }
        if reply.result.is_err() && self.oracle.is_async((id, reply.tid)) {
            self.workers[client].async_ops.wrong = false;
        }
    }

    fn followed(&mut self, client: usize) {
        let resent = self.world.session(client).resent_count();
        let (id, wait) = (self.world.clients[client].id, self.world.settings.reconnect);
        self.history.returned(id, resent, wait, self.world.now);
        self.wake_for_returns(client);
    }

    fn flushed(&mut self, client: usize, _: Rank, effects: &SessionEffects) {
        let Worker { project, async_ops, last_reply, .. } = &mut self.workers[client];
        project.iter().for_each(Project::validate);
        if effects.async_acknowledged {
            *last_reply = (*last_reply).max(async_ops.sent.take());
        }
        if effects.restarted
            && let Some(project) = project
            && project.server_restarted()
        {
            self.oracle.regions[project.region].known = false;
        }
    }
}
