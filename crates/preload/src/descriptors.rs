//! Descriptors of files in the region.
//!
//! Each has a number that the kernel knows as well, of a placeholder, so that no other file gets
//! it. After a close the number is kept for the next open, which then makes no system call.
//!
//! A descriptor becomes *real* when more than this library must understand it: when it becomes a
//! standard stream, is handed to another program, is mapped, or the region is closed. The keeper
//! then holds a stand-in for the file's content, and one open description for all processes that
//! share it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use jobtree::{Denied, Description, Inode, Kind, PathBuffer};

use crate::job::{Inside, Job, job};
use crate::{keeper, real};

/// Numbers from here on are not used for files in the region.
const NUMBERS: usize = 4096;

/// Descriptors by number: 0 if the kernel knows it all, one of the markers, or the offset of a
/// description and [`CLOSE_ON_EXEC`].
static TABLE: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
const PLACEHOLDER: u64 = 2;
const KEPT: u64 = 4;
const CLOSE_ON_EXEC: u64 = 1;
const FIRST_OFFSET: u64 = 64;

/// Numbers kept for the next open.
static SPARE: [AtomicI32; 16] = [const { AtomicI32::new(-1) }; 16];
static PLACEHOLDER_AT: AtomicI32 = AtomicI32::new(-1);
/// No number above this one is in the table.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

#[inline]
fn place(fd: c_int) -> Option<&'static AtomicU64> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The description behind a descriptor of a file in the region.
#[inline]
pub(crate) fn virtual_at(fd: c_int) -> Option<Description> {
    let value = place(fd)?.load(Ordering::Acquire);
    (value >= FIRST_OFFSET).then_some(Description(value & !63))
}

/// Whether a descriptor is not one of a file in the region.
#[inline]
pub(crate) fn is_real(fd: c_int) -> bool {
    virtual_at(fd).is_none()
}

/// Whether the program does not know of this number: this library keeps it.
#[inline]
pub(crate) fn is_hidden(fd: c_int) -> bool {
    place(fd).is_some_and(|place| matches!(place.load(Ordering::Acquire), PLACEHOLDER | KEPT))
}

/// Whether a descriptor is closed by an exec.
pub(crate) fn close_on_exec_of(fd: c_int) -> bool {
    place(fd).is_some_and(|place| place.load(Ordering::Acquire) & CLOSE_ON_EXEC != 0)
}

/// Changes whether a descriptor is closed by an exec.
pub(crate) fn set_close_on_exec(fd: c_int, closes: bool) {
    if let Some(place) = place(fd) {
        if closes {
            place.fetch_or(CLOSE_ON_EXEC, Ordering::AcqRel);
        } else {
            place.fetch_and(!CLOSE_ON_EXEC, Ordering::AcqRel);
        }
    }
}

/// A number for a new descriptor.
#[inline]
pub(crate) fn number() -> Result<c_int, c_int> {
    for spare in &SPARE {
        if spare.load(Ordering::Relaxed) >= 0 {
            let number = spare.swap(-1, Ordering::AcqRel);
            if number >= 0 {
                return Ok(number);
            }
        }
    }
    duplicate_placeholder(0)
}

/// A new number, not below `least`.
#[cold]
pub(crate) fn duplicate_placeholder(least: c_int) -> Result<c_int, c_int> {
    for _ in 0..2 {
        let from = PLACEHOLDER_AT.load(Ordering::Relaxed);
        // SAFETY: a system call without memory.
        let number = unsafe {
            crate::real::sys!(libc::SYS_fcntl, from, libc::F_DUPFD_CLOEXEC, least.max(0)) as c_int
        };
        if number >= 0 {
            if number as usize >= NUMBERS {
                close_number(number);
                return Err(libc::EMFILE);
            }
            HIGHEST.fetch_max(number, Ordering::Relaxed);
            return Ok(number);
        }
        match real::errno() {
            libc::EBADF => open_placeholder()?,
            errno => return Err(errno),
        }
    }
    Err(libc::EMFILE)
}

fn open_placeholder() -> Result<(), c_int> {
    // SAFETY: system calls with a constant.
    unsafe {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        let path = c"/";
        let low =
            crate::real::sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) as c_int;
        if low < 0 {
            return Err(real::errno());
        }
        // Out of the way of programs that count on small numbers.
        let mut limit: libc::rlimit = std::mem::zeroed();
        crate::real::sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit);
        let least = (limit.rlim_cur.min(NUMBERS as u64) / 4) as c_int;
        let high = crate::real::sys!(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, least) as c_int;
        let at = if high >= 0 && (high as usize) < NUMBERS {
            crate::real::sys!(libc::SYS_close, low);
            high
        } else {
            low
        };
        PLACEHOLDER_AT.store(at, Ordering::Relaxed);
        HIGHEST.fetch_max(at, Ordering::Relaxed);
        if let Some(place) = place(at) {
            place.store(PLACEHOLDER, Ordering::Release);
        }
    }
    Ok(())
}

fn close_number(number: c_int) {
    // SAFETY: a system call without memory.
    unsafe { crate::real::sys!(libc::SYS_close, number) };
}

/// Gives a number to a description.
#[inline]
pub(crate) fn install(number: c_int, description: Description, closes_on_exec: bool) {
    if let Some(place) = place(number) {
        let value = description.0 | u64::from(closes_on_exec);
        place.store(value, Ordering::Release);
    }
}

/// A number is not used after all.
pub(crate) fn keep_number(number: c_int) {
    let Some(place) = place(number) else { return close_number(number) };
    if number > 2 {
        place.store(KEPT, Ordering::Release);
        for spare in &SPARE {
            if spare.load(Ordering::Relaxed) < 0
                && spare.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
    }
    place.store(0, Ordering::Release);
    close_number(number);
}

/// Closes a descriptor of a file in the region. False if it is none.
#[inline]
pub(crate) fn close(fd: c_int) -> bool {
    let Some(description) = virtual_at(fd) else { return false };
    release(description);
    keep_number(fd);
    true
}

fn release(description: Description) {
    if let Some(job) = job()
        && let Ok(inside) = job.enter()
    {
        inside.session.undescribe(description);
    }
}

/// Another file is about to get this number: the entry of this library for it ends.
pub(crate) fn vacate(fd: c_int) {
    let Some(place) = place(fd) else { return };
    match place.swap(0, Ordering::AcqRel) {
        0 => {}
        PLACEHOLDER => PLACEHOLDER_AT.store(-1, Ordering::Relaxed),
        KEPT => {
            for spare in &SPARE {
                let _ = spare.compare_exchange(fd, -1, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
        value => release(Description(value & !63)),
    }
}

/// The same for all numbers of a range.
pub(crate) fn vacate_range(first: u32, last: u32) {
    let end = HIGHEST.load(Ordering::Relaxed).min(last.min(NUMBERS as u32) as c_int);
    for fd in first.min(NUMBERS as u32) as c_int..=end {
        vacate(fd);
    }
}

/// The kernel knows a descriptor from now on.
#[cold]
pub(crate) fn make_real(fd: c_int) -> Result<(), c_int> {
    let (Some(job), Some(description)) = (job(), virtual_at(fd)) else { return Ok(()) };
    let inode = job.region().described(description);
    let descriptor = match job.region().kind(inode) {
        Kind::Directory => open_dir(job, inode)?,
        Kind::File | Kind::Symlink => keeper::descriptor(job, description)?,
    };
    let flags = if close_on_exec_of(fd) { libc::O_CLOEXEC } else { 0 };
    // SAFETY: system calls without memory.
    unsafe {
        if crate::real::sys!(libc::SYS_dup3, descriptor, fd, flags) < 0 {
            let errno = real::errno();
            close_number(descriptor);
            return Err(errno);
        }
    }
    close_number(descriptor);
    if let Some(place) = place(fd) {
        place.store(0, Ordering::Release);
    }
    Ok(())
}

/// Opens a directory of the region through the mount.
pub(crate) fn open_dir(job: &'static Job, dir: Inode) -> Result<c_int, c_int> {
    let mut buffer = PathBuffer::new();
    job.region().path_of(dir, &mut buffer).ok_or(libc::ENOENT)?;
    let prefix = job.prefixes().next().unwrap_or_default();
    buffer.prepend(prefix, true)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a path that ends with a zero byte.
    unsafe {
        let path = buffer.as_ptr();
        let opened = crate::real::sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
        if opened < 0 { Err(real::errno()) } else { Ok(opened as c_int) }
    }
}

/// Runs `inside` for a descriptor of a file in the region, and `real` for any other.
#[inline]
pub(crate) fn on_descriptor<T: Copy>(
    fd: c_int,
    failed: T,
    inside: impl Fn(&Inside, Description, Inode) -> Result<T, Denied>,
    real: impl FnOnce() -> T,
) -> T {
    let Some(description) = virtual_at(fd) else {
        if is_hidden(fd) {
            real::set_errno(libc::EBADF);
            return failed;
        }
        return real();
    };
    let Some(job) = job() else { return real() };
    loop {
        let done = match job.enter() {
            Ok(entered) => {
                let inode = job.region().described(description);
                if job.region().stand_in(inode).is_some() {
                    Err(Denied::Closed)
                } else {
                    inside(&entered, description, inode)
                }
            }
            Err(denied) => Err(denied),
        };
        match done {
            Ok(value) => return value,
            Err(Denied::Closed) => match make_real(fd) {
                Ok(()) => return real(),
                Err(errno) => {
                    real::set_errno(errno);
                    return failed;
                }
            },
            Err(denied) => {
                if !keeper::again(job, denied) {
                    return failed;
                }
            }
        }
    }
}

/// All descriptors that another program is to inherit become real.
pub(crate) fn pass_on(_job: &'static Job) {
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) {
        if virtual_at(fd).is_some() && !close_on_exec_of(fd) {
            // After a failure the program does not get the descriptor.
            let _ = make_real(fd);
        }
    }
}

/// A child of a fork will share all descriptions of this process.
pub(crate) extern "C" fn share_all() {
    let Some(job) = job() else { return };
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) {
        if let Some(description) = virtual_at(fd) {
            job.region().share(description);
        }
    }
}

/// The program ends: files that it only read are closed. Files that it wrote stay open, because
/// functions that run after this one may still write.
pub(crate) fn close_at_exit() {
    let Some(job) = job() else { return };
    for fd in 0..=HIGHEST.load(Ordering::Relaxed) {
        if let Some(description) = virtual_at(fd)
            && job.region().flags(description) & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32
        {
            close(fd);
        }
    }
    job.leave();
}

/// A number that the program chose is in the table.
pub(crate) fn noted(fd: c_int) {
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
}
