//! Descriptors as numbers: copies, flags, locks.

use std::ffi::{c_int, c_ulong};

use libc::off_t;

use crate::descriptors::{
    self, close_on_exec_of, duplicate_placeholder, install, make_real, vacate, virtual_at,
};
use crate::job::job;
use crate::real::{fail, real};

/// A copy with a number not below `least`.
fn copy(fd: c_int, least: c_int, closes_on_exec: bool) -> Option<c_int> {
    let description = virtual_at(fd)?;
    let job = job()?;
    match duplicate_placeholder(least) {
        Ok(number) => {
            job.region().duplicate(description);
            install(number, description, closes_on_exec);
            if number <= 2
                && let Err(errno) = make_real(number)
            {
                descriptors::close(number);
                return Some(fail(errno));
            }
            Some(number)
        }
        Err(errno) => Some(fail(errno)),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn dup(fd: c_int) -> c_int {
    if descriptors::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    copy(fd, 0, false).unwrap_or_else(|| real!(dup(fd: c_int) -> c_int))
}

fn copy_to(fd: c_int, to: c_int, flags: c_int) -> Result<(), c_int> {
    if descriptors::is_hidden(fd) {
        return Err(libc::EBADF);
    }
    if virtual_at(fd).is_none() {
        vacate(to);
        return Ok(());
    }
    let high = usize::try_from(to).is_ok_and(|to| to >= 4096);
    if (0..=2).contains(&to) || high {
        // The kernel must know it: the standard streams of programs are used by all of libc.
        make_real(fd)?;
        vacate(to);
        return Ok(());
    }
    let Some(job) = job() else { return Err(libc::EBADF) };
    let Some(description) = virtual_at(fd) else { return Err(libc::EBADF) };
    job.region().duplicate(description);
    vacate(to);
    // SAFETY: a system call without memory.
    let made = unsafe { crate::real::sys!(libc::SYS_dup3, fd, to, libc::O_CLOEXEC) };
    if made < 0 {
        return Err(crate::real::errno());
    }
    descriptors::noted(to);
    install(to, description, flags & libc::O_CLOEXEC != 0);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    if fd == to && virtual_at(fd).is_some() {
        return to;
    }
    if let Err(errno) = copy_to(fd, to, 0) {
        return fail(errno);
    }
    if virtual_at(to).is_some() {
        return to;
    }
    real!(dup2(fd: c_int, to: c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if fd == to {
        return fail(libc::EINVAL);
    }
    if let Err(errno) = copy_to(fd, to, flags) {
        return fail(errno);
    }
    if virtual_at(to).is_some() {
        return to;
    }
    real!(dup3(fd: c_int, to: c_int, flags: c_int) -> c_int)
}

fn control(fd: c_int, command: c_int, argument: c_ulong) -> Option<c_int> {
    let description = virtual_at(fd)?;
    let region = job()?.region();
    Some(match command {
        libc::F_DUPFD => return copy(fd, argument as c_int, false),
        libc::F_DUPFD_CLOEXEC => return copy(fd, argument as c_int, true),
        libc::F_GETFD => c_int::from(close_on_exec_of(fd)),
        libc::F_SETFD => {
            let closes = argument & libc::FD_CLOEXEC as c_ulong != 0;
            descriptors::set_close_on_exec(fd, closes);
            0
        }
        libc::F_GETFL => region.flags(description) as c_int,
        libc::F_SETFL => {
            let changeable = libc::O_APPEND | libc::O_NONBLOCK | libc::O_NOATIME | libc::O_DIRECT;
            let kept = region.flags(description) & !(changeable as u32);
            region.set_flags(description, kept | argument as u32 & changeable as u32);
            0
        }
        // Locks, leases, owners of signals: the kernel's.
        _ => {
            if let Err(errno) = make_real(fd) {
                return Some(fail(errno));
            }
            return None;
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    if descriptors::is_hidden(fd) {
        return fail(libc::EBADF);
    }
    control(fd, command, argument)
        .unwrap_or_else(|| real!(fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    fcntl64(fd, command, argument)
}

#[unsafe(no_mangle)]
pub extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    if let Err(errno) = make_real(fd) {
        return fail(errno);
    }
    real!(flock(fd: c_int, operation: c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn lockf64(fd: c_int, command: c_int, len: off_t) -> c_int {
    if let Err(errno) = make_real(fd) {
        return fail(errno);
    }
    real!(lockf64(fd: c_int, command: c_int, len: off_t) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn lockf(fd: c_int, command: c_int, len: off_t) -> c_int {
    lockf64(fd, command, len)
}

/// No request of a device is known to a regular file or a directory, and none to clone one: the
/// answer is the mount's.
#[unsafe(no_mangle)]
pub extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    const CLONE: c_ulong = 0x4004_9409;
    const CLONE_RANGE: c_ulong = 0x4020_940d;
    const FIONREAD: c_ulong = 0x541b;
    let source = if request == CLONE { argument as c_int } else { -1 };
    if matches!(request, CLONE | CLONE_RANGE)
        && (virtual_at(fd).is_some() || virtual_at(source).is_some())
    {
        return fail(libc::EOPNOTSUPP);
    }
    if virtual_at(fd).is_some() {
        if request == FIONREAD
            && let Err(errno) = make_real(fd)
        {
            return fail(errno);
        }
        if request != FIONREAD {
            return fail(libc::ENOTTY);
        }
    }
    real!(ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn isatty(fd: c_int) -> c_int {
    if virtual_at(fd).is_some() {
        crate::real::set_errno(libc::ENOTTY);
        return 0;
    }
    real!(isatty(fd: c_int) -> c_int, 0)
}
