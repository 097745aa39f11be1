//! One connection of a reactor: its receive buffer and its send queue.
//!
//! Invariant: memory follows the bytes that arrived, not the length that the peer announced. A
//! connection without an incomplete message has no receive buffer.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use types::{ConnId, Peer};
use wire::ProtocolVersions;

use crate::address::Stream;
use crate::limits::Limits;
use crate::reactor::ConnectionEvent;
use crate::secured::Secured;

/// Bytes of one receive, unless a longer message is arriving.
pub(crate) const RECEIVE_BYTES: usize = 64 * 1024;
/// Capacity for replies that a connection keeps when all are sent.
const KEPT_BYTES: usize = 1 << 20;
/// A receive buffer has at most so many times the capacity of the bytes in it.
const GROWTH: usize = 4;

#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: Stream,
    /// The address of the peer over TCP. The kernel does not know it any more when the peer has
    /// left.
    address: Option<SocketAddr>,
    pub(crate) secured: Option<Box<Secured>>,
    /// The version of the protocol that both sides speak, once the peer has sent its versions.
    version: Option<u8>,
    /// Bytes that arrived; `inbox[start..]` was not handed out.
    inbox: Vec<u8>,
    start: usize,
    /// Whether complete frames may be among that: it had as many as it may have.
    pub(crate) left: bool,
    /// Whether the reactor has it on its list of connections with frames left.
    pub(crate) listed: bool,
    pub(crate) outbox: Vec<u8>,
    sent: usize,
    /// The events that the kernel reports.
    pub(crate) watched: EventFlags,
    pub(crate) closing: bool,
    pub(crate) queued: bool,
    /// When it was accepted, as long as its first frame has not arrived.
    pub(crate) stranger: Option<Instant>,
    /// When the first byte arrived of the message that is incomplete.
    pub(crate) begun: Option<Instant>,
    /// When the peer last took something, as long as there is something to take.
    pub(crate) waiting: Option<Instant>,
    /// Bytes of memory that the reactor counts for it.
    pub(crate) counted: usize,
}

impl Conn {
    /// A connection; with `version` one that was opened from here.
    pub(crate) fn new(
        stream: Stream,
        secured: Option<Box<Secured>>,
        version: Option<u8>,
        watched: EventFlags,
    ) -> Self {
        let address = match &stream {
            Stream::Unix(_) => None,
            Stream::Tcp(stream) => stream.peer_addr().ok(),
        };
        Self {
            stream,
            address,
            secured,
            version,
            inbox: Vec::new(),
            start: 0,
            left: false,
            listed: false,
            outbox: Vec::new(),
            sent: 0,
            watched,
            closing: false,
            queued: false,
            stranger: None,
            begun: None,
            waiting: None,
            counted: 0,
        }
    }

    pub(crate) fn unsent(&self) -> usize {
        let wire = self.secured.as_ref().map_or(0, |secured| secured.unsent());
        self.outbox.len() - self.sent + wire
    }

    /// See [`crate::Reactor::origin`].
    pub(crate) fn origin(&self) -> String {
        let key = self.secured.as_ref().and_then(|secured| secured.peer());
        match (&self.stream, key) {
            (Stream::Unix(_), _) => "unix".to_owned(),
            (Stream::Tcp(_), key) => {
                let address = self.address.map_or_else(|| "?".into(), |it| it.to_string());
                let key = key.map(|key| format!(" key {key}")).unwrap_or_default();
                format!("tcp {address}{key}")
            }
        }
    }

    /// Whether the daemon was told of the peer.
    pub(crate) fn is_known(&self) -> bool {
        self.secured.as_ref().is_none_or(|secured| secured.is_proved())
    }

    /// Bytes of memory that its buffers take.
    pub(crate) fn held(&self) -> usize {
        let wire = self.secured.as_ref().map_or(0, |secured| secured.held());
        self.inbox.capacity() + self.outbox.capacity() + wire
    }

    /// Since when it waits for its peer, to finish a message or to take replies.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.begun.into_iter().chain(self.waiting).min()
    }

    /// Hands out frames left from the last turn, and then receives once, within the limit.
    pub(crate) fn take_turn(
        &mut self,
        id: ConnId,
        limits: &Limits,
        spare: &mut Vec<u8>,
        on: &mut impl FnMut(ConnectionEvent<'_>),
    ) -> Result<(), String> {
        let mut room = limits.frames_per_turn;
        if self.left {
            self.hand_out(id, limits, &mut room, on)?;
        }
        if room > 0 {
            self.make_room(spare);
            if let Some(peer) = self.receive()? {
                on(ConnectionEvent::Opened(id, peer));
            }
            self.hand_out(id, limits, &mut room, on)?;
        }
        self.left = room == 0 && self.start < self.inbox.len();
        if self.left || self.start == self.inbox.len() {
            self.begun = None;
        } else if self.begun.is_none() || room < limits.frames_per_turn {
            self.begun = Some(Instant::now());
        }
        self.give_back(spare);
        Ok(())
    }

    /// Complete frames, as long as there is room for them.
    fn hand_out(
        &mut self,
        id: ConnId,
        limits: &Limits,
        room: &mut usize,
        on: &mut impl FnMut(ConnectionEvent<'_>),
    ) -> Result<(), String> {
        if self.version.is_none() && !self.agree()? {
            return Ok(());
        }
        while *room > 0 {
            let stranger = self.stranger.is_some();
            let most = if stranger { limits.first_bytes } else { wire::frame::PAYLOAD_BYTES_MAX };
            match wire::frame::decode_up_to(&self.inbox[self.start..], most) {
                Ok(Some((frame, length))) => {
                    on(ConnectionEvent::Payload(id, frame.payload));
                    // The daemon closes a connection if this message is no introduction.
                    self.stranger = None;
                    self.start += length;
                    *room -= 1;
                }
                Ok(None) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Answers the versions of the protocol that the peer speaks. Returns whether they have
    /// arrived.
    fn agree(&mut self) -> Result<bool, String> {
        let peer = ProtocolVersions::decode(&self.inbox[self.start..]);
        let Some((theirs, length)) = peer.map_err(|error| error.to_string())? else {
            return Ok(false);
        };
        self.start += length;
        self.outbox.extend(ProtocolVersions::OURS.to_frame());
        match ProtocolVersions::OURS.agree(theirs) {
            Ok(version) => {
                self.version = Some(version);
                Ok(true)
            }
            Err(error) => {
                // The peer says the same to its user, if it takes the answer at once.
                let _ = self.transmit();
                Err(error.to_string())
            }
        }
    }

    /// Makes room for one receive: in the buffer that all connections share or, for a longer
    /// message, in a larger buffer of its own.
    fn make_room(&mut self, spare: &mut Vec<u8>) {
        if self.inbox.capacity() < RECEIVE_BYTES {
            let mut buffer = std::mem::take(spare);
            buffer.clear();
            buffer.reserve(RECEIVE_BYTES);
            buffer.extend_from_slice(&self.inbox[self.start..]);
            (self.inbox, self.start) = (buffer, 0);
            return;
        }
        self.inbox.drain(..self.start);
        self.start = 0;
        let length = self.inbox.len();
        if length == self.inbox.capacity() {
            // Not beyond the message: the next receive takes the following messages.
            let whole = wire::frame::announced(&self.inbox).unwrap_or(0);
            let rest = whole.saturating_sub(length).max(RECEIVE_BYTES);
            self.inbox.reserve_exact(rest.min((GROWTH - 1) * length));
        }
    }

    /// One receive, behind the bytes that were not handed out. Returns the peer when it has just
    /// proved itself.
    fn receive(&mut self) -> Result<Option<Peer>, String> {
        if let Some(secured) = &mut self.secured {
            return secured.receive(&self.stream, &mut self.inbox);
        }
        match rustix::io::read(&self.stream, spare_capacity(&mut self.inbox)) {
            Ok(0) => Err(crate::reactor::CLOSED_BY_PEER.into()),
            Ok(_) | Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(std::io::Error::from(error).to_string()),
        }
    }

    /// Keeps no more memory than the incomplete message needs.
    fn give_back(&mut self, spare: &mut Vec<u8>) {
        if self.inbox.capacity() < GROWTH * (self.inbox.len() - self.start) {
            return;
        }
        let rest = self.inbox[self.start..].to_vec();
        let buffer = std::mem::replace(&mut self.inbox, rest);
        self.start = 0;
        if buffer.capacity() == RECEIVE_BYTES {
            *spare = buffer;
        }
    }

    /// Sends queued bytes, as far as the peer takes them.
    pub(crate) fn transmit(&mut self) -> Result<(), String> {
        if let Some(secured) = &mut self.secured {
            self.sent += secured.send(&self.stream, &self.outbox[self.sent..])?;
            if self.sent == self.outbox.len() {
                self.forget_sent();
            } else if self.sent >= self.outbox.len() / 2 {
                self.outbox.drain(..self.sent);
                self.sent = 0;
            }
            return Ok(());
        }
        while self.sent < self.outbox.len() {
            match (&self.stream).write(&self.outbox[self.sent..]) {
                Ok(0) => return Err("the peer takes no more bytes".into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // Drop bytes that a slow peer has taken: its queue may never become empty.
                    // Half of the queue at a time, so that every byte moves once.
                    if self.sent >= self.outbox.len() / 2 {
                        self.outbox.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        self.forget_sent();
        Ok(())
    }

    /// Gives the memory back in which nothing waits for the peer.
    pub(crate) fn free_unused(&mut self) {
        if self.outbox.len() == self.sent {
            (self.outbox, self.sent) = (Vec::new(), 0);
        }
        if let Some(secured) = &mut self.secured {
            secured.free_unused();
        }
    }

    /// Everything is sent.
    fn forget_sent(&mut self) {
        self.outbox.clear();
        self.outbox.shrink_to(KEPT_BYTES);
        self.sent = 0;
    }
}
