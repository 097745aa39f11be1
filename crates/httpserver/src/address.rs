//! Where a server listens.

use std::ffi::OsString;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use types::{Errno, Error};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAddress {
    /// A host and a port.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The host of an address that names only a port.
const LOOPBACK: &str = "127.0.0.1";

impl HttpAddress {
    /// A port of loopback.
    #[must_use]
    pub fn port(port: u16) -> Self {
        Self::Tcp(format!("{LOOPBACK}:{port}"))
    }

    /// The address of a page of the server.
    #[must_use]
    pub fn page(&self, path: &str) -> String {
        match self {
            Self::Tcp(_) => format!("{self}{path}"),
            Self::Unix(_) => self.to_string(),
        }
    }

    /// Whether other hosts cannot reach the server.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(host) => {
                let name = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name);
                let name = name.trim_start_matches('[').trim_end_matches(']');
                name == "localhost"
                    || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
            Self::Unix(_) => true,
        }
    }

    /// The address as an argument of a program.
    #[must_use]
    pub fn argument(&self) -> OsString {
        match self {
            Self::Tcp(host) => host.into(),
            Self::Unix(path) => {
                let mut argument = OsString::from("unix:");
                argument.push(path);
                argument
            }
        }
    }
}

impl FromStr for HttpAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let host = if host.is_empty() { LOOPBACK } else { host };
        match port.parse::<u16>() {
            Ok(port) if host != "unix" => Ok(Self::Tcp(format!("{host}:{port}"))),
            _ => Err(Error::new(Errno::Invalid, text, "not an address to listen at")
                .remedy("write PORT, HOST:PORT or unix:PATH")),
        }
    }
}

impl std::fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "http://{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that accepts clients.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// # Errors
    /// `EADDRINUSE`, `EACCES` or `EIO`, with the address.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the kinds of I/O errors are open-ended")]
    pub(crate) fn bind(option: &str, address: &HttpAddress) -> Result<Self, Error> {
        let bound = match address {
            HttpAddress::Tcp(host) => TcpListener::bind(host.as_str()).map(Self::Tcp),
            HttpAddress::Unix(path) => {
                remove_left(path);
                UnixListener::bind(path).map(|listener| Self::Unix(listener, path.clone()))
            }
        };
        bound.map_err(|error| {
            let errno = match error.kind() {
                io::ErrorKind::AddrInUse => Errno::AddressInUse,
                io::ErrorKind::PermissionDenied => Errno::Access,
                io::ErrorKind::NotFound => Errno::NotFound,
                _ => Errno::Io,
            };
            Error::new(errno, format!("{option} {address}"), error.to_string()).remedy(format!(
                "name another address with {option}, or end the process that has this one"
            ))
        })
    }

    /// The address with the port that the system chose for port 0.
    pub(crate) fn address(&self) -> io::Result<HttpAddress> {
        match self {
            Self::Tcp(listener) => Ok(HttpAddress::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(_, path) => Ok(HttpAddress::Unix(path.clone())),
        }
    }

    pub(crate) fn accept(&self) -> io::Result<HttpStream> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| HttpStream::Tcp(stream)),
            Self::Unix(listener, _) => {
                listener.accept().map(|(stream, _)| HttpStream::Unix(stream))
            }
        }
    }

    pub(crate) fn remove(&self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// Removes the socket of a process that is gone.
fn remove_left(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// The connection of a client.
#[derive(Debug)]
pub(crate) enum HttpStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl HttpStream {
    pub(crate) fn connect(address: &HttpAddress) -> io::Result<Self> {
        match address {
            HttpAddress::Tcp(host) => TcpStream::connect(host.as_str()).map(Self::Tcp),
            HttpAddress::Unix(path) => UnixStream::connect(path).map(Self::Unix),
        }
    }

    /// Bounds the next read and the next write.
    pub(crate) fn set_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.set_write_timeout(Some(time))
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.set_write_timeout(Some(time))
            }
        }
    }

    pub(crate) fn end_writing(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        };
    }
}

impl io::Read for HttpStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl io::Write for HttpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
