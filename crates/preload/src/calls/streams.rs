//! `FILE*` of files in the region: streams with functions of this library.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::{FILE, off64_t, size_t, ssize_t};

use super::content::{lseek64, read, write};
use super::open::{close, open_at};
use crate::descriptors;
use crate::job::job;
use crate::real::{fail, real, set_errno};

/// Streams of this module, with their descriptors: for `fileno`. A stream that finds no place here
/// is real from the start.
static STREAMS: [Stream; 256] = [const { Stream::new() }; 256];

struct Stream {
    file: AtomicPtr<FILE>,
    fd: AtomicI32,
}

impl Stream {
    const fn new() -> Self {
        Self { file: AtomicPtr::new(std::ptr::null_mut()), fd: AtomicI32::new(-1) }
    }
}

fn own(file: *mut FILE) -> Option<&'static Stream> {
    STREAMS.iter().find(|stream| stream.file.load(Ordering::Acquire) == file)
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

fn stream_at(cookie: *mut c_void) -> Option<&'static Stream> {
    STREAMS.get((cookie as usize).checked_sub(1)?)
}

unsafe extern "C" fn read_stream(cookie: *mut c_void, to: *mut c_char, len: size_t) -> ssize_t {
    let Some(stream) = stream_at(cookie) else { return -1 };
    read(stream.fd.load(Ordering::Relaxed), to.cast(), len)
}

unsafe extern "C" fn write_stream(
    cookie: *mut c_void,
    from: *const c_char,
    len: size_t,
) -> ssize_t {
    let Some(stream) = stream_at(cookie) else { return 0 };
    let mut done = 0;
    while done < len {
        // SAFETY: within the caller's bytes.
        let rest = unsafe { from.add(done) };
        let put = write(stream.fd.load(Ordering::Relaxed), rest.cast(), len - done);
        if put <= 0 {
            break;
        }
        done += put as usize;
    }
    // Such a function says 0 after an error.
    done as ssize_t
}

unsafe extern "C" fn seek_stream(cookie: *mut c_void, at: *mut off64_t, whence: c_int) -> c_int {
    let Some(stream) = stream_at(cookie) else { return -1 };
    // SAFETY: the caller's place.
    unsafe {
        let found = lseek64(stream.fd.load(Ordering::Relaxed), *at, whence);
        if found < 0 {
            return -1;
        }
        *at = found;
    }
    0
}

unsafe extern "C" fn close_stream(cookie: *mut c_void) -> c_int {
    let Some(stream) = stream_at(cookie) else { return -1 };
    let fd = stream.fd.swap(-1, Ordering::AcqRel);
    stream.file.store(std::ptr::null_mut(), Ordering::Release);
    close(fd)
}

/// A mode of `fopen` as flags of `open`.
fn flags_of(mode: &[u8]) -> Option<c_int> {
    let plus = mode.iter().take_while(|byte| **byte != b',').any(|byte| *byte == b'+');
    let mut flags = match mode.first()? {
        b'r' => 0,
        b'w' => libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    flags |= match (plus, mode.first()) {
        (true, _) => libc::O_RDWR,
        (false, Some(b'r')) => libc::O_RDONLY,
        (false, _) => libc::O_WRONLY,
    };
    for byte in mode.iter().skip(1).take_while(|byte| **byte != b',') {
        match byte {
            b'e' => flags |= libc::O_CLOEXEC,
            b'x' => flags |= libc::O_EXCL,
            _ => {}
        }
    }
    Some(flags)
}

/// A stream of a descriptor of a file in the region.
fn stream(fd: c_int, mode: *const c_char) -> *mut FILE {
    for (at, stream) in STREAMS.iter().enumerate() {
        if stream.fd.compare_exchange(-1, fd, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        let functions = Functions {
            read: read_stream,
            write: write_stream,
            seek: seek_stream,
            close: close_stream,
        };
        let cookie = (at + 1) as *mut c_void;
        let file = real!(fopencookie(cookie: *mut c_void, mode: *const c_char,
            functions: Functions) -> *mut FILE, std::ptr::null_mut());
        if file.is_null() {
            stream.fd.store(-1, Ordering::Release);
        } else {
            stream.file.store(file, Ordering::Release);
        }
        return file;
    }
    match descriptors::make_real(fd) {
        Ok(()) => real!(fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, std::ptr::null_mut()),
        Err(errno) => {
            set_errno(errno);
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    let passed_on = || {
        real!(fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE,
            std::ptr::null_mut())
    };
    if job().is_none() || path.is_null() || mode.is_null() {
        return passed_on();
    }
    // SAFETY: the caller's mode ends with a zero byte.
    let Some(flags) = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes()) else {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    };
    let fd = open_at(libc::AT_FDCWD, path, flags, 0o666);
    if fd < 0 {
        return std::ptr::null_mut();
    }
    if descriptors::is_real(fd) || fd <= 2 {
        let _ = descriptors::make_real(fd);
        return real!(fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, std::ptr::null_mut());
    }
    let file = stream(fd, mode);
    if file.is_null() {
        close(fd);
    }
    file
}

#[unsafe(no_mangle)]
pub extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    fopen64(path, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    if job().is_some() && descriptors::virtual_at(fd).is_some() {
        // SAFETY: the caller's mode ends with a zero byte.
        let appends = unsafe { *mode } == b'a' as c_char;
        if !appends {
            return stream(fd, mode);
        }
        if let Err(errno) = descriptors::make_real(fd) {
            set_errno(errno);
            return std::ptr::null_mut();
        }
    }
    real!(fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub extern "C" fn fileno(file: *mut FILE) -> c_int {
    if let Some(stream) = own(file).filter(|_| !file.is_null()) {
        return stream.fd.load(Ordering::Relaxed);
    }
    real!(fileno(file: *mut FILE) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn fileno_unlocked(file: *mut FILE) -> c_int {
    fileno(file)
}

/// A stream that changes its file: its own functions stay those of the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    file: *mut FILE,
) -> *mut FILE {
    let passed_on = || {
        real!(freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE,
            std::ptr::null_mut())
    };
    if job().is_none() || path.is_null() || mode.is_null() {
        return passed_on();
    }
    if own(file).is_some() {
        set_errno(libc::EBADF);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's mode ends with a zero byte.
    let Some(flags) = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes()) else {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    };
    let fd = open_at(libc::AT_FDCWD, path, flags, 0o666);
    if fd < 0 || descriptors::is_real(fd) {
        if fd >= 0 {
            close(fd);
        }
        return passed_on();
    }
    // The file exists now, and is empty if it was to be: the kernel opens its stand-in.
    let made = descriptors::make_real(fd);
    let mut path = crate::job::Text::<64>::new();
    path.push(b"/proc/self/fd/").number(fd as u32);
    let path = path.as_ptr();
    let reopened = match made {
        Ok(()) => real!(freopen64(path: *const c_char, mode: *const c_char, file: *mut FILE)
            -> *mut FILE, std::ptr::null_mut()),
        Err(errno) => {
            fail(errno);
            std::ptr::null_mut()
        }
    };
    close(fd);
    reopened
}

#[unsafe(no_mangle)]
pub extern "C" fn freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE {
    freopen64(path, mode, file)
}
