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
use super::flights::{Begun, Cancel, DEVICE, Ended, Flights, Ticket, Waits};
use super::kind;
use super::processors::{self, Bells, Bound};
use super::reply::Out;
use super::request::{Init, Op, Request};
use super::ring::Entry;
use crate::metrics::{EndedRequest, MountMeter};
use queues::{Beginning, Gate, Queues};

mod queues;

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
/// Examinations of slow requests between two looks for threads that inherited a processor.
const HEIRS_EVERY: u64 = 10;
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
    queues: Arc<Queues>,
    handler: H,
    meter: Option<Arc<MountMeter>>,
    /// A reference to itself, for threads that start later.
    this: OnceLock<std::sync::Weak<Inner<H>>>,
}

/// How to serve a file system.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// Where the file system is mounted.
    pub(crate) at: &'a std::path::Path,
    pub(crate) features: Features,
    /// Threads that read from the device.
    pub(crate) threads: usize,
    /// While requests follow each other closely, it keeps processors awake.
    pub(crate) awake: Option<Awake>,
    /// Counts requests.
    pub(crate) meter: Option<Arc<MountMeter>>,
    /// Requests come over io_uring where the kernel offers that.
    pub(crate) io_uring: bool,
}

/// A request that was executed, and its reply.
#[derive(Debug)]
struct Executed<G> {
    ended: Ended,
    code: i32,
    /// The resource that the reply transfers.
    given: Option<G>,
}

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Session {
    flights: Arc<Flights>,
    uses_io_uring: bool,
}

/// Invalidates entries of the kernel's caches.
#[derive(Debug)]
pub(crate) struct Notifier(Arc<Device>);

/// Negotiates with the kernel, and starts the workers and a watcher.
///
/// # Errors
/// If the kernel speaks another version, or no threads can be started.
pub(crate) fn start<H: Handler>(
    device: OwnedFd,
    handler: H,
    setup: Setup<'_>,
) -> std::io::Result<(Session, Notifier)> {
    let Setup { at, features, threads, awake, meter, io_uring } = setup;
    let device = Arc::new(Device::new(device));
    let init = receive_first(&device)?;
    let is_offered = io_uring && init.more_flags & init::OVER_IO_URING != 0;
    let crews = if is_offered { queues::crews(threads) } else { Vec::new() };
    let flights = Arc::new(Flights::new(&[&[threads], &*crews].concat()));
    let (bells, bound, gate) = (Bells::default(), Bound::default(), Gate::default());
    let queues = Arc::new(Queues { at: at.to_owned(), bells, bound, gate });
    let (this, flights_of) = (OnceLock::new(), flights.clone());
    let inner = Inner { device: device.clone(), flights: flights_of, queues, handler, meter, this };
    let inner = Arc::new(inner);
    let _ = inner.this.set(Arc::downgrade(&inner));
    let uses_io_uring = !crews.is_empty() && inner.prepare_queues(&crews);
    if let Err(error) = agree(&device, init, features, uses_io_uring) {
        inner.leave_queues(crews.len());
        return Err(error);
    }
    inner.queues.gate.open(uses_io_uring);
    if inner.start_readers(threads) == 0 {
        return Err(std::io::Error::from(std::io::ErrorKind::WouldBlock));
    }
    let (watcher, watched) = (inner, flights.clone());
    std::thread::Builder::new().name("fuse-watch".to_owned()).spawn(move || {
        watcher.watch(awake);
        drop(watcher);
        watched.leave_watch();
    })?;
    Ok((Session { flights, uses_io_uring }, Notifier(device)))
}

/// Reads the kernel's first request.
fn receive_first(device: &Device) -> std::io::Result<Init> {
    let (mut buffer, mut out) = (vec![0; REQUEST_BYTES_MAX], Out::new());
    let length = device.read(&mut buffer)?;
    let init = Init::parse(&buffer[..length]);
    init.filter(|init| init.major >= abi::VERSION.0).ok_or_else(|| {
        let unique = init.map_or(0, |init| init.unique);
        device.write(unique, PROTOCOL, &mut out);
        std::io::Error::other("the kernel's version of FUSE is not known")
    })
}

/// Answers the kernel's first request.
fn agree(
    device: &Device,
    init: Init,
    features: Features,
    uses_io_uring: bool,
) -> std::io::Result<()> {
    let mut out = Out::new();
    out.begin();
    out.u32(abi::VERSION.0);
    out.u32(abi::VERSION.1);
    out.u32(init.read_ahead_bytes.min(READ_AHEAD_KIB * 1024));
    let optional = [
        (features.maps_uncached, init::DIRECT_IO_ALLOW_MMAP),
        (uses_io_uring, init::OVER_IO_URING),
    ];
    let present = optional.into_iter().filter(|(is_present, _)| *is_present);
    let more_flags = init.more_flags & present.fold(0, |flags, (_, flag)| flags | flag);
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
    match device.send(init.unique, 0, &mut out) {
        // After an unmount, which the threads notice, too.
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(_) => Err(std::io::Error::other("the kernel did not take what was agreed")),
    }
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
    /// Starts threads of several crews.
    fn start_threads(&self, crews: Vec<(usize, usize)>) {
        for (crew, count) in crews {
            if crew == DEVICE {
                self.start_readers(count);
            } else {
                for _ in 0..count {
                    self.start_server(crew, Beginning::Replacement);
                }
            }
        }
    }

    /// Starts up to `count` threads that read from the device. Returns the number of those that
    /// run.
    fn start_readers(&self, count: usize) -> usize {
        let mut started_count = 0;
        for _ in 0..count {
            let Some(inner) = self.this.get().and_then(std::sync::Weak::upgrade) else { break };
            let (thread, flights) =
                (std::thread::Builder::new().name("fuse".to_owned()), self.flights.clone());
            let started = thread.spawn(move || {
                processors::roam();
                let is_over = inner.work();
                // `Session::wait` promises that no thread uses the file system any more.
                drop(inner);
                flights.leave(DEVICE, is_over, is_over);
            });
            if started.is_ok() {
                started_count += 1;
            } else {
                self.flights.leave(DEVICE, true, false);
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
            } else if !self.answer(&request, &mut out) {
                return false;
            }
        }
    }

    /// Handles a request of the device. Returns whether this thread is still needed.
    fn answer(&self, request: &Request<'_>, out: &mut Out) -> bool {
        let Executed { ended, code, given } = self.execute(request, out, DEVICE, None);
        let has_reply = !matches!(request.op, Op::Forget(_) | Op::BatchForget(_));
        if has_reply {
            let is_delivered = ended.is_awaited && self.device.write(request.unique, code, out);
            if !is_delivered && let Some(given) = given {
                self.handler.take_back(given);
            }
        }
        ended.is_needed
    }

    /// Executes a request, as a thread of a crew.
    fn execute(
        &self,
        request: &Request<'_>,
        out: &mut Out,
        crew: usize,
        entry: Option<Entry>,
    ) -> Executed<H::Given> {
        out.begin();
        let (unique, caller) = (request.unique, request.pid);
        let is_flush = matches!(request.op, Op::Flush { .. });
        self.meter.iter().for_each(|meter| meter.begun());
        let begun = self.flights.begin(Begun { unique, caller, is_flush, crew, entry });
        let result = self.handler.handle(request, out, Ticket { session: self, unique });
        let ended = self.flights.end(unique);
        let (code, given) = match result {
            Some(Ok(given)) => (0, Some(given)),
            Some(Err(error)) => (-i32::from(error.errno.code()), None),
            None => (UNKNOWN, None),
        };
        if let Some(meter) = &self.meter {
            meter.ended(&ended_request(request, out, code, begun.elapsed()));
        }
        if out.lends() && begun.elapsed() > LENDING_AGE_MAX {
            out.withdraw();
        }
        Executed { ended, code, given }
    }

    /// Interrupts requests and replaces blocked threads until the unmount.
    fn watch(&self, mut awake: Option<Awake>) {
        let (mut out, mut examinations) = (Out::new(), 0_u64);
        while let Some(due) = self.flights.watch() {
            examinations += 1;
            if self.flights.has_queues() && examinations.is_multiple_of(HEIRS_EVERY) {
                self.queues.bound.free_heirs();
            }
            awake.iter_mut().for_each(|awake| awake.set(due.is_busy));
            for unique in due.interrupted {
                out.begin();
                self.device.write(unique, INTERRUPTED, &mut out);
            }
            for (unique, crew) in due.to_take {
                // Where no thread can be started now, the next examination tries it again.
                if self.flights.join() {
                    self.start_server(crew, Beginning::Taking(unique));
                }
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

/// A request for the metrics.
fn ended_request(request: &Request<'_>, out: &Out, code: i32, took: Duration) -> EndedRequest {
    let is_read = code == 0 && matches!(request.op, Op::Read { .. });
    let read_bytes = if is_read { out.written() as u64 } else { 0 };
    let mut written_bytes = 0;
    if let Op::Write(write) = &request.op
        && code == 0
    {
        written_bytes = write.data.len() as u64;
    }
    EndedRequest { kind: kind::name(&request.op), took, code, read_bytes, written_bytes }
}

impl<H: Handler> Waits for Inner<H> {
    fn waits(&self, unique: u64, cancel: Cancel) -> Result<()> {
        self.start_threads(self.flights.waits(unique, cancel)?);
        Ok(())
    }
}

impl Session {
    /// Blocks until the unmount, and until all requests in flight have ended.
    pub(crate) fn wait(&self) {
        self.flights.wait();
    }

    /// Whether the file system is unmounted.
    pub(crate) fn is_over(&self) -> bool {
        self.flights.is_over()
    }

    /// Whether requests come over io_uring.
    pub(crate) fn uses_io_uring(&self) -> bool {
        self.uses_io_uring
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
