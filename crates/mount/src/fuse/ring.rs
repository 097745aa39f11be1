//! An entry of a queue of requests over io_uring, and the ring of one thread.
//!
//! The kernel has one queue for each processor. An entry is memory that this process registers with
//! a queue: the kernel writes a request into the memory and completes the command, and the thread
//! writes the reply into the same memory and sends the next command, which also fetches the next
//! request. A reply may come through another ring than its request did: then the entry belongs to
//! that ring from there on.
//!
//! Invariant: the kernel writes into the memory of an entry only while the entry is in a [`Ring`].
#![allow(unsafe_code, reason = "shares memory with the kernel, and fills its queue of commands")]

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::device::Device;
use super::parts::{self, HEADERS_BYTES};
use super::session::TRANSFER_BYTES_MAX;

/// Commands of the device (`FUSE_IO_URING_CMD_*`).
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes of a command's own fields (`struct fuse_uring_cmd_req`), and the place of each.
const COMMAND_BYTES: usize = 80;
const COMMIT_ID: std::ops::Range<usize> = 8..16;
const QUEUE: std::ops::Range<usize> = 16..18;
/// The place of the field `len` of `struct io_uring_sqe`, for which the library has no setter.
const LENGTH_AT: usize = 24;
/// The kernel's number for memory in two parts: headers and payload.
const PARTS: u32 = 2;

/// The room of the headers: one page, so that the payload begins at the next.
const PAYLOAD_AT: usize = 4096;
const PAYLOAD_BYTES: usize = TRANSFER_BYTES_MAX as usize;
const MEMORY_BYTES: usize = PAYLOAD_AT + PAYLOAD_BYTES;

/// One part of an entry's memory (`struct iovec`).
#[repr(C)]
#[derive(Debug)]
struct Part {
    start: *mut u8,
    length: usize,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Entry {
    memory: NonNull<u8>,
    /// The kernel reads it when the entry is registered.
    parts: Box<[Part; 2]>,
}

// SAFETY: the entry owns its memory, and the pointers point nowhere else.
unsafe impl Send for Entry {}
// SAFETY: shared references only read the memory.
unsafe impl Sync for Entry {}

impl Entry {
    pub(super) fn new() -> Self {
        // Zeros come as pages that the kernel allocates at the first write.
        let memory = Box::into_raw(vec![0; MEMORY_BYTES].into_boxed_slice()).cast::<u8>();
        // SAFETY: the offset is within the memory.
        let payload = unsafe { memory.add(PAYLOAD_AT) };
        let headers = Part { start: memory, length: HEADERS_BYTES };
        let parts = Box::new([headers, Part { start: payload, length: PAYLOAD_BYTES }]);
        Self { memory: NonNull::new(memory).expect("memory of a box"), parts }
    }

    fn memory(&self) -> (&[u8], &[u8]) {
        // SAFETY: the memory has this length, and the kernel does not write into it.
        let memory = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), MEMORY_BYTES) };
        (&memory[..HEADERS_BYTES], &memory[PAYLOAD_AT..])
    }

    fn memory_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        // SAFETY: the same, and no other reference to the memory exists.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), MEMORY_BYTES) };
        let (headers, payload) = memory.split_at_mut(PAYLOAD_AT);
        (&mut headers[..HEADERS_BYTES], payload)
    }

    /// Copies the request into a buffer, in the form that it has on the device. Returns its length;
    /// `None` for a malformed one.
    pub(super) fn request(&self, buffer: &mut [u8]) -> Option<usize> {
        let (headers, payload) = self.memory();
        parts::join(headers, payload, buffer)
    }

    /// The number that the reply to the request repeats.
    pub(super) fn unique(&self) -> u64 {
        parts::unique(self.memory().0)
    }

    /// Writes a reply, which has the form that it has on the device.
    pub(super) fn reply(&mut self, reply: &[u8]) {
        let (headers, payload) = self.memory_mut();
        parts::split(reply, headers, payload);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.memory.as_ptr(), MEMORY_BYTES);
        // SAFETY: the memory comes from a box of this length, and the kernel does not use it.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// The ring of one thread, with at most one entry. Only the thread that made it may use it.
pub(super) struct Ring {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: Arc<Device>,
    queue: u16,
    /// The entry that the kernel has.
    entry: Option<Entry>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Ring {
    /// # Errors
    /// As `io_uring_setup(2)`: `EPERM` where io_uring is forbidden, `ENOMEM`.
    pub(super) fn new(device: Arc<Device>, queue: u16) -> io::Result<Self> {
        let uring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(2)?;
        Ok(Self { uring, device, queue, entry: None })
    }

    /// Adds an entry to the queue.
    ///
    /// # Errors
    /// If the kernel takes no command; its answer to the command comes with [`Ring::next`].
    pub(super) fn register(&mut self, entry: Entry) -> io::Result<()> {
        self.push(REGISTER, 0, entry)?;
        self.uring.submit().map(drop)
    }

    /// Replies to the request of an entry; the reply leaves with [`Ring::next`].
    pub(super) fn commit(&mut self, entry: Entry) -> io::Result<()> {
        let commit_id = parts::commit_id(entry.memory().0);
        self.push(COMMIT_AND_FETCH, commit_id, entry)
    }

    fn push(&mut self, operation: u32, commit_id: u64, entry: Entry) -> io::Result<()> {
        let mut fields = [0; COMMAND_BYTES];
        fields[COMMIT_ID].copy_from_slice(&commit_id.to_ne_bytes());
        fields[QUEUE].copy_from_slice(&self.queue.to_ne_bytes());
        let device = types::Fd(self.device.as_raw_fd());
        let command = opcode::UringCmd80::new(device, operation).cmd(fields);
        let mut command = command.addr(Some(entry.parts.as_ptr() as u64)).build();
        const { assert!(size_of::<squeue::Entry128>() == 128) };
        // SAFETY: the command is a `struct io_uring_sqe` with room for more fields, in which `len`
        // is a `u32` at this place.
        unsafe {
            (&raw mut command).cast::<u8>().add(LENGTH_AT).cast::<u32>().write(PARTS);
        }
        let full = |_| io::Error::from(io::ErrorKind::QuotaExceeded);
        // SAFETY: the memory lives until the command completes: `entry` is in the ring until then,
        // and is leaked if that never happens.
        unsafe { self.uring.submission().push(&command) }.map_err(full)?;
        self.entry = Some(entry);
        Ok(())
    }

    /// Sends the reply, if there is one, and blocks until the next request.
    ///
    /// # Errors
    /// `ENOTCONN` or `ECONNABORTED` after the unmount; as the kernel answers the last command.
    pub(super) fn next(&mut self) -> io::Result<Entry> {
        loop {
            if let Some(done) = self.uring.completion().next() {
                // A failed command leaves the entry to this process, too.
                let entry = self.entry.take().expect("each command has an entry");
                let code = done.result();
                return if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(entry) };
            }
            match self.uring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may write into its memory until the ring is gone, which takes a while.
        std::mem::forget(self.entry.take());
    }
}
