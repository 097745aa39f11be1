//! Where a daemon listens: `unix:PATH` or `tcp:HOST:PORT`.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use types::{Errno, Error};

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp:{host}"),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", host)) if host.rsplit_once(':').is_some() => Ok(Self::Tcp(host.into())),
            _ => Err(Error::new(Errno::Invalid, text, "not an address")
                .remedy("write unix:PATH or tcp:HOST:PORT")),
        }
    }
}

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// A Unix socket.
    Unix(UnixStream),
    /// A TCP connection.
    Tcp(TcpStream),
}

pub(crate) enum Listener {
    Unix(UnixListener, Socket),
    Tcp(TcpListener),
}

/// Where a listener's socket is, and which file that is.
pub(crate) struct Socket {
    path: PathBuf,
    id: (u64, u64),
}

#[allow(clippy::wildcard_enum_match_arm, reason = "the kinds of I/O errors are open-ended")]
pub(crate) fn error(address: &Address, error: &io::Error) -> Error {
    let (errno, cause) = match error.kind() {
        io::ErrorKind::NotFound => (Errno::NotFound, "no socket is there".to_owned()),
        io::ErrorKind::ConnectionRefused => (Errno::Refused, "nobody listens there".to_owned()),
        io::ErrorKind::AddrInUse => (Errno::AddressInUse, "the address is in use".to_owned()),
        io::ErrorKind::PermissionDenied => (Errno::Access, "permission denied".to_owned()),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            (Errno::TimedOut, "no answer in time".to_owned())
        }
        _ => (Errno::Io, error.to_string()),
    };
    Error::new(errno, address.to_string(), cause)
}

impl Address {
    /// Connects.
    ///
    /// # Errors
    /// `ENOENT`, `ECONNREFUSED`, `EACCES`, `EIO`, with the address.
    pub fn connect(&self) -> Result<Stream, Error> {
        let connect = || -> io::Result<Stream> {
            Ok(match self {
                Self::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
                Self::Tcp(host) => {
                    let stream = TcpStream::connect(host)?;
                    stream.set_nodelay(true)?;
                    Stream::Tcp(stream)
                }
            })
        };
        connect().map_err(|cause| error(self, &cause))
    }

    /// Listens. A Unix socket that nobody listens on any more is replaced; one that somebody
    /// listens on is in use.
    pub(crate) fn listen(&self) -> Result<Listener, Error> {
        let listen = || -> io::Result<Listener> {
            Ok(match self {
                Self::Unix(path) => {
                    remove_stale(path)?;
                    let listener = UnixListener::bind(path)?;
                    Listener::Unix(listener, Socket { path: path.clone(), id: id_of(path)? })
                }
                Self::Tcp(host) => Listener::Tcp(TcpListener::bind(host)?),
            })
        };
        let listener = listen().map_err(|cause| {
            error(self, &cause).remedy("stop whoever listens there, or choose another address")
        })?;
        let result = match &listener {
            Listener::Unix(listener, _) => listener.set_nonblocking(true),
            Listener::Tcp(listener) => listener.set_nonblocking(true),
        };
        result.map_err(|cause| error(self, &cause))?;
        Ok(listener)
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)
            }
            Err(error) => Err(error),
        },
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Tells a file from others that had or will have its name.
fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

impl Listener {
    pub(crate) fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, Socket { path, id }) = self
            // It may be that of a process that took over meanwhile.
            && id_of(path).is_ok_and(|now| now == *id)
        {
            // Left behind it would only cost the next start a look.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Stream {
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    /// Ends it in both directions: whoever reads or writes returns.
    pub(crate) fn shut_down(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
        }
    }

    pub(crate) fn set_timeout(&self, timeout: Option<std::time::Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

// One thread may read while another writes.
impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.read(buffer),
            Stream::Tcp(stream) => { stream }.read(buffer),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => { stream }.write(bytes),
            Stream::Tcp(stream) => { stream }.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
