//! One thread, many connections.
//!
//! Per wake-up: one receive for every connection that is ready, its complete frames handed out in
//! order, and one send per connection with everything that was queued.
//!
//! Invariants:
//! * a connection has a bounded number of frames handed out per wake-up, and the others have theirs
//!   before it has more: who sends much ahead holds nobody up;
//! * a peer that does not read its replies has no more requests handed out until it does, so it costs
//!   a bounded amount of memory; if it reads nothing for long, it is cut off.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use types::{ConnId, Errno, Error};

use crate::address::{Address, Listener, Stream};

const RECEIVE_BYTES: usize = 64 * 1024;
/// How often it is looked for peers that take nothing.
const STALLED_CHECK: Duration = Duration::from_secs(1);
/// Room for replies that a connection keeps when all are sent.
const KEPT_BYTES: usize = 1 << 20;
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// What happened on a connection.
#[derive(Debug)]
pub enum Happened<'a> {
    /// Somebody connected.
    Opened(ConnId),
    /// A frame arrived intact; this is its payload.
    Payload(ConnId, &'a [u8]),
    /// The connection is gone, for this reason.
    Closed(ConnId, String),
}

/// What one connection may have of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Frames handed out per wake-up. Few enough that a wake-up stays short with many peers that send
    /// ahead, enough that what a wake-up costs by itself does not count.
    pub frames_per_turn: usize,
    /// With more unsent bytes a connection is not read from.
    pub unsent_bytes: usize,
    /// How long a peer that has so much to read, or that is to be closed, may take nothing at all. Long
    /// enough for a client that was stopped for a moment: it would only connect again.
    pub stalled: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frames_per_turn: 64, unsent_bytes: 4 << 20, stalled: Duration::from_secs(60) }
    }
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

#[derive(Debug)]
struct Conn {
    stream: Stream,
    inbox: Vec<u8>,
    /// `inbox[start..filled]` has arrived and was not handed out.
    start: usize,
    filled: usize,
    /// Whether complete frames may be among that: it had as many as it may have.
    left: bool,
    /// Whether it is in [`Reactor::left`].
    listed: bool,
    outbox: Vec<u8>,
    sent: usize,
    /// What the kernel is asked to report.
    watched: EventFlags,
    /// When the peer last took something, while it is to take more than it does.
    stalled: Option<Instant>,
    closing: bool,
    queued: bool,
}

impl Conn {
    fn unsent(&self) -> usize {
        self.outbox.len() - self.sent
    }
}

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
    /// Listens on an address.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EACCES`, `EIO`, with the address and a remedy.
    pub fn listen(address: &Address) -> Result<Self, Error> {
        let listener = address.listen()?;
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
        })
    }

    /// Other limits for all connections.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
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
    pub fn adopt(&mut self, stream: Stream) -> Result<ConnId, Error> {
        let failed = |error: std::io::Error| Error::new(Errno::Io, "socket", error.to_string());
        stream.set_nonblocking().map_err(failed)?;
        let id = self.next;
        self.next += 1;
        let flags = EventFlags::IN | EventFlags::RDHUP;
        epoll::add(&self.epoll, &stream, EventData::new_u64(id), flags).map_err(os)?;
        let conn = Conn {
            stream,
            inbox: vec![0; RECEIVE_BYTES],
            start: 0,
            filled: 0,
            left: false,
            listed: false,
            outbox: Vec::new(),
            sent: 0,
            watched: EventFlags::IN | EventFlags::RDHUP,
            stalled: None,
            closing: false,
            queued: false,
        };
        self.conns.insert(id, conn);
        Ok(ConnId(id))
    }

    /// Waits for something to happen, at most for `timeout`, and hands it out.
    ///
    /// # Errors
    /// `EIO` if the reactor itself fails; what fails on one connection closes that connection.
    pub fn poll(
        &mut self,
        timeout: Duration,
        mut on: impl FnMut(Happened<'_>),
    ) -> Result<(), Error> {
        // Who has frames here does not wait for the others to send some.
        let left = std::mem::take(&mut self.left);
        let timeout = if left.is_empty() { timeout } else { Duration::ZERO };
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

    fn accept(&mut self, on: &mut impl FnMut(Happened<'_>)) {
        // Errors here are the peer's or a shortage of descriptors; the next wake-up tries again.
        while let Ok(stream) = self.listener.accept() {
            if let Ok(id) = self.adopt(stream) {
                on(Happened::Opened(id));
            }
        }
    }

    fn ready(&mut self, id: u64, flags: EventFlags, on: &mut impl FnMut(Happened<'_>)) {
        if flags.contains(EventFlags::OUT) {
            self.queue(id);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
        {
            return;
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.unsent() >= self.limits.unsent_bytes {
            if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
                // Nobody is there who could read the replies.
                self.drop_conn(id);
                on(Happened::Closed(ConnId(id), "the peer closed the connection".into()));
            }
        } else if !conn.left {
            // One with frames left has its turn behind the others.
            self.turn(id, on);
        }
    }

    /// Hands out frames of a connection, as many as it may have at once.
    fn turn(&mut self, id: u64, on: &mut impl FnMut(Happened<'_>)) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.unsent() >= self.limits.unsent_bytes {
            return; // `flush` lists it again when there is room.
        }
        if let Err(reason) = take_turn(conn, ConnId(id), self.limits.frames_per_turn, on) {
            self.drop_conn(id);
            on(Happened::Closed(ConnId(id), reason));
            return;
        }
        self.list(id);
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

    fn cut_off_stalled(&mut self, on: &mut impl FnMut(Happened<'_>)) {
        let interval = STALLED_CHECK.min(self.limits.stalled);
        if self.checked.elapsed() < interval {
            return;
        }
        self.checked = Instant::now();
        let limit = self.limits.stalled;
        let stalled = |conn: &Conn| conn.stalled.is_some_and(|since| since.elapsed() >= limit);
        let found: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| stalled(conn)).map(|(id, _)| *id).collect();
        for id in found {
            self.drop_conn(id);
            on(Happened::Closed(ConnId(id), "the peer does not read its replies".into()));
        }
    }

    fn drop_conn(&mut self, id: u64) {
        if let Some(conn) = self.conns.remove(&id) {
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

    /// Bytes of replies that are kept for a connection, and those of them that its peer has not taken.
    #[cfg(test)]
    pub(crate) fn replies_of(&self, conn: ConnId) -> (usize, usize) {
        self.conns.get(&conn.0).map_or((0, 0), |conn| (conn.outbox.len(), conn.unsent()))
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

    /// Sends what is queued, as far as the peers take it.
    pub fn flush(&mut self, mut on: impl FnMut(Happened<'_>)) {
        for id in std::mem::take(&mut self.unsent) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.queued = false;
            let before = conn.unsent();
            let result = transmit(conn);
            let (closing, unsent) = (conn.closing, conn.unsent());
            if let Err(reason) = result {
                self.drop_conn(id);
                on(Happened::Closed(ConnId(id), reason));
            } else if closing && unsent == 0 {
                self.drop_conn(id);
                on(Happened::Closed(ConnId(id), "closed by us".into()));
            } else {
                self.watch(id, unsent < before);
            }
        }
    }

    /// Asks to be woken for what is possible: by frames unless too much is unsent, by room to send if
    /// anything is.
    fn watch(&mut self, id: u64, took: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let full = conn.unsent() >= self.limits.unsent_bytes;
        if !full && !conn.closing {
            conn.stalled = None;
        } else if took || conn.stalled.is_none() {
            conn.stalled = Some(Instant::now());
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

/// What is left from before, and then one receive, if there may be more.
fn take_turn(
    conn: &mut Conn,
    id: ConnId,
    frames: usize,
    on: &mut impl FnMut(Happened<'_>),
) -> Result<(), String> {
    let mut room = frames;
    if conn.left {
        hand_out(conn, id, &mut room, on)?;
    }
    if room > 0 {
        receive(conn)?;
        hand_out(conn, id, &mut room, on)?;
    }
    conn.left = room == 0 && conn.start < conn.filled;
    Ok(())
}

/// Complete frames, as long as there is room for them.
fn hand_out(
    conn: &mut Conn,
    id: ConnId,
    room: &mut usize,
    on: &mut impl FnMut(Happened<'_>),
) -> Result<(), String> {
    while *room > 0 {
        match wire::frame::decode(&conn.inbox[conn.start..conn.filled]) {
            Ok(Some((frame, length))) => {
                on(Happened::Payload(id, frame.payload));
                conn.start += length;
                *room -= 1;
            }
            Ok(None) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// One receive, behind what was not handed out.
fn receive(conn: &mut Conn) -> Result<(), String> {
    conn.inbox.copy_within(conn.start..conn.filled, 0);
    conn.filled -= conn.start;
    conn.start = 0;
    if conn.filled == conn.inbox.len() {
        // A frame larger than the buffer is arriving; its length was checked.
        conn.inbox.resize(conn.inbox.len() * 2, 0);
    } else if conn.filled == 0 && conn.inbox.len() > 32 * RECEIVE_BYTES {
        conn.inbox = vec![0; RECEIVE_BYTES];
    }
    match (&conn.stream).read(&mut conn.inbox[conn.filled..]) {
        Ok(0) => Err("the peer closed the connection".into()),
        Ok(count) => {
            conn.filled += count;
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn transmit(conn: &mut Conn) -> Result<(), String> {
    while conn.sent < conn.outbox.len() {
        match (&conn.stream).write(&conn.outbox[conn.sent..]) {
            Ok(0) => return Err("the peer takes no more bytes".into()),
            Ok(count) => conn.sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // What a slow peer has taken is not kept: it may never have taken everything. Half of
                // it at a time, so that every byte is moved once.
                if conn.sent >= conn.outbox.len() / 2 {
                    conn.outbox.drain(..conn.sent);
                    conn.sent = 0;
                }
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    conn.outbox.clear();
    conn.outbox.shrink_to(KEPT_BYTES);
    conn.sent = 0;
    Ok(())
}
