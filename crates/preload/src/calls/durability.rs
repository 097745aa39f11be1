//! `fsync` and its kin.

use std::ffi::c_int;

use libc::off_t;

use crate::descriptors::make_real;
use crate::job::job;
use crate::real::{fail, real};

/// Whether an `fsync` needs nothing more: the policy promises nothing before the end of the job.
fn synced(fd: c_int) -> Option<c_int> {
    crate::descriptors::virtual_at(fd)?;
    let job = job()?;
    if job.sync_matters() {
        // The mount keeps the promise.
        crate::keeper::close(job);
        return match make_real(fd) {
            Ok(()) => None,
            Err(errno) => Some(fail(errno)),
        };
    }
    Some(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn fsync(fd: c_int) -> c_int {
    let known = synced(fd);
    let done = known.unwrap_or_else(|| real!(fsync(fd: c_int) -> c_int));
    if done == 0 && known.is_none() { synced_stand_in(fd) } else { done }
}

/// The content of a stand-in is the keeper's, which makes it durable through the mount.
fn synced_stand_in(fd: c_int) -> c_int {
    if let Some(job) = job()
        && let Some(inode) = super::attributes::stand_in_of(job, fd)
    {
        if !job.sync_matters() {
            return 0;
        }
        return match crate::keeper::sync(job, inode) {
            Ok(()) => 0,
            Err(errno) => fail(errno),
        };
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(fd: c_int) -> c_int {
    let known = synced(fd);
    let done = known.unwrap_or_else(|| real!(fdatasync(fd: c_int) -> c_int));
    if done == 0 && known.is_none() { synced_stand_in(fd) } else { done }
}

#[unsafe(no_mangle)]
pub extern "C" fn syncfs(fd: c_int) -> c_int {
    synced(fd).unwrap_or_else(|| real!(syncfs(fd: c_int) -> c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: u32) -> c_int {
    synced(fd).unwrap_or_else(
        || real!(sync_file_range(fd: c_int, offset: off_t, len: off_t, flags: u32) -> c_int),
    )
}
