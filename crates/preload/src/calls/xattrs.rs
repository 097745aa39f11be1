//! Extended attributes: files in the region have none.

use std::ffi::{c_char, c_int, c_void};

use jobtree::{Denied, Inode, Kind};
use libc::{mode_t, size_t, ssize_t};

use super::attributes::stand_in_of;
use super::permissions::set_mode;
use crate::descriptors::on_descriptor;
use crate::job::{Inside, job};
use crate::keeper;
use crate::path::on_path;
use crate::real::{real, set_errno};

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

fn bytes_of<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's name ends with a zero byte, and lives during the call.
    unsafe { std::ffi::CStr::from_ptr(name) }.to_bytes()
}

/// The attributes by which this file system describes itself are the mount's.
fn absent(name: *const c_char) -> Denied {
    let is_ours = bytes_of(name).starts_with(b"cudele.");
    if is_ours { Denied::Unable } else { Denied::Errno(libc::ENODATA) }
}

/// An attribute that a program sets.
#[derive(Clone, Copy)]
struct Given {
    name: *const c_char,
    value: *const c_void,
    size: size_t,
}

impl Given {
    /// Whether it is the access control list of an inode.
    fn is_list(self) -> bool {
        !self.name.is_null() && bytes_of(self.name) == b"system.posix_acl_access"
    }

    /// The permissions in a list that has no more than a mode has: for the owner, the group and all
    /// other users (`types::acl`). Programs that copy files set such lists.
    fn mode(self) -> Option<mode_t> {
        const VERSION: u32 = 2;
        const TAGS: [u16; 3] = [0x01, 0x04, 0x20];
        const BYTES: usize = 4 + 8 * TAGS.len();
        if !self.is_list() || self.size != BYTES || self.value.is_null() {
            return None;
        }
        // SAFETY: the caller says that so many bytes are readable there.
        let value = unsafe { std::slice::from_raw_parts(self.value.cast::<u8>(), BYTES) };
        let (version, entries) = value.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != VERSION {
            return None;
        }
        entries.chunks_exact(8).zip(TAGS).try_fold(0, |mode, (entry, tag)| {
            let [low, high, permissions, 0, ..] = *entry else { return None };
            let is_next = u16::from_le_bytes([low, high]) == tag && permissions <= 7;
            is_next.then_some(mode << 3 | mode_t::from(permissions))
        })
    }

    /// Sets it for an inode of the region: a list that a mode can say is set here, the rest is the
    /// mount's.
    fn set(self, inside: &Inside, inode: Inode) -> Result<c_int, Denied> {
        let region = inside.region();
        let is_link = region.kind(inode) == Kind::Symlink;
        let mode = self.mode().filter(|_| !is_link).ok_or(Denied::Unable)?;
        set_mode(inside, inode, region.mode(inode) & 0o7000 | mode)
    }
}

/// Runs `inside` for an inode by descriptor, of the region or of a stand-in. After the region is
/// closed, attributes of a stand-in are refused (`EOPNOTSUPP`): they would be lost with it, and its
/// path in the mount is not known.
fn on_open<T: Copy>(
    fd: c_int,
    failed: T,
    inside: impl Fn(&Inside, Inode) -> Result<T, Denied>,
    real: impl Fn() -> T,
) -> T {
    on_descriptor(
        fd,
        failed,
        |entered, _, inode| inside(entered, inode),
        || {
            let stand_in = job().and_then(|job| Some((job, stand_in_of(job, fd)?)));
            let Some((job, inode)) = stand_in else { return real() };
            while let Ok(entered) = job.enter() {
                match inside(&entered, inode) {
                    Ok(done) => return done,
                    Err(denied) => {
                        drop(entered);
                        if !keeper::again(job, denied) {
                            return failed;
                        }
                    }
                }
            }
            set_errno(libc::EOPNOTSUPP);
            failed
        },
    )
}

fn set_at(
    path: *const c_char,
    follow: bool,
    given: Given,
    real: impl Fn(*const c_char) -> c_int,
) -> c_int {
    on_path(
        (libc::AT_FDCWD, path),
        follow,
        -1,
        |inside, place, _| given.set(&inside, place.inode.ok_or(libc::ENOENT)?),
        |_, path| real(path),
    )
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
    on_open(
        fd,
        -1,
        |_, _| Err(absent(name)),
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
    on_open(
        fd,
        -1,
        |_, _| Ok(0),
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
    set_at(path, true, Given { name, value, size }, |path| {
        real!(setxattr(path: *const c_char, name: *const c_char, value: *const c_void, size: size_t,
            flags: c_int) -> c_int)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn lsetxattr(
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: size_t,
    flags: c_int,
) -> c_int {
    set_at(path, false, Given { name, value, size }, |path| {
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
    let given = Given { name, value, size };
    on_open(
        fd,
        -1,
        |inside, inode| given.set(inside, inode),
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
    on_open(
        fd,
        -1,
        |_, _| Err(absent(name)),
        || real!(fremovexattr(fd: c_int, name: *const c_char) -> c_int),
    )
}
