//! New connections, and the places for them.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::KeyFile;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::{ACCEPTED_PER_TURN, ConnectionEvent, LISTENER, PAUSE, Reactor};
use crate::address::{Accepted, Stream};
use crate::secured::Secured;

impl Reactor {
    pub(super) fn accept(&mut self, on: &mut impl FnMut(ConnectionEvent<'_>)) {
        for _ in 0..ACCEPTED_PER_TURN {
            match self.listener.accept() {
                Accepted::Stream(stream, key) if self.has_place(on) => {
                    self.welcome(stream, key, on);
                }
                // A refusal is no message of TLS; the peer sees that the connection is closed.
                Accepted::Stream(_, Some(_)) => {}
                Accepted::Stream(stream, None) => {
                    // As far as it takes it at once: it is refused either way.
                    let _ = stream.set_nonblocking().and_then(|()| (&stream).write(&self.refusal));
                }
                Accepted::Failed => {}
                Accepted::Nobody => return,
                Accepted::Short => return self.pause(),
            }
        }
    }

    /// Takes a connection on. A peer that must prove itself is announced when it has; a peer that
    /// the kernel does not know gets no connection.
    fn welcome(
        &mut self,
        stream: Stream,
        key: Option<Arc<KeyFile>>,
        on: &mut impl FnMut(ConnectionEvent<'_>),
    ) {
        let peer = if key.is_none() { crate::peer::of(&stream).map(Some) } else { Ok(None) };
        let secured = key.map(Secured::accepted).transpose();
        let (Ok(peer), Ok(secured)) = (peer, secured) else { return };
        let Ok(id) = self.insert(stream, secured.map(Box::new), None) else { return };
        if let Some(conn) = self.conns.get_mut(&id.0) {
            conn.stranger = Some(Instant::now());
        }
        if let Some(peer) = peer {
            on(ConnectionEvent::Opened(id, peer));
        }
    }

    /// Whether one more connection may be accepted; the oldest stranger makes room for it.
    fn has_place(&mut self, on: &mut impl FnMut(ConnectionEvent<'_>)) -> bool {
        if self.conns.len() < self.limits.connections {
            return true;
        }
        let strangers = self.conns.iter().filter(|(_, conn)| conn.stranger.is_some());
        let Some(oldest) = strangers.map(|(id, _)| *id).next() else { return false };
        self.cut_off(oldest, "it did not say who it is, and others want its place", on);
        true
    }

    /// Accepts nothing for a while: the connections that wait would only be reported again.
    fn pause(&mut self) {
        self.paused = Some(Instant::now() + PAUSE);
        let listener = EventData::new_u64(LISTENER);
        let _ = epoll::modify(&self.epoll, &self.listener, listener, EventFlags::empty());
    }

    /// How long nothing is accepted yet.
    pub(super) fn unpause(&mut self) -> Option<Duration> {
        let rest = self.paused?.saturating_duration_since(Instant::now());
        if rest > Duration::ZERO {
            return Some(rest);
        }
        self.paused = None;
        let listener = EventData::new_u64(LISTENER);
        let _ = epoll::modify(&self.epoll, &self.listener, listener, EventFlags::IN);
        None
    }
}
