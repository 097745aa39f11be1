//! A cluster in one thread: metadata servers, their store, clients and the network between them,
//! moved by one queue of events.
//!
//! The daemon uses sockets and threads; this driver uses events with the time at which they happen.
//! A [`Workload`] says what clients do, and whether an answer is right.

mod client;
mod drive;
mod monitor;
mod network;
mod route;
mod server;

use std::collections::BTreeMap;
use std::fmt::Arguments;

use mds::Settings;
use metastore::request::Token;
use objstore::Memory;
use types::rng::Rng;
use types::{Clock, ConnId, Ino, Moment, Rank, Timestamp};

use crate::invariants::determinism::Fingerprint;
use crate::plan::Faults;
use crate::tally::{Report, Tally};
pub(crate) use client::{Client, Link};
pub(crate) use drive::{Drive, Workload};
pub(crate) use monitor::Monitor;
pub(crate) use network::Conn;
pub(crate) use route::{Routed, Routes};
pub(crate) use server::Server;

/// Civil time at the start of every simulation.
pub(crate) const EPOCH: i64 = 1_000_000_000_000_000_000;
/// Nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// Lines of the trace that are kept.
const TRACE_LINES_MAX: usize = 400_000;

/// A violated promise, in words.
pub(crate) type Violation = String;

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
    Execute(usize, u64, Token),
    Ended(usize, u64, Token),
    Tick(usize, u64),
    Work(usize, u64),
    Start(usize),
    /// A server is to stop: the next one goes on, or the cluster ends.
    Terminate(usize),
    EndCluster(usize),
    Connect(usize, Rank),
    /// A message of one rank to another one.
    Peer(usize, Vec<u8>),
    /// A heartbeat of another rank, through the monitor.
    Heartbeat(usize, Vec<u8>),
    /// The answer to a question of the balancer.
    Answer(usize, u64, Box<balancer::Question>),
    /// A wait of the request with this number is over.
    Resume(usize, u64),
    /// A client moves its state of files that this rank reported as moved.
    Carry(usize, Rank),
    /// A client hears that a server recalls a file.
    Recalled(usize, Ino),

    /// The rest is of workloads: a client may do something.
    Turn(usize),
    /// A client sends its local changes to the server.
    SendAsync(usize),
    /// A client returns directories that its kernel does not use any more.
    ReturnLapsed(usize),
    /// A snapshot is taken, looked at or forgotten.
    Snapshot,
    /// A subtree moves.
    Move,
    Crash,
    Break(u64),
    Kill(u64),
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct World {
    /// Of every server.
    pub(crate) settings: Settings,
    pub(crate) faults: Faults,
    /// The longest time a message or store operation takes, in nanoseconds.
    pub(crate) delay_max: u64,
    /// One for each rank.
    pub(crate) servers: Vec<Server>,
    /// The object store.
    pub(crate) memory: Memory,
    pub(crate) monitor: Monitor,
    pub(crate) clients: Vec<Client>,
    /// Connections are never dropped: messages of the server after one broke still count.
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    /// How often a server died.
    pub(crate) crashes: u64,
    /// How often unsynced writes of the store were torn: at each crash, and at some stops.
    pub(crate) cuts: u64,
    /// Servers check all of their invariants after so many inputs.
    pub(crate) validated_every: u64,
    inputs: u64,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    order: u64,
    /// Nanoseconds since the start.
    pub(crate) now: u64,
    pub(crate) rng: Rng,
    pub(crate) tally: Tally,
    /// The first promise that was found broken.
    pub(crate) violation: Option<Violation>,
    fingerprint: Fingerprint,
    trace: Option<Vec<String>>,
}

impl World {
    /// A cluster of so many ranks, which is down.
    pub(crate) fn new(settings: Settings, ranks: usize, rng: Rng, trace: bool) -> Self {
        let memory = Memory::new();
        Self {
            settings,
            faults: Faults::default(),
            delay_max: MS,
            servers: (0..ranks).map(|_| Server::on(memory.clone())).collect(),
            memory,
            monitor: Monitor::default(),
            clients: Vec::new(),
            conns: BTreeMap::new(),
            crashes: 0,
            cuts: 0,
            validated_every: 1,
            inputs: 0,
            events: BTreeMap::new(),
            order: 0,
            now: 0,
            rng,
            tally: Tally::default(),
            violation: None,
            fingerprint: Fingerprint::default(),
            trace: trace.then(Vec::new),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        let now = i64::try_from(self.now).unwrap_or(i64::MAX);
        Clock { now: self.moment(), time: Timestamp(EPOCH + now) }
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment(self.now + 1)
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

    /// The result; times in the trace are in microseconds.
    pub(crate) fn report(&self) -> Report {
        Report {
            fingerprint: self.fingerprint.value(),
            violation: self.violation.clone(),
            trace: self.trace.clone().unwrap_or_default(),
            tally: self.tally.clone(),
        }
    }

    /// The end of a workload, which may be a panic: the trace before it helps to explain it.
    pub(crate) fn note_end(&mut self, panicked: bool) {
        if panicked {
            self.fail("panicked".into());
        }
    }

    pub(crate) fn check(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result
            && self.violation.is_none()
        {
            self.note(format_args!("VIOLATION {violation}"));
            self.violation = Some(violation);
        }
    }

    pub(crate) fn fail(&mut self, violation: Violation) {
        self.check(Err(violation));
    }

    pub(crate) fn schedule(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now + after, self.order), event);
    }

    /// A random delay: mostly short.
    pub(crate) fn delay(&mut self) -> u64 {
        let max = if self.rng.percent(70) { self.delay_max / 20 } else { self.delay_max };
        self.rng.between(1, max.max(1))
    }

    /// The next event, unless there is none, or a promise is broken.
    fn next_event(&mut self) -> Option<Event> {
        if self.violation.is_some() {
            return None;
        }
        let ((at, _), event) = self.events.pop_first()?;
        self.now = at;
        self.fingerprint.add(&at.to_le_bytes());
        Some(event)
    }
}
