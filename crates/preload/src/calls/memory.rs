//! Mapping files.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};

use crate::descriptors;
use crate::real::{fail, real};

/// A private mapping of a file in the region is a copy: POSIX leaves open whether it shows later
/// changes of the file. A shared one needs a file that the kernel knows.
fn map(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if descriptors::is_real(fd) || flags & libc::MAP_ANONYMOUS != 0 {
        return real!(mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int,
            fd: c_int, offset: off_t) -> *mut c_void, libc::MAP_FAILED);
    }
    let is_private = flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    if !is_private || protection & libc::PROT_EXEC != 0 {
        if let Err(errno) = descriptors::make_real(fd) {
            fail(errno);
            return libc::MAP_FAILED;
        }
        return real!(mmap64(address: *mut c_void, len: size_t, protection: c_int, flags: c_int,
            fd: c_int, offset: off_t) -> *mut c_void, libc::MAP_FAILED);
    }
    // SAFETY: a new mapping, of which as much is filled as the file has.
    unsafe {
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_ANONYMOUS;
        let at = crate::real::sys!(libc::SYS_mmap, address, len, writable, flags, -1, 0);
        if (-4095..0).contains(&at) || at == -1 {
            return libc::MAP_FAILED;
        }
        let start = at as *mut u8;
        let mut done = 0;
        while done < len {
            let to = start.add(done).cast::<c_void>();
            let got = super::content::pread64(fd, to, len - done, offset + done as off_t);
            if got < 0 {
                crate::real::sys!(libc::SYS_munmap, start, len);
                return libc::MAP_FAILED;
            }
            if got == 0 {
                break;
            }
            done += got as usize;
        }
        if protection != writable {
            crate::real::sys!(libc::SYS_mprotect, start, len, protection);
        }
        start.cast()
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    map(address, len, protection, flags, fd, offset)
}

#[unsafe(no_mangle)]
pub extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    map(address, len, protection, flags, fd, offset)
}
