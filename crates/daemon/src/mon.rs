//! The monitor's process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mon::{Effects, Input, Mon, Settings};
use net::{Address, Happened, Reactor};
use objstore::ObjectStore;
use types::{Clock, Error, Moment, Result, Span};
use wire::Message;

use crate::clock::Clocks;
use crate::workers::Workers;

const TICK: Duration = Duration::from_millis(50);

/// What a monitor needs to know.
#[derive(Debug)]
pub struct MonOptions {
    /// Where it listens.
    pub address: Address,
    /// The object store.
    pub store: Arc<dyn ObjectStore>,
    /// Tuning, and what goes into the map.
    pub settings: Settings,
    /// Whoever sets this ends it; without, SIGTERM and SIGINT do.
    pub terminate: Option<Arc<AtomicBool>>,
}

struct Daemon {
    mon: Mon,
    reactor: Reactor,
    workers: Workers,
    clocks: Clocks,
    effects: Effects,
    last_tick: Moment,
    stopped: bool,
    fatal: Option<Error>,
    terminate: Arc<AtomicBool>,
}

/// Runs a monitor until it is told to stop.
///
/// # Errors
/// `EBUSY` if another monitor leads, `EADDRINUSE`, or whatever made it impossible to go on.
pub fn run_mon(options: MonOptions) -> Result<()> {
    let MonOptions { address, store, settings, terminate } = options;
    let lock = store.lock("mon/lock", &std::process::id().to_string())?;
    let reactor = Reactor::listen(&address)?;
    let workers = Workers::start(&store, &reactor.waker())?;
    let mut daemon = Daemon {
        mon: Mon::new(settings),
        reactor,
        workers,
        clocks: Clocks::new(),
        effects: Effects::default(),
        last_tick: Moment(0),
        stopped: false,
        fatal: None,
        terminate: crate::termination(terminate)?,
    };
    let clock = daemon.clocks.read();
    daemon.handle(clock, Input::Start);
    while !daemon.stopped && daemon.fatal.is_none() {
        daemon.turn()?;
        if lock.is_lost() {
            daemon.fatal = Some(crate::replaced("monitor"));
        }
    }
    daemon.reactor.flush(|_| {});
    daemon.workers.stop();
    // Before the socket: whoever sees that gone may start the next monitor.
    drop(lock);
    daemon.fatal.map_or(Ok(()), Err)
}

impl Daemon {
    fn handle(&mut self, clock: Clock, input: Input<'_>) {
        self.mon.handle(clock, input, &mut self.effects);
    }

    fn turn(&mut self) -> Result<()> {
        let (mon, effects, clocks) = (&mut self.mon, &mut self.effects, &self.clocks);
        self.reactor.poll(TICK, |happened| {
            let clock = clocks.read();
            match happened {
                Happened::Opened(conn) => mon.handle(clock, Input::Opened { conn }, effects),
                Happened::Payload(conn, payload) => match Message::decode(payload) {
                    Ok(message) => mon.handle(clock, Input::Message { conn, message }, effects),
                    Err(_) => effects.close.push(conn),
                },
                Happened::Closed(conn, _) => mon.handle(clock, Input::Closed { conn }, effects),
            }
        })?;
        let clock = self.clocks.read();
        while let Some((token, result)) = self.workers.finished() {
            self.handle(clock, Input::Stored { token, result });
        }
        if self.terminate.swap(false, Ordering::Relaxed) {
            self.handle(clock, Input::Terminate);
        }
        if clock.now.since(self.last_tick) >= Span::from_millis(50) {
            self.last_tick = clock.now;
            self.handle(clock, Input::Tick);
        }
        self.carry_out();
        Ok(())
    }

    fn carry_out(&mut self) {
        let effects = &mut self.effects;
        for (conn, frames) in effects.outbox.iter() {
            self.reactor.send(conn, frames);
        }
        effects.outbox.clear();
        for (token, op) in effects.store.drain(..) {
            self.workers.submit(token, op);
        }
        for conn in effects.close.drain(..) {
            self.reactor.close(conn);
        }
        self.stopped |= effects.stopped;
        self.fatal = self.fatal.take().or(effects.fatal.take());
        let clock = self.clocks.read();
        let mut closed = Vec::new();
        self.reactor.flush(|happened| {
            if let Happened::Closed(conn, _) = happened {
                closed.push(conn);
            }
        });
        for conn in closed {
            self.handle(clock, Input::Closed { conn });
        }
    }
}
