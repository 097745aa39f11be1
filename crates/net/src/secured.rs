//! TLS on a connection of a reactor: the encrypted bytes that were not sent yet, and the key of the
//! peer.

use std::io;
use std::sync::Arc;

use keys::{KeyFile, KeyId, NamedKey};
use types::Peer;

use crate::address::Stream;
use crate::tls::{ACCEPTED, FOREIGN, Tls};

/// Bytes of one receive. Small enough for the stack.
const RECEIVE_BYTES: usize = 16 * 1024;
/// With so many encrypted bytes that the peer has not taken, no more are encrypted.
const WIRE_BYTES: usize = 64 * 1024;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Secured {
    tls: Tls,
    /// The key of this daemon, where the peer connected.
    key: Option<Arc<KeyFile>>,
    /// The key of the peer, once the peer has proved to have it.
    peer: Option<NamedKey>,
    wire: Vec<u8>,
    sent: usize,
}

impl Secured {
    /// For a peer that connected.
    pub(crate) fn accepted(key: Arc<KeyFile>) -> io::Result<Self> {
        let config = key.server().map_err(|error| io::Error::other(error.to_string()))?;
        let tls = Tls::of_server(config)?;
        Ok(Self { tls, key: Some(key), peer: None, wire: Vec::new(), sent: 0 })
    }

    /// For a connection that was opened from here: the peer has proved to be a daemon.
    pub(crate) fn opened(tls: Tls) -> Self {
        Self { tls, key: None, peer: None, wire: Vec::new(), sent: 0 }
    }

    /// Whether the peer has proved itself.
    pub(crate) fn is_proved(&self) -> bool {
        self.key.is_none() || self.peer.is_some()
    }

    /// The key of a peer that connected; of a narrowed key, the one that the authority has made.
    pub(crate) fn peer(&self) -> Option<KeyId> {
        self.peer.as_ref().map(NamedKey::issued)
    }

    /// Why a key that was accepted is accepted no more at this time, in seconds since 1970.
    pub(crate) fn refuses(&self, now: i64) -> Option<&'static str> {
        let (key, peer) = (self.key.as_ref()?, self.peer.as_ref()?);
        if peer.is_revoked(key.revoked()) {
            return Some("the key of the peer was revoked");
        }
        peer.is_over(now).then_some("the key of the peer has expired")
    }

    /// Bytes that wait for the peer.
    pub(crate) fn unsent(&self) -> usize {
        self.wire.len() - self.sent
    }

    /// Bytes of memory for the wire.
    pub(crate) fn held(&self) -> usize {
        self.wire.capacity()
    }

    /// Gives the memory for the wire back, if nothing waits in it.
    pub(crate) fn free_unused(&mut self) {
        if self.unsent() == 0 {
            (self.wire, self.sent) = (Vec::new(), 0);
        }
    }

    /// Receives once, and appends the decrypted bytes. Returns the peer when it has just proved
    /// itself.
    pub(crate) fn receive(
        &mut self,
        stream: &Stream,
        plain: &mut Vec<u8>,
    ) -> Result<Option<Peer>, String> {
        let mut buffer = [0; RECEIVE_BYTES];
        let count = match rustix::io::read(stream, &mut buffer) {
            Ok(0) => return Err(crate::reactor::CLOSED_BY_PEER.into()),
            Ok(count) => count,
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(io::Error::from(error).to_string()),
        };
        let taken = self.tls.decrypt(&buffer[..count], plain);
        let drained = self.tls.drain(&mut self.wire);
        if let Err(error) = taken.and(drained) {
            // The peer learns why, if it takes the alert at once.
            let _ = self.transmit(stream);
            return Err(format!("the peer is not accepted: {error}"));
        }
        if self.is_proved() || self.tls.is_handshaking() {
            return Ok(None);
        }
        let key = self.tls.peer().ok_or("the peer has no key")?;
        if !stream.peer_address().is_some_and(|address| key.is_for(address)) {
            self.tls.encrypt(&[FOREIGN], &mut self.wire).map_err(|error| error.to_string())?;
            let _ = self.transmit(stream);
            return Err(format!("the key {} is not for the network of the peer", key.id));
        }
        let peer = key.holder.peer();
        self.peer = Some(key);
        self.tls.encrypt(&[ACCEPTED], &mut self.wire).map_err(|error| error.to_string())?;
        Ok(Some(peer))
    }

    /// Encrypts queued bytes and sends them, as far as the peer takes them. Returns how many of the
    /// queued bytes are encrypted.
    pub(crate) fn send(&mut self, stream: &Stream, queued: &[u8]) -> Result<usize, String> {
        let mut taken = 0;
        loop {
            while taken < queued.len() && self.unsent() < WIRE_BYTES {
                let more = self.tls.encrypt(&queued[taken..], &mut self.wire);
                taken += more.map_err(|error| error.to_string())?;
            }
            self.transmit(stream)?;
            if taken == queued.len() || self.unsent() >= WIRE_BYTES {
                return Ok(taken);
            }
        }
    }

    /// Sends encrypted bytes, as far as the peer takes them.
    fn transmit(&mut self, stream: &Stream) -> Result<(), String> {
        use std::io::Write;
        while self.unsent() > 0 {
            match { stream }.write(&self.wire[self.sent..]) {
                Ok(0) => return Err("the peer takes no more bytes".into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wire.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
        self.wire.clear();
        self.wire.shrink_to(2 * WIRE_BYTES);
        self.sent = 0;
        Ok(())
    }
}
