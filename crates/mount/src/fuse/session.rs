//! Worker threads: they read requests from the kernel, hand them to a handler and reply.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use posix::Features;
use types::{Errno, Error, Result};

use super::abi::{self, init, notify};
use super::awake::Awake;
use super::device::Device;
use super::flights::{Cancel, Flights, Ticket, Waits};
use super::reply::Out;
use super::request::{Init, Op, Request};

/// The most that is read or written at a time.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The bytes that the kernel reads ahead of a sequential reader: a few transfers, so that some are
/// in flight while one is read.
pub const READ_AHEAD_KIB: u32 = 4 * TRANSFER_BYTES_MAX / 1024;
/// Bytes of the longest request: a write, its header and its fields.
const REQUEST_BYTES_MAX: usize = TRANSFER_BYTES_MAX as usize + 4096;
/// Pages of the longest transfer.
const PAGES_MAX: u16 = 256;
const _: () = assert!(PAGES_MAX as u32 * 4096 == TRANSFER_BYTES_MAX, "a page has 4 KiB");
/// Background requests that the kernel sends at a time, and its congestion threshold.
const BACKGROUND: (u16, u16) = (16, 12);
/// A reply of this age lends nothing to the kernel: `client` returns a directory to the server some
/// time after an answer about it, and the answer must have lapsed in the kernel by then.
const LENDING_AGE_MAX: Duration = Duration::from_millis(50);
/// `-EINTR`, `-EAGAIN`, `-ENOSYS`, `-EPROTO`.
const INTERRUPTED: i32 = -4;
const AGAIN: i32 = -11;
const UNKNOWN: i32 = -38;
const PROTOCOL: i32 = -71;

/// The file system behind a session.
pub(crate) trait Handler: std::fmt::Debug + Send + Sync + 'static {
    /// A resource that a reply transfers to the caller.
    type Given;

    /// Executes a request and writes the reply; `None` for an unknown request (`ENOSYS`).
    fn handle(
        &self,
        request: &Request<'_>,
        out: &mut Out,
        ticket: Ticket<'_>,
    ) -> Option<Result<Self::Given>>;

    /// Releases a resource whose caller did not receive the reply.
    fn take_back(&self, given: Self::Given);
}

/// See the module documentation.
#[derive(Debug)]
struct Inner<H> {
    device: Arc<Device>,
    flights: Arc<Flights>,
    handler: H,
    /// A reference to itself, for threads that start later.
    this: OnceLock<std::sync::Weak<Inner<H>>>,
}

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Session(Arc<Flights>);

/// Invalidates entries of the kernel's caches.
#[derive(Debug)]
pub(crate) struct Notifier(Arc<Device>);

/// Negotiates with the kernel for a file system with these features, and starts `threads` workers
/// and a watcher. While requests follow each other closely, `awake` keeps processors awake.
///
/// # Errors
/// If the kernel speaks another version, or no threads can be started.
pub(crate) fn start<H: Handler>(
    device: OwnedFd,
    handler: H,
    features: Features,
    threads: usize,
    awake: Option<Awake>,
) -> std::io::Result<(Session, Notifier)> {
    let device = Arc::new(Device::new(device));
    negotiate(&device, features)?;
    let (flights, this) = (Arc::new(Flights::new(threads)), OnceLock::new());
    let inner = Arc::new(Inner { device: device.clone(), flights: flights.clone(), handler, this });
    let _ = inner.this.set(Arc::downgrade(&inner));
    if inner.start_threads(threads) == 0 {
        return Err(std::io::Error::from(std::io::ErrorKind::WouldBlock));
    }
    let (watcher, watched) = (inner, flights.clone());
    std::thread::Builder::new().name("fuse-watch".to_owned()).spawn(move || {
        watcher.watch(awake);
        drop(watcher);
        watched.leave(false, true);
    })?;
    Ok((Session(flights), Notifier(device)))
}

/// Answers the kernel's first request.
fn negotiate(device: &Device, features: Features) -> std::io::Result<()> {
    let (mut buffer, mut out) = (vec![0; REQUEST_BYTES_MAX], Out::new());
    let length = device.read(&mut buffer)?;
    let init = Init::parse(&buffer[..length]);
    let Some(init) = init.filter(|init| init.major >= abi::VERSION.0) else {
        let unique = init.map_or(0, |init| init.unique);
        device.write(unique, PROTOCOL, &mut out);
        return Err(std::io::Error::other("the kernel's version of FUSE is not known"));
    };
    out.begin();
    out.u32(abi::VERSION.0);
    out.u32(abi::VERSION.1);
    out.u32(init.read_ahead_bytes.min(READ_AHEAD_KIB * 1024));
    let more_flags = if features.maps_uncached { init::DIRECT_IO_ALLOW_MMAP } else { 0 };
    let more_flags = init.more_flags & more_flags;
    let extended = if more_flags == 0 { 0 } else { init::EXT };
    out.u32(init.flags & (wanted(features) | extended));
    out.u16(BACKGROUND.0);
    out.u16(BACKGROUND.1);
    out.u32(TRANSFER_BYTES_MAX);
    // The granularity of times in nanoseconds.
    out.u32(1);
    out.u16(PAGES_MAX);
    out.u16(0);
    out.u32(more_flags);
    out.bytes(&[0; 28]);
    if device.write(init.unique, 0, &mut out) {
        return Ok(());
    }
    Err(std::io::Error::other("the kernel did not take what was agreed"))
}

/// The capabilities of the kernel that save requests, as far as the file system has its part of
/// them.
fn wanted(features: Features) -> u32 {
    let always = init::ASYNC_READ
        | init::BIG_WRITES
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS;
    let optional = [
        (features.locks, init::POSIX_LOCKS | init::FLOCK_LOCKS),
        (features.listed_attributes, init::DO_READDIRPLUS | init::READDIRPLUS_AUTO),
        (features.drops_set_id, init::HANDLE_KILLPRIV_V2),
        (features.shared_content, init::AUTO_INVAL_DATA),
        (features.access_lists, init::POSIX_ACL | init::DONT_MASK),
    ];
    let present = optional.into_iter().filter(|(is_present, _)| *is_present);
    present.fold(always, |flags, (_, flag)| flags | flag)
}

impl<H: Handler> Inner<H> {
    /// Starts up to `count` workers. Returns the number of those that run.
    fn start_threads(&self, count: usize) -> usize {
        let mut started_count = 0;
        for _ in 0..count {
            let Some(inner) = self.this.get().and_then(std::sync::Weak::upgrade) else { break };
            let (thread, flights) =
                (std::thread::Builder::new().name("fuse".to_owned()), self.flights.clone());
            let started = thread.spawn(move || {
                let is_over = inner.work();
                // `Session::wait` promises that no thread uses the file system any more.
                drop(inner);
                flights.leave(is_over, is_over);
            });
            if started.is_ok() {
                started_count += 1;
            } else {
                self.flights.leave(true, false);
            }
        }
        started_count
    }

    /// Handles requests until the unmount (returns true), or until the thread is surplus (false).
    fn work(&self) -> bool {
        let (mut buffer, mut out) = (vec![0; REQUEST_BYTES_MAX], Out::new());
        loop {
            let Ok(length) = self.device.read(&mut buffer) else {
                return true;
            };
            let Some(request) = Request::parse(&buffer[..length]) else { continue };
            if let Op::Interrupt(unique) = request.op {
                // An unknown number means that the interrupt overtook its request, or that the
                // reply overtook the interrupt. The kernel repeats it in the first case.
                if !self.flights.interrupt(unique) {
                    out.begin();
                    self.device.write(request.unique, AGAIN, &mut out);
                }
            } else if matches!(request.op, Op::Destroy) {
                out.begin();
                self.device.write(request.unique, 0, &mut out);
            } else if !self.execute(&request, &mut out) {
                return false;
            }
        }
    }

    /// Handles one request. Returns whether this thread is still needed.
    fn execute(&self, request: &Request<'_>, out: &mut Out) -> bool {
        out.begin();
        let unique = request.unique;
        let has_reply = !matches!(request.op, Op::Forget(_) | Op::BatchForget(_));
        let begun = self.flights.begin(unique, request.pid, matches!(request.op, Op::Flush { .. }));
        let result = self.handler.handle(request, out, Ticket { session: self, unique });
        let (is_awaited, is_needed) = self.flights.end(unique);
        if !has_reply {
            return is_needed;
        }
        let (code, given) = match result {
            Some(Ok(given)) => (0, Some(given)),
            Some(Err(error)) => (-i32::from(error.errno.code()), None),
            None => (UNKNOWN, None),
        };
        if out.lends() && begun.elapsed() > LENDING_AGE_MAX {
            out.withdraw();
        }
        let is_delivered = is_awaited && self.device.write(unique, code, out);
        if !is_delivered && let Some(given) = given {
            self.handler.take_back(given);
        }
        is_needed
    }

    /// Interrupts requests and replaces blocked threads until the unmount.
    fn watch(&self, mut awake: Option<Awake>) {
        let mut out = Out::new();
        while let Some(due) = self.flights.watch() {
            awake.iter_mut().for_each(|awake| awake.set(due.is_busy));
            for unique in due.interrupted {
                out.begin();
                self.device.write(unique, INTERRUPTED, &mut out);
            }
            for cancel in due.cancels {
                // A cancellation asks a server that may be away, and must not block the watcher.
                let thread = std::thread::Builder::new().name("fuse-cancel".to_owned());
                let _ = thread.spawn(move || cancel());
            }
            self.start_threads(due.threads);
        }
    }
}

impl<H: Handler> Waits for Inner<H> {
    fn waits(&self, unique: u64, cancel: Cancel) {
        self.start_threads(self.flights.waits(unique, cancel));
    }
}

impl Session {
    /// Blocks until the unmount, and until all requests in flight have ended.
    pub(crate) fn wait(&self) {
        self.0.wait();
    }

    /// Whether the file system is unmounted.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

impl Notifier {
    /// Invalidates the attributes and the content of an inode.
    pub(crate) fn forget_inode(&self, number: u64) {
        let mut out = Out::new();
        // The content from byte 0 to the end.
        [number, 0, 0].into_iter().for_each(|value| out.u64(value));
        // The kernel may have dropped the inode already, which is no error.
        self.0.write(0, notify::INVAL_INODE, &mut out);
    }

    /// Invalidates a name.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub(crate) fn forget_name(&self, dir: u64, name: &std::ffi::OsStr) -> Result<()> {
        let (mut out, name) = (Out::new(), name.as_bytes());
        let length =
            u32::try_from(name.len()).map_err(|_| Error::of(Errno::NameTooLong, "name"))?;
        out.u64(dir);
        out.u32(length);
        out.u32(0);
        out.bytes(name);
        out.bytes(&[0]);
        self.0.write(0, notify::INVAL_ENTRY, &mut out);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
