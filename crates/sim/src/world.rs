//! A cluster in one thread: a metadata server, its store, clients and the network between them,
//! moved by one queue of events.
//!
//! The daemon uses sockets and threads; this driver uses events with the time at which they happen.
//! Only the [`Oracle`] decides whether an answer is right.

use std::collections::BTreeMap;
use std::fmt::Arguments;

use mds::{Mds, MdsEffects, MdsInput};
use metastore::request::Token;
use types::{ClientId, Clock, ConnId, Moment, Rank, Tid, Timestamp};
use wire::{Answer, Failure, Message};

use crate::client::Client;
use crate::disk::Disk;
use crate::history::Recorder;
use crate::invariants::determinism::Fingerprint;
use crate::invariants::removed::Removed;
use crate::oracle::{Applied, Oracle, Violation};
use crate::plan::Plan;
use crate::snapshots::Taken;
use types::rng::Rng;

/// Civil time at the start of every simulation.
pub(crate) const EPOCH: i64 = 1_000_000_000_000_000_000;
/// Lines of the trace that are kept.
const TRACE_LINES_MAX: usize = 4_000;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A connection reaches the server.
    Opened(ConnId),
    ToServer(ConnId, Vec<u8>),
    ToClient(ConnId, Vec<u8>),
    ServerSawClose(ConnId),
    ClientSawClose(ConnId),
    /// A store operation of a term takes effect, or its end is reported.
    Execute(u64, Token),
    Ended(u64, Token),
    Tick(u64),
    Work(u64),
    Start,
    Connect(usize),
    Turn(usize),
    /// A client sends its local changes to the server.
    SendAsync(usize),
    Crash,
    Break(u64),
    Kill(u64),
    Terminate,
    /// A snapshot is taken, looked at or forgotten.
    Snapshot,
}

/// A connection. It is never dropped: messages of the server after it broke still count.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) client: usize,
    pub(crate) term: u64,
    pub(crate) alive: bool,
    pub(crate) to_server_at: u64,
    pub(crate) to_client_at: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct World {
    /// The decisions of the seed.
    pub plan: Plan,
    /// The server, unless it is down.
    pub mds: Option<Mds>,
    pub(crate) effects: MdsEffects,
    /// How often a server was started.
    pub term: u64,
    pub(crate) recovered: bool,
    /// How often a server died.
    pub(crate) crashes: u64,
    /// The server was told to stop, and did.
    pub stopped: bool,
    /// The object store.
    pub disk: Disk,
    /// Clients; the first one belongs to the simulation itself.
    pub clients: Vec<Client>,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) next_conn: u64,
    pub(crate) next_client: u64,
    /// Changes that clients answered before the server heard of them.
    pub async_ops: u64,
    /// Questions that clients answered from their caches.
    pub answered_here: u64,
    /// Those of them that were answered under a lease.
    pub leased_here: u64,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    order: u64,
    /// Nanoseconds since the start.
    pub now: u64,
    /// The truth.
    pub oracle: Oracle,
    /// What clients see.
    pub history: Recorder,
    /// Files that were removed.
    pub(crate) removed: Removed,
    /// The required content of snapshots.
    pub(crate) snapshots: Taken,
    pub(crate) rng: Rng,
    pub(crate) monitor_tid: u64,
    /// Questions of the monitor, and in which term they were asked.
    pub(crate) asked: BTreeMap<Tid, u64>,
    pub(crate) monitor_answers: BTreeMap<Tid, Result<Answer, Failure>>,
    /// Clients make requests of their own accord.
    pub(crate) issuing: bool,
    /// The first promise that was found broken.
    pub violation: Option<Violation>,
    fingerprint: Fingerprint,
    trace: Option<Vec<String>>,
}

impl World {
    /// A cluster that is down.
    #[must_use]
    pub fn new(plan: Plan, rng: Rng, trace: bool) -> Self {
        Self {
            plan,
            mds: None,
            effects: MdsEffects::default(),
            term: 0,
            recovered: false,
            crashes: 0,
            stopped: false,
            disk: Disk::default(),
            clients: vec![Client::new(ClientId(1), 1)],
            conns: BTreeMap::new(),
            next_conn: 1,
            next_client: 2,
            async_ops: 0,
            answered_here: 0,
            leased_here: 0,
            events: BTreeMap::new(),
            order: 0,
            now: 0,
            oracle: Oracle::new(),
            history: Recorder::default(),
            removed: Removed::default(),
            snapshots: Taken::default(),
            rng,
            monitor_tid: 1 << 32,
            asked: BTreeMap::new(),
            monitor_answers: BTreeMap::new(),
            issuing: false,
            violation: None,
            fingerprint: Fingerprint::default(),
            trace: trace.then(Vec::new),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        let now = i64::try_from(self.now).unwrap_or(i64::MAX);
        Clock { now: Moment(self.now + 1), time: Timestamp(EPOCH + now) }
    }

    /// Notes something that happened.
    pub(crate) fn note(&mut self, what: Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            if trace.len() >= TRACE_LINES_MAX * 2 {
                trace.drain(..TRACE_LINES_MAX);
            }
            trace.push(format!("{:>12} {what}", self.now / 1000));
        }
    }

    /// The last lines of the trace, if one was kept; times are in microseconds.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        self.trace.as_deref().unwrap_or_default()
    }

    /// A hash of everything that happened.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.value()
    }

    pub(crate) fn check(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result
            && self.violation.is_none()
        {
            self.note(format_args!("VIOLATION {violation}"));
            self.violation = Some(violation);
        }
    }

    pub(crate) fn schedule(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now + after, self.order), event);
    }

    /// A random delay: mostly short.
    pub(crate) fn delay(&mut self) -> u64 {
        let max = if self.rng.percent(70) { self.plan.delay_max / 20 } else { self.plan.delay_max };
        self.rng.between(1, max.max(1))
    }

    /// Lets the next event happen. Returns false if there is none, or a promise is broken.
    pub fn step(&mut self) -> bool {
        if self.violation.is_some() {
            return false;
        }
        let Some(((at, _), event)) = self.events.pop_first() else { return false };
        self.now = at;
        self.fingerprint.add(&at.to_le_bytes());
        self.happen(event);
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Opened(conn) => {
                if self.is_reached(conn) {
                    self.handle(MdsInput::Opened(conn));
                }
            }
            Event::ToServer(conn, frame) => self.arrived_at_server(conn, &frame),
            Event::ToClient(conn, frame) => self.arrived_at_client(conn, &frame),
            Event::ServerSawClose(conn) => {
                if self.conns[&conn].term == self.term {
                    self.handle(MdsInput::Closed(conn));
                }
            }
            Event::ClientSawClose(conn) => self.client_closed(conn),
            Event::Execute(term, token) => {
                if term == self.term {
                    self.disk.execute(token, &mut self.rng);
                    let after = self.delay();
                    self.schedule(after, Event::Ended(term, token));
                }
            }
            Event::Ended(term, token) => {
                if term == self.term
                    && let Some(ended) = self.disk.end(token)
                {
                    self.note(format_args!(
                        "mds.0  <- store   {token:?} {}",
                        crate::print::ended(&ended)
                    ));
                    self.handle(MdsInput::Stored(token, ended));
                }
            }
            Event::Tick(term) => {
                if term == self.term {
                    let after = self.rng.between(1_500_000, 3_000_000);
                    self.schedule(after, Event::Tick(term));
                    self.handle(MdsInput::Tick);
                }
            }
            Event::Work(term) => {
                if term == self.term {
                    self.handle(MdsInput::Work);
                }
            }
            Event::Start => self.start(),
            Event::Connect(client) => self.connect(client),
            Event::Turn(client) => self.turn(client),
            Event::SendAsync(client) => self.send_async_of(client),
            Event::Crash => self.crash(),
            Event::Break(which) => self.break_one(which),
            Event::Kill(which) => self.kill(which),
            Event::Snapshot => self.use_snapshots(),
            Event::Terminate => {
                self.note(format_args!("$ terminate"));
                self.handle(MdsInput::Terminate);
            }
        }
    }

    /// Lets events happen until a condition holds. Returns whether it does before the time is up.
    pub fn run_until(&mut self, within: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + within;
        while !done(self) {
            if self.now > end || !self.step() {
                return false;
            }
        }
        true
    }

    /// Starts the server now.
    pub(crate) fn start(&mut self) {
        if self.mds.is_some() {
            return;
        }
        self.term += 1;
        self.recovered = false;
        self.stopped = false;
        self.note(format_args!("$ start"));
        self.mds = Some(Mds::new(Rank(0), self.plan.settings.clone()));
        self.schedule(1_000_000, Event::Tick(self.term));
        self.handle(MdsInput::Start);
    }

    /// The server dies now.
    pub fn crash(&mut self) {
        if self.mds.take().is_none() {
            return;
        }
        self.note(format_args!("$ crash"));
        self.crashes += 1;
        if self.recovered {
            // A server without clients had nothing to lose.
            self.history.crashed(self.now);
        }
        self.effects = MdsEffects::default();
        // Events of the old term mean nothing any more.
        self.term += 1;
        self.disk.crash(&mut self.rng);
        self.close_all();
        self.start_later();
    }

    fn close_all(&mut self) {
        let alive = self.conns.iter().filter(|(_, conn)| conn.alive);
        let alive: Vec<ConnId> = alive.map(|(conn, _)| *conn).collect();
        for conn in alive {
            self.break_conn(conn, false);
        }
    }

    /// Gives the server an input and executes its effects.
    pub(crate) fn handle(&mut self, input: MdsInput<'_>) {
        let clock = self.clock();
        let Some(mds) = &mut self.mds else { return };
        mds.handle(clock, input, &mut self.effects);
        if self.effects.fatal.is_none() {
            mds.validate();
        }
        self.execute();
    }

    fn execute(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        let frames: Vec<(ConnId, Vec<u8>)> =
            effects.outbox.iter().map(|(conn, frame)| (conn, frame.to_vec())).collect();
        let mut observed = effects.observed.drain(..).peekable();
        for (at, (conn, frame)) in frames.into_iter().enumerate() {
            while let Some(change) = observed.next_if(|change| change.messages <= at) {
                self.observe(&change);
            }
            self.emit(conn, frame);
        }
        observed.for_each(|change| self.observe(&change));
        self.note_recovery(None);
        self.to_monitor(&effects.to_monitor);
        for (token, op) in effects.store.drain(..) {
            self.note(format_args!("mds.0  -> store   {token:?} {}", crate::print::store_op(&op)));
            self.fingerprint.add(crate::print::store_op(&op).as_bytes());
            self.note_snapshot(&op);
            self.disk.submit(token, op);
            let after = self.delay();
            self.schedule(after, Event::Execute(self.term, token));
        }
        effects.close.drain(..).for_each(|conn| self.break_conn(conn, false));
        if let Some(error) = effects.fatal.take() {
            self.note(format_args!("mds.0  fatal: {error}"));
            if self.plan.faults.errors_percent == 0 {
                self.check(Err(format!("the server gave up: {error}")));
            }
            return self.crash();
        }
        if effects.stopped {
            return self.stop();
        }
        effects.outbox.clear();
        effects.to_monitor.clear();
        self.effects = effects;
        if self.mds.as_ref().is_some_and(Mds::has_work) {
            let after = self.rng.between(1, 200_000);
            self.schedule(after, Event::Work(self.term));
        }
    }

    /// The server ended cleanly. Its last store operations are still executed.
    fn stop(&mut self) {
        self.note(format_args!("$ stopped"));
        self.disk.finish(&mut self.rng);
        self.mds = None;
        self.stopped = true;
        self.term += 1;
        self.close_all();
        self.start_later();
    }

    fn start_later(&mut self) {
        let after = self.rng.between(1_000_000, 100_000_000);
        self.schedule(after, Event::Start);
    }

    /// Notices that recovery ended, from the position that the server calls safe then.
    fn note_recovery(&mut self, safe: Option<types::Seq>) {
        let Some(mds) = self.mds.as_ref().filter(|_| !self.recovered) else { return };
        let last = safe.or_else(|| {
            let counters = if mds.is_active() { mds.counters() } else { return None };
            let safe = counters.iter().find(|(name, _)| name == "journal_safe");
            safe.map(|(_, value)| types::Seq(*value))
        });
        if let Some(last) = last {
            self.recovered = true;
            self.note(format_args!("$ recovered up to {last}"));
            self.history.recovered(last);
            let result = self.oracle.recovered(last);
            self.check(result);
        }
    }

    fn observe(&mut self, change: &mds::Observed) {
        let mds::Observed { client, tid, seq, ino, time, .. } = *change;
        self.note(format_args!("mds.0  applied {client} {tid} {seq}"));
        self.history.applied((client, tid), &Applied { seq, ino, time }, self.now);
        // The recovered state is known by now: changes come after that.
        self.note_recovery(None);
        let result = self.oracle.applied(change);
        self.check(result);
        self.note_applied((client, tid), seq, time);
    }

    fn emit(&mut self, conn: ConnId, frame: Vec<u8>) {
        self.fingerprint.add(&frame);
        let client = self.conns[&conn].client;
        let id = self.clients[client].id();
        let payload = wire::frame::decode(&frame).ok().flatten().map(|(frame, _)| frame.payload);
        match payload.map(Message::decode) {
            Some(Ok(message)) => {
                if let Message::Welcome(welcome) = &message {
                    self.note_recovery(Some(welcome.safe));
                }
                self.note(format_args!("mds.0  -> {id} {message:?}"));
                let result = self.oracle.emitted(id, &message);
                self.check(result);
                if let Message::Reply(reply) = &message
                    && reply.result.is_err()
                    && self.oracle.is_async((id, reply.tid))
                {
                    self.drop_async(client);
                    self.clients[client].async_ops.wrong = true;
                }
            }
            Some(Err(_)) | None => self.check(Err("the server sent nonsense".into())),
        }
        self.send_to_client(conn, frame);
    }

    pub(crate) fn send_to_client(&mut self, conn: ConnId, frame: Vec<u8>) {
        let delay = self.now + self.delay();
        let known = self.conns.get_mut(&conn).expect("connections are never forgotten");
        if known.alive {
            known.to_client_at = known.to_client_at.max(delay);
            let after = known.to_client_at - self.now;
            self.schedule(after, Event::ToClient(conn, frame));
        }
    }

    pub(crate) fn send_to_server(&mut self, conn: ConnId, event: Event) {
        let delay = self.now + self.delay();
        let known = self.conns.get_mut(&conn).expect("connections are never forgotten");
        if known.alive {
            known.to_server_at = known.to_server_at.max(delay);
            let after = known.to_server_at - self.now;
            self.schedule(after, event);
        }
    }

    /// Breaks a connection: messages under way are lost, and both ends notice in their own time.
    pub(crate) fn break_conn(&mut self, conn: ConnId, server_notices: bool) {
        let Some(known) = self.conns.get_mut(&conn).filter(|known| known.alive) else { return };
        known.alive = false;
        let (server, client) = (self.rng.between(1, 30_000_000), self.rng.between(1, 30_000_000));
        if server_notices {
            self.schedule(server, Event::ServerSawClose(conn));
        }
        self.schedule(client, Event::ClientSawClose(conn));
    }

    fn is_reached(&self, conn: ConnId) -> bool {
        let conn = &self.conns[&conn];
        conn.alive && conn.term == self.term
    }

    fn arrived_at_server(&mut self, conn: ConnId, frame: &[u8]) {
        if !self.is_reached(conn) {
            return;
        }
        let payload = wire::frame::decode(frame).ok().flatten().map(|(frame, _)| frame.payload);
        if let Some(Ok(message)) = payload.map(Message::decode) {
            let id = self.clients[self.conns[&conn].client].id();
            self.note(format_args!("{id} -> mds.0  {}", crate::print::message(&message)));
            self.handle(MdsInput::Message(conn, message));
        }
    }
}
