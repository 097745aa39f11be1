//! What is used of librados, safe to call.
//!
//! Every request is submitted and then waited for, so that requests can be under way side by side
//! without a thread for each. Not here: what the requests mean, or what their errors mean.
//!
//! Invariant: memory that librados writes to is borrowed until the request has ended; handles live
//! as long as what was made from them.
#![allow(unsafe_code, reason = "calls into librados, a C library")]

mod library;

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use library::{Api, Handle, api};

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
}

// SAFETY: librados's handles may be used by any thread, and by several at a time.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the handle was made by `rados_create2`, and whoever uses it holds this object.
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
            Ok(Self { api, handle })
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

    /// Shuts a client out by its address, and waits until this client knows that it is. What this
    /// client asks from then on is answered by servers that know it too.
    pub(super) fn shut_out(&self, address: &str, seconds: u32) -> CodeResult<()> {
        let address = text(address)?;
        // SAFETY: the string is not written to, whatever its type says.
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
        // SAFETY: made by `rados_ioctx_create`; whoever uses it holds the pool.
        unsafe { (self.0.rados_ioctx_destroy)(self.1) };
    }
}

/// A part of a compound change; all parts take place or none.
#[derive(Clone, Debug)]
pub(super) enum Step<'a> {
    /// Refuse (`RANGE`, `OVERFLOW`) unless the object exists and has this version.
    AssertVersion(u64),
    /// Refuse (`CANCELED`) unless the attribute has this value; one that is missing is empty.
    AssertAttr(&'a CStr, &'a [u8]),
    /// Make the object if it is not there.
    Create,
    /// Make the object, or refuse (`EXISTS`).
    CreateNew,
    Write(u64, &'a [u8]),
    WriteFull(&'a [u8]),
    SetAttr(&'a CStr, Vec<u8>),
    RemoveAttr(&'a CStr),
    Remove,
}

/// What a read tells beside the bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Of the object, when it was read. Changes with every change.
    pub(super) version: u64,
    /// Length of the object in bytes.
    pub(super) size: u64,
    /// How many bytes were read.
    pub(super) read: usize,
    /// The value of the attribute that was asked for.
    pub(super) attr: Option<Vec<u8>>,
}

/// What to read of one object.
#[derive(Debug)]
pub(super) struct Read<'a> {
    pub(super) object: String,
    pub(super) offset: u64,
    pub(super) buffer: &'a mut [u8],
    /// Refuse (`RANGE`, `OVERFLOW`) another version.
    pub(super) version: Option<u64>,
    pub(super) attr: Option<&'a CStr>,
}

/// Full pools answer at once instead of letting everybody wait, and deletes go through.
const FULL_TRY: c_int = 64;
const ATTR_EQUAL: u8 = 1;
const CREATE_EXCLUSIVE: c_int = 1;

impl Pool {
    pub(super) fn open(cluster: &Arc<Cluster>, pool: &str, namespace: &str) -> CodeResult<Self> {
        let (pool, namespace) = (text(pool)?, text(namespace)?);
        let mut io = null_mut();
        let api = cluster.api;
        // SAFETY: the cluster is connected, the string outlives the call.
        check(unsafe { (api.rados_ioctx_create)(cluster.handle, pool.as_ptr(), &raw mut io) })?;
        let io = Io(api, io);
        // SAFETY: before anybody else can use the context.
        unsafe { (api.rados_ioctx_set_namespace)(io.1, namespace.as_ptr()) };
        Ok(Self { io, cluster: Arc::clone(cluster) })
    }

    /// Begins a compound change. The data is copied.
    pub(super) fn submit(&self, object: &str, steps: &[Step<'_>]) -> CodeResult<Submitted> {
        let object = text(object)?;
        let Io(api, io) = self.io;
        // SAFETY: no arguments.
        let op = WriteOp(api, unsafe { (api.rados_create_write_op)() });
        steps.iter().for_each(|step| op.add(step));
        let completion = Submitted::new(api)?;
        // SAFETY: all handles are valid; librados has copied what the operation needs.
        check(unsafe {
            (api.rados_aio_write_op_operate)(
                op.1,
                io,
                completion.1,
                object.as_ptr(),
                null_mut(),
                FULL_TRY,
            )
        })?;
        Ok(completion)
    }

    /// Carries a compound change out. Returns the object's version behind it.
    pub(super) fn change(&self, object: &str, steps: &[Step<'_>]) -> CodeResult<u64> {
        self.submit(object, steps)?.wait()
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

    /// Takes a lock that nobody holds; `BUSY` if somebody does.
    pub(super) fn lock(&self, object: &str, lock: &CStr, cookie: &str) -> CodeResult<()> {
        let (object, cookie) = (text(object)?, text(cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: strings that outlive the call; without a duration the lock does not expire.
        check(unsafe {
            (api.rados_lock_exclusive)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                cookie.as_ptr(),
                c"".as_ptr(),
                null_mut(),
                0,
            )
        })
    }

    pub(super) fn unlock(&self, object: &str, lock: &CStr, cookie: &str) -> CodeResult<()> {
        let (object, cookie) = (text(object)?, text(cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: strings that outlive the call.
        check(unsafe { (api.rados_unlock)(io, object.as_ptr(), lock.as_ptr(), cookie.as_ptr()) })
    }

    /// Takes the lock from its holder.
    pub(super) fn break_lock(&self, object: &str, lock: &CStr, holder: &Holder) -> CodeResult<()> {
        let object = text(object)?;
        let (client, cookie) = (text(&holder.client)?, text(&holder.cookie)?);
        let Io(api, io) = self.io;
        // SAFETY: strings that outlive the call.
        check(unsafe {
            (api.rados_break_lock)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                client.as_ptr(),
                cookie.as_ptr(),
            )
        })
    }

    /// Who holds a lock.
    pub(super) fn holder(&self, object: &str, lock: &CStr) -> CodeResult<Option<Holder>> {
        const BYTES: usize = 8192;
        let object = text(object)?;
        let Io(api, io) = self.io;
        let mut exclusive = 0;
        let mut texts = [(); 4].map(|()| (vec![0u8; BYTES], BYTES));
        let [tag, clients, cookies, addresses] = &mut texts;
        let pointer = |(buffer, _): &mut (Vec<u8>, usize)| buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: four buffers with their lengths, which hold one holder of an exclusive lock.
        let count = unsafe {
            (api.rados_list_lockers)(
                io,
                object.as_ptr(),
                lock.as_ptr(),
                &raw mut exclusive,
                pointer(tag),
                &raw mut tag.1,
                pointer(clients),
                &raw mut clients.1,
                pointer(cookies),
                &raw mut cookies.1,
                pointer(addresses),
                &raw mut addresses.1,
            )
        };
        match c_int::try_from(count).map_err(|_| Code::INVALID)? {
            -2 | 0 => return Ok(None),
            code => check(code)?,
        }
        let first = |(buffer, _): &(Vec<u8>, usize)| {
            let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
            String::from_utf8_lossy(&buffer[..end]).into_owned()
        };
        let [_, clients, cookies, addresses] = &texts;
        Ok(Some(Holder {
            client: first(clients),
            cookie: first(cookies),
            address: first(addresses),
        }))
    }

    /// Asks everybody who watches an object to say so, within this time. Returns how many did.
    pub(super) fn ask_watchers(&self, object: &str, patience: Duration) -> CodeResult<u32> {
        let object = text(object)?;
        let Io(api, io) = self.io;
        let (mut reply, mut bytes) = (null_mut(), 0);
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: nothing is sent along; the reply is written before the call returns.
        let code = unsafe {
            (api.rados_notify2)(
                io,
                object.as_ptr(),
                null(),
                0,
                patience_ms,
                &raw mut reply,
                &raw mut bytes,
            )
        };
        let reply = self.cluster.take(reply, bytes);
        // It begins with the number of those who answered. That others did not is `ETIMEDOUT`.
        let answered = reply.first_chunk().map_or(0, |count| u32::from_le_bytes(*count));
        if answered > 0 { Ok(answered) } else { check(code).map(|()| 0) }
    }
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// Its connection: `client.` and the number of [`Cluster::instance`].
    pub(super) client: String,
    /// What it gave when it took the lock.
    pub(super) cookie: String,
    /// Where it is connected from.
    pub(super) address: String,
}

struct NameList(&'static Api, Handle);

impl Drop for NameList {
    fn drop(&mut self) {
        // SAFETY: opened and not yet closed.
        unsafe { (self.0.rados_nobjects_list_close)(self.1) };
    }
}

/// A change that was begun. To drop it is to let it take its course.
#[derive(Debug)]
pub(super) struct Submitted(&'static Api, Handle);

impl Submitted {
    fn new(api: &'static Api) -> CodeResult<Self> {
        let mut handle = null_mut();
        // SAFETY: no callback.
        check(unsafe {
            (api.rados_aio_create_completion2)(null_mut(), null_mut(), &raw mut handle)
        })?;
        Ok(Self(api, handle))
    }

    /// Waits until it has ended. Returns the version of the object.
    pub(super) fn wait(self) -> CodeResult<u64> {
        let Self(api, handle) = self;
        // SAFETY: the completion is valid until it is released, which is when `self` is dropped.
        unsafe {
            (api.rados_aio_wait_for_complete)(handle);
            check((api.rados_aio_get_return_value)(handle))?;
            Ok((api.rados_aio_get_version)(handle))
        }
    }
}

impl Drop for Submitted {
    fn drop(&mut self) {
        // SAFETY: released once; librados keeps what a request under way needs.
        unsafe { (self.0.rados_aio_release)(self.1) };
    }
}

struct WriteOp(&'static Api, Handle);

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: released once.
        unsafe { (self.0.rados_release_write_op)(self.1) };
    }
}

impl WriteOp {
    fn add(&self, step: &Step<'_>) {
        let Self(api, op) = *self;
        let of = |data: &[u8]| (data.as_ptr().cast::<c_char>(), data.len());
        // SAFETY: the operation is ours; librados copies data and names.
        unsafe {
            match step {
                Step::AssertVersion(version) => (api.rados_write_op_assert_version)(op, *version),
                Step::AssertAttr(name, value) => {
                    let (value, bytes) = of(value);
                    (api.rados_write_op_cmpxattr)(op, name.as_ptr(), ATTR_EQUAL, value, bytes);
                }
                Step::Create => (api.rados_write_op_create)(op, 0, null()),
                Step::CreateNew => (api.rados_write_op_create)(op, CREATE_EXCLUSIVE, null()),
                Step::Write(offset, data) => {
                    let (data, bytes) = of(data);
                    (api.rados_write_op_write)(op, data, bytes, *offset);
                }
                Step::WriteFull(data) => {
                    let (data, bytes) = of(data);
                    (api.rados_write_op_write_full)(op, data, bytes);
                }
                Step::SetAttr(name, value) => {
                    let (value, bytes) = of(value);
                    (api.rados_write_op_setxattr)(op, name.as_ptr(), value, bytes);
                }
                Step::RemoveAttr(name) => (api.rados_write_op_rmxattr)(op, name.as_ptr()),
                Step::Remove => (api.rados_write_op_remove)(op),
            }
        }
    }
}

/// A read, and where librados puts what it finds.
struct ReadOp<'a> {
    api: &'static Api,
    op: Handle,
    read: Read<'a>,
    size: u64,
    bytes: usize,
    attrs: Handle,
    results: [c_int; 3],
}

impl Drop for ReadOp<'_> {
    fn drop(&mut self) {
        // SAFETY: released once; the request has ended.
        unsafe {
            (self.api.rados_release_read_op)(self.op);
            if !self.attrs.is_null() {
                (self.api.rados_getxattrs_end)(self.attrs);
            }
        }
    }
}

impl<'a> ReadOp<'a> {
    fn new(api: &'static Api, read: Read<'a>) -> Self {
        // SAFETY: no arguments.
        let op = unsafe { (api.rados_create_read_op)() };
        Self { api, op, read, size: 0, bytes: 0, attrs: null_mut(), results: [0; 3] }
    }

    fn submit(&mut self, io: Handle) -> CodeResult<Submitted> {
        let object = text(&self.read.object)?;
        let completion = Submitted::new(self.api)?;
        let [of_stat, of_read, of_attrs] = &mut self.results;
        // SAFETY: `read_all`, the only caller, moves and drops nothing that librados writes to, and
        // the buffer stays borrowed, until the request has ended.
        unsafe {
            if let Some(version) = self.read.version {
                (self.api.rados_read_op_assert_version)(self.op, version);
            }
            (self.api.rados_read_op_stat)(
                self.op,
                &raw mut self.size,
                null_mut(),
                &raw mut *of_stat,
            );
            if !self.read.buffer.is_empty() {
                (self.api.rados_read_op_read)(
                    self.op,
                    self.read.offset,
                    self.read.buffer.len(),
                    self.read.buffer.as_mut_ptr().cast(),
                    &raw mut self.bytes,
                    &raw mut *of_read,
                );
            }
            if self.read.attr.is_some() {
                (self.api.rados_read_op_getxattrs)(
                    self.op,
                    &raw mut self.attrs,
                    &raw mut *of_attrs,
                );
            }
            check((self.api.rados_aio_read_op_operate)(
                self.op,
                io,
                completion.1,
                object.as_ptr(),
                0,
            ))?;
        }
        Ok(completion)
    }

    fn seen(mut self, version: u64) -> CodeResult<Seen> {
        self.results.iter().try_for_each(|code| check(*code))?;
        let attr = self.read.attr.and_then(|wanted| self.attr(wanted));
        Ok(Seen { version, size: self.size, read: self.bytes, attr })
    }

    fn attr(&mut self, wanted: &CStr) -> Option<Vec<u8>> {
        loop {
            let (mut name, mut value, mut bytes) = (null(), null(), 0);
            // SAFETY: the iterator was made by the request that has ended.
            let code = unsafe {
                (self.api.rados_getxattrs_next)(
                    self.attrs,
                    &raw mut name,
                    &raw mut value,
                    &raw mut bytes,
                )
            };
            if code < 0 || name.is_null() {
                return None; // The end.
            }
            // SAFETY: both are valid until the iterator is closed.
            unsafe {
                if CStr::from_ptr(name) == wanted {
                    let value = value.cast::<u8>();
                    let empty = value.is_null() || bytes == 0;
                    let value = if empty { &[] } else { std::slice::from_raw_parts(value, bytes) };
                    return Some(value.to_vec());
                }
            }
        }
    }
}

/// A watch on an object: whoever asks [`Pool::ask_watchers`] is answered, as long as this process
/// runs and the cluster hears of it.
#[derive(Debug)]
pub(super) struct Watch {
    pool: Arc<Pool>,
    number: u64,
    /// What the callbacks are given; they have a pointer to it.
    context: *mut Context,
}

// SAFETY: the context is read by whatever thread librados has, and consists of what may be shared.
unsafe impl Send for Watch {}

#[derive(Debug)]
struct Context {
    api: &'static Api,
    io: Handle,
    object: CString,
    signal: Arc<Signal>,
}

/// Tells whoever keeps a watch that it is lost, or that it is no longer needed.
#[derive(Debug, Default)]
pub(super) struct Signal {
    state: Mutex<()>,
    changed: Condvar,
    pub(super) lost: AtomicBool,
    pub(super) ended: AtomicBool,
    /// The watch is lost for good: this process was shut out.
    pub(super) taken: AtomicBool,
}

impl Signal {
    pub(super) fn set(&self, flag: &AtomicBool) {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        flag.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits until the watch is no longer needed or, unless that is known, lost; or so long.
    pub(super) fn wait(&self, patience: Option<Duration>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let happened = || {
            self.ended.load(Ordering::Acquire)
                || (patience.is_none() && self.lost.load(Ordering::Acquire))
        };
        let patience = patience.unwrap_or(Duration::MAX);
        let waited = self.changed.wait_timeout_while(state, patience, |()| !happened());
        drop(waited);
    }
}

/// A client that is not heard for so long watches nothing any more, in seconds.
const WATCH_TIMEOUT_S: u32 = 30;

impl Watch {
    pub(super) fn new(pool: &Arc<Pool>, object: &str, signal: &Arc<Signal>) -> CodeResult<Self> {
        let Io(api, io) = pool.io;
        let object = text(object)?;
        signal.lost.store(false, Ordering::Release);
        let context = Context { api, io, object: object.clone(), signal: Arc::clone(signal) };
        let context = Box::into_raw(Box::new(context));
        let mut number = 0;
        // SAFETY: the context lives until the watch is gone and its callbacks have returned.
        let result = check(unsafe {
            (api.rados_watch3)(
                io,
                object.as_ptr(),
                &raw mut number,
                on_notify,
                on_lost,
                WATCH_TIMEOUT_S,
                context.cast(),
            )
        });
        if let Err(code) = result {
            // SAFETY: without a watch nobody has the pointer.
            drop(unsafe { Box::from_raw(context) });
            return Err(code);
        }
        Ok(Self { pool: Arc::clone(pool), number, context })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Io(api, io) = self.pool.io;
        // SAFETY: after both calls no callback runs or will run, so the context is ours again.
        unsafe {
            (api.rados_unwatch2)(io, self.number);
            (api.rados_watch_flush)(self.pool.cluster.handle);
            drop(Box::from_raw(self.context));
        }
    }
}

extern "C" fn on_notify(
    context: Handle,
    notification: u64,
    watch: u64,
    _asker: u64,
    _data: Handle,
    _bytes: usize,
) {
    // SAFETY: what `Watch::new` gave; it outlives the watch.
    let Context { api, io, object, .. } = unsafe { &*context.cast::<Context>() };
    // SAFETY: librados allows this call from here. What does not arrive is asked again.
    unsafe { (api.rados_notify_ack)(*io, object.as_ptr(), notification, watch, null(), 0) };
}

extern "C" fn on_lost(context: Handle, _watch: u64, _code: c_int) {
    // SAFETY: as above.
    let Context { signal, .. } = unsafe { &*context.cast::<Context>() };
    signal.set(&signal.lost);
}
