//! Further names of functions, and rare functions on descriptors that the kernel carries out.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use libc::{iovec, mode_t, off_t, size_t, ssize_t, stat};

use super::{attributes, content, numbers, open, process};
use crate::descriptors::{is_real, make_real};
use crate::job::job;
use crate::keeper;
use crate::real::{fail, real};

#[unsafe(no_mangle)]
pub extern "C" fn __open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    open::open64(path, flags, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    open::open64(path, flags, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn __close(fd: c_int) -> c_int {
    open::close(fd)
}

#[unsafe(no_mangle)]
pub extern "C" fn __read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    content::read(fd, buffer, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn __write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    content::write(fd, buffer, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn __pread64(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    content::pread64(fd, buffer, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn __pwrite64(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    offset: off_t,
) -> ssize_t {
    content::pwrite64(fd, buffer, count, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    content::lseek64(fd, offset, whence)
}

#[unsafe(no_mangle)]
pub extern "C" fn llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    content::lseek64(fd, offset, whence)
}

#[unsafe(no_mangle)]
pub extern "C" fn __fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    numbers::fcntl64(fd, command, argument)
}

#[unsafe(no_mangle)]
pub extern "C" fn __dup2(fd: c_int, to: c_int) -> c_int {
    numbers::dup2(fd, to)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fstat64(fd: c_int, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { attributes::fstat64(fd, buffer) }
}

#[unsafe(no_mangle)]
pub extern "C" fn __vfork() -> libc::pid_t {
    process::vfork()
}

/// The kernel must know a descriptor for this.
fn real_for(fd: c_int) -> bool {
    make_real(fd).map_err(fail).is_ok()
}

#[unsafe(no_mangle)]
pub extern "C" fn preadv64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if !is_real(fd) && flags == 0 {
        if offset == -1 {
            return content::readv(fd, parts, count);
        }
        return content::preadv64(fd, parts, count, offset);
    }
    if !real_for(fd) {
        return -1;
    }
    real!(preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int)
        -> ssize_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn preadv2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    preadv64v2(fd, parts, count, offset, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    if !is_real(fd) && flags == 0 {
        if offset == -1 {
            return content::writev(fd, parts, count);
        }
        return content::pwritev64(fd, parts, count, offset);
    }
    if !real_for(fd) {
        return -1;
    }
    real!(pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int)
        -> ssize_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    pwritev64v2(fd, parts, count, offset, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn getdents64(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    if !real_for(fd) {
        return -1;
    }
    real!(getdents64(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn getdirentries64(
    fd: c_int,
    buffer: *mut c_char,
    count: size_t,
    at: *mut off_t,
) -> ssize_t {
    if !real_for(fd) {
        return -1;
    }
    real!(getdirentries64(fd: c_int, buffer: *mut c_char, count: size_t, at: *mut off_t) -> ssize_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn getdirentries(
    fd: c_int,
    buffer: *mut c_char,
    count: size_t,
    at: *mut off_t,
) -> ssize_t {
    getdirentries64(fd, buffer, count, at)
}

/// Asynchronous requests are carried out by threads of libc, past this library: their first word is
/// the descriptor.
macro_rules! asynchronous {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(request: *mut c_int) -> c_int {
            // SAFETY: the caller's request begins with the descriptor.
            if !real_for(unsafe { *request }) {
                return -1;
            }
            real!($name(request: *mut c_int) -> c_int)
        }
    )*};
}

asynchronous!(aio_read aio_read64 aio_write aio_write64);

#[unsafe(no_mangle)]
pub extern "C" fn vmsplice(
    fd: c_int,
    parts: *const iovec,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if !real_for(fd) {
        return -1;
    }
    real!(vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t)
}

#[unsafe(no_mangle)]
pub extern "C" fn name_to_handle_at(
    dirfd: c_int,
    path: *const c_char,
    handle: *mut c_void,
    mount: *mut c_int,
    flags: c_int,
) -> c_int {
    if !real_for(dirfd) {
        return -1;
    }
    real!(name_to_handle_at(dirfd: c_int, path: *const c_char, handle: *mut c_void,
        mount: *mut c_int, flags: c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn execveat(
    dirfd: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    flags: c_int,
) -> c_int {
    if let Some(job) = job()
        && !is_real(dirfd)
    {
        keeper::close(job);
    }
    if !real_for(dirfd) {
        return -1;
    }
    crate::job::before_exec();
    real!(execveat(dirfd: c_int, path: *const c_char, arguments: *const *const c_char,
        variables: *const *const c_char, flags: c_int) -> c_int)
}

/// The child of a spawn copies descriptors by number, as the kernel knows them.
#[unsafe(no_mangle)]
pub extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    to: c_int,
) -> c_int {
    if let Err(errno) = make_real(fd) {
        return errno;
    }
    real!(posix_spawn_file_actions_adddup2(actions: *mut c_void, fd: c_int, to: c_int) -> c_int,
        libc::ENOSYS)
}

#[unsafe(no_mangle)]
pub extern "C" fn posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int {
    if let Err(errno) = make_real(fd) {
        return errno;
    }
    real!(posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int,
        libc::ENOSYS)
}

/// A list of asynchronous requests.
unsafe fn list_is_real(list: *const *const c_int, count: c_int) -> bool {
    (0..usize::try_from(count).unwrap_or(0)).all(|at| {
        // SAFETY: the caller's list; each request begins with the descriptor.
        unsafe {
            let request = *list.add(at);
            request.is_null() || real_for(*request)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio(
    mode: c_int,
    list: *const *const c_int,
    count: c_int,
    signal: *mut c_void,
) -> c_int {
    // SAFETY: the caller's list.
    if !unsafe { list_is_real(list, count) } {
        return -1;
    }
    real!(lio_listio(mode: c_int, list: *const *const c_int, count: c_int, signal: *mut c_void)
        -> c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lio_listio64(
    mode: c_int,
    list: *const *const c_int,
    count: c_int,
    signal: *mut c_void,
) -> c_int {
    // SAFETY: the caller's list.
    if !unsafe { list_is_real(list, count) } {
        return -1;
    }
    real!(lio_listio64(mode: c_int, list: *const *const c_int, count: c_int, signal: *mut c_void)
        -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn __getwd_chk(buffer: *mut c_char, _room: size_t) -> *mut c_char {
    super::working::getwd(buffer)
}
