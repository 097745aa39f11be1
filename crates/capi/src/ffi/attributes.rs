//! Changing attributes; permissions, room, further names and extended attributes.

use std::ffi::{c_char, c_int, c_void};

use calls::{Follow, Times};
use cudele::Timestamp;

use super::connection::{CudeleFs, mount};
use super::files::{CudeleFile, file};
use super::memory::{bytes, check_place, copy, done, put, text};
use crate::error::answer;

/// How much room there is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudeleSpace {
    /// Bytes of the object store.
    pub total: u64,
    /// Of those, free.
    pub available: u64,
}

/// A time that stays as it is: `CUDELE_TIME_KEEP` of the header.
const TIME_KEEP: i64 = i64::MIN;

/// Whether permissions allow this process to read (4), write (2) or search and execute (1) the
/// object at a path, as access(2) with `R_OK`, `W_OK` and `X_OK`; 0 (`F_OK`) checks its existence.
///
/// Errors: `EACCES` if they do not; `ENOENT`, `ENOTDIR`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_access(fs: *mut CudeleFs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.access(unsafe { text(path, "path") }?, mode)?))
}

/// Changes the permissions.
///
/// Errors: `EPERM`, `ENOENT`, `EBUSY` in another client's subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_chmod(fs: *mut CudeleFs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.set_permissions(unsafe { text(path, "path") }?, mode)?))
}

/// Sets the times of the last access and the last change of the content, in nanoseconds since 1970;
/// one that is `CUDELE_TIME_KEEP` stays. A symbolic link at the end of the path is followed.
///
/// Errors: as cudele_chmod.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_utimens(
    fs: *mut CudeleFs,
    path: *const c_char,
    atime: i64,
    mtime: i64,
) -> c_int {
    let time = |nanos: i64| (nanos != TIME_KEEP).then_some(Timestamp(nanos));
    let times = Times { atime: time(atime), mtime: time(mtime) };
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.set_times(unsafe { text(path, "path") }?, times, Follow::Last)?))
}

/// Cuts a file off, or lengthens it with zeros.
///
/// Errors: `EISDIR`, `EFBIG`, `EACCES`, `ENOENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_truncate(
    fs: *mut CudeleFs,
    path: *const c_char,
    size: u64,
) -> c_int {
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.truncate(unsafe { text(path, "path") }?, size)?))
}

/// As cudele_truncate, of a file that is open for writing.
///
/// Errors: `EBADF` if it is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_ftruncate(open: *mut CudeleFile, size: u64) -> c_int {
    done(|| file(open)?.truncate(size))
}

/// Gives a file one more name.
///
/// Errors: `EEXIST`, `EPERM` for a directory, `EMLINK`, `EXDEV` across the border of a decoupled
/// subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_link(
    fs: *mut CudeleFs,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: strings of the caller.
        let (path, name) = unsafe { (text(path, "path")?, text(name, "name")?) };
        Ok(mount(fs)?.link(path, name)?)
    })
}

/// How much room there is in the object store.
///
/// Errors: `EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_space(fs: *mut CudeleFs, space: *mut CudeleSpace) -> c_int {
    done(|| {
        check_place(space, "space")?;
        let cudele::Space { total, available, .. } = mount(fs)?.space()?;
        // SAFETY: a place of the caller.
        unsafe { put(space, CudeleSpace { total, available }) };
        Ok(())
    })
}

/// Copies the value of an extended attribute to a buffer, as much as fits. Returns its length: if
/// that is more than `length`, the buffer was too small. Names that begin with `cudele.` are facts
/// that Cudele knows: `cudele.file.durable` is `none`, `local` or `global`, the failures that the
/// file survives at this moment; `cudele.file.visible` is whether other clients see the same file;
/// `cudele.dir.state` is the owner of a subtree.
///
/// Errors: `ENODATA` if there is no such attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_getxattr(
    fs: *mut CudeleFs,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: strings of the caller.
        let (path, name) = unsafe { (text(path, "path")?, text(name, "name")?) };
        let found = mount(fs)?.xattr(path, name)?;
        // SAFETY: a buffer of the caller.
        unsafe { copy(&found, value.cast(), length) }
    })
}

/// Sets an extended attribute, or removes it if `value` is NULL.
///
/// Errors: `EPERM`, `ERANGE`, `EFBIG`; `ENODATA` to remove a missing attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_setxattr(
    fs: *mut CudeleFs,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    length: usize,
) -> c_int {
    done(|| {
        // SAFETY: strings of the caller.
        let (path, name) = unsafe { (text(path, "path")?, text(name, "name")?) };
        let value = if value.is_null() {
            None
        } else {
            // SAFETY: a buffer of the caller.
            Some(unsafe { bytes(value.cast(), length) }?)
        };
        Ok(mount(fs)?.set_xattr(path, name, value)?)
    })
}
