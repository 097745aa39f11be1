//! The monitor's process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mon::{Mon, MonEffects, MonInput, MonSettings};
use net::{Address, ConnectionEvent, Keyring, Reactor};
use objstore::{LockGuard, Store};
use types::{Clock, Error, Moment, Result, Span, Tid};
use wire::Message;

use crate::Log;
use crate::audit::Audit;
use crate::clock::Clocks;
use crate::metrics::{self, MetricsOptions, Scrapers};
use crate::missing;
use crate::workers::Workers;

const TICK: Duration = Duration::from_millis(50);
/// How often the lists of revoked keys are compared.
const COMPARE: Span = Span::from_millis(500);

/// Counts the metadata servers that wait to take over, on this host.
pub struct Standbys(pub Box<dyn Fn() -> u64>);

impl std::fmt::Debug for Standbys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Standbys")
    }
}

/// Starts a service beside a monitor, when the monitor listens. The value is dropped when the
/// monitor ends.
pub struct Beside(pub Box<dyn FnOnce() -> Result<Box<dyn std::any::Any>>>);

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

/// The configuration of a monitor.
#[derive(Debug)]
pub struct MonOptions {
    /// Where it listens.
    pub address: Address,
    /// Its key, for an address on the network.
    pub keys: Keyring,
    /// The folder of its audit log, if it has one.
    pub audit: Option<PathBuf>,
    /// The group whose members may connect, besides the owner of the process and root.
    pub group: Option<u32>,
    /// The object store.
    pub store: Arc<dyn Store>,
    /// Tuning, and the fixed entries of the map.
    pub settings: MonSettings,
    /// Nothing is changed in the store: a map that is damaged or gone is passed over.
    pub read_only: bool,
    /// Where scrapers find metrics, if they are kept at all.
    pub metrics: Option<MetricsOptions>,
    /// The count of standbys for the metrics.
    pub standbys: Option<Standbys>,
    /// The pages of the cluster, if it has any.
    pub beside: Option<Beside>,
    /// The flag that ends the monitor; without one, SIGTERM and SIGINT do.
    pub terminate: Option<Arc<AtomicBool>>,
    /// The log.
    pub log: Log,
}

struct Daemon {
    mon: Mon,
    reactor: Reactor,
    keys: Keyring,
    /// When the lists of revoked keys were last compared.
    compared: Moment,
    workers: Workers,
    clocks: Clocks,
    effects: MonEffects,
    last_tick: Moment,
    stopped: bool,
    fatal: Option<Error>,
    terminate: Arc<AtomicBool>,
    audit: Audit,
    log: Log,
    scrapers: Option<Scrapers>,
    standbys: Option<Standbys>,
}

/// Runs a monitor until it is stopped.
///
/// # Errors
/// `EBUSY` if another monitor leads, `EADDRINUSE`, or the error that ended the monitor.
pub fn run_mon(options: MonOptions) -> Result<()> {
    net::descriptors::raise();
    let log = options.log.clone();
    options.store.allow_reserve();
    let lock = options.store.lock("mon/lock", &std::process::id().to_string())?;
    log.info("server.started", format_args!("started: monitor at {}", options.address));
    let ended = serve(options, lock);
    crate::log_end(&log, &ended);
    ended
}

fn serve(options: MonOptions, lock: Box<dyn LockGuard>) -> Result<()> {
    let MonOptions {
        address,
        keys,
        audit,
        group,
        mut store,
        settings,
        read_only,
        metrics,
        standbys,
        beside,
        terminate,
        log,
    } = options;
    if read_only {
        store = missing::without_damaged_map(store)?;
    } else {
        missing::check_map(&*store)?;
    }
    let reactor = Reactor::listen(&address, &keys)?.shared_with(group)?.with_refusal(refusal);
    let scrapers = Scrapers::start(metrics.as_ref(), reactor.waker(), &log)?;
    let workers = Workers::start(&store, &reactor.waker(), None)?;
    let _beside = beside.map(|start| start.0()).transpose()?;
    let mut daemon = Daemon {
        mon: Mon::new(settings),
        reactor,
        keys,
        compared: Moment(0),
        workers,
        clocks: Clocks::new(),
        effects: MonEffects::default(),
        last_tick: Moment(0),
        stopped: false,
        fatal: None,
        terminate: crate::termination(terminate)?,
        audit: Audit::in_folder(audit.as_deref(), "mon", &log),
        log,
        scrapers,
        standbys,
    };
    let clock = daemon.clocks.read();
    daemon.handle(clock, MonInput::Start);
    // Requests wait until the map is read.
    crate::supervisor::announce_ready(&daemon.log, "answers requests");
    while !daemon.stopped && daemon.fatal.is_none() {
        daemon.turn()?;
        if lock.is_lost() {
            daemon.fatal = Some(crate::replaced("monitor"));
        }
    }
    daemon.reactor.flush(|_| {});
    daemon.workers.stop();
    // Before the socket: a process that sees no socket may start the next monitor.
    drop(lock);
    daemon.fatal.map_or(Ok(()), Err)
}

/// The answer to a client beyond the limit on connections.
fn refusal(connections: usize) -> Vec<u8> {
    let result = Err(crate::too_many("monitor", connections));
    Message::MonReply { tid: Tid(0), result }.to_frame()
}

impl Daemon {
    fn handle(&mut self, clock: Clock, input: MonInput<'_>) {
        self.mon.handle(clock, input, &mut self.effects);
    }

    fn turn(&mut self) -> Result<()> {
        let (mon, effects, clocks) = (&mut self.mon, &mut self.effects, &self.clocks);
        let (audit, log) = (&mut self.audit, &self.log);
        self.reactor.poll(TICK, |happened| {
            let clock = clocks.read();
            match happened {
                ConnectionEvent::Opened(conn, peer) => {
                    crate::log_opened(log, conn, &peer);
                    audit.opened(conn, &peer);
                    mon.handle(clock, MonInput::Opened { conn, peer }, effects)
                }
                ConnectionEvent::Payload(conn, payload) => match Message::decode(payload) {
                    Ok(message) => {
                        audit.arrived(conn, clock.time, &message);
                        mon.handle(clock, MonInput::Message { conn, message }, effects);
                    }
                    Err(_) => effects.close.push(conn),
                },
                ConnectionEvent::Cut { from, why, was_known } => {
                    crate::log_cut(log, &from, why, was_known);
                }
                ConnectionEvent::Closed(conn, why) => {
                    crate::log_closed(log, conn, &why);
                    audit.closed(conn);
                    mon.handle(clock, MonInput::Closed { conn }, effects)
                }
            }
        })?;
        let clock = self.clocks.read();
        while let Some((token, result)) = self.workers.finished() {
            self.handle(clock, MonInput::Stored { token, result });
        }
        if self.terminate.swap(false, Ordering::Relaxed) {
            self.handle(clock, MonInput::Terminate);
        }
        if clock.now.since(self.last_tick) >= Span::from_millis(50) {
            self.last_tick = clock.now;
            self.handle(clock, MonInput::Tick);
            self.share_revoked(clock);
        }
        self.execute();
        if let Some(scrapers) = &self.scrapers
            && scrapers.want()
        {
            let standbys = self.standbys.as_ref().map(|count| count.0());
            let figures = self.mon.figures(self.clocks.now());
            scrapers.publish(metrics::mon::page(&figures, standbys));
        }
        Ok(())
    }

    /// The map lists the keys that were revoked on any host, and so does the file of this host.
    fn share_revoked(&mut self, clock: Clock) {
        if clock.now.since(self.compared) < COMPARE {
            return;
        }
        self.compared = clock.now;
        let keys = self.keys.revoked();
        if !keys.is_empty() {
            self.handle(clock, MonInput::Revoked { keys });
        }
        self.keys.keep_revoked(self.mon.revoked());
    }

    fn execute(&mut self) {
        let effects = &mut self.effects;
        for (conn, frames) in effects.outbox.iter() {
            if self.audit.awaits(conn) {
                self.audit.sent(conn, frames, &self.reactor.origin(conn));
            }
            self.reactor.send(conn, frames);
        }
        effects.outbox.clear();
        for (token, op) in effects.store.drain(..) {
            self.workers.submit(token, op);
        }
        for conn in effects.close.drain(..) {
            self.reactor.close(conn);
        }
        effects.notices.drain(..).for_each(|notice| self.log.write(&notice));
        self.stopped |= effects.stopped;
        self.fatal = self.fatal.take().or(effects.fatal.take());
        let clock = self.clocks.read();
        let mut closed = Vec::new();
        self.reactor.flush(|happened| {
            if let ConnectionEvent::Closed(conn, why) = happened {
                crate::log_closed(&self.log, conn, &why);
                closed.push(conn);
            }
        });
        for conn in closed {
            self.audit.closed(conn);
            self.handle(clock, MonInput::Closed { conn });
        }
    }
}
