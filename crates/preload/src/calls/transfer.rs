//! Copies from descriptor to descriptor.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t, ssize_t};

use super::attributes::stand_in_of;
use super::content::{lseek64, pread64, pwrite64, read, write};
use crate::descriptors::make_real;
use crate::job::job;
use crate::real::{errno, fail, real};

/// Copies between descriptors of which one is of a file in the region.
///
/// # Safety
/// The positions are null or writable.
unsafe fn copy(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
) -> ssize_t {
    let mut buffer = [0_u8; 16 << 10];
    let mut total = 0;
    while total < count {
        let len = buffer.len().min(count - total);
        let start = buffer.as_mut_ptr().cast::<c_void>();
        // SAFETY: the caller's positions, and the buffer above.
        let (got, put) = unsafe {
            let got = match from_at.as_mut() {
                Some(at) => pread64(from, start, len, *at),
                None => read(from, start, len),
            };
            if got <= 0 {
                return if total > 0 { total as ssize_t } else { got };
            }
            let len = got as size_t;
            let put = match to_at.as_mut() {
                Some(at) => pwrite64(to, start, len, *at),
                None => write(to, start, len),
            };
            if put > 0 {
                from_at.as_mut().into_iter().for_each(|at| *at += put as off_t);
                to_at.as_mut().into_iter().for_each(|at| *at += put as off_t);
            }
            (got, put)
        };
        if put < got && from_at.is_null() {
            // The next call reads the bytes again that were read and not written.
            lseek64(from, put.max(0) as off_t - got as off_t, libc::SEEK_CUR);
        }
        if put < 0 {
            return if total > 0 { total as ssize_t } else { put };
        }
        total += put as usize;
        if put < got {
            break;
        }
    }
    total as ssize_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    if crate::descriptors::is_real(to) && crate::descriptors::is_real(from) {
        return real!(sendfile64(to: c_int, from: c_int, offset: *mut off_t, count: size_t)
            -> ssize_t);
    }
    // SAFETY: the caller's position.
    unsafe { copy(from, offset, to, std::ptr::null_mut(), count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's position.
    unsafe { sendfile64(to, from, offset, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: u32,
) -> ssize_t {
    if crate::descriptors::is_real(to) && crate::descriptors::is_real(from) {
        let copied = real!(copy_file_range(from: c_int, from_at: *mut off_t, to: c_int,
            to_at: *mut off_t, count: size_t, flags: u32) -> ssize_t);
        // To the kernel, a stand-in and a file of the mount are on two file systems.
        let is_stand_in = |fd| job().is_some_and(|job| stand_in_of(job, fd).is_some());
        if copied >= 0 || errno() != libc::EXDEV || !(is_stand_in(from) || is_stand_in(to)) {
            return copied;
        }
    }
    // SAFETY: the caller's positions.
    unsafe { copy(from, from_at, to, to_at, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: u32,
) -> ssize_t {
    let (Ok(()), Ok(())) = (make_real(from), make_real(to)) else {
        return fail(libc::EINVAL) as ssize_t;
    };
    real!(splice(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t,
        flags: u32) -> ssize_t)
}
