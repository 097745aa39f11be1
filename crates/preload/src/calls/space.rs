//! The file system that a file is in.

use std::ffi::{c_char, c_int, c_void};

use jobtree::Denied;

use super::made;
use crate::descriptors::{self, make_real};
use crate::job::{self, job};
use crate::path::on_path;
use crate::real::real;

/// The file system behind a descriptor is that of the mount's root.
fn root_of(fd: c_int) -> Option<job::Text<4096>> {
    descriptors::virtual_at(fd)?;
    let prefix = job()?.prefixes().next()?;
    let mut path = job::Text::new();
    path.push(prefix);
    (!path.is_full()).then_some(path)
}

#[unsafe(no_mangle)]
pub extern "C" fn fstatfs64(fd: c_int, buffer: *mut c_void) -> c_int {
    if let Some(path) = root_of(fd) {
        let path = path.as_ptr();
        return real!(statfs64(path: *const c_char, buffer: *mut c_void) -> c_int);
    }
    real!(fstatfs64(fd: c_int, buffer: *mut c_void) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn fstatfs(fd: c_int, buffer: *mut c_void) -> c_int {
    fstatfs64(fd, buffer)
}

#[unsafe(no_mangle)]
pub extern "C" fn fstatvfs64(fd: c_int, buffer: *mut c_void) -> c_int {
    if let Some(path) = root_of(fd) {
        let path = path.as_ptr();
        return real!(statvfs64(path: *const c_char, buffer: *mut c_void) -> c_int);
    }
    real!(fstatvfs64(fd: c_int, buffer: *mut c_void) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn fstatvfs(fd: c_int, buffer: *mut c_void) -> c_int {
    fstatvfs64(fd, buffer)
}

/// A path in the region: the file system is that of the mount's root.
fn statfs_path(path: *const c_char, real: impl Fn(*const c_char) -> c_int) -> c_int {
    on_path(
        (libc::AT_FDCWD, path),
        true,
        -1,
        |inside, place, _| {
            place.inode.ok_or(libc::ENOENT)?;
            drop(inside);
            let prefix = job().and_then(|job| job.prefixes().next()).ok_or(Denied::Closed)?;
            let mut path = job::Text::<4096>::new();
            path.push(prefix);
            made(real(path.as_ptr()).into())
        },
        |_, path| real(path),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn statfs64(path: *const c_char, buffer: *mut c_void) -> c_int {
    statfs_path(path, |path| real!(statfs64(path: *const c_char, buffer: *mut c_void) -> c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn statfs(path: *const c_char, buffer: *mut c_void) -> c_int {
    statfs64(path, buffer)
}

#[unsafe(no_mangle)]
pub extern "C" fn statvfs64(path: *const c_char, buffer: *mut c_void) -> c_int {
    statfs_path(path, |path| real!(statvfs64(path: *const c_char, buffer: *mut c_void) -> c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn statvfs(path: *const c_char, buffer: *mut c_void) -> c_int {
    statvfs64(path, buffer)
}

#[unsafe(no_mangle)]
pub extern "C" fn fpathconf(fd: c_int, name: c_int) -> std::ffi::c_long {
    if make_real(fd).is_err() {
        return -1;
    }
    real!(fpathconf(fd: c_int, name: c_int) -> std::ffi::c_long)
}
