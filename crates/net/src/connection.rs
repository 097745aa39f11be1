//! A blocking connection, for clients: send frames, receive payloads.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use keys::Keyring;
use types::{Errno, Error};

use crate::address::{Address, OpenedConnection, Stream, error};
use crate::tls::Tls;

const RECEIVE_BYTES: usize = 64 * 1024;

/// See the module documentation.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    buffer: Vec<u8>,
    /// Bytes of the socket that TLS decrypts.
    arrived: Vec<u8>,
    /// `buffer[start..end]` has arrived and was not returned yet.
    start: usize,
    end: usize,
}

/// The sending side of a connection, for other threads than the one that receives.
#[derive(Clone, Debug)]
pub struct Sender {
    address: Address,
    channel: Arc<Channel>,
}

#[derive(Debug)]
struct Channel {
    stream: Stream,
    tls: Option<Shared>,
}

/// TLS, for a thread that sends and one that receives.
#[derive(Debug)]
struct Shared {
    /// Held from encrypting to sending: bytes leave in the order in which they were encrypted. The
    /// thread that receives never waits for it, so a peer that reads slowly cannot stop both.
    sending: Mutex<Vec<u8>>,
    tls: Mutex<Tls>,
}

impl Shared {
    fn tls(&self) -> MutexGuard<'_, Tls> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, stream: &Stream, frames: &[u8]) -> io::Result<()> {
        let mut wire = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        wire.clear();
        let mut sent = 0;
        while sent < frames.len() {
            let taken = self.tls().encrypt(&frames[sent..], &mut wire)?;
            sent += taken;
        }
        { stream }.write_all(&wire)
    }
}

impl Channel {
    fn send(&self, frames: &[u8]) -> io::Result<()> {
        match &self.tls {
            None => (&self.stream).write_all(frames),
            Some(shared) => shared.send(&self.stream, frames),
        }
    }
}

impl Sender {
    /// Sends frames. Those of several threads are not kept apart.
    ///
    /// # Errors
    /// `EIO` if the connection is gone.
    pub fn send(&self, frames: &[u8]) -> Result<(), Error> {
        self.channel.send(frames).map_err(|cause| error(&self.address, &cause))
    }

    /// Limits the time that a receiver of this connection waits, from its next call on.
    pub fn limit_receiving(&self, time: Duration) {
        // One that has ended does not wait.
        let _ = self.channel.stream.set_timeout(Some(time));
    }

    /// Ends the connection: a receiver gets the frames that have arrived, and then an error.
    pub fn shut_down(&self) {
        // One that has ended needs no end.
        let _ = self.channel.stream.shut_down();
    }
}

impl Connection {
    /// Connects; over TCP with the key of this process.
    ///
    /// # Errors
    /// As [`Address::connect`].
    pub fn open(address: &Address, keys: &Keyring) -> Result<Self, Error> {
        let OpenedConnection { stream, tls, version: _ } = address.connect(keys)?;
        let tls = tls.map(|tls| Shared { sending: Mutex::default(), tls: Mutex::new(tls) });
        let arrived = if tls.is_some() { vec![0; RECEIVE_BYTES] } else { Vec::new() };
        Ok(Self {
            sender: Sender { address: address.clone(), channel: Arc::new(Channel { stream, tls }) },
            buffer: vec![0; RECEIVE_BYTES],
            arrived,
            start: 0,
            end: 0,
        })
    }

    /// The peer.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.sender.address
    }

    /// Its sending side.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// How long [`Connection::receive`] waits at most; forever by default.
    ///
    /// # Errors
    /// `EIO`.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let Sender { address, channel } = &self.sender;
        channel.stream.set_timeout(timeout).map_err(|cause| error(address, &cause))
    }

    /// Sends frames.
    ///
    /// # Errors
    /// `EIO` if the connection is gone.
    pub fn send(&mut self, frames: &[u8]) -> Result<(), Error> {
        self.sender.send(frames)
    }

    /// Waits for the next frame and returns its payload.
    ///
    /// # Errors
    /// `EIO` if the connection ends, `ETIMEDOUT`, `EBADMSG` if the peer does not speak our
    /// protocol.
    pub fn receive(&mut self) -> Result<&[u8], Error> {
        let (payload, length) = loop {
            let arrived = &self.buffer[self.start..self.end];
            match wire::frame::decode(arrived) {
                Ok(Some((frame, length))) => {
                    let from = self.start + wire::frame::HEADER_BYTES;
                    break (from..from + frame.payload.len(), length);
                }
                Ok(None) => self.fill()?,
                Err(error) => return Err(Error::from(error).about(self.sender.address.to_string())),
            }
        };
        self.start += length;
        Ok(&self.buffer[payload])
    }

    fn fill(&mut self) -> Result<(), Error> {
        if self.sender.channel.tls.is_some() {
            // Decrypted bytes are appended.
            self.buffer.truncate(self.end);
            self.buffer.drain(..self.start);
            (self.start, self.end) = (0, self.buffer.len());
        } else if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        loop {
            match self.receive_bytes() {
                Ok(0) => {
                    let cause = "the connection was closed";
                    return Err(Error::new(Errno::Io, self.sender.address.to_string(), cause));
                }
                Ok(_) => return Ok(()),
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(error(&self.sender.address, &cause)),
            }
        }
    }

    /// One receive, behind the bytes that were not returned yet. Returns how many bytes arrived.
    fn receive_bytes(&mut self) -> io::Result<usize> {
        let Channel { stream, tls } = &*self.sender.channel;
        let Some(shared) = tls else {
            let count = { stream }.read(&mut self.buffer[self.end..])?;
            self.end += count;
            return Ok(count);
        };
        let count = { stream }.read(&mut self.arrived)?;
        shared.tls().decrypt(&self.arrived[..count], &mut self.buffer)?;
        self.end = self.buffer.len();
        Ok(count)
    }
}
