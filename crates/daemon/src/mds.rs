//! The metadata server's process.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mds::{Mds, MdsEffects, MdsInput, MdsNotice, Settings};
use net::{Address, ConnectionEvent, Keyring, Reactor};
use objstore::{LockGuard, Store};
use types::{Clock, ConnId, Cred, Errno, Error, Moment, Peer, Rank, Result, Span, Tid};
use wire::{Message, MonOp, Reply};

use crate::Log;
use crate::audit::Audit;
use crate::balancer_thread::BalancerThread;
use crate::clock::Clocks;
use crate::metrics::requests::RequestTimes;
use crate::metrics::store::StoreTimes;
use crate::metrics::{self, MetricsOptions, Scrapers};
use crate::missing;
use crate::monitor_connector::MonitorConnector;
use crate::peers::Peers;
use crate::prepared_memory::PreparedMemory;
use crate::resource_use::Meter;
use crate::room::Keeper;
use crate::trace::Tracer;
use crate::workers::Workers;

/// How often time passes for the state machine while it is busy, and while it is idle.
const TICK_BUSY: Duration = Duration::from_millis(2);
const TICK_IDLE: Duration = Duration::from_millis(50);

/// Later than any server lives.
const NEVER: Span = Span::from_millis(1 << 40);

/// The configuration of a metadata server.
#[derive(Debug)]
pub struct MdsOptions {
    /// Its rank.
    pub rank: Rank,
    /// Where it listens.
    pub address: Address,
    /// Its key, for addresses on the network.
    pub keys: Keyring,
    /// The folder of its audit log, if it has one.
    pub audit: Option<PathBuf>,
    /// The group whose members may connect, besides the owner of the process and root.
    pub group: Option<u32>,
    /// Where the monitor is.
    pub monitor: Address,
    /// The object store.
    pub store: Arc<dyn Store>,
    /// Tuning.
    pub settings: Settings,
    /// Where scrapers find metrics, if they are kept at all.
    pub metrics: Option<MetricsOptions>,
    /// From this duration on a request has a line in the log; `None` for none.
    pub slow: Option<Span>,
    /// Bytes of memory to have ready before they are needed.
    pub warm_bytes: usize,
    /// The flag that ends the server; without one, SIGTERM and SIGINT do.
    pub terminate: Option<Arc<AtomicBool>>,
    /// The log.
    pub log: Log,
}

/// The measurements for metrics.
struct Measured {
    scrapers: Scrapers,
    store: Arc<StoreTimes>,
}

struct Daemon {
    mds: Mds,
    requests: Box<RequestTimes>,
    tracer: Tracer,
    measured: Option<Measured>,
    reactor: Reactor,
    keys: Keyring,
    audit: Audit,
    workers: Workers,
    thinker: BalancerThread,
    meter: Meter,
    keeper: Keeper,
    clocks: Clocks,
    effects: MdsEffects,
    warm: PreparedMemory,
    seeker: MonitorConnector,
    peers: Peers,
    monitor_conn: Option<ConnId>,
    last_tick: Moment,
    fatal: Option<Error>,
    stopped: bool,
    terminate: Arc<AtomicBool>,
    log: Log,
}

/// Runs a metadata server until it is stopped.
///
/// # Errors
/// `EBUSY` if another server holds the rank, `EADDRINUSE`, or the error that ended the server.
pub fn run_mds(options: MdsOptions) -> Result<()> {
    net::descriptors::raise();
    let (rank, log) = (options.rank, options.log.clone());
    let name = format!("rank/{:04x}.lock", rank.0);
    options.store.allow_reserve();
    // Held as long as anything can be written: two servers never write one rank's journal.
    let lock = options.store.lock(&name, &std::process::id().to_string())?;
    log.info("server.started", format_args!("started: serves {rank} at {}", options.address));
    let ended = serve(options, lock);
    crate::log_end(&log, &ended);
    ended
}

fn serve(options: MdsOptions, lock: Box<dyn LockGuard>) -> Result<()> {
    let MdsOptions {
        rank,
        address,
        keys,
        audit,
        group,
        monitor,
        mut store,
        mut settings,
        metrics,
        slow,
        warm_bytes,
        terminate,
        log,
    } = options;
    if settings.read_only {
        store = missing::without_damaged_tables(store, rank)?;
        // No subtree moves: the writes of one server are invisible to the other servers.
        settings.balance_interval = NEVER;
    } else {
        missing::check_rank(&*store, rank)?;
    }
    settings.address = address.to_string();
    settings.pid = std::process::id();
    let reactor = Reactor::listen(&address, &keys)?.shared_with(group)?.with_refusal(refusal);
    let measured = Measured::start(metrics.as_ref(), &reactor, &log)?;
    let store_times = measured.as_ref().map(|measured| measured.store.clone());
    let workers = Workers::start(&store, &reactor.waker(), store_times)?;
    let thinker = BalancerThread::new(reactor.waker());
    let keeper = Keeper::start(&store, settings.reserve_bytes, reactor.waker())?;
    let seeker = MonitorConnector::new(monitor, keys.clone(), reactor.waker());
    let peers = Peers::new(keys.clone(), reactor.waker());
    let mut daemon = Daemon {
        mds: Mds::new(rank, settings),
        requests: Box::new(RequestTimes::new(slow)),
        tracer: Tracer::default(),
        measured,
        reactor,
        keys,
        workers,
        thinker,
        meter: Meter::new(),
        keeper,
        clocks: Clocks::new(),
        effects: MdsEffects::default(),
        warm: PreparedMemory::new(warm_bytes),
        seeker,
        peers,
        monitor_conn: None,
        last_tick: Moment(0),
        fatal: None,
        stopped: false,
        terminate: crate::termination(terminate)?,
        audit: Audit::in_folder(audit.as_deref(), &rank.to_string(), &log),
        log,
    };
    let clock = daemon.clocks.read();
    daemon.handle(clock, MdsInput::Start);
    while !daemon.stopped && daemon.fatal.is_none() {
        daemon.turn()?;
        if lock.is_lost() {
            daemon.fatal = Some(crate::replaced("rank"));
        }
    }
    daemon.reactor.flush(|_| {});
    daemon.workers.stop();
    // Before the socket: a process that sees no socket may start the next server.
    drop(lock);
    daemon.fatal.map_or(Ok(()), Err)
}

/// The answer to a client beyond the limit on connections.
fn refusal(connections: usize) -> Vec<u8> {
    Message::Reply(Reply::refusal(crate::too_many("metadata server", connections))).to_frame()
}

impl Measured {
    fn start(
        options: Option<&MetricsOptions>,
        reactor: &Reactor,
        log: &Log,
    ) -> Result<Option<Self>> {
        let scrapers = Scrapers::start(options, reactor.waker(), log)?;
        Ok(scrapers.map(|scrapers| Self { scrapers, store: Arc::default() }))
    }

    /// A turn that began at a moment has ended. Makes a page, if a scraper wants one.
    fn turned(&mut self, requests: &RequestTimes, now: Moment, mds: &Mds) {
        if self.scrapers.want() {
            let figures = mds::Figures::of(mds, self.scrapers.paths);
            self.scrapers.publish(metrics::mds::page(&figures, requests, &self.store, now));
        }
    }
}

/// The messages of one turn, with all that they may touch.
struct Arrivals<'a> {
    mds: &'a mut Mds,
    effects: &'a mut MdsEffects,
    audit: &'a mut Audit,
    requests: &'a mut RequestTimes,
    tracer: &'a mut Tracer,
    keys: &'a Keyring,
    peers: &'a Peers,
    monitor: Option<ConnId>,
    clocks: &'a Clocks,
    messages: u64,
}

impl Arrivals<'_> {
    fn opened(&mut self, clock: Clock, conn: ConnId, peer: Peer) {
        self.audit.opened(conn, &peer);
        self.tracer.opened(conn, peer.is_trusted());
        self.mds.handle(clock, MdsInput::Opened(conn, peer), self.effects);
    }

    fn payload(&mut self, clock: Clock, conn: ConnId, payload: &[u8]) {
        let message = match Message::decode(payload) {
            Ok(message) if Some(conn) == self.monitor => {
                if let Message::Map(map) = &message {
                    self.keys.keep_revoked(&map.revoked);
                }
                return self.mds.handle(clock, MdsInput::FromMonitor(message), self.effects);
            }
            Ok(message) if !self.peers.has(conn) => message,
            Ok(_) | Err(_) => return self.effects.close.push(conn),
        };
        if let Message::Trace { tid } = message {
            if let Some(refusal) = self.tracer.want(conn, tid, clock.now) {
                self.effects.outbox.send(conn, &refusal);
            }
            return;
        }
        self.messages += 1;
        self.audit.arrived(conn, clock.time, &message);
        self.requests.arrived(conn, clock.now, &message);
        let is_traced = self.tracer.arrived(conn, &message, || self.clocks.now());
        self.mds.handle(clock, MdsInput::Message(conn, message), self.effects);
        if is_traced {
            self.tracer.handled(self.clocks.now());
        }
    }
}

impl Daemon {
    fn handle(&mut self, clock: Clock, input: MdsInput<'_>) {
        self.mds.handle(clock, input, &mut self.effects);
    }

    /// One turn of the loop: messages, results of the store, time, work, and all effects.
    fn turn(&mut self) -> Result<()> {
        let busy = self.mds.has_work();
        let mut idle = !busy && self.mds.is_quiet();
        let timeout = if busy || (idle && self.warm.is_wanted()) {
            Duration::ZERO
        } else if self.mds.is_quiet() {
            TICK_IDLE
        } else {
            TICK_BUSY
        };
        let mut closed = VecDeque::new();
        let mut clock = None;
        let (clocks, log) = (&self.clocks, &self.log);
        let mut arrivals = Arrivals {
            mds: &mut self.mds,
            effects: &mut self.effects,
            audit: &mut self.audit,
            requests: &mut self.requests,
            tracer: &mut self.tracer,
            keys: &self.keys,
            peers: &self.peers,
            monitor: self.monitor_conn,
            clocks,
            messages: 0,
        };
        self.reactor.poll(timeout, |happened| {
            // One reading of the clocks serves everything that arrived together.
            let clock = *clock.get_or_insert_with(|| clocks.read());
            idle = false;
            match happened {
                ConnectionEvent::Opened(conn, peer) => {
                    crate::log_opened(log, conn, &peer);
                    arrivals.opened(clock, conn, peer);
                }
                ConnectionEvent::Payload(conn, payload) => arrivals.payload(clock, conn, payload),
                ConnectionEvent::Cut { from, why, was_known } => {
                    crate::log_cut(log, &from, why, was_known);
                }
                ConnectionEvent::Closed(conn, why) => {
                    crate::log_closed(log, conn, &why);
                    closed.push_back(conn);
                }
            }
        })?;
        self.meter.note_arrived(arrivals.messages);
        self.peers.opened(&mut self.reactor);
        let clock = clock.unwrap_or_else(|| self.clocks.read());
        self.take_in(clock, closed);
        if self.mds.has_work() {
            self.warm.stop();
            self.handle(clock, MdsInput::Work);
        } else if idle && self.warm.is_wanted() {
            self.warm.step();
        }
        self.execute();
        if let Some(measured) = &mut self.measured {
            let now = self.clocks.now();
            if !idle {
                self.requests.turned(clock.now, now);
            }
            measured.turned(&self.requests, now, &self.mds);
        }
        Ok(())
    }

    /// Hands the results of threads and the passing of time to the state machine.
    fn take_in(&mut self, clock: Clock, closed: VecDeque<ConnId>) {
        for conn in closed {
            self.closed(clock, conn);
        }
        while let Some((token, result)) = self.workers.finished() {
            if !self.tracer.is_idle() {
                self.tracer.stored(token, &result, self.clocks.now());
            }
            self.handle(clock, MdsInput::Stored(token, result));
        }
        while let Some(answer) = self.thinker.answered() {
            self.handle(clock, MdsInput::Answered(Box::new(answer)));
        }
        if self.terminate.swap(false, Ordering::Relaxed) {
            self.handle(clock, MdsInput::Terminate);
        }
        if clock.now.since(self.last_tick) >= Span::from_millis(2) {
            self.tick(clock);
        }
        if self.mds.is_stopping() {
            self.workers.hurry();
        }
    }

    fn tick(&mut self, clock: Clock) {
        self.last_tick = clock.now;
        if let Some(vitals) = self.meter.measure(clock) {
            self.handle(clock, MdsInput::ResourceUse(vitals));
            self.requests.overdue(clock.now).into_iter().for_each(|slow| self.log.write(slow));
            self.log.tick();
        }
        if let Some(room) = self.keeper.changed() {
            self.handle(clock, MdsInput::Room(room));
        }
        self.handle(clock, MdsInput::Tick);
        self.find_monitor(clock);
    }

    fn closed(&mut self, clock: Clock, conn: ConnId) {
        if Some(conn) == self.monitor_conn {
            self.monitor_conn = None;
        } else if !self.peers.closed(conn) {
            self.audit.closed(conn);
            self.requests.closed(conn);
            self.tracer.closed(conn);
            self.handle(clock, MdsInput::Closed(conn));
        }
    }

    /// Notes the effects for the request that is traced.
    fn trace(&mut self) {
        let now = self.clocks.now();
        self.tracer.executes(&self.effects, now);
        if let Some((conn, traced)) = self.tracer.ended(mds::durable_up_to(&self.mds), now) {
            self.effects.outbox.send(conn, &traced);
        }
    }

    fn find_monitor(&mut self, clock: Clock) {
        // Without a monitor the server still serves the clients that know its address.
        if self.monitor_conn.is_none()
            && let Some(stream) = self.seeker.find(clock.now)
            && let Ok(conn) = self.reactor.adopt(stream)
        {
            self.monitor_conn = Some(conn);
            // A first message must be short, and a beacon may list thousands of subtrees.
            let (tid, op) = (Tid(0), MonOp::Status);
            let introduction = Message::MonRequest { tid, cred: Cred::default(), op };
            self.reactor.send(conn, &introduction.to_frame());
            self.mds.monitor_connected(&mut self.effects);
        }
    }

    fn execute(&mut self) {
        if !self.tracer.is_idle() {
            self.trace();
        }
        let effects = &mut self.effects;
        if !effects.outbox.sends.is_empty() {
            let now = self.clocks.now();
            for (conn, frame) in effects.outbox.iter() {
                if let Some(slow) = self.requests.sent(conn, now, frame) {
                    self.log.write(slow);
                }
            }
        }
        for (conn, range) in effects.outbox.sends.drain(..) {
            if self.audit.awaits(conn) {
                let from = self.reactor.origin(conn);
                self.audit.sent(conn, &effects.outbox.frames[range.clone()], &from);
            }
            self.reactor.send(conn, &effects.outbox.frames[range]);
        }
        effects.outbox.clear();
        if let Some(monitor) = self.monitor_conn {
            self.reactor.send(monitor, &effects.to_monitor);
        }
        effects.to_monitor.clear();
        if !effects.to_peers.is_empty() {
            let now = self.clocks.read().now;
            for frame in effects.to_peers.drain(..) {
                self.peers.send(now, frame, &mut self.reactor);
            }
        }
        for (token, op) in effects.store.drain(..) {
            self.workers.submit(token, op);
        }
        for question in effects.questions.drain(..) {
            self.thinker.ask(*question);
        }
        for conn in effects.close.drain(..) {
            self.reactor.close(conn);
        }
        for notice in effects.notices.drain(..) {
            self.log.write(&notice);
            if matches!(notice, MdsNotice::Active { .. }) {
                crate::supervisor::announce_ready(&self.log, "serves requests");
            }
        }
        self.stopped |= effects.stopped;
        self.fatal = self.fatal.take().or(effects.fatal.take());
        let mut closed = Vec::new();
        self.reactor.flush(|happened| {
            if let ConnectionEvent::Closed(conn, why) = happened {
                crate::log_closed(&self.log, conn, &why);
                closed.push(conn);
            }
        });
        if !closed.is_empty() {
            let clock = self.clocks.read();
            for conn in closed {
                self.closed(clock, conn);
            }
        }
        if self.fatal.as_ref().is_some_and(|error| error.errno == Errno::Stale) {
            self.stopped = true;
        }
    }
}
