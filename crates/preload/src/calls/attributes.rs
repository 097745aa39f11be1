//! Attributes.

use std::ffi::{c_char, c_int, c_uint};

use jobtree::{Denied, Inode, JobStat, Kind};
use libc::{stat, statx};

use crate::descriptors::{self, on_descriptor};
use crate::job::{self, Inside, Job, job};
use crate::path::on_path;
use crate::real::real;

/// As the mount says: `mount::fuse::reply`.
const BLOCK_BYTES: i64 = 128 * 1024;
const BLOCK_UNIT: u64 = 512;
const LARGE: u64 = 1 << 30;
pub(super) const SECOND: i64 = 1_000_000_000;

fn blocks(known: &JobStat) -> u64 {
    if Kind::of_mode(known.mode) == Kind::Directory {
        0
    } else if known.size < LARGE {
        known.size.div_ceil(BLOCK_UNIT)
    } else {
        known.size / BLOCK_UNIT - 1
    }
}

/// The attributes of an inode; the length and the time of a stand-in are the kernel's.
fn attributes(job: &Job, inside: Inside, inode: Inode) -> JobStat {
    let region = inside.region();
    let mut known = region.stat(inode);
    if let Some(number) = region.stand_in(inode) {
        drop(inside);
        with_stand_in(job, number, &mut known);
    }
    known
}

fn with_stand_in(job: &Job, number: u32, known: &mut JobStat) {
    let path = job.stand_in_path(number);
    // SAFETY: a path that ends with a zero byte, and memory of this function.
    unsafe {
        let mut found: stat = std::mem::zeroed();
        let at = libc::AT_FDCWD;
        if crate::real::sys!(libc::SYS_newfstatat, at, path.as_ptr(), &raw mut found, 0) == 0 {
            merge(known, &found);
        }
    }
}

fn merge(known: &mut JobStat, found: &stat) {
    known.size = found.st_size as u64;
    known.mtime = found.st_mtime * SECOND + found.st_mtime_nsec;
    known.ctime = known.ctime.max(found.st_ctime * SECOND + found.st_ctime_nsec);
}

/// # Safety
/// `buffer` is the caller's.
unsafe fn fill(job: &Job, known: &JobStat, buffer: *mut stat) {
    // SAFETY: the caller's buffer; all zeros are a valid value.
    unsafe {
        let mut filled: stat = std::mem::zeroed();
        filled.st_dev = job.device();
        filled.st_ino = known.ino;
        filled.st_mode = known.mode;
        filled.st_nlink = known.nlink;
        filled.st_uid = known.uid;
        filled.st_gid = known.gid;
        filled.st_size = known.size as i64;
        filled.st_blksize = BLOCK_BYTES;
        filled.st_blocks = blocks(known) as i64;
        filled.st_atime = known.atime.div_euclid(SECOND);
        filled.st_atime_nsec = known.atime.rem_euclid(SECOND);
        filled.st_mtime = known.mtime.div_euclid(SECOND);
        filled.st_mtime_nsec = known.mtime.rem_euclid(SECOND);
        filled.st_ctime = known.ctime.div_euclid(SECOND);
        filled.st_ctime_nsec = known.ctime.rem_euclid(SECOND);
        *buffer = filled;
    }
}

/// The inode that a real descriptor stands in for.
pub(super) fn stand_in_of(job: &Job, fd: c_int) -> Option<Inode> {
    // SAFETY: system calls with memory of this function.
    unsafe {
        let mut found: stat = std::mem::zeroed();
        let empty = c"";
        let flags = libc::AT_EMPTY_PATH;
        if crate::real::sys!(libc::SYS_newfstatat, fd, empty.as_ptr(), &raw mut found, flags) != 0
            || !job.may_stand_in(found.st_dev, found.st_nlink)
        {
            return None;
        }
        named_in_link(job, fd)
    }
}

/// The keeper names a stand-in after its inode, before it removes the name.
fn named_in_link(job: &Job, fd: c_int) -> Option<Inode> {
    let mut path = job::Text::<64>::new();
    path.push(b"/proc/self/fd/").number(fd.max(0) as u32);
    let mut link = [0_u8; 1024];
    // SAFETY: a path that ends with a zero byte, and memory of this function.
    let len = unsafe {
        let (at, start) = (libc::AT_FDCWD, link.as_mut_ptr());
        crate::real::sys!(libc::SYS_readlinkat, at, path.as_ptr(), start, link.len())
    };
    let inode = jobtree::inode_of_link(link.get(..usize::try_from(len).ok()?)?)?;
    job.region().stand_in(inode).map(|_| inode)
}

/// # Safety
/// `buffer` is the caller's.
unsafe fn stat_at(dirfd: c_int, path: *const c_char, buffer: *mut stat, flags: c_int) -> c_int {
    // SAFETY: the caller's path.
    if flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0) {
        if dirfd != libc::AT_FDCWD {
            // SAFETY: the caller's buffer.
            return unsafe { fstat64(dirfd, buffer) };
        }
        // SAFETY: the caller's buffer.
        return unsafe { stat_at(dirfd, c".".as_ptr(), buffer, 0) };
    }
    on_path(
        (dirfd, path),
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        -1,
        |inside, place, _| {
            let job = job().ok_or(Denied::Closed)?;
            let inode = place.inode.ok_or(libc::ENOENT)?;
            if place.must_be_dir && inside.region().kind(inode) != Kind::Directory {
                return Err(Denied::Errno(libc::ENOTDIR));
            }
            let known = attributes(job, inside, inode);
            // SAFETY: the caller's buffer.
            unsafe { fill(job, &known, buffer) };
            Ok(0)
        },
        |dirfd, path| {
            real!(fstatat64(dirfd: c_int, path: *const c_char, buffer: *mut stat, flags: c_int)
                -> c_int)
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat64(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(dirfd, path, buffer, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstatat(
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(dirfd, path, buffer, flags) }
}

#[unsafe(export_name = "stat64")]
pub unsafe extern "C" fn stat64_call(path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(libc::AT_FDCWD, path, buffer, 0) }
}

#[unsafe(export_name = "stat")]
pub unsafe extern "C" fn stat_call(path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(libc::AT_FDCWD, path, buffer, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lstat64(path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(libc::AT_FDCWD, path, buffer, libc::AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lstat(path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(libc::AT_FDCWD, path, buffer, libc::AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: c_int, buffer: *mut stat) -> c_int {
    on_descriptor(
        fd,
        -1,
        |inside, _, inode| {
            let job = job().ok_or(Denied::Closed)?;
            let known = inside.region().stat(inode);
            // SAFETY: the caller's buffer.
            unsafe { fill(job, &known, buffer) };
            Ok(0)
        },
        || {
            let done = real!(fstat64(fd: c_int, buffer: *mut stat) -> c_int);
            if done == 0
                && let Some(job) = job()
            {
                // SAFETY: the kernel has filled the caller's buffer.
                unsafe { show_inode(job, fd, buffer) };
            }
            done
        },
    )
}

/// Shows the attributes of the file that a stand-in is for.
///
/// # Safety
/// `buffer` is the caller's, and filled.
unsafe fn show_inode(job: &Job, fd: c_int, buffer: *mut stat) {
    // SAFETY: the caller's buffer.
    unsafe {
        if !job.may_stand_in((*buffer).st_dev, (*buffer).st_nlink) {
            return;
        }
        if let Some(inode) = named_in_link(job, fd) {
            let mut known = job.region().stat(inode);
            merge(&mut known, &*buffer);
            fill(job, &known, buffer);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { fstat64(fd, buffer) }
}

// The names that programs of older versions of glibc call.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat(_: c_int, path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(libc::AT_FDCWD, path, buffer, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __xstat64(_: c_int, path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(libc::AT_FDCWD, path, buffer, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __lxstat(_: c_int, path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { lstat64(path, buffer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __lxstat64(_: c_int, path: *const c_char, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { lstat64(path, buffer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat(_: c_int, fd: c_int, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { fstat64(fd, buffer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat64(_: c_int, fd: c_int, buffer: *mut stat) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { fstat64(fd, buffer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstatat(
    _: c_int,
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(dirfd, path, buffer, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstatat64(
    _: c_int,
    dirfd: c_int,
    path: *const c_char,
    buffer: *mut stat,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's buffer.
    unsafe { stat_at(dirfd, path, buffer, flags) }
}

#[unsafe(export_name = "statx")]
pub unsafe extern "C" fn statx_call(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    buffer: *mut statx,
) -> c_int {
    let Some(job) = job() else {
        return real!(statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint,
            buffer: *mut statx) -> c_int);
    };
    // SAFETY: the caller's path and buffer; the kernel's structures may be zero.
    unsafe {
        let empty = flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || *path == 0);
        let is_virtual = empty && !descriptors::is_real(dirfd);
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        if empty && !is_virtual && dirfd != libc::AT_FDCWD {
            let done = real!(statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint,
                buffer: *mut statx) -> c_int);
            let device = libc::makedev((*buffer).stx_dev_major, (*buffer).stx_dev_minor);
            if done != 0 || !job.may_stand_in(device, (*buffer).stx_nlink.into()) {
                return done;
            }
        }
        if empty {
            let mut found: stat = std::mem::zeroed();
            if stat_at(dirfd, path, &raw mut found, flags) != 0 {
                return -1;
            }
            fill_statx(&found, buffer);
            return 0;
        }
        on_path(
            (dirfd, path),
            follow,
            -1,
            |inside, place, _| {
                let inode = place.inode.ok_or(libc::ENOENT)?;
                if place.must_be_dir && inside.region().kind(inode) != Kind::Directory {
                    return Err(Denied::Errno(libc::ENOTDIR));
                }
                let known = attributes(job, inside, inode);
                let mut found: stat = std::mem::zeroed();
                fill(job, &known, &raw mut found);
                fill_statx(&found, buffer);
                Ok(0)
            },
            |dirfd, path| {
                real!(statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint,
                    buffer: *mut statx) -> c_int)
            },
        )
    }
}

/// # Safety
/// `buffer` is the caller's.
unsafe fn fill_statx(found: &stat, buffer: *mut statx) {
    // SAFETY: the caller's buffer; all zeros are a valid value.
    unsafe {
        let mut filled: statx = std::mem::zeroed();
        filled.stx_mask = libc::STATX_BASIC_STATS;
        filled.stx_blksize = found.st_blksize as u32;
        filled.stx_nlink = found.st_nlink as u32;
        filled.stx_uid = found.st_uid;
        filled.stx_gid = found.st_gid;
        filled.stx_mode = found.st_mode as u16;
        filled.stx_ino = found.st_ino;
        filled.stx_size = found.st_size as u64;
        filled.stx_blocks = found.st_blocks as u64;
        let times = [
            (&mut filled.stx_atime, found.st_atime, found.st_atime_nsec),
            (&mut filled.stx_mtime, found.st_mtime, found.st_mtime_nsec),
            (&mut filled.stx_ctime, found.st_ctime, found.st_ctime_nsec),
        ];
        for (time, seconds, nanoseconds) in times {
            time.tv_sec = seconds;
            time.tv_nsec = nanoseconds as u32;
        }
        filled.stx_dev_major = libc::major(found.st_dev);
        filled.stx_dev_minor = libc::minor(found.st_dev);
        *buffer = filled;
    }
}
