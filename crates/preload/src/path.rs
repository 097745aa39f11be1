//! Which paths lead into the region.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use jobtree::{Denied, Inode, PathBuffer, Walk, WalkEnd, WalkPlace};

use crate::descriptors;
use crate::job::{self, Inside, Job, job};
use crate::keeper;

/// The working directory, if it is in the region.
static WORKING: AtomicU64 = AtomicU64::new(0);
/// If the working directory is above the root: the prefix of the job that is below it, and 1, and
/// how much of it relative paths leave out.
static BELOW: AtomicUsize = AtomicUsize::new(0);
static BELOW_SKIP: AtomicUsize = AtomicUsize::new(0);
const ABSOLUTE_LINKS_MAX: u32 = 40;

/// Where a path leads.
pub(crate) enum Resolved {
    /// Into the region.
    Inside(Inside, WalkPlace),
    /// Outside of the region: the path is for the kernel, unchanged.
    Real,
    /// To the path that is left in the buffer.
    RealPath,
}

/// Finds the working directory at the start of the program.
pub(crate) fn start(job: &'static Job) {
    // SAFETY: system calls with memory of this function.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let (at, here) = (libc::AT_FDCWD, c".");
        let failed = crate::real::sys!(libc::SYS_newfstatat, at, here.as_ptr(), &raw mut stat, 0);
        if failed != 0 { None } else { Some(stat) }
    };
    match stat.and_then(|stat| job::dir_of(job, &stat)) {
        Some(dir) => WORKING.store(dir.0, Ordering::Relaxed),
        None => left(job),
    }
}

/// The working directory is in the region.
pub(crate) fn entered(dir: Inode) {
    BELOW.store(0, Ordering::Relaxed);
    WORKING.store(dir.0, Ordering::Relaxed);
}

/// The working directory is not in the region.
pub(crate) fn left(job: &Job) {
    WORKING.store(0, Ordering::Relaxed);
    BELOW.store(0, Ordering::Relaxed);
    let mut buffer = [0_u8; 4096];
    // SAFETY: a system call with memory of this function.
    let len = unsafe { crate::real::sys!(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()) };
    let Some(here) = usize::try_from(len - 1).ok().and_then(|len| buffer.get(..len)) else {
        return;
    };
    for (at, prefix) in job.prefixes().enumerate() {
        let here = here.strip_suffix(b"/").unwrap_or(here);
        if prefix.starts_with(here) && prefix.get(here.len()) == Some(&b'/') {
            BELOW_SKIP.store(here.len() + 1, Ordering::Relaxed);
            BELOW.store(at + 1, Ordering::Relaxed);
            return;
        }
    }
}

/// The working directory in the region.
pub(crate) fn working() -> Option<Inode> {
    let dir = WORKING.load(Ordering::Relaxed);
    (dir != 0).then_some(Inode(dir))
}

/// The part of a path after a prefix.
#[inline]
fn behind<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    matches!(rest.first(), None | Some(b'/')).then_some(rest)
}

/// The directory from which a path is walked in the region, and the path from there.
#[inline]
fn target<'p>(job: &Job, dirfd: c_int, path: &'p [u8]) -> Option<(Inode, &'p [u8])> {
    if path.first() == Some(&b'/') {
        let rest = job.prefixes().find_map(|prefix| behind(path, prefix))?;
        return Some((job.region().root(), rest));
    }
    if path.is_empty() {
        return None;
    }
    if dirfd != libc::AT_FDCWD {
        let description = descriptors::virtual_at(dirfd)?;
        return Some((job.region().described(description), path));
    }
    if let Some(dir) = working() {
        return Some((dir, path));
    }
    let below = BELOW.load(Ordering::Relaxed).checked_sub(1)?;
    let prefix = job.prefixes().nth(below)?;
    let rest = behind(path, prefix.get(BELOW_SKIP.load(Ordering::Relaxed)..)?)?;
    Some((job.region().root(), rest))
}

/// Finds out where a path leads.
#[inline]
pub(crate) fn resolve(
    job: &'static Job,
    dirfd: c_int,
    path: &[u8],
    follow: bool,
    buffer: &mut PathBuffer,
) -> Result<Resolved, Denied> {
    let Some((mut from, rest)) = target(job, dirfd, path) else { return Ok(Resolved::Real) };
    let inside = match job.enter() {
        Err(Denied::Closed) => return Ok(Resolved::Real),
        entered => entered?,
    };
    buffer.fill(rest)?;
    for _ in 0..ABSOLUTE_LINKS_MAX {
        let how = Walk { from, follow, cred: job::cred() };
        match job.region().walk(&how, buffer)? {
            WalkEnd::Inside(place) => return Ok(Resolved::Inside(inside, place)),
            WalkEnd::Above => {
                let prefix = job.prefixes().next().unwrap_or_default();
                buffer.prepend(b"/..", true)?;
                buffer.prepend(prefix, false)?;
                return Ok(Resolved::RealPath);
            }
            WalkEnd::Absolute => {
                let rest = buffer.rest();
                let Some(prefix) = job.prefixes().find(|prefix| behind(rest, prefix).is_some())
                else {
                    return Ok(Resolved::RealPath);
                };
                buffer.skip(prefix.len());
                from = job.region().root();
            }
        }
    }
    Err(Denied::Errno(libc::ELOOP))
}

/// Whether a pointer can lead to memory of a program. For others the kernel returns `EFAULT`.
#[inline]
pub(crate) fn is_address(path: *const c_char) -> bool {
    // The page at 0 is never mapped; the kernel's half begins at 2^47 on x86-64, and higher on
    // other machines.
    const LEAST: usize = 4096;
    const MOST: usize = 1 << 47;
    cfg!(not(target_arch = "x86_64")) && !path.is_null() || (LEAST..MOST).contains(&path.addr())
}

/// Runs `inside` for a path in the region, and `real` for any other.
#[inline]
pub(crate) fn on_path<T: Copy>(
    (dirfd, path): (c_int, *const c_char),
    follow: bool,
    failed: T,
    inside: impl Fn(Inside, &WalkPlace, &PathBuffer) -> Result<T, Denied>,
    real: impl Fn(c_int, *const c_char) -> T,
) -> T {
    let Some(job) = job() else { return real(dirfd, path) };
    if !is_address(path) {
        return real(dirfd, path);
    }
    // SAFETY: the caller's path ends with a zero byte.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut buffer = PathBuffer::new();
    loop {
        let done = match resolve(job, dirfd, bytes, follow, &mut buffer) {
            Ok(Resolved::Inside(entered, place)) => inside(entered, &place, &buffer),
            Ok(Resolved::Real) => {
                if descriptors::is_real(dirfd) || bytes.first() == Some(&b'/') {
                    return real(dirfd, path);
                }
                match descriptors::make_real(dirfd) {
                    Ok(()) => return real(dirfd, path),
                    Err(errno) => Err(Denied::Errno(errno)),
                }
            }
            Ok(Resolved::RealPath) => return real(libc::AT_FDCWD, buffer.as_ptr().cast()),
            Err(denied) => Err(denied),
        };
        match done {
            Ok(value) => return value,
            Err(denied) => {
                if !keeper::again(job, denied) {
                    return failed;
                }
            }
        }
    }
}
