//! The servers for which this process waits.
//!
//! A waiting request registers nothing; [`longest_wait`] inspects the connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// A wait for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerWait {
    /// The start of the wait.
    pub since: Instant,
    /// The server: `the metadata server mds.0`, `the monitor`.
    pub server: String,
    /// The failure of the connection, or the request.
    pub cause: String,
}

/// A connection on which threads may wait.
pub(crate) trait Awaited: Send + Sync {
    /// The present wait, found without blocking.
    fn awaited(&self) -> Option<ServerWait>;
}

static CONNECTIONS: Mutex<Vec<Weak<dyn Awaited>>> = Mutex::new(Vec::new());

fn connections() -> MutexGuard<'static, Vec<Weak<dyn Awaited>>> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a connection.
pub(crate) fn note(connection: &Arc<impl Awaited + 'static>) {
    let connection: Arc<dyn Awaited> = connection.clone();
    let mut connections = connections();
    connections.retain(|known| known.strong_count() > 0);
    connections.push(Arc::downgrade(&connection));
}

/// The longest present wait of this process.
#[must_use]
pub fn longest_wait() -> Option<ServerWait> {
    let connections: Vec<_> = connections().iter().filter_map(Weak::upgrade).collect();
    connections.iter().filter_map(|known| known.awaited()).min_by_key(|wait| wait.since)
}

/// The start and the cause of a wait.
#[derive(Debug, Default)]
pub(crate) struct Noted(Mutex<Option<(Instant, String)>>);

impl Noted {
    /// Begins or ends the wait.
    pub(crate) fn set(&self, noted: Option<(Instant, String)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = noted;
    }

    pub(crate) fn get(&self) -> Option<(Instant, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
