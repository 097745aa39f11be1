//! The daemons: the state machines of `mds` and `mon`, with sockets, threads, clocks and a store.
//!
//! A daemon is one loop on one thread: it polls the sockets, passes messages to the state machine,
//! and executes the effects. Worker threads execute store operations (`workers`), whose results are
//! inputs. This crate decides nothing.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "I/O edge: carries the effects of the state machines out"
)]

mod audit;
mod balancer_thread;
mod clock;
mod copies;
mod log;
mod mds;
mod metrics;
mod missing;
mod mon;
mod monitor_connector;
mod peers;
mod prepared_memory;
mod resource_use;
mod room;
mod supervisor;
mod trace;
mod workers;

pub use audit::verify as verify_audit;
pub use log::{Log, LogFilter, LogFormat};
pub use mds::{MdsOptions, run_mds};
pub use metrics::{MetricsOptions, mds_metrics, mon_metrics};
pub use mon::{Beside, MonOptions, Standbys, run_mon};
pub use supervisor::announce_ready;

use types::{ConnId, LogEvent, LogLevel, Peer};

/// The error of a daemon whose lock another daemon has taken.
fn replaced(what: &str) -> types::Error {
    let cause = "it did not answer, and another process took over from it";
    types::Error::new(types::Errno::Stale, what, cause)
        .remedy("nothing to do: clients find the new one")
}

/// Logs the end of a daemon.
fn log_end(log: &Log, ended: &types::Result<()>) {
    match ended {
        Ok(()) => log.info("server.ended", "ended"),
        Err(error) => log.error("server.ended", format_args!("ended: {error}")),
    }
}

/// Logs a new connection, for a search.
fn log_opened(log: &Log, conn: ConnId, peer: &Peer) {
    log.debug("connection.opened", |name| {
        let peer = audit::words(peer);
        let text = format!("connection {} is open: {peer}", conn.0);
        LogEvent::new(LogLevel::Debug, name, text).with("connection", conn.0).with("peer", peer)
    });
}

/// Logs the end of a connection, for a search.
fn log_closed(log: &Log, conn: ConnId, why: &str) {
    log.debug("connection.closed", |name| {
        let text = format!("connection {} has ended: {why}", conn.0);
        LogEvent::new(LogLevel::Debug, name, text).with("connection", conn.0).with("why", why)
    });
}

/// Logs the end of a connection that neither side has closed.
fn log_cut(log: &Log, from: &str, why: &str, was_known: bool) {
    let (level, name, text) = if was_known {
        (LogLevel::Info, "connection.cut", format!("cut a connection from {from}: {why}"))
    } else {
        (LogLevel::Warning, "connection.refused", format!("refused a peer at {from}: {why}"))
    };
    log.write(LogEvent::new(level, name, text).with("from", from).with("why", why));
}

/// Why a daemon refuses a connection, if it has as many as it can have.
fn too_many(what: &str, connections: usize) -> wire::Failure {
    let text = format!(
        "the {what} has {connections} connections, as many as it can have; end clients, or raise the \
         limit on open files under which it is started (`ulimit -n`, `LimitNOFILE=`)"
    );
    wire::Failure { errno: types::Errno::Busy, text }
}

/// Whether the daemon is to end: by this flag or, without one, by SIGTERM or SIGINT.
fn termination(
    given: Option<std::sync::Arc<std::sync::atomic::AtomicBool>>,
) -> types::Result<std::sync::Arc<std::sync::atomic::AtomicBool>> {
    if let Some(flag) = given {
        return Ok(flag);
    }
    let flag = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, flag.clone())
            .map_err(|error| types::Error::new(types::Errno::Io, "signals", error.to_string()))?;
    }
    Ok(flag)
}
