//! The machine's part in a region: shared memory, waiting, and the identity of threads.
#![allow(unsafe_code, reason = "maps memory that other processes change")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use cudele::{Errno, Error, Result};
use jobtree::{Host, JobRegion, Visit};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};

use crate::io;

/// Answers for the region about threads.
#[derive(Debug)]
pub(crate) struct Machine;

pub(crate) static MACHINE: Machine = Machine;

impl Host for Machine {
    fn is_alive(&self, pid: u32, tid: u32) -> bool {
        match std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")) {
            Ok(text) => {
                let state = text.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next());
                !matches!(state, Some('Z' | 'X' | 'x'))
            }
            Err(_) => false,
        }
    }

    fn pause(&self, round: u32) {
        match round {
            0..32 => std::hint::spin_loop(),
            32..64 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
        }
    }
}

/// Memory for a region: so many bytes at most, which are taken when they are used.
pub(crate) fn shared_memory(bytes: u64) -> Result<(OwnedFd, JobRegion)> {
    let failed = |errno: rustix::io::Errno| io("preload", errno);
    let file = memfd_create("cudele-job", MemfdFlags::CLOEXEC).map_err(failed)?;
    ftruncate(&file, bytes).map_err(failed)?;
    let len = usize::try_from(bytes).map_err(|_| Error::of(Errno::Invalid, "preload"))?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, which stays for the rest of the process.
    let region = unsafe {
        let base =
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0);
        if base == libc::MAP_FAILED {
            return Err(io("preload", std::io::Error::last_os_error()));
        }
        JobRegion::new(base.cast(), bytes)
    };
    Ok((file, region))
}

/// A slot for the keeper.
pub(crate) fn claim(region: &JobRegion) -> Result<u32> {
    let pid = std::process::id();
    let session = Visit::claim(region, &MACHINE, pid, pid);
    session.map(|session| session.slot()).ok_or_else(|| Error::of(Errno::Again, "preload"))
}

/// The device of a file.
pub(crate) fn device(file: impl AsFd) -> Result<u64> {
    fstat(file).map(|stat| stat.st_dev).map_err(|errno| io("preload", errno))
}

pub(crate) fn pid_namespace() -> Result<u64> {
    let found = rustix::fs::stat("/proc/self/ns/pid");
    found.map(|stat| stat.st_ino).map_err(|errno| io("preload", errno))
}
