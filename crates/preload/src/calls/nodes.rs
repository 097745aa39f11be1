//! Nodes of other types.

use std::ffi::{c_char, c_int};

use jobtree::Denied;
use libc::mode_t;

use super::check;
use super::open::new_inode;
use crate::job;
use crate::path::on_path;
use crate::real::real;

/// Pipes, sockets and devices are the mount's.
fn mknod_at(dirfd: c_int, path: *const c_char, mode: mode_t, device: libc::dev_t) -> c_int {
    on_path(
        (dirfd, path),
        false,
        -1,
        |inside, place, buffer| {
            if place.inode.is_some() {
                return Err(Denied::Errno(libc::EEXIST));
            }
            if !matches!(mode & libc::S_IFMT, 0 | libc::S_IFREG) {
                return Err(Denied::Unable);
            }
            check(inside.region(), place.dir, 3, &job::cred())?;
            let new = new_inode(place.dir, libc::S_IFREG | mode & 0o7777, false);
            inside.session.create(place.dir, buffer.name(place), &new)?;
            Ok(0)
        },
        |dirfd, path| {
            real!(mknodat(dirfd: c_int, path: *const c_char, mode: mode_t, device: libc::dev_t)
                -> c_int)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn mknod(path: *const c_char, mode: mode_t, device: libc::dev_t) -> c_int {
    mknod_at(libc::AT_FDCWD, path, mode, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn mknodat(
    dirfd: c_int,
    path: *const c_char,
    mode: mode_t,
    device: libc::dev_t,
) -> c_int {
    mknod_at(dirfd, path, mode, device)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
    mknod_at(libc::AT_FDCWD, path, libc::S_IFIFO | mode, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkfifoat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
    mknod_at(dirfd, path, libc::S_IFIFO | mode, 0)
}
