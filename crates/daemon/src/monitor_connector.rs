//! Connects to the monitor on a thread of its own: a host that does not answer, or a stopped
//! monitor, blocks that thread and not the server.

use crossbeam_channel::{Receiver, Sender, unbounded};
use net::{Address, Keyring, OpenedConnection, Waker};
use types::{Moment, Span};

/// How often a lost monitor is looked for.
const RETRY: Span = Span::from_millis(100);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct MonitorConnector {
    address: Address,
    keys: Keyring,
    waker: Waker,
    results: (Sender<Option<OpenedConnection>>, Receiver<Option<OpenedConnection>>),
    /// Whether an attempt is under way.
    trying: bool,
    /// When the newest attempt began; `None` before the first.
    tried: Option<Moment>,
}

impl MonitorConnector {
    pub(crate) fn new(address: Address, keys: Keyring, waker: Waker) -> Self {
        Self { address, keys, waker, results: unbounded(), trying: false, tried: None }
    }

    /// The connection, once there is one. As long as there is none, it is asked for regularly.
    pub(crate) fn find(&mut self, now: Moment) -> Option<OpenedConnection> {
        if let Ok(result) = self.results.1.try_recv() {
            self.trying = false;
            if result.is_some() {
                return result;
            }
        }
        let recently = self.tried.is_some_and(|at| now.since(at) < RETRY);
        if !self.trying && !recently {
            self.tried = Some(now);
            self.trying = self.start();
        }
        None
    }

    /// Starts an attempt; says whether there is a thread for it.
    fn start(&self) -> bool {
        let (address, keys) = (self.address.clone(), self.keys.clone());
        let waker = self.waker.clone();
        let results = self.results.0.clone();
        let run = move || {
            // The receiver is gone when the server ends.
            let _ = results.send(address.connect(&keys).ok());
            waker.wake();
        };
        std::thread::Builder::new().name("monitor".into()).spawn(run).is_ok()
    }
}
