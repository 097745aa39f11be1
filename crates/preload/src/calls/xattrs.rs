//! Extended attributes: files in the region have none.

use std::ffi::{c_char, c_int, c_void};

use jobtree::Denied;
use libc::{size_t, ssize_t};

use crate::descriptors::on_descriptor;
use crate::path::on_path;
use crate::real::real;

/// An inode of the region has no extended attributes: one that gets some goes to the mount.
fn xattr_at<T: Copy>(
    path: *const c_char,
    follow: bool,
    failed: T,
    without: Result<T, Denied>,
    real: impl Fn(*const c_char) -> T,
) -> T {
    on_path(
        (libc::AT_FDCWD, path),
        follow,
        failed,
        |inside, place, _| {
            place.inode.ok_or(libc::ENOENT)?;
            drop(inside);
            without
        },
        |_, path| real(path),
    )
}

/// Access control lists and the attributes by which this file system describes itself are the
/// mount's.
fn absent(name: *const c_char) -> Denied {
    // SAFETY: the caller's name ends with a zero byte.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes();
    if name.starts_with(b"system.posix_acl_") {
        return Denied::Errno(libc::EOPNOTSUPP);
    }
    if name.starts_with(b"cudele.") { Denied::Unable } else { Denied::Errno(libc::ENODATA) }
}

#[unsafe(no_mangle)]
pub extern "C" fn getxattr(
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    xattr_at(path, true, -1, Err(absent(name)), |path| {
        real!(getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t)
            -> ssize_t)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn lgetxattr(
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    xattr_at(path, false, -1, Err(absent(name)), |path| {
        real!(lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: size_t)
            -> ssize_t)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn fgetxattr(
    fd: c_int,
    name: *const c_char,
    value: *mut c_void,
    size: size_t,
) -> ssize_t {
    on_descriptor(
        fd,
        -1,
        |_, _, _| Err(absent(name)),
        || {
            real!(fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, size: size_t)
            -> ssize_t)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn listxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t {
    xattr_at(
        path,
        true,
        -1,
        Ok(0),
        |path| real!(listxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn llistxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t {
    xattr_at(
        path,
        false,
        -1,
        Ok(0),
        |path| real!(llistxattr(path: *const c_char, list: *mut c_char, size: size_t) -> ssize_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn flistxattr(fd: c_int, list: *mut c_char, size: size_t) -> ssize_t {
    on_descriptor(
        fd,
        -1,
        |_, _, _| Ok(0),
        || real!(flistxattr(fd: c_int, list: *mut c_char, size: size_t) -> ssize_t),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn setxattr(
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: size_t,
    flags: c_int,
) -> c_int {
    xattr_at(path, true, -1, set_denied(name), |path| {
        real!(setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t,
            flags: c_int) -> c_int)
    })
}

/// Access control lists are rejected, as by the mount; another attribute goes there.
fn set_denied(name: *const c_char) -> Result<c_int, Denied> {
    match absent(name) {
        Denied::Errno(libc::EOPNOTSUPP) => Err(Denied::Errno(libc::EOPNOTSUPP)),
        Denied::Errno(_) | Denied::Closed | Denied::Unable | Denied::Numbers => Err(Denied::Unable),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn lsetxattr(
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: size_t,
    flags: c_int,
) -> c_int {
    xattr_at(path, false, -1, set_denied(name), |path| {
        real!(lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void,
            size: size_t, flags: c_int) -> c_int)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn fsetxattr(
    fd: c_int,
    name: *const c_char,
    value: *const c_void,
    size: size_t,
    flags: c_int,
) -> c_int {
    on_descriptor(
        fd,
        -1,
        |_, _, _| set_denied(name),
        || {
            real!(fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t,
            flags: c_int) -> c_int)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
    xattr_at(
        path,
        true,
        -1,
        Err(absent(name)),
        |path| real!(removexattr(path: *const c_char, name: *const c_char) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
    xattr_at(
        path,
        false,
        -1,
        Err(absent(name)),
        |path| real!(lremovexattr(path: *const c_char, name: *const c_char) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
    on_descriptor(
        fd,
        -1,
        |_, _, _| Err(absent(name)),
        || real!(fremovexattr(fd: c_int, name: *const c_char) -> c_int),
    )
}
