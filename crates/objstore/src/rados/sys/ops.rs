//! Requests: compound changes, reads, and waiting for them.
//!
//! Invariant: memory that librados writes to stays in place until the request has ended.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

use super::library::{Api, Handle};
use super::{CodeResult, check, text};

/// A part of a compound change; all parts take place or none.
#[derive(Clone, Debug)]
pub(in crate::rados) enum Step<'a> {
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

/// The results of a read beside the bytes.
#[derive(Clone, Debug, Default)]
pub(in crate::rados) struct Seen {
    /// Of the object, when it was read. Changes with every change.
    pub(in crate::rados) version: u64,
    /// Length of the object in bytes.
    pub(in crate::rados) size: u64,
    /// The time of the last change, in seconds by the writer's clock.
    pub(in crate::rados) changed_s: i64,
    /// How many bytes were read.
    pub(in crate::rados) read: usize,
    /// The value of the attribute that was asked for.
    pub(in crate::rados) attr: Option<Vec<u8>>,
}

/// The parts of one object to read.
#[derive(Debug)]
pub(in crate::rados) struct Read<'a> {
    pub(in crate::rados) object: String,
    pub(in crate::rados) offset: u64,
    pub(in crate::rados) buffer: &'a mut [u8],
    /// Refuse (`RANGE`, `OVERFLOW`) another version.
    pub(in crate::rados) version: Option<u64>,
    pub(in crate::rados) attr: Option<&'a CStr>,
}

const ATTR_EQUAL: u8 = 1;
const CREATE_EXCLUSIVE: c_int = 1;

/// A change that was begun. To drop it is to let it take its course.
#[derive(Debug)]
pub(in crate::rados) struct Submitted(&'static Api, pub(super) Handle);

impl Submitted {
    pub(super) fn new(api: &'static Api) -> CodeResult<Self> {
        let mut handle = null_mut();
        // SAFETY: no callback.
        check(unsafe {
            (api.rados_aio_create_completion2)(null_mut(), null_mut(), &raw mut handle)
        })?;
        Ok(Self(api, handle))
    }

    /// Waits until it has ended. Returns the version of the object.
    pub(in crate::rados) fn wait(self) -> CodeResult<u64> {
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
        // SAFETY: released once; librados keeps the memory of a request under way.
        unsafe { (self.0.rados_aio_release)(self.1) };
    }
}

pub(super) struct WriteOp(pub(super) &'static Api, pub(super) Handle);

impl Drop for WriteOp {
    fn drop(&mut self) {
        // SAFETY: released once.
        unsafe { (self.0.rados_release_write_op)(self.1) };
    }
}

impl WriteOp {
    pub(super) fn add(&self, step: &Step<'_>) {
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

/// A read, and the memory for its results.
pub(super) struct ReadOp<'a> {
    api: &'static Api,
    op: Handle,
    read: Read<'a>,
    size: u64,
    changed_s: i64,
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
    pub(super) fn new(api: &'static Api, read: Read<'a>) -> Self {
        // SAFETY: no arguments.
        let op = unsafe { (api.rados_create_read_op)() };
        Self { api, op, read, size: 0, changed_s: 0, bytes: 0, attrs: null_mut(), results: [0; 3] }
    }

    pub(super) fn submit(&mut self, io: Handle) -> CodeResult<Submitted> {
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
                &raw mut self.changed_s,
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

    pub(super) fn seen(mut self, version: u64) -> CodeResult<Seen> {
        self.results.iter().try_for_each(|code| check(*code))?;
        let attr = self.read.attr.and_then(|wanted| self.attr(wanted));
        Ok(Seen { version, size: self.size, changed_s: self.changed_s, read: self.bytes, attr })
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
