//! The connections to other ranks. Each carries frames one way: a rank answers on the connection
//! that it opens itself.
//!
//! A thread opens a connection, so that a host that does not answer blocks no request. Frames wait
//! for the connection, up to [`WAITING_MAX`]; if it fails, they are dropped, because the state
//! machine repeats them.

use std::collections::BTreeMap;

use crossbeam_channel::{Receiver, Sender, unbounded};
use mds::PeerFrame;
use net::{Address, Keyring, OpenedConnection, Reactor, Waker};
use types::{ConnId, Moment, Rank, Span};

/// How often a rank without a connection is tried.
const RETRY: Span = Span::from_millis(100);
/// Frames that wait for one connection.
const WAITING_MAX: usize = 256;

/// The result of an attempt to connect.
type Attempt = (Rank, String, Option<OpenedConnection>);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Peers {
    keys: Keyring,
    waker: Waker,
    results: (Sender<Attempt>, Receiver<Attempt>),
    ranks: BTreeMap<Rank, Peer>,
}

#[derive(Debug, Default)]
struct Peer {
    address: String,
    conn: Option<ConnId>,
    /// An attempt is under way.
    connects: bool,
    /// When the newest attempt began.
    tried: Option<Moment>,
    waiting: Vec<PeerFrame>,
}

impl Peers {
    pub(crate) fn new(keys: Keyring, waker: Waker) -> Self {
        Self { keys, waker, results: unbounded(), ranks: BTreeMap::new() }
    }

    /// Sends a frame now, or when there is a connection.
    pub(crate) fn send(&mut self, now: Moment, frame: PeerFrame, reactor: &mut Reactor) {
        let peer = self.ranks.entry(frame.to).or_default();
        if peer.address != frame.address {
            // A standby serves the rank at another address.
            peer.address.clone_from(&frame.address);
            peer.tried = None;
            if let Some(conn) = peer.conn.take() {
                reactor.close(conn);
            }
        }
        if let Some(conn) = peer.conn {
            return reactor.send(conn, &frame.frame);
        }
        let rank = frame.to;
        if peer.waiting.len() < WAITING_MAX {
            peer.waiting.push(frame);
        }
        let lately = peer.tried.is_some_and(|at| now.since(at) < RETRY);
        if !peer.connects && lately {
            peer.waiting.clear();
        } else if !peer.connects {
            peer.tried = Some(now);
            let target = (rank, peer.address.clone(), self.keys.clone());
            peer.connects = connect(target, self.waker.clone(), self.results.0.clone());
        }
    }

    /// Takes over the connections that were opened since.
    pub(crate) fn opened(&mut self, reactor: &mut Reactor) {
        while let Ok((rank, address, stream)) = self.results.1.try_recv() {
            let peer = self.ranks.entry(rank).or_default();
            peer.connects = false;
            let waiting = std::mem::take(&mut peer.waiting);
            let Some(stream) = stream.filter(|_| peer.address == address) else { continue };
            let Ok(conn) = reactor.adopt(stream) else { continue };
            peer.conn = Some(conn);
            if let Some(first) = waiting.first() {
                reactor.send(conn, &first.hello);
            }
            waiting.iter().for_each(|frame| reactor.send(conn, &frame.frame));
        }
    }

    /// Whether a connection that is gone was one of these.
    pub(crate) fn closed(&mut self, conn: ConnId) -> bool {
        let peer = self.ranks.values_mut().find(|peer| peer.conn == Some(conn));
        peer.is_some_and(|peer| peer.conn.take().is_some())
    }

    /// Whether a connection is to another rank: the server expects no message on it.
    pub(crate) fn has(&self, conn: ConnId) -> bool {
        self.ranks.values().any(|peer| peer.conn == Some(conn))
    }
}

/// Starts an attempt. Returns whether there is a thread for it.
fn connect(target: (Rank, String, Keyring), waker: Waker, results: Sender<Attempt>) -> bool {
    let (rank, text, keys) = target;
    let run = move || {
        let address = text.parse::<Address>();
        let stream = address.and_then(|address| address.connect(&keys)).ok();
        // The receiver is gone when the server ends.
        let _ = results.send((rank, text, stream));
        waker.wake();
    };
    std::thread::Builder::new().name("peer".into()).spawn(run).is_ok()
}
