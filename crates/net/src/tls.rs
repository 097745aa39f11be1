//! TLS on a connection, as bytes in and bytes out: the caller reads and writes the socket.
//!
//! Invariant: all that has arrived is decrypted at once, so no byte waits in here unseen by epoll.

use std::io::{self, Read, Write};
use std::sync::Arc;

use keys::{ClientConfig, KeyFile, NamedKey, ServerConfig};
use rustls::{ClientConnection, Connection, ServerConnection};

/// The plain bytes that are encrypted at a time: a full record of TLS.
const RECORD_BYTES: usize = 16 * 1024;

/// The first byte of a daemon: it has accepted the key of the client. In TLS 1.3 a client would
/// else learn of a refusal with its first request, or not at all.
pub(crate) const ACCEPTED: u8 = 1;
/// Another first byte: the key is not for the network from which the client connects.
pub(crate) const FOREIGN: u8 = 2;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Tls(Connection);

impl Tls {
    /// The side that connected.
    pub(crate) fn of_client(config: Arc<ClientConfig>) -> io::Result<Self> {
        let connection = ClientConnection::new(config, KeyFile::daemon_name());
        Ok(Self(Connection::Client(connection.map_err(io::Error::other)?)))
    }

    /// The side that listens.
    pub(crate) fn of_server(config: Arc<ServerConfig>) -> io::Result<Self> {
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self(Connection::Server(connection)))
    }

    /// Whether the two sides have not proved themselves yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// The key that the peer has proved to have.
    pub(crate) fn peer(&self) -> Option<NamedKey> {
        KeyFile::stated(self.0.peer_certificates().unwrap_or_default())
    }

    /// Takes bytes that arrived, and appends the decrypted ones.
    ///
    /// # Errors
    /// If the peer does not prove itself, or the bytes were altered.
    pub(crate) fn decrypt(&mut self, mut arrived: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !arrived.is_empty() {
            if self.0.read_tls(&mut arrived)? == 0 {
                // It takes no bytes behind the peer's notice of the end.
                let cause = "bytes follow the end of the encryption";
                return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
            }
            let state = self.0.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let length = plain.len();
            plain.resize(length + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[length..])?;
        }
        Ok(())
    }

    /// Encrypts bytes, as many as fit into one record, and appends the record. Returns how many
    /// were taken.
    pub(crate) fn encrypt(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<usize> {
        let taken = self.0.writer().write(&plain[..plain.len().min(RECORD_BYTES)])?;
        self.drain(wire)?;
        Ok(taken)
    }

    /// Appends the messages of TLS itself: steps of the handshake, alerts.
    pub(crate) fn drain(&mut self, wire: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(wire)?;
        }
        Ok(())
    }
}
