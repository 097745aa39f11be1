//! The working directory, and absolute paths.

use std::ffi::{CStr, c_char, c_int};

use jobtree::{Denied, Inode, Kind, PathBuffer};
use libc::size_t;

use super::check;
use crate::job::{self, Job, Text, job};
use crate::path::{self, Resolved, is_address, resolve};
use crate::real::{fail, real, set_errno};
use crate::{descriptors, keeper};

/// The path of a directory in the region.
fn path_of(job: &Job, dir: Inode) -> Option<Text<8192>> {
    let mut buffer = PathBuffer::new();
    let inside = job.region().path_of(dir, &mut buffer)?;
    let mut text = Text::new();
    text.push(job.prefixes().next()?);
    if !inside.is_empty() {
        text.push(b"/").push(inside);
    }
    (!text.is_full()).then_some(text)
}

/// Goes to a directory of the region, in the kernel as well: the mount answers for directories
/// without closing the region, and programs that are started there begin there.
fn go(job: &'static Job, dir: Inode) -> c_int {
    let Some(text) = path_of(job, dir) else { return fail(libc::ENOENT) };
    let path = text.as_ptr();
    let done = real!(chdir(path: *const c_char) -> c_int);
    if done == 0 {
        path::entered(dir);
    }
    done
}

#[unsafe(no_mangle)]
pub extern "C" fn chdir(path: *const c_char) -> c_int {
    let Some(job) = job() else { return real!(chdir(path: *const c_char) -> c_int) };
    if !is_address(path) {
        return fail(libc::EFAULT);
    }
    // SAFETY: the caller's path ends with a zero byte.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut buffer = PathBuffer::new();
    loop {
        let resolved = resolve(job, libc::AT_FDCWD, bytes, true, &mut buffer);
        match resolved.and_then(|resolved| target(resolved, &buffer, path)) {
            Ok(Ok(dir)) => return go(job, dir),
            Ok(Err(path)) => {
                let done = real!(chdir(path: *const c_char) -> c_int);
                if done == 0 {
                    path::start(job);
                }
                return done;
            }
            Err(denied) => {
                if !keeper::again(job, denied) {
                    return -1;
                }
            }
        }
    }
}

/// The directory of the region that a path leads to, or the path for the kernel.
fn target(
    resolved: Resolved,
    buffer: &PathBuffer,
    path: *const c_char,
) -> Result<Result<Inode, *const c_char>, Denied> {
    match resolved {
        Resolved::Inside(inside, place) => {
            let region = inside.region();
            let dir = place.inode.ok_or(libc::ENOENT)?;
            if region.kind(dir) != Kind::Directory {
                return Err(Denied::Errno(libc::ENOTDIR));
            }
            check(region, dir, 1, &job::cred())?;
            Ok(Ok(dir))
        }
        Resolved::Real => Ok(Err(path)),
        Resolved::RealPath => Ok(Err(buffer.as_ptr().cast())),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn fchdir(fd: c_int) -> c_int {
    if let (Some(job), Some(description)) = (job(), descriptors::virtual_at(fd)) {
        let dir = job.region().described(description);
        if job.region().kind(dir) != Kind::Directory {
            return fail(libc::ENOTDIR);
        }
        if let Err(denied) = check(job.region(), dir, 1, &job::cred()) {
            let errno = if let Denied::Errno(errno) = denied { errno } else { libc::EIO };
            return fail(errno);
        }
        return go(job, dir);
    }
    let done = real!(fchdir(fd: c_int) -> c_int);
    if let (0, Some(job)) = (done, job()) {
        path::start(job);
    }
    done
}

/// Copies a text to a caller of `getcwd`.
fn hand_out(text: &[u8], buffer: *mut c_char, size: size_t) -> *mut c_char {
    // SAFETY: the caller's buffer has `size` bytes; memory of libc for a caller without one.
    unsafe {
        let to = if buffer.is_null() {
            if size != 0 && size <= text.len() {
                set_errno(libc::ERANGE);
                return std::ptr::null_mut();
            }
            libc::malloc(size.max(text.len() + 1)).cast()
        } else if size <= text.len() {
            set_errno(if size == 0 { libc::EINVAL } else { libc::ERANGE });
            return std::ptr::null_mut();
        } else {
            buffer
        };
        if !to.is_null() {
            std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast::<u8>(), text.len());
            *to.add(text.len()) = 0;
        }
        to
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn getcwd(buffer: *mut c_char, size: size_t) -> *mut c_char {
    if let (Some(job), Some(dir)) = (job(), path::working())
        && let Ok(_inside) = job.enter()
    {
        return match path_of(job, dir) {
            Some(text) => hand_out(text.bytes(), buffer, size),
            None => {
                set_errno(libc::ENOENT);
                std::ptr::null_mut()
            }
        };
    }
    real!(getcwd(buffer: *mut c_char, size: size_t) -> *mut c_char, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub extern "C" fn __getcwd_chk(buffer: *mut c_char, size: size_t, _room: size_t) -> *mut c_char {
    getcwd(buffer, size)
}

#[unsafe(no_mangle)]
pub extern "C" fn get_current_dir_name() -> *mut c_char {
    if job().is_none() {
        return real!(get_current_dir_name() -> *mut c_char, std::ptr::null_mut());
    }
    getcwd(std::ptr::null_mut(), 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn getwd(buffer: *mut c_char) -> *mut c_char {
    getcwd(buffer, 4096)
}

/// The absolute path of something in the region.
fn absolute(
    job: &'static Job,
    path: *const c_char,
    buffer: *mut c_char,
) -> Result<Option<*mut c_char>, Denied> {
    // SAFETY: the caller's path ends with a zero byte.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut walked = PathBuffer::new();
    match resolve(job, libc::AT_FDCWD, bytes, true, &mut walked)? {
        Resolved::Inside(inside, place) => {
            let inode = place.inode.ok_or(libc::ENOENT)?;
            let is_dir = inside.region().kind(inode) == Kind::Directory;
            if place.must_be_dir && !is_dir {
                return Err(Denied::Errno(libc::ENOTDIR));
            }
            let mut text = path_of(job, place.dir).ok_or(libc::ENOENT)?;
            if place.is_named() {
                text.push(b"/").push(walked.name(&place));
            }
            if text.bytes().len() >= 4096 {
                return Err(Denied::Errno(libc::ENAMETOOLONG));
            }
            Ok(Some(hand_out(text.bytes(), buffer, if buffer.is_null() { 0 } else { 4096 })))
        }
        Resolved::Real => Ok(None),
        Resolved::RealPath => {
            let path: *const c_char = walked.as_ptr().cast();
            let found = real!(realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char,
                std::ptr::null_mut());
            Ok(Some(found))
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char {
    if let Some(job) = job()
        && is_address(path)
    {
        match absolute(job, path, buffer) {
            Ok(Some(found)) => return found,
            Ok(None) | Err(Denied::Closed | Denied::Unable | Denied::Numbers) => {}
            Err(Denied::Errno(errno)) => {
                set_errno(errno);
                return std::ptr::null_mut();
            }
        }
    }
    real!(realpath(path: *const c_char, buffer: *mut c_char) -> *mut c_char, std::ptr::null_mut())
}

#[unsafe(no_mangle)]
pub extern "C" fn __realpath_chk(
    path: *const c_char,
    buffer: *mut c_char,
    _room: size_t,
) -> *mut c_char {
    realpath(path, buffer)
}

#[unsafe(no_mangle)]
pub extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    realpath(path, std::ptr::null_mut())
}
