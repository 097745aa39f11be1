//! One thread, many connections.
//!
//! Per wake-up: one receive for every connection that is ready, all complete frames handed out in
//! order, and one send per connection with everything that was queued. A peer that does not read
//! its replies is not read from any more until it does, so it holds up nobody and costs a bounded
//! amount of memory.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use types::{ConnId, Errno, Error};

use crate::address::{Address, Listener, Stream};

const RECEIVE_BYTES: usize = 64 * 1024;
/// A connection with more unsent bytes is not read from.
const UNSENT_BYTES_MAX: usize = 4 << 20;
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
    /// Bytes at the front of `inbox` that have arrived.
    filled: usize,
    outbox: Vec<u8>,
    sent: usize,
    /// Whether the reactor waits for room to send.
    wants_room: bool,
    closing: bool,
    queued: bool,
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
        })
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
            filled: 0,
            outbox: Vec::new(),
            sent: 0,
            wants_room: false,
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
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let result = receive(conn, ConnId(id), on);
        if let Err(reason) = result {
            self.drop_conn(id);
            on(Happened::Closed(ConnId(id), reason));
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
            let result = transmit(conn);
            let done = conn.outbox.is_empty();
            let (closing, wanted) = (conn.closing, conn.wants_room);
            if let Err(reason) = result {
                self.drop_conn(id);
                on(Happened::Closed(ConnId(id), reason));
            } else if closing && done {
                self.drop_conn(id);
                on(Happened::Closed(ConnId(id), "closed by us".into()));
            } else if wanted == done {
                self.watch(id, !done);
            }
        }
    }

    /// Asks to be woken when there is room to send; meanwhile reads only if little is unsent.
    fn watch(&mut self, id: u64, room: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.wants_room = room;
        let mut flags = EventFlags::RDHUP;
        if !room || conn.outbox.len() - conn.sent < UNSENT_BYTES_MAX {
            flags |= EventFlags::IN;
        }
        flags |= if room { EventFlags::OUT } else { EventFlags::empty() };
        let _ = epoll::modify(&self.epoll, &conn.stream, EventData::new_u64(id), flags);
    }
}

/// One receive, and every frame that is complete.
fn receive(conn: &mut Conn, id: ConnId, on: &mut impl FnMut(Happened<'_>)) -> Result<(), String> {
    match (&conn.stream).read(&mut conn.inbox[conn.filled..]) {
        Ok(0) => return Err("the peer closed the connection".into()),
        Ok(count) => conn.filled += count,
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    }
    let mut start = 0;
    loop {
        match wire::frame::decode(&conn.inbox[start..conn.filled]) {
            Ok(Some((frame, length))) => {
                on(Happened::Payload(id, frame.payload));
                start += length;
            }
            Ok(None) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    conn.inbox.copy_within(start..conn.filled, 0);
    conn.filled -= start;
    if conn.filled == conn.inbox.len() {
        // A frame larger than the buffer is arriving; its length was checked.
        conn.inbox.resize(conn.inbox.len() * 2, 0);
    } else if conn.filled == 0 && conn.inbox.len() > 32 * RECEIVE_BYTES {
        conn.inbox = vec![0; RECEIVE_BYTES];
    }
    Ok(())
}

fn transmit(conn: &mut Conn) -> Result<(), String> {
    while conn.sent < conn.outbox.len() {
        match (&conn.stream).write(&conn.outbox[conn.sent..]) {
            Ok(0) => return Err("the peer takes no more bytes".into()),
            Ok(count) => conn.sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    conn.outbox.clear();
    conn.sent = 0;
    Ok(())
}
