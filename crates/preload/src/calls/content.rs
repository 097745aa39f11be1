//! Reading and writing.

use std::ffi::{c_char, c_int, c_void};

use jobtree::{Denied, Description, Inode, JobRegion, Kind};
use libc::{iovec, off_t, size_t, ssize_t};

use super::{check, made};
use crate::descriptors::on_descriptor;
use crate::job::{self, Inside, job};
use crate::path::on_path;
use crate::real::{fail, real};

/// Bytes that one call reads or writes at most, as in the kernel.
const COUNT_MAX: usize = 0x7fff_f000;

fn check_mode(region: &JobRegion, description: Description, write: bool) -> Result<(), Denied> {
    let flags = region.flags(description) as c_int;
    let refused = if write { libc::O_RDONLY } else { libc::O_WRONLY };
    if flags & libc::O_ACCMODE == refused || flags & libc::O_PATH != 0 {
        return Err(Denied::Errno(libc::EBADF));
    }
    Ok(())
}

/// # Safety
/// `buffer` has `count` writable bytes.
unsafe fn read_at(
    inside: &Inside,
    description: Description,
    inode: Inode,
    (buffer, count): (*mut c_void, size_t),
    offset: Option<u64>,
) -> Result<ssize_t, Denied> {
    let region = inside.region();
    check_mode(region, description, false)?;
    if region.kind(inode) == Kind::Directory {
        return Err(Denied::Errno(libc::EISDIR));
    }
    // SAFETY: the caller's buffer.
    let buffer =
        unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), count.min(COUNT_MAX)) };
    let start = offset.unwrap_or_else(|| region.position(description));
    let len = region.read(inode, start, buffer);
    if len > 0 {
        inside.session.note_access(inode, job::now());
        if offset.is_none() {
            region.advance(description, len as u64);
        }
    }
    Ok(len as ssize_t)
}

/// # Safety
/// `buffer` has `count` readable bytes.
unsafe fn write_at(
    inside: &Inside,
    description: Description,
    inode: Inode,
    (buffer, count): (*const c_void, size_t),
    offset: Option<u64>,
) -> Result<ssize_t, Denied> {
    let region = inside.region();
    check_mode(region, description, true)?;
    // SAFETY: the caller's buffer.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), count.min(COUNT_MAX)) };
    let (now, keeps) = (job::now(), job::cred().uid == 0);
    let len = bytes.len() as u64;
    if region.flags(description) as c_int & libc::O_APPEND != 0 {
        let end = inside.session.write(inode, None, bytes, now, keeps)?;
        if offset.is_none() {
            region.set_position(description, end);
        }
    } else if offset.is_some() {
        inside.session.write(inode, offset, bytes, now, keeps)?;
    } else {
        // The position first: a concurrent writer of another process writes behind it.
        let start = region.advance(description, len);
        let written = inside.session.write(inode, Some(start), bytes, now, keeps);
        if let Err(denied) = written {
            region.advance(description, len.wrapping_neg());
            return Err(denied);
        }
    }
    Ok(len as ssize_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    on_descriptor(
        fd,
        -1,
        // SAFETY: the caller's buffer.
        |inside, description, inode| unsafe {
            read_at(inside, description, inode, (buffer, count), None)
        },
        || real!(read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    _room: size_t,
) -> ssize_t {
    read(fd, buffer, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
    on_descriptor(
        fd,
        -1,
        |inside, description, inode| {
            let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
            // SAFETY: the caller's buffer.
            unsafe { read_at(inside, description, inode, (buffer, count), Some(offset)) }
        },
        || real!(pread64(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pread(fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t {
    pread64(fd, buffer, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn __pread_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
    _room: size_t,
) -> ssize_t {
    pread64(fd, buffer, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn __pread64_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
    _room: size_t,
) -> ssize_t {
    pread64(fd, buffer, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    on_descriptor(
        fd,
        -1,
        // SAFETY: the caller's buffer.
        |inside, description, inode| unsafe {
            write_at(inside, description, inode, (buffer, count), None)
        },
        || real!(write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    on_descriptor(
        fd,
        -1,
        |inside, description, inode| {
            let offset = u64::try_from(offset).map_err(|_| libc::EINVAL)?;
            // SAFETY: the caller's buffer.
            unsafe { write_at(inside, description, inode, (buffer, count), Some(offset)) }
        },
        || {
            real!(pwrite64(fd: c_int, buffer: *const c_void, count: size_t, offset: off_t)
                -> ssize_t)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pwrite(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    pwrite64(fd, buffer, count, offset)
}

/// Carries a call with several buffers out, one after the other, until one is not filled.
///
/// # Safety
/// `parts` has `count` buffers.
unsafe fn each(
    parts: *const iovec,
    count: c_int,
    mut one: impl FnMut(&iovec, u64) -> ssize_t,
) -> ssize_t {
    let Ok(count) = usize::try_from(count) else { return fail(libc::EINVAL) as ssize_t };
    if count > 1024 {
        return fail(libc::EINVAL) as ssize_t;
    }
    let mut total: ssize_t = 0;
    for at in 0..count {
        // SAFETY: the caller's list.
        let part = unsafe { &*parts.add(at) };
        if part.iov_len == 0 {
            continue;
        }
        let done = one(part, total as u64);
        if done < 0 {
            return if total > 0 { total } else { done };
        }
        total += done;
        if (done as usize) < part.iov_len {
            break;
        }
    }
    total
}

#[unsafe(no_mangle)]
pub extern "C" fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if crate::descriptors::is_real(fd) {
        return real!(readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t);
    }
    // SAFETY: the caller's list.
    unsafe { each(parts, count, |part, _| read(fd, part.iov_base, part.iov_len)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    if crate::descriptors::is_real(fd) {
        return real!(writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t);
    }
    // SAFETY: the caller's list.
    unsafe { each(parts, count, |part, _| write(fd, part.iov_base, part.iov_len)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    if crate::descriptors::is_real(fd) {
        return real!(preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t)
            -> ssize_t);
    }
    // SAFETY: the caller's list.
    unsafe {
        each(parts, count, |part, at| {
            pread64(fd, part.iov_base, part.iov_len, offset + at as off_t)
        })
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn preadv(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    preadv64(fd, parts, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn pwritev64(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    if crate::descriptors::is_real(fd) {
        return real!(pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t)
            -> ssize_t);
    }
    // SAFETY: the caller's list.
    unsafe {
        each(parts, count, |part, at| {
            pwrite64(fd, part.iov_base, part.iov_len, offset + at as off_t)
        })
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    pwritev64(fd, parts, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    on_descriptor(
        fd,
        -1,
        |inside, description, inode| {
            let region = inside.region();
            let size = region.stat(inode).size as off_t;
            let at = match whence {
                libc::SEEK_SET => offset,
                libc::SEEK_CUR => region.position(description) as off_t + offset,
                libc::SEEK_END => size + offset,
                libc::SEEK_DATA | libc::SEEK_HOLE if offset >= size || offset < 0 => {
                    return Err(Denied::Errno(libc::ENXIO));
                }
                libc::SEEK_DATA => offset,
                libc::SEEK_HOLE => size,
                _ => return Err(Denied::Errno(libc::EINVAL)),
            };
            let position = u64::try_from(at).map_err(|_| libc::EINVAL)?;
            region.set_position(description, position);
            Ok(at)
        },
        || real!(lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    lseek64(fd, offset, whence)
}

#[unsafe(no_mangle)]
pub extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    on_descriptor(
        fd,
        -1,
        |inside, description, inode| {
            check_mode(inside.region(), description, true).map_err(|_| libc::EINVAL)?;
            let len = u64::try_from(len).map_err(|_| libc::EINVAL)?;
            let keeps = job::cred().uid == 0;
            inside.session.truncate(inode, len, job::now(), keeps)?;
            Ok(0)
        },
        || real!(ftruncate64(fd: c_int, len: off_t) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    ftruncate64(fd, len)
}

#[unsafe(no_mangle)]
pub extern "C" fn truncate64(path: *const c_char, len: off_t) -> c_int {
    on_path(
        (libc::AT_FDCWD, path),
        true,
        -1,
        |inside, place, _| {
            let region = inside.region();
            let inode = place.inode.ok_or(libc::ENOENT)?;
            if region.kind(inode) == Kind::Directory {
                return Err(Denied::Errno(libc::EISDIR));
            }
            check(region, inode, 2, &job::cred())?;
            let bytes = u64::try_from(len).map_err(|_| libc::EINVAL)?;
            if let Some(number) = region.stand_in(inode) {
                drop(inside);
                let path = job().ok_or(Denied::Closed)?.stand_in_path(number);
                // SAFETY: a path that ends with a zero byte.
                return made(unsafe { crate::real::sys!(libc::SYS_truncate, path.as_ptr(), len) });
            }
            let keeps = job::cred().uid == 0;
            inside.session.truncate(inode, bytes, job::now(), keeps)?;
            Ok(0)
        },
        |_, path| real!(truncate64(path: *const c_char, len: off_t) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn truncate(path: *const c_char, len: off_t) -> c_int {
    truncate64(path, len)
}

/// Sets room aside: content in the region has it.
fn allocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    on_descriptor(
        fd,
        -1,
        |inside, description, inode| {
            check_mode(inside.region(), description, true)?;
            if offset < 0 || len <= 0 {
                return Err(Denied::Errno(libc::EINVAL));
            }
            if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
                return Err(Denied::Unable);
            }
            let end = offset.checked_add(len).ok_or(libc::EFBIG)? as u64;
            if mode == 0 && end > inside.region().stat(inode).size {
                inside.session.truncate(inode, end, job::now(), true)?;
            }
            Ok(0)
        },
        || real!(fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    allocate(fd, mode, offset, len)
}

#[unsafe(no_mangle)]
pub extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, len: off_t) -> c_int {
    allocate(fd, mode, offset, len)
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int {
    if crate::descriptors::is_real(fd) {
        return real!(posix_fallocate64(fd: c_int, offset: off_t, len: off_t) -> c_int, libc::ENOSYS);
    }
    if allocate(fd, 0, offset, len) == 0 { 0 } else { crate::real::errno() }
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_fallocate(fd: c_int, offset: off_t, len: off_t) -> c_int {
    posix_fallocate64(fd, offset, len)
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
    if !crate::descriptors::is_real(fd) {
        return 0;
    }
    real!(posix_fadvise64(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int,
        libc::ENOSYS)
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_fadvise(fd: c_int, offset: off_t, len: off_t, advice: c_int) -> c_int {
    posix_fadvise64(fd, offset, len, advice)
}

#[unsafe(no_mangle)]
pub extern "C" fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t {
    if !crate::descriptors::is_real(fd) {
        return 0;
    }
    real!(readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t)
}
