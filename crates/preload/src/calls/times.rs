//! Times.

use std::ffi::{c_char, c_int};

use jobtree::{Denied, Inode, NewTimes};
use libc::{timespec, timeval};

use super::attributes::{SECOND, stand_in_of};
use super::{check, made, owns};
use crate::descriptors::on_descriptor;
use crate::job::{self, Inside, job};
use crate::path::on_path;
use crate::real::real;

/// New times of a file, as `utimensat` takes them.
#[derive(Clone, Copy)]
struct TimesChange {
    times: NewTimes,
    /// Both become the time of the call: the right to write is enough.
    now: bool,
}

fn nanoseconds(time: timespec) -> Result<i64, c_int> {
    if !(0..SECOND).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    let whole = time.tv_sec.checked_mul(SECOND).and_then(|it| it.checked_add(time.tv_nsec));
    whole.ok_or(libc::EOVERFLOW)
}

/// # Safety
/// `times` is null, or has two values.
unsafe fn new_times(times: *const timespec) -> Result<TimesChange, c_int> {
    let now = job::now();
    if times.is_null() {
        let times = NewTimes { atime: Some(now), mtime: Some(now) };
        return Ok(TimesChange { times, now: true });
    }
    let one = |time: timespec| match time.tv_nsec {
        libc::UTIME_NOW => Ok(Some(now)),
        libc::UTIME_OMIT => Ok(None),
        _ => nanoseconds(time).map(Some),
    };
    // SAFETY: the caller's two values.
    let (atime, mtime) = unsafe { (*times, *times.add(1)) };
    let both_now = [atime, mtime].iter().all(|time| time.tv_nsec == libc::UTIME_NOW);
    Ok(TimesChange { times: NewTimes { atime: one(atime)?, mtime: one(mtime)? }, now: both_now })
}

fn set_times(inside: &Inside, inode: Inode, new: &TimesChange) -> Result<(), Denied> {
    let (region, cred) = (inside.region(), job::cred());
    if new.times == NewTimes::default() {
        return Ok(());
    }
    if !owns(region, inode, &cred) {
        if !new.now {
            return Err(Denied::Errno(libc::EPERM));
        }
        check(region, inode, 2, &cred)?;
    }
    inside.session.set_times(inode, &new.times, job::now());
    Ok(())
}

/// Times that a number of nanoseconds cannot say are left to the mount.
fn in_range(errno: c_int) -> Denied {
    if errno == libc::EOVERFLOW { Denied::Unable } else { Denied::Errno(errno) }
}

unsafe fn times_at(
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    if path.is_null() {
        // SAFETY: the caller's times.
        return unsafe { futimens(dirfd, times) };
    }
    on_path(
        (dirfd, path),
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        -1,
        |inside, place, _| {
            let inode = place.inode.ok_or(libc::ENOENT)?;
            // SAFETY: the caller's times.
            let new = unsafe { new_times(times) }.map_err(in_range)?;
            set_times(&inside, inode, &new)?;
            if let Some(number) = inside.region().stand_in(inode) {
                drop(inside);
                let path = job().ok_or(Denied::Closed)?.stand_in_path(number);
                let at = libc::AT_FDCWD;
                // SAFETY: a path that ends with a zero byte, and the caller's times.
                return made(unsafe {
                    crate::real::sys!(libc::SYS_utimensat, at, path.as_ptr(), times, 0)
                });
            }
            Ok(0)
        },
        |dirfd, path| {
            real!(utimensat(dirfd: c_int, path: *const c_char, times: *const timespec,
                flags: c_int) -> c_int)
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utimensat(
    dirfd: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's times.
    unsafe { times_at(dirfd, path, times, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimens(fd: c_int, times: *const timespec) -> c_int {
    on_descriptor(
        fd,
        -1,
        |inside, _, inode| {
            // SAFETY: the caller's times.
            let new = unsafe { new_times(times) }.map_err(in_range)?;
            set_times(inside, inode, &new)?;
            Ok(0)
        },
        || {
            let done = real!(futimens(fd: c_int, times: *const timespec) -> c_int);
            // The time of the last access of a stand-in is the region's.
            if let Some(job) = job()
                && done == 0
                && let Some(inode) = stand_in_of(job, fd)
                && let Ok(inside) = job.enter()
                // SAFETY: the caller's times.
                && let Ok(new) = unsafe { new_times(times) }
            {
                inside.session.set_times(inode, &new.times, job::now());
            }
            done
        },
    )
}

fn of_timeval(time: timeval) -> timespec {
    timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 }
}

/// # Safety
/// `times` is null, or has two values.
unsafe fn utimes_at(
    dirfd: c_int,
    path: *const c_char,
    times: *const timeval,
    flags: c_int,
) -> c_int {
    if times.is_null() {
        // SAFETY: no times.
        return unsafe { times_at(dirfd, path, std::ptr::null(), flags) };
    }
    // SAFETY: the caller's two values.
    let both = unsafe { [of_timeval(*times), of_timeval(*times.add(1))] };
    // SAFETY: two values of this function.
    unsafe { times_at(dirfd, path, both.as_ptr(), flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's times.
    unsafe { utimes_at(libc::AT_FDCWD, path, times, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: the caller's times.
    unsafe { utimes_at(libc::AT_FDCWD, path, times, libc::AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimesat(
    dirfd: c_int,
    path: *const c_char,
    times: *const timeval,
) -> c_int {
    // SAFETY: the caller's times.
    unsafe { utimes_at(dirfd, path, times, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimes(fd: c_int, times: *const timeval) -> c_int {
    // SAFETY: the caller's times.
    unsafe { utimes_at(fd, std::ptr::null(), times, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
    if times.is_null() {
        // SAFETY: no times.
        return unsafe { times_at(libc::AT_FDCWD, path, std::ptr::null(), 0) };
    }
    let whole = |tv_sec| timespec { tv_sec, tv_nsec: 0 };
    // SAFETY: the caller's times.
    let both = unsafe { [whole((*times).actime), whole((*times).modtime)] };
    // SAFETY: two values of this function.
    unsafe { times_at(libc::AT_FDCWD, path, both.as_ptr(), 0) }
}
