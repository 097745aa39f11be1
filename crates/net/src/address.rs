//! Where a daemon listens: `unix:PATH`, `tcp:HOST:PORT`, or `plain:HOST:PORT`.
//!
//! Connections to `tcp:` are encrypted, and both sides prove themselves with a key. `plain:` has
//! neither, so the host must be this machine's loopback.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use keys::{ClientConfig, KeyFile, Keyring};
use rustix::net::sockopt;
use types::{Errno, Error};
use wire::ProtocolVersions;
use wire::frame::FrameError;

use crate::tls::{ACCEPTED, FOREIGN, Tls};

/// How long a host may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a daemon may take to say which versions of the protocol it speaks. It may have much to
/// do, or no processor for a while.
const ANSWER: Duration = Duration::from_secs(20);
/// Bytes of one receive during a handshake.
const HANDSHAKE_BYTES: usize = 4096;
const NOT_LOOPBACK: &str =
    "plain: is for addresses of this machine's loopback; other hosts need tcp: and a key";
const UNASKED: &str = "it answered before it was asked";
const ENDED: &str = "it closed the connection before it said which versions of the protocol it \
                     speaks: it is ending, has no room, or is older than this program";
/// A connection over TCP that is silent for so long is probed: its peer's machine may be gone.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// See the module documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(String),
    /// A port of this machine without keys, for programs that cannot use a Unix socket.
    Plain(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp:{host}"),
            Self::Plain(host) => write!(f, "plain:{host}"),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", host)) if host.rsplit_once(':').is_some() => Ok(Self::Tcp(host.into())),
            Some(("plain", host)) if host.rsplit_once(':').is_some() => {
                Ok(Self::Plain(host.into()))
            }
            _ => Err(Error::new(Errno::Invalid, text, "not an address")
                .remedy("write unix:PATH, tcp:HOST:PORT, or plain:127.0.0.1:PORT")),
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

/// A connection that was opened from here: both sides have agreed on a version of the protocol, and
/// over TCP proved themselves.
#[derive(Debug)]
pub struct OpenedConnection {
    pub(crate) stream: Stream,
    pub(crate) tls: Option<Tls>,
    pub(crate) version: u8,
}

pub(crate) enum Listener {
    Unix(UnixListener, Socket),
    Tcp(TcpListener, Option<Arc<KeyFile>>),
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
        io::ErrorKind::InvalidData => {
            (Errno::Access, format!("the two sides do not accept each other: {error}"))
        }
        io::ErrorKind::InvalidInput => (Errno::Invalid, error.to_string()),
        _ => (Errno::Io, error.to_string()),
    };
    let error = Error::new(errno, address.to_string(), cause);
    if errno == Errno::Access && matches!(address, Address::Tcp(_)) {
        return error
            .remedy("`cudele auth ls` on the host of the cluster shows keys and their end");
    }
    error
}

impl Address {
    /// Connects, and agrees on a version of the protocol; over TCP with the key of this process.
    ///
    /// # Errors
    /// `ENOENT`, `ECONNREFUSED`, `EIO`, with the address; `EACCES` without a key, or if the two
    /// sides do not accept each other's; `EINVAL` for a plain address of another machine;
    /// `EBADMSG` if there is no version of the protocol that both speak.
    pub fn connect(&self, keys: &Keyring) -> Result<OpenedConnection, Error> {
        let (stream, mut tls) = self.connect_socket(keys)?;
        let theirs = exchange(&stream, tls.as_mut()).map_err(|cause| error(self, &cause))?;
        let version = theirs.and_then(|theirs| ProtocolVersions::OURS.agree(theirs));
        let version = version.map_err(|cause| Error::from(cause).about(self.to_string()))?;
        Ok(OpenedConnection { stream, tls, version })
    }

    /// Whether a daemon listens there; over TCP, whether it accepts the key of this process. The
    /// daemon may be too busy to answer.
    #[must_use]
    pub fn is_served(&self, keys: &Keyring) -> bool {
        self.connect_socket(keys).is_ok()
    }

    fn connect_socket(&self, keys: &Keyring) -> Result<(Stream, Option<Tls>), Error> {
        let config = match self {
            Self::Tcp(_) => Some(keys.key().and_then(|key| key.client())?),
            Self::Unix(_) | Self::Plain(_) => None,
        };
        let connect = || -> io::Result<_> {
            let stream = match self {
                Self::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
                Self::Tcp(host) => Stream::Tcp(connect_tcp(host, |_| true)?),
                Self::Plain(host) => Stream::Tcp(connect_tcp(host, |ip| ip.is_loopback())?),
            };
            stream.prepare()?;
            let tls = config.map(|config| shake_hands(&stream, config)).transpose()?;
            Ok((stream, tls))
        };
        connect().map_err(|cause| error(self, &cause))
    }

    /// Listens; over TCP with the key of this daemon. A Unix socket without a listener is replaced;
    /// one with a listener is in use.
    pub(crate) fn listen(&self, keys: &Keyring) -> Result<Listener, Error> {
        let key = match self {
            Self::Tcp(_) => {
                let key = keys.key()?;
                // A key that is no use shows when the daemon starts.
                key.server()?;
                Some(key.clone())
            }
            Self::Unix(_) | Self::Plain(_) => None,
        };
        let listen = || -> io::Result<Listener> {
            Ok(match self {
                Self::Unix(path) => {
                    remove_stale(path)?;
                    let listener = UnixListener::bind(path)?;
                    // For its owner only, whatever the umask is.
                    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
                    Listener::Unix(listener, Socket { path: path.clone(), id: id_of(path)? })
                }
                Self::Tcp(host) => Listener::Tcp(TcpListener::bind(host)?, key.clone()),
                Self::Plain(host) => {
                    let listener = TcpListener::bind(&loopback(host)?[..])?;
                    Listener::Tcp(listener, None)
                }
            })
        };
        let listener = listen().map_err(|cause| {
            if cause.kind() == io::ErrorKind::InvalidInput {
                return error(self, &cause);
            }
            let remedy = "stop the process that listens there, or choose another address";
            error(self, &cause).remedy(remedy)
        })?;
        let result = match &listener {
            Listener::Unix(listener, _) => listener.set_nonblocking(true),
            Listener::Tcp(listener, _) => listener.set_nonblocking(true),
        };
        result.map_err(|cause| error(self, &cause))?;
        Ok(listener)
    }
}

/// Tries the addresses of a host in turn. An address without an answer must not block the caller
/// for the minutes of the kernel's own timeout.
fn connect_tcp(host: &str, accepts: impl Fn(IpAddr) -> bool) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::InvalidInput, NOT_LOOPBACK);
    for address in host.to_socket_addrs()?.filter(|address| accepts(address.ip())) {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The addresses of a host, all of which must be this machine's loopback.
fn loopback(host: &str) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<SocketAddr> = host.to_socket_addrs()?.collect();
    match addresses.iter().all(|address| address.ip().is_loopback()) {
        true => Ok(addresses),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, NOT_LOOPBACK)),
    }
}

/// Proves this side and verifies the other, which must be a daemon and accept this side.
fn shake_hands(stream: &Stream, config: Arc<ClientConfig>) -> io::Result<Tls> {
    let mut tls = Tls::of_client(config)?;
    let (mut buffer, mut wire, mut plain) = (vec![0; HANDSHAKE_BYTES], Vec::new(), Vec::new());
    stream.set_timeout(Some(CONNECT))?;
    loop {
        wire.clear();
        tls.drain(&mut wire)?;
        { stream }.write_all(&wire)?;
        match plain[..] {
            [] => {}
            [ACCEPTED] => {
                stream.set_timeout(None)?;
                return Ok(tls);
            }
            [FOREIGN] => {
                let cause = "the key is not for the network of this host";
                return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
            }
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no daemon")),
        }
        let count = { stream }.read(&mut buffer)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server closed it"));
        }
        let taken = tls.decrypt(&buffer[..count], &mut plain);
        if taken.is_err() {
            // The other side learns why.
            wire.clear();
            let _ = tls.drain(&mut wire).and_then(|()| { stream }.write_all(&wire));
        }
        taken?;
    }
}

/// Sends the versions of the protocol that this program speaks, and receives those of the daemon.
fn exchange(
    stream: &Stream,
    mut tls: Option<&mut Tls>,
) -> io::Result<Result<ProtocolVersions, FrameError>> {
    stream.set_timeout(Some(ANSWER))?;
    let mut wire = Vec::new();
    match &mut tls {
        None => wire = ProtocolVersions::OURS.to_frame(),
        Some(tls) => drop(tls.encrypt(&ProtocolVersions::OURS.to_frame(), &mut wire)?),
    }
    // A daemon without room for one more has answered and closed the connection by now.
    let sent = { stream }.write_all(&wire);
    sent.or_else(|error| if has_ended(&error) { Ok(()) } else { Err(error) })?;
    let mut arrived = Vec::new();
    loop {
        let theirs = match ProtocolVersions::decode(&arrived) {
            Ok(Some((theirs, length))) if length == arrived.len() => Ok(theirs),
            Ok(Some(_)) => return Err(io::Error::new(io::ErrorKind::InvalidData, UNASKED)),
            Ok(None) => {
                receive(stream, &mut tls, &mut arrived)?;
                continue;
            }
            Err(error) => Err(error),
        };
        stream.set_timeout(None)?;
        return Ok(theirs);
    }
}

fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Receives once, and no byte behind the daemon's versions: frames may follow them.
fn receive(stream: &Stream, tls: &mut Option<&mut Tls>, arrived: &mut Vec<u8>) -> io::Result<()> {
    let bytes = if tls.is_some() { HANDSHAKE_BYTES } else { ProtocolVersions::missing(arrived) };
    let mut buffer = vec![0; bytes];
    let count = loop {
        match { stream }.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if has_ended(&error) => break 0,
            result => break result?,
        }
    };
    if count == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, ENDED));
    }
    match tls {
        None => arrived.extend(&buffer[..count]),
        Some(tls) => tls.decrypt(&buffer[..count], arrived)?,
    }
    Ok(())
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

/// Identifies a file among those that have the same name one after the other.
fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    let meta = std::fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// How an attempt to accept a connection ended.
pub(crate) enum Accepted {
    /// A connection, and the key of the daemon if the peer must prove itself.
    Stream(Stream, Option<Arc<KeyFile>>),
    /// That connection was gone again.
    Failed,
    /// No more connections wait.
    Nobody,
    /// The system has no descriptor or no memory for one more.
    Short,
}

impl Listener {
    pub(crate) fn accept(&self) -> Accepted {
        let accepted = match self {
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Self::Tcp(listener, _) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        };
        match accepted.and_then(|stream| stream.prepare().map(|()| stream)) {
            Ok(stream) => Accepted::Stream(stream, self.key().cloned()),
            Err(error) => match rustix::io::Errno::from_io_error(&error) {
                Some(rustix::io::Errno::WOULDBLOCK) => Accepted::Nobody,
                Some(
                    rustix::io::Errno::MFILE
                    | rustix::io::Errno::NFILE
                    | rustix::io::Errno::NOBUFS
                    | rustix::io::Errno::NOMEM,
                ) => Accepted::Short,
                _ => Accepted::Failed,
            },
        }
    }
}

impl Listener {
    /// The key of the daemon, if peers must prove themselves.
    pub(crate) fn key(&self) -> Option<&Arc<KeyFile>> {
        let Self::Tcp(_, key) = self else { return None };
        key.as_ref()
    }

    /// Lets the members of a group connect. A listener on TCP has no group.
    pub(crate) fn share_with(&self, group: u32) -> io::Result<()> {
        let Self::Unix(_, Socket { path, .. }) = self else { return Ok(()) };
        std::os::unix::fs::lchown(path, None, Some(group))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o660))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, Socket { path, id }) = self
            // A process that took over may have made a new socket of this name.
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
            Self::Tcp(listener, _) => listener.as_fd(),
        }
    }
}

impl Stream {
    /// Sets the options of every TCP connection: small messages leave at once, and probes detect a
    /// peer that is gone although nothing is sent to it.
    fn prepare(&self) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
        sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE / 4)?;
        Ok(sockopt::set_tcp_keepcnt(stream, 4)?)
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(true),
            Self::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    /// The address of the peer of a TCP connection; `None` if it has none any more.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip()),
        }
    }

    /// Ends both directions: blocked reads and writes return.
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
