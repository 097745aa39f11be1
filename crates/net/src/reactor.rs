//! One thread, many connections.
//!
//! Per wake-up: one receive for every connection that is ready, its complete frames handed out in
//! order, and one send per connection with everything that was queued.
//!
//! Invariants:
//! * each turn passes a bounded number of frames of one connection on, and then those of the
//!   others: a peer that sends far ahead delays no other peer;
//! * the requests of a peer that does not read its replies wait until it does, so it costs a
//!   bounded amount of memory; a peer that reads nothing for long is cut off;
//! * all peers together cost a bounded amount of memory and of descriptors ([`Limits`]), and a peer
//!   without a first message costs little of both.

mod accept;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keys::Keyring;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use types::{ConnId, Errno, Error, Peer};

use crate::address::{Address, Listener, OpenedConnection, Stream};
use crate::conn::Conn;
use crate::limits::Limits;
use crate::secured::Secured;

/// How often it is looked for peers that take nothing.
const STALLED_CHECK: Duration = Duration::from_secs(1);
/// How much a connection may leave unread when buffers take half of the memory they may.
const UNSENT_SCARCE_BYTES: usize = 64 << 10;
/// Connections accepted per wake-up, so that a flood of them does not delay the present ones.
const ACCEPTED_PER_TURN: usize = 64;
/// How long no connection is accepted after the system had no descriptor or no memory for one.
const PAUSE: Duration = Duration::from_millis(100);
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// An event on a connection.
#[derive(Debug)]
pub enum ConnectionEvent<'a> {
    /// This peer connected.
    Opened(ConnId, Peer),
    /// A frame arrived intact; this is its payload.
    Payload(ConnId, &'a [u8]),
    /// A connection is cut off that neither side has closed, or a peer is refused: then there was
    /// no connection. For the log.
    Cut {
        /// The peer: its address, and its user or the id of its key, if it has proved them.
        from: String,
        /// Why.
        why: &'a str,
        /// The peer had said who it is.
        was_known: bool,
    },
    /// The connection is gone, for this reason.
    Closed(ConnId, String),
}

/// Wakes a reactor from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Makes the current or next [`Reactor::poll`] return.
    pub fn wake(&self) {
        // The counter cannot overflow before the reactor resets it.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// Usual ends of connections.
pub(crate) const CLOSED_BY_PEER: &str = "the peer closed the connection";
const CLOSED_BY_US: &str = "closed by us";

/// See the module documentation.
pub struct Reactor {
    epoll: OwnedFd,
    listener: Listener,
    conns: BTreeMap<u64, Conn>,
    next: u64,
    waker: Waker,
    events: Vec<epoll::Event>,
    /// Connections with something to send.
    unsent: Vec<u64>,
    /// Connections with frames that were not handed out yet.
    left: Vec<u64>,
    limits: Limits,
    /// When it was last looked for peers that take nothing.
    checked: Instant,
    /// The receive buffer that connections use in turn.
    spare: Vec<u8>,
    /// Bytes of memory in the buffers of all connections.
    held: usize,
    /// Until when no connection is accepted.
    paused: Option<Instant>,
    /// Frames for a peer that is refused.
    refusal: Vec<u8>,
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").field("connections", &self.conns.len()).finish_non_exhaustive()
    }
}

fn os(error: rustix::io::Errno) -> Error {
    Error::new(Errno::Io, "epoll", error.to_string())
}

impl Reactor {
    /// Listens on an address; over TCP with the key of this daemon.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EACCES` (also without a key), `EIO`, with the address and a remedy.
    pub fn listen(address: &Address, keys: &Keyring) -> Result<Self, Error> {
        let listener = address.listen(keys)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(os)?;
        let waker = Waker(Arc::new(event));
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN).map_err(os)?;
        epoll::add(&epoll, &*waker.0, EventData::new_u64(WAKER), EventFlags::IN).map_err(os)?;
        Ok(Self {
            epoll,
            listener,
            conns: BTreeMap::new(),
            next: 1,
            waker,
            events: Vec::with_capacity(256),
            unsent: Vec::new(),
            left: Vec::new(),
            limits: Limits::default(),
            checked: Instant::now(),
            spare: Vec::new(),
            held: 0,
            paused: None,
            refusal: Vec::new(),
        })
    }

    /// Lets the members of a group connect to a Unix socket; without one, its owner alone.
    ///
    /// # Errors
    /// `EPERM` if the user of this process may not give the socket to the group.
    pub fn shared_with(self, group: Option<u32>) -> Result<Self, Error> {
        if let Some(group) = group {
            self.listener.share_with(group).map_err(|cause| {
                let subject = format!("a socket for group {group}");
                Error::new(Errno::NotPermitted, subject, cause.to_string())
                    .remedy("name a group of yours")
            })?;
        }
        Ok(self)
    }

    /// Other limits for all connections.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the frames for a peer beyond the limit on connections, from that limit.
    #[must_use]
    pub fn with_refusal(self, frames: impl FnOnce(usize) -> Vec<u8>) -> Self {
        let versions = wire::ProtocolVersions::OURS.to_frame();
        Self { refusal: [versions, frames(self.limits.connections)].concat(), ..self }
    }

    /// For waking this reactor.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Adds a connection that was opened from here.
    ///
    /// # Errors
    /// `EIO`.
    pub fn adopt(&mut self, opened: OpenedConnection) -> Result<ConnId, Error> {
        let OpenedConnection { stream, tls, version } = opened;
        self.insert(stream, tls.map(|tls| Box::new(Secured::opened(tls))), Some(version))
    }

    fn insert(
        &mut self,
        stream: Stream,
        secured: Option<Box<Secured>>,
        version: Option<u8>,
    ) -> Result<ConnId, Error> {
        let failed = |error: std::io::Error| Error::new(Errno::Io, "socket", error.to_string());
        stream.set_nonblocking().map_err(failed)?;
        let id = self.next;
        self.next += 1;
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, &stream, EventData::new_u64(id), flags).map_err(os)?;
        self.conns.insert(id, Conn::new(stream, secured, version, flags));
        Ok(ConnId(id))
    }

    /// The place and the key of a peer, in words: `unix`, or `tcp` with address and key.
    #[must_use]
    pub fn origin(&self, conn: ConnId) -> String {
        self.conns.get(&conn.0).map_or_else(|| "gone".to_owned(), Conn::origin)
    }

    /// Waits for something to happen, at most for `timeout`, and hands it out.
    ///
    /// # Errors
    /// `EIO` if the reactor itself fails; a failure of one connection closes that connection.
    pub fn poll(
        &mut self,
        timeout: Duration,
        mut on: impl FnMut(ConnectionEvent<'_>),
    ) -> Result<(), Error> {
        // With frames left from the last turn, the poll does not block.
        let left = std::mem::take(&mut self.left);
        let timeout = if left.is_empty() { timeout } else { Duration::ZERO };
        let timeout = self.unpause().map_or(timeout, |pause| timeout.min(pause));
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(os(error)),
        }
        for event in &events {
            // The kernel's struct is packed: copy the fields out.
            let (data, flags) = (event.data, event.flags);
            match data.u64() {
                LISTENER => self.accept(&mut on),
                WAKER => {
                    let _ = rustix::io::read(&*self.waker.0, &mut [0u8; 8]);
                }
                id => self.ready(id, flags, &mut on),
            }
        }
        self.events = events;
        for id in left {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.listed = false;
                self.turn(id, &mut on);
            }
        }
        self.cut_off_stalled(&mut on);
        Ok(())
    }

    fn ready(&mut self, id: u64, flags: EventFlags, on: &mut impl FnMut(ConnectionEvent<'_>)) {
        if flags.contains(EventFlags::OUT) {
            self.queue(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
        {
            return;
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.unsent() >= self.unsent_max() {
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                // No peer can read the replies.
                self.cut_off(id, CLOSED_BY_PEER, on);
            } else {
                self.watch(id, false);
            }
        } else if !conn.left {
            // A connection with frames left comes after the others.
            self.turn(id, on);
        }
    }

    /// Hands out frames of a connection, as many as it may have at once.
    fn turn(&mut self, id: u64, on: &mut impl FnMut(ConnectionEvent<'_>)) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let most = unsent_max(&self.limits, self.held);
        if conn.unsent() >= most {
            return; // `flush` lists it again when there is room.
        }
        if let Err(reason) = conn.take_turn(ConnId(id), &self.limits, &mut self.spare, on) {
            self.cut_off(id, &reason, on);
            return;
        }
        if conn.unsent() > 0 {
            // A step of the handshake, or the versions of this program.
            self.queue(id);
        }
        self.list(id);
        self.count(id);
        self.relieve(on);
    }

    /// With more unsent bytes a connection is not read from; the limit shrinks with free memory.
    fn unsent_max(&self) -> usize {
        unsent_max(&self.limits, self.held)
    }

    /// Updates the count of a connection's buffers.
    fn count(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            let held = conn.held();
            self.held = self.held - conn.counted + held;
            conn.counted = held;
        }
    }

    /// Frees memory if the buffers of all connections take more than they may.
    fn relieve(&mut self, on: &mut impl FnMut(ConnectionEvent<'_>)) {
        if self.held <= self.limits.buffer_bytes {
            return;
        }
        for conn in self.conns.values_mut() {
            conn.free_unused();
            self.held = self.held - conn.counted + conn.held();
            conn.counted = conn.held();
        }
        while self.held > self.limits.buffer_bytes {
            let waiting = self.conns.iter().filter(|(_, conn)| conn.counted > 0);
            let longest = waiting
                .filter_map(|(id, conn)| Some((conn.stranger.is_none(), conn.waits_since()?, *id)))
                .min();
            let Some((_, _, id)) = longest else { return };
            self.cut_off(id, "buffers take all memory they may, and it waited longest", on);
        }
    }

    /// Remembers a connection that has frames left.
    fn list(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.left
            && !conn.listed
        {
            conn.listed = true;
            self.left.push(id);
        }
    }

    fn cut_off_stalled(&mut self, on: &mut impl FnMut(ConnectionEvent<'_>)) {
        let interval = STALLED_CHECK.min(self.limits.stalled).min(self.limits.introduction);
        if self.checked.elapsed() < interval {
            return;
        }
        self.checked = Instant::now();
        let (now, limits, unsent_max) = (Instant::now(), self.limits, self.unsent_max());
        let civil = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let civil = i64::try_from(civil.as_secs()).unwrap_or(i64::MAX);
        let past = |since: Option<Instant>, limit| since.is_some_and(|at| now - at >= limit);
        let why = |conn: &Conn| {
            let owes = conn.closing || conn.unsent() >= unsent_max;
            if owes && past(conn.waiting, limits.stalled) {
                Some("the peer does not read its replies")
            } else if past(conn.begun, limits.stalled) {
                Some("the peer does not finish a message")
            } else if past(conn.stranger, limits.introduction) {
                Some("the peer does not say who it is")
            } else {
                conn.secured.as_ref().and_then(|secured| secured.refuses(civil))
            }
        };
        let found: Vec<(u64, &str)> =
            self.conns.iter().filter_map(|(id, conn)| Some((*id, why(conn)?))).collect();
        for (id, why) in found {
            self.cut_off(id, why, on);
        }
    }

    fn cut_off(&mut self, id: u64, why: &str, on: &mut impl FnMut(ConnectionEvent<'_>)) {
        let was_known = self.conns.get(&id).is_some_and(Conn::is_known);
        if ![CLOSED_BY_PEER, CLOSED_BY_US].contains(&why) {
            on(ConnectionEvent::Cut { from: self.origin(ConnId(id)), why, was_known });
        }
        self.drop_conn(id);
        if !was_known {
            return;
        }
        on(ConnectionEvent::Closed(ConnId(id), why.to_owned()));
    }

    fn drop_conn(&mut self, id: u64) {
        if let Some(conn) = self.conns.remove(&id) {
            self.held -= conn.counted;
            let _ = epoll::delete(&self.epoll, &conn.stream);
        }
    }

    fn queue(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id)
            && !conn.queued
        {
            conn.queued = true;
            self.unsent.push(id);
        }
    }

    /// The bytes of kept replies of a connection, and of those that the peer has not read.
    #[cfg(test)]
    pub(crate) fn replies_of(&self, conn: ConnId) -> (usize, usize) {
        self.conns.get(&conn.0).map_or((0, 0), |conn| (conn.outbox.len(), conn.unsent()))
    }

    /// Bytes of memory in the buffers of all connections, as they are counted and as they are.
    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.held, self.conns.values().map(Conn::held).sum())
    }

    /// When it was last looked for peers that take nothing.
    #[cfg(test)]
    pub(crate) fn checked(&self) -> Instant {
        self.checked
    }

    /// Queues frames for a connection; [`Reactor::flush`] sends them.
    pub fn send(&mut self, to: ConnId, frames: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&to.0) {
            conn.outbox.extend_from_slice(frames);
            self.queue(to.0);
        }
    }

    /// Closes a connection once everything queued for it is sent.
    pub fn close(&mut self, conn: ConnId) {
        if let Some(open) = self.conns.get_mut(&conn.0) {
            open.closing = true;
            self.queue(conn.0);
        }
    }

    /// Sends queued frames, as far as the peers read.
    pub fn flush(&mut self, mut on: impl FnMut(ConnectionEvent<'_>)) {
        for id in std::mem::take(&mut self.unsent) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.queued = false;
            let before = conn.unsent();
            let result = conn.transmit();
            let (closing, unsent) = (conn.closing, conn.unsent());
            if let Err(reason) = result {
                self.cut_off(id, &reason, &mut on);
            } else if closing && unsent == 0 {
                self.cut_off(id, CLOSED_BY_US, &mut on);
            } else {
                self.count(id);
                self.watch(id, unsent < before);
            }
        }
        self.relieve(&mut on);
    }

    /// Waits for frames unless too much is unsent, and for room to send if a frame is queued.
    fn watch(&mut self, id: u64, took: bool) {
        let most = self.unsent_max();
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let full = conn.unsent() >= most;
        if conn.unsent() == 0 {
            conn.waiting = None;
        } else if took || conn.waiting.is_none() {
            conn.waiting = Some(Instant::now());
        }
        let mut wanted = EventFlags::empty();
        if !full {
            wanted |= EventFlags::IN | EventFlags::RDHUP;
        }
        if conn.unsent() > 0 {
            wanted |= EventFlags::OUT;
        }
        if wanted != conn.watched {
            conn.watched = wanted;
            let _ = epoll::modify(&self.epoll, &conn.stream, EventData::new_u64(id), wanted);
        }
        if !full {
            self.list(id);
        }
    }
}

/// With more unsent bytes a connection is not read from, if buffers take `held` bytes altogether.
fn unsent_max(limits: &Limits, held: usize) -> usize {
    let scarce = held > limits.buffer_bytes / 2;
    if scarce { limits.unsent_bytes.min(UNSENT_SCARCE_BYTES) } else { limits.unsent_bytes }
}
