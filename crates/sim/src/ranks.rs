//! Several ranks on one store: subtrees move between them at random while clients work, directories
//! are split and their fragments move, servers are killed at any step of that, and connections
//! break.
//!
//! Every name is changed by one client and looked at by all, so that the possible answers are known
//! exactly (`register`): the value that the name had at some moment between question and answer.
//! The next look at a name finds a change that was lost, done twice, or undone by a recovery, and
//! so does an answer of a rank that is not the authority any more.
//!
//! In the end, when everything is healed, each directory must be served by exactly one rank, and
//! have the expected entries.

mod audit;
mod balance;
mod client;
mod faults;
mod job;
mod judge;
mod linking;
mod moves;
mod peers;
mod register;
mod report;
mod script;
mod session;
mod tree;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mds::{Mds, MdsEffects, MdsInput, Settings};
use metastore::request::Token;
use objstore::Memory;
use types::{ClientId, Clock, ConnId, Epoch, Ino, Moment, Rank, Span, Timestamp};
use wire::{ClusterMap, MdsEntry, MdsState, Message};

use crate::disk::Disk;
use types::rng::Rng;

use balance::Balancing;
use client::Client;
use job::Job;
use register::Registers;
pub use report::RanksReport;
use script::Script;
use tree::Tree;

const MS: u64 = 1_000_000;
/// A server checks itself after every input while it is small; all of its invariants at once are
/// checked after so many inputs, because that takes longer than an input.
const VALIDATED_EVERY: u32 = 16;
/// How long everything may take to come to rest when nothing is broken any more.
const PATIENCE: u64 = 60_000 * MS;
/// Directories that move.
const DIRS: usize = 3;
/// Directories that move, and in which further directories are renamed.
const BASES: usize = 3;

#[derive(Debug)]
enum Event {
    ToServer(ConnId, Vec<u8>),
    ToClient(ConnId, Vec<u8>),
    ServerSawClose(ConnId),
    ClientSawClose(ConnId),
    Execute(usize, u64, Token),
    Ended(usize, u64, Token),
    Tick(usize, u64),
    Work(usize, u64),
    Start(usize),
    Connect(usize, Rank),
    Turn(usize),
    /// A wait of the step with this number is over.
    Resume(usize, u64),
    Crash,
    Break,
    Move,
    Answer(usize, u64, Box<balancer::Question>),
    Beat(usize, Vec<u8>),
    /// A message of one rank to another one.
    Peer(usize, Vec<u8>),
}

#[derive(Debug)]
struct Conn {
    client: usize,
    rank: Rank,
    term: u64,
    alive: bool,
    to_server_at: u64,
    to_client_at: u64,
}

#[derive(Debug)]
struct Server {
    mds: Option<Mds>,
    term: u64,
    disk: Disk,
    /// It is to be killed after so many further store operations.
    doomed: Option<u64>,
}

/// See the module documentation.
#[derive(Debug)]
struct RanksWorld {
    rng: Rng,
    /// Draws the delays and losses of messages between ranks, and which directories are unpinned.
    peer_rng: Rng,
    now: u64,
    /// Inputs of servers so far.
    inputs: u32,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    servers: Vec<Server>,
    settings: Settings,
    /// Files get several names.
    links: bool,
    /// All of them in one directory, which can go to other ranks then.
    links_inside: bool,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: u64,
    clients: Vec<Client>,
    registers: Registers,
    balancing: Option<Balancing>,
    memory: Memory,
    job: Job,
    tree: Tree,
    delay_max: u64,
    faults: bool,
    /// No client changes anything any more.
    at_rest: bool,
    report: RanksReport,
    traced: bool,
}

/// Runs a seed; with `directories` they are renamed between ranks, too.
#[must_use]
pub fn run(seed: u64, trace: bool, directories: bool) -> RanksReport {
    let mut world = RanksWorld::new(seed, trace);
    world.settings.pass_directories = directories;
    // The trace before a panic helps to explain it.
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    if ended.is_err() {
        world.fail("panicked".into());
    }
    for mds in world.servers.iter().filter_map(|server| server.mds.as_ref()) {
        world.report.count(mds);
    }
    world.report.merges = world.job.merges;
    world.report.redirected = world.clients.iter().map(|it| it.router.redirected()).sum();
    world.report
}

impl RanksWorld {
    fn new(seed: u64, traced: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0x7261_6e6b_7321);
        let memory = Memory::new();
        let ranks = 2 + rng.index(2);
        let balancing = Balancing::of(seed, &memory);
        let interval = balancing.as_ref().map_or(Span(u64::MAX), |balancing| balancing.interval);
        let servers = (0..ranks).map(|_| Server {
            mds: None,
            term: 0,
            disk: Disk::on(memory.clone()),
            doomed: None,
        });
        let settings = Settings {
            // The model counts.
            about_bytes: u64::MAX,
            segment_bytes_max: rng.pick(&[400, 4000, 100_000]),
            segments_max: rng.pick(&[2, 4, 16]),
            commit_interval: Span::from_millis(rng.pick(&[1, 5, 20])),
            dispatch: rng.pick(&[1, 2, 4]),
            reconnect: Span::from_millis(400),
            inodes_max: rng.pick(&[20, 1 << 20]),
            capture_rows: rng.pick(&[1, 4096]),
            split_entries: if seed.is_multiple_of(5) { 6 } else { 0 },
            balance_interval: interval,
            balance_half_life: Span::from_millis(200),
            ..Settings::default()
        };
        Self {
            servers: servers.collect(),
            settings,
            // Half of the seeds: few links need a directory of another rank.
            links: seed & 1 == 1,
            links_inside: seed & 0b1_0101 == 0b1_0001,
            now: 0,
            inputs: 0,
            order: 0,
            events: BTreeMap::new(),
            conns: BTreeMap::new(),
            next_conn: 1,
            clients: Vec::new(),
            registers: Registers::default(),
            balancing,
            memory,
            job: Job::default(),
            tree: Tree::default(),
            delay_max: rng.pick(&[1, 3, 10]) * MS,
            faults: rng.percent(85),
            at_rest: false,
            report: RanksReport::default(),
            traced,
            peer_rng: Rng::new(seed ^ 0x7065_6572),
            rng,
        }
    }

    fn run(&mut self) {
        self.begin();
        let end = 1500 * MS + self.rng.below(1500) * MS;
        self.run_while(end, |world| world.now < end);
        self.heal();
        self.run_while(self.now + PATIENCE, |world| !world.is_done());
        if self.report.violation.is_none() && !self.is_done() {
            self.fail("something never ended".into());
        }
        self.audit();
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.traced {
            self.report.trace.push(format!("{:>10} {}", self.now / 1000, what()));
        }
    }

    fn fail(&mut self, violation: String) {
        self.note(|| format!("VIOLATION {violation}"));
        self.report.violation.get_or_insert(violation);
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now + after, self.order), event);
    }

    fn delay(&mut self) -> u64 {
        let max = if self.rng.percent(70) { self.delay_max / 20 } else { self.delay_max };
        self.rng.between(1, max.max(1))
    }

    fn clock(&self) -> Clock {
        let now = i64::try_from(self.now).unwrap_or(i64::MAX);
        Clock { now: Moment(self.now + 1), time: Timestamp(crate::world::EPOCH + now) }
    }

    /// Servers start; the first client makes the directories, then all go to work.
    fn begin(&mut self) {
        for server in 0..self.servers.len() {
            self.schedule(1, Event::Start(server));
        }
        // The first client moves subtrees, one has decoupled one, the last ones rename directories,
        // the rest work.
        for number in 0..=tree::LAST as u64 {
            let remembers = self.rng.percent(50);
            self.clients.push(Client::new(ClientId(number + 1), remembers));
        }
        for number in 0..DIRS + BASES {
            let name = format!("d{number}").into_bytes();
            self.clients[0].script.push_back(Script::MakeDir(Ino::ROOT, name));
        }
        self.schedule(MS, Event::Turn(0));
        self.run_while(20_000 * MS, |world| world.clients[0].dirs.len() < DIRS + BASES);
        self.tree.bases = self.clients[0].dirs.split_off(DIRS);
        self.begin_job();
        self.schedule(MS, Event::Turn(0));
        self.run_while(20_000 * MS, |world| !world.clients[0].is_idle());
        let dirs = self.clients[0].dirs.clone();
        for client in 1..self.clients.len() {
            self.clients[client].dirs.clone_from(&dirs);
            self.schedule(MS, Event::Turn(client));
        }
        self.schedule(10 * MS, Event::Move);
        if self.faults {
            self.schedule(50 * MS, Event::Break);
            self.schedule(60 * MS, Event::Crash);
        }
    }

    fn run_while(&mut self, end: u64, goes_on: impl Fn(&Self) -> bool) {
        while goes_on(self) && self.report.violation.is_none() && self.now <= end {
            let Some(((at, _), event)) = self.events.pop_first() else { return };
            self.now = at;
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToServer(conn, frame) => self.arrived_at_server(conn, &frame),
            Event::ToClient(conn, frame) => self.arrived_at_client(conn, &frame),
            Event::ServerSawClose(conn) => {
                let Conn { rank, term, .. } = self.conns[&conn];
                self.handle(usize::from(rank.0), term, MdsInput::Closed(conn));
            }
            Event::ClientSawClose(conn) => self.client_closed(conn),
            Event::Execute(server, term, token) => {
                if self.servers[server].term == term {
                    self.check_writer(server, token);
                    self.servers[server].disk.execute(token, &mut self.rng);
                    let after = self.delay();
                    self.schedule(after, Event::Ended(server, term, token));
                    if let Some(left) = &mut self.servers[server].doomed {
                        *left = left.saturating_sub(1);
                        if *left == 0 {
                            self.crash(server);
                        }
                    }
                }
            }
            Event::Ended(server, term, token) => {
                if self.servers[server].term == term
                    && let Some(ended) = self.servers[server].disk.end(token)
                {
                    self.note(|| {
                        let text = ended.as_ref().map(crate::print::store_result);
                        format!("mds.{server} <- store {token:?} {text:?}")
                    });
                    self.handle(server, term, MdsInput::Stored(token, ended));
                }
            }
            Event::Tick(server, term) => {
                if self.servers[server].term == term {
                    self.schedule(2 * MS, Event::Tick(server, term));
                    self.load_machine(server, term);
                    self.handle(server, term, MdsInput::Tick);
                }
            }
            Event::Work(server, term) => self.handle(server, term, MdsInput::Work),
            Event::Start(server) => self.start(server),
            Event::Connect(client, rank) => self.connect(client, rank),
            Event::Turn(client) => self.turn(client),
            Event::Resume(client, number) => self.resume(client, number),
            Event::Crash => self.crash_some(),
            Event::Break => {
                let alive = self.conns.iter().filter(|(_, conn)| conn.alive);
                let alive: Vec<ConnId> = alive.map(|(conn, _)| *conn).collect();
                if !alive.is_empty() {
                    let conn = self.rng.pick(&alive);
                    self.break_conn(conn, true);
                }
                if self.faults {
                    let after = self.rng.between(10, 300) * MS;
                    self.schedule(after, Event::Break);
                }
            }
            Event::Move if self.balancing.is_some() => self.crash_mover(),
            Event::Move => self.begin_move(),
            Event::Answer(server, term, question) => self.answer(server, term, *question),
            Event::Beat(server, bytes) => self.beat(server, &bytes),
            Event::Peer(server, frame) => self.peer_arrived(server, &frame),
        }
    }

    fn start(&mut self, server: usize) {
        if self.servers[server].mds.is_some() {
            return;
        }
        let rank = Rank(server as u16);
        self.servers[server].term += 1;
        let term = self.servers[server].term;
        self.note(|| format!("$ start {rank}"));
        self.servers[server].mds = Some(Mds::new(rank, self.settings.clone()));
        self.handle(server, term, MdsInput::FromMonitor(Message::Map(Box::new(self.map()))));
        self.handle(server, term, MdsInput::Start);
        self.schedule(MS, Event::Tick(server, term));
    }

    /// The map always has all ranks: a client finds out by a request whether a rank is up.
    fn map(&self) -> ClusterMap {
        let entry = |rank| MdsEntry {
            rank: Rank(rank),
            epoch: Epoch(1),
            state: MdsState::Active,
            ..MdsEntry::default()
        };
        ClusterMap {
            mds: (0..self.servers.len() as u16).map(entry).collect(),
            balancers: self.balancers(),
            ..ClusterMap::default()
        }
    }

    fn handle(&mut self, server: usize, term: u64, input: MdsInput<'_>) {
        let clock = self.clock();
        if self.servers[server].term != term {
            return;
        }
        let Some(mds) = &mut self.servers[server].mds else { return };
        let mut effects = MdsEffects::default();
        mds.handle(clock, input, &mut effects);
        self.inputs += 1;
        if self.inputs.is_multiple_of(VALIDATED_EVERY) && effects.fatal.is_none() {
            mds.validate();
        }
        let has_work = mds.has_work();
        let frames: Vec<_> =
            effects.outbox.iter().map(|(conn, frame)| (conn, frame.to_vec())).collect();
        for (conn, frame) in frames {
            self.to_client(conn, frame);
        }
        for (token, op) in effects.store {
            self.note(|| {
                format!("mds.{server} -> store {token:?} {}", crate::print::store_op(&op))
            });
            self.servers[server].disk.submit(token, op);
            let after = self.delay();
            self.schedule(after, Event::Execute(server, term, token));
        }
        self.to_monitor(server, &effects.to_monitor);
        self.to_peers(effects.to_peers);
        for question in effects.questions {
            self.think(server, term, question);
        }
        for conn in effects.close {
            self.break_conn(conn, false);
        }
        if let Some(error) = effects.fatal {
            return self.fail(format!("mds.{server} gave up: {error}"));
        }
        if has_work {
            let after = self.rng.between(1, MS / 5);
            self.schedule(after, Event::Work(server, term));
        }
    }

    fn is_done(&self) -> bool {
        self.servers.iter().all(|server| server.mds.as_ref().is_some_and(Mds::is_active))
            && self.clients.iter().all(Client::is_idle)
            && self.servers.iter().all(|it| it.mds.as_ref().is_some_and(|mds| !mds.is_moving()))
    }
}
