//! A blocking connection, for clients: send frames, receive payloads.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use types::{Errno, Error};

use crate::address::{Address, Stream, error};

const RECEIVE_BYTES: usize = 64 * 1024;

/// See the module documentation.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    buffer: Vec<u8>,
    /// `buffer[start..end]` has arrived and was not returned yet.
    start: usize,
    end: usize,
}

/// The sending side of a connection, for other threads than the one that receives.
#[derive(Clone, Debug)]
pub struct Sender {
    address: Address,
    stream: Arc<Stream>,
}

impl Sender {
    /// Sends frames. Those of several threads are not kept apart.
    ///
    /// # Errors
    /// `EIO` if the connection is gone.
    pub fn send(&self, frames: &[u8]) -> Result<(), Error> {
        (&*self.stream).write_all(frames).map_err(|cause| error(&self.address, &cause))
    }

    /// Ends the connection: a receiver gets the frames that have arrived, and then an error.
    pub fn shut_down(&self) {
        // One that has ended needs no end.
        let _ = self.stream.shut_down();
    }
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// As [`Address::connect`].
    pub fn open(address: &Address) -> Result<Self, Error> {
        let stream = Arc::new(address.connect()?);
        Ok(Self {
            sender: Sender { address: address.clone(), stream },
            buffer: vec![0; RECEIVE_BYTES],
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
        let Sender { address, stream } = &self.sender;
        stream.set_timeout(timeout).map_err(|cause| error(address, &cause))
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
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        loop {
            match (&*self.sender.stream).read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    let cause = "the connection was closed";
                    return Err(Error::new(Errno::Io, self.sender.address.to_string(), cause));
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(error(&self.sender.address, &cause)),
            }
        }
    }
}
