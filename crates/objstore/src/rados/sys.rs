//! The used part of librados, safe to call.
//!
//! Every request is submitted and then waited for, so that requests can be under way side by side
//! without a thread for each. Not here: the meaning of the requests and of their errors.
//!
//! Invariant: memory that librados writes to is borrowed until the request has ended; handles live
//! as long as the objects made from them.
#![allow(unsafe_code, reason = "calls into librados, a C library")]

mod library;
mod lock;
mod ops;
mod watch;

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use library::{Api, Handle, api};
pub(super) use lock::Holder;
pub(super) use ops::{Read, Seen, Step, Submitted};
use ops::{ReadOp, WriteOp};
pub(super) use watch::{Signal, Watch};

/// A negative error number, as librados returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const NOT_FOUND: Self = Self(-2);
    pub(super) const BUSY: Self = Self(-16);
    pub(super) const EXISTS: Self = Self(-17);
    pub(super) const INVALID: Self = Self(-22);
    pub(super) const RANGE: Self = Self(-34);
    pub(super) const OVERFLOW: Self = Self(-75);
    pub(super) const SHUT_OUT: Self = Self(-108);
    pub(super) const TIMED_OUT: Self = Self(-110);
    pub(super) const CANCELED: Self = Self(-125);

    /// A pool, its quota or an OSD is full (`ENOSPC`, `EDQUOT`).
    pub(super) fn is_full(self) -> bool {
        matches!(self.0, -28 | -122)
    }
}

pub(super) type CodeResult<T> = Result<T, Code>;

fn check(code: c_int) -> CodeResult<()> {
    if code < 0 { Err(Code(code)) } else { Ok(()) }
}

/// Names and settings come from checked sources; a zero byte in one is refused all the same.
fn text(text: &str) -> CodeResult<CString> {
    CString::new(text).map_err(|_| Code::INVALID)
}

/// A connection to a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    api: &'static Api,
    handle: Handle,
    /// Whether this process may write to full pools.
    may_force: AtomicBool,
    /// Whether a pool is full, as far as this process knows.
    pub(super) full: AtomicBool,
}

// SAFETY: librados's handles may be used by any thread, and by several at a time.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `rados_create2`, and every user of it holds this object.
        unsafe { (self.api.rados_shutdown)(self.handle) };
    }
}

impl Cluster {
    /// A handle that is not connected yet, for this user (`client.` and something).
    pub(super) fn new(user: &str) -> types::Result<CodeResult<Self>> {
        let api = api()?;
        let mut handle = null_mut();
        Ok(text(user).and_then(|user| {
            // SAFETY: the strings end with zero and outlive the call.
            check(unsafe {
                (api.rados_create2)(&raw mut handle, c"ceph".as_ptr(), user.as_ptr(), 0)
            })?;
            let (may_force, full) = (AtomicBool::new(false), AtomicBool::new(false));
            Ok(Self { api, handle, may_force, full })
        }))
    }

    /// Reads a configuration file; without a path, from where Ceph keeps it.
    pub(super) fn read_conf(&self, path: Option<&str>) -> CodeResult<()> {
        let path = path.map(text).transpose()?;
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: a string that outlives the call, or null, as documented.
        check(unsafe { (self.api.rados_conf_read_file)(self.handle, path) })
    }

    pub(super) fn set(&self, option: &str, value: &str) -> CodeResult<()> {
        let (option, value) = (text(option)?, text(value)?);
        // SAFETY: strings that outlive the call.
        check(unsafe { (self.api.rados_conf_set)(self.handle, option.as_ptr(), value.as_ptr()) })
    }

    pub(super) fn connect(&self) -> CodeResult<()> {
        // SAFETY: called once, on a handle that is configured.
        check(unsafe { (self.api.rados_connect)(self.handle) })
    }

    /// Allows this process to write to full pools.
    pub(super) fn allow_force(&self) {
        self.may_force.store(true, Ordering::Relaxed);
    }

    /// Notes that a pool is full, and returns whether this process may write to it all the same.
    fn meet_full(&self) -> bool {
        let may_force = self.may_force.load(Ordering::Relaxed);
        self.full.fetch_or(may_force, Ordering::Relaxed);
        may_force
    }

    /// The number that the cluster gave to this connection, and gives to no other.
    pub(super) fn instance(&self) -> u64 {
        // SAFETY: connected.
        unsafe { (self.api.rados_get_instance_id)(self.handle) }
    }

    /// Asks the monitors; the question and the answer are JSON.
    pub(super) fn monitor(&self, command: &str) -> CodeResult<Vec<u8>> {
        let command = text(command)?;
        let mut command = command.as_ptr();
        let (mut output, mut output_bytes) = (null_mut(), 0);
        let (mut status, mut status_bytes) = (null_mut(), 0);
        // SAFETY: one command, no input; the outputs are written before the call returns.
        let code = unsafe {
            (self.api.rados_mon_command)(
                self.handle,
                &raw mut command,
                1,
                null(),
                0,
                &raw mut output,
                &raw mut output_bytes,
                &raw mut status,
                &raw mut status_bytes,
            )
        };
        let (answer, _) = (self.take(output, output_bytes), self.take(status, status_bytes));
        check(code).map(|()| answer)
    }

    /// Copies and frees a buffer of librados.
    fn take(&self, buffer: *mut c_char, bytes: usize) -> Vec<u8> {
        if buffer.is_null() {
            return Vec::new();
        }
        // SAFETY: librados made it with this length, and it is ours to free.
        let copy = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: freed once, here.
        unsafe { (self.api.rados_buffer_free)(buffer) };
        copy
    }

    /// Fences a client by its address, and waits until this client has the map with that. Later
    /// requests of this client reach only servers that have the map, too.
    pub(super) fn shut_out(&self, address: &str, seconds: u32) -> CodeResult<()> {
        let address = text(address)?;
        // SAFETY: the string is not written to, in spite of its type.
        check(unsafe {
            (self.api.rados_blocklist_add)(self.handle, address.as_ptr().cast_mut(), seconds)
        })
    }
}

/// A pool, seen through one namespace.
#[derive(Debug)]
pub(super) struct Pool {
    /// Before the cluster, which it needs to be closed.
    io: Io,
    cluster: Arc<Cluster>,
}

#[derive(Debug)]
struct Io(&'static Api, Handle);

// SAFETY: an I/O context whose namespace does not change may be used by any number of threads.
unsafe impl Send for Io {}
// SAFETY: as above.
unsafe impl Sync for Io {}

impl Drop for Io {
    fn drop(&mut self) {
        // SAFETY: made by `rados_ioctx_create`; every user of it holds the pool.
        unsafe { (self.0.rados_ioctx_destroy)(self.1) };
    }
}

/// Full pools answer at once instead of letting every writer wait, and deletes go through.
const FULL_TRY: c_int = 64;
/// Full pools take the change all the same, up to where the OSDs protect themselves.
const FULL_FORCE: c_int = 128;

impl Pool {
    pub(super) fn open(cluster: &Arc<Cluster>, pool: &str, namespace: &str) -> CodeResult<Self> {
        let (pool, namespace) = (text(pool)?, text(namespace)?);
        let mut io = null_mut();
        let api = cluster.api;
        // SAFETY: the cluster is connected, the string outlives the call.
        check(unsafe { (api.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &raw mut io) })?;
        let io = Io(api, io);
        // SAFETY: before any other thread can use the context.
        unsafe { (api.rados_ioctx_set_namespace)(io.1, namespace.as_ptr()) };
        // Locks, too, which are no compound changes.
        // SAFETY: as above.
        unsafe { (api.rados_set_osdmap_full_try)(io.1) };
        Ok(Self { io, cluster: Arc::clone(cluster) })
    }

    /// Begins a compound change. The data is copied.
    pub(super) fn submit(&self, object: &str, steps: &[Step<'_>]) -> CodeResult<Submitted> {
        let cluster = &self.cluster;
        let force =
            cluster.may_force.load(Ordering::Relaxed) && cluster.full.load(Ordering::Relaxed);
        self.submit_with(object, steps, if force { FULL_TRY | FULL_FORCE } else { FULL_TRY })
    }

    /// Executes a compound change unless a pool is full.
    pub(super) fn attempt(&self, object: &str, steps: &[Step<'_>]) -> CodeResult<u64> {
        self.submit_with(object, steps, FULL_TRY)?.wait()
    }

    fn submit_with(&self, object: &str, steps: &[Step<'_>], flags: c_int) -> CodeResult<Submitted> {
        let object = text(object)?;
        let Io(api, io) = self.io;
        // SAFETY: no arguments.
        let op = WriteOp(api, unsafe { (api.rados_create_write_op)() });
        steps.iter().for_each(|step| op.add(step));
        let completion = Submitted::new(api)?;
        // SAFETY: all handles are valid; librados has copied the data that the operation needs.
        check(unsafe {
            (api.rados_aio_write_op_operate)(
                op.1,
                io,
                completion.1,
                object.as_ptr(),
                null_mut(),
                flags,
            )
        })?;
        Ok(completion)
    }

    /// Carries a compound change out. Returns the object's version behind it.
    pub(super) fn change(&self, object: &str, steps: &[Step<'_>]) -> CodeResult<u64> {
        match self.submit(object, steps)?.wait() {
            Err(code) if code.is_full() && self.cluster.meet_full() => {
                self.submit(object, steps)?.wait()
            }
            done => done,
        }
    }

    /// Reads one object.
    pub(super) fn read(&self, read: Read<'_>) -> CodeResult<Seen> {
        self.read_all(vec![read]).pop().unwrap_or(Err(Code::INVALID))
    }

    /// Reads several objects side by side.
    pub(super) fn read_all(&self, reads: Vec<Read<'_>>) -> Vec<CodeResult<Seen>> {
        let Io(api, io) = self.io;
        let mut under_way: Vec<_> = reads.into_iter().map(|read| ReadOp::new(api, read)).collect();
        // Librados writes into `under_way`, which stays where it is until all have ended.
        let submitted: Vec<_> = under_way.iter_mut().map(|op| op.submit(io)).collect();
        let ended: Vec<_> =
            submitted.into_iter().map(|submitted| submitted.and_then(Submitted::wait)).collect();
        let seen = |(op, version): (ReadOp<'_>, CodeResult<u64>)| op.seen(version?);
        under_way.into_iter().zip(ended).map(seen).collect()
    }

    /// Every name in the namespace, in no order, perhaps more than once.
    pub(super) fn names(&self, mut visit: impl FnMut(&str)) -> CodeResult<()> {
        let Io(api, io) = self.io;
        let mut list = null_mut();
        // SAFETY: a valid context.
        check(unsafe { (api.rados_nobjects_list_open)(io, &raw mut list) })?;
        let list = NameList(api, list);
        loop {
            let (mut name, mut key, mut namespace) = (null(), null(), null());
            // SAFETY: the list is open; the strings are valid until the next call.
            match check(unsafe {
                (api.rados_nobjects_list_next)(
                    list.1,
                    &raw mut name,
                    &raw mut key,
                    &raw mut namespace,
                )
            }) {
                Err(Code::NOT_FOUND) => return Ok(()), // The end.
                result => result?,
            }
            // SAFETY: librados returned a string that ends with zero.
            if let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() {
                visit(name);
            }
        }
    }
}

struct NameList(&'static Api, Handle);

impl Drop for NameList {
    fn drop(&mut self) {
        // SAFETY: opened and not yet closed.
        unsafe { (self.0.rados_nobjects_list_close)(self.1) };
    }
}
