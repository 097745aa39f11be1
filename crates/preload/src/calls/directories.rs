//! Reading directories.
//!
//! A `DIR` of a directory in the region is one of this module's: its first word, which is no value
//! that glibc's can have, tells them apart.

use std::ffi::{c_char, c_int, c_long, c_void};

use jobtree::{Inode, Kind};
use libc::dirent64;

use super::open::open_at;
use crate::descriptors;
use crate::job::{Job, job};
use crate::real::{fail, real, set_errno};

/// A negative descriptor, and a lock that no thread can have.
const MARK: u64 = 0xcade_1eca_de1e_cade;
/// Positions before the names: `.` and `..`.
const DOTS: u64 = 2;

/// An open directory of the region.
#[repr(C)]
pub struct JobDir {
    mark: u64,
    fd: c_int,
    inode: Inode,
    position: u64,
    entry: dirent64,
}

/// The directory behind a `DIR`, if it is one of the region.
///
/// # Safety
/// `dir` is null or an open `DIR`.
unsafe fn own<'a>(dir: *mut c_void) -> Option<&'a mut JobDir> {
    // SAFETY: glibc's `DIR` has more than 8 bytes as well.
    unsafe {
        if dir.is_null() || *dir.cast::<u64>() != MARK {
            return None;
        }
        Some(&mut *dir.cast::<JobDir>())
    }
}

fn of_descriptor(job: &Job, fd: c_int) -> Option<*mut c_void> {
    let inode = job.region().described(descriptors::virtual_at(fd)?);
    if job.region().kind(inode) != Kind::Directory {
        return None;
    }
    // SAFETY: all zeros are a valid entry.
    let entry = unsafe { std::mem::zeroed() };
    let dir = JobDir { mark: MARK, fd, inode, position: 0, entry };
    Some(Box::into_raw(Box::new(dir)).cast())
}

#[unsafe(no_mangle)]
pub extern "C" fn opendir(path: *const c_char) -> *mut c_void {
    let Some(job) = job() else {
        return real!(opendir(path: *const c_char) -> *mut c_void, std::ptr::null_mut());
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let fd = open_at(libc::AT_FDCWD, path, flags, 0);
    if fd < 0 {
        return std::ptr::null_mut();
    }
    of_descriptor(job, fd)
        .unwrap_or_else(|| real!(fdopendir(fd: c_int) -> *mut c_void, std::ptr::null_mut()))
}

#[unsafe(no_mangle)]
pub extern "C" fn fdopendir(fd: c_int) -> *mut c_void {
    if let Some(job) = job()
        && !descriptors::is_real(fd)
    {
        return of_descriptor(job, fd).unwrap_or_else(|| {
            set_errno(libc::ENOTDIR);
            std::ptr::null_mut()
        });
    }
    real!(fdopendir(fd: c_int) -> *mut c_void, std::ptr::null_mut())
}

fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::File => libc::DT_REG,
        Kind::Directory => libc::DT_DIR,
        Kind::Symlink => libc::DT_LNK,
    }
}

/// The next entry. After the region was closed it does not change any more, and the listing ends as
/// it was.
fn next(dir: &mut JobDir) -> Option<&mut dirent64> {
    let job = job()?;
    let entered = job.enter();
    let region = job.region();
    let entry = &mut dir.entry;
    let mut fill = |ino: u64, next: u64, kind: Kind, name: &[u8]| {
        entry.d_ino = ino;
        entry.d_off = next as i64;
        entry.d_type = type_of(kind);
        // The kernel's entries end at a multiple of 8 bytes.
        entry.d_reclen = (19 + name.len() as u16 + 1).next_multiple_of(8);
        for (place, byte) in entry.d_name.iter_mut().zip(name) {
            *place = *byte as c_char;
        }
        entry.d_name[name.len()] = 0;
    };
    match dir.position {
        0 => fill(region.ino(dir.inode), 1, Kind::Directory, b"."),
        1 => fill(region.ino(region.parent(dir.inode)), 2, Kind::Directory, b".."),
        position => {
            let listed = region.list(dir.inode, position - DOTS)?;
            let (ino, kind) = (region.ino(listed.inode), region.kind(listed.inode));
            fill(ino, listed.next + DOTS, kind, listed.name());
        }
    }
    drop(entered);
    dir.position = dir.entry.d_off as u64;
    Some(&mut dir.entry)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(dir: *mut c_void) -> *mut dirent64 {
    // SAFETY: the caller's directory.
    match unsafe { own(dir) } {
        Some(dir) => next(dir).map_or(std::ptr::null_mut(), std::ptr::from_mut),
        None => real!(readdir64(dir: *mut c_void) -> *mut dirent64, std::ptr::null_mut()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir(dir: *mut c_void) -> *mut dirent64 {
    // SAFETY: the caller's directory. Both entries are the same on 64 bits.
    unsafe { readdir64(dir) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64_r(
    dir: *mut c_void,
    entry: *mut dirent64,
    result: *mut *mut dirent64,
) -> c_int {
    // SAFETY: the caller's directory and places.
    unsafe {
        let Some(dir) = own(dir) else {
            return real!(readdir64_r(dir: *mut c_void, entry: *mut dirent64,
                result: *mut *mut dirent64) -> c_int, libc::ENOSYS);
        };
        *result = match next(dir) {
            Some(found) => {
                std::ptr::copy_nonoverlapping(found, entry, 1);
                entry
            }
            None => std::ptr::null_mut(),
        };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir_r(
    dir: *mut c_void,
    entry: *mut dirent64,
    result: *mut *mut dirent64,
) -> c_int {
    // SAFETY: the caller's directory and places.
    unsafe { readdir64_r(dir, entry, result) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(dir: *mut c_void) -> c_int {
    // SAFETY: the caller's directory, which ends here.
    unsafe {
        if own(dir).is_none() {
            return real!(closedir(dir: *mut c_void) -> c_int);
        }
        let dir = Box::from_raw(dir.cast::<JobDir>());
        super::open::close(dir.fd)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dirfd(dir: *mut c_void) -> c_int {
    // SAFETY: the caller's directory.
    match unsafe { own(dir) } {
        Some(dir) => dir.fd,
        None => real!(dirfd(dir: *mut c_void) -> c_int),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(dir: *mut c_void) {
    // SAFETY: the caller's directory.
    match unsafe { own(dir) } {
        Some(dir) => dir.position = 0,
        None => real!(rewinddir(dir: *mut c_void) -> (), ()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(dir: *mut c_void) -> c_long {
    // SAFETY: the caller's directory.
    match unsafe { own(dir) } {
        Some(dir) => dir.position as c_long,
        None => real!(telldir(dir: *mut c_void) -> c_long),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(dir: *mut c_void, position: c_long) {
    // SAFETY: the caller's directory.
    match unsafe { own(dir) } {
        Some(dir) => dir.position = position as u64,
        None => real!(seekdir(dir: *mut c_void, position: c_long) -> (), ()),
    }
}

type Select = Option<unsafe extern "C" fn(*const dirent64) -> c_int>;
type Compare = Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>;

unsafe fn scan(
    dir: *mut c_void,
    list: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> c_int {
    if dir.is_null() {
        return -1;
    }
    // SAFETY: the caller's functions and place; memory of the allocator that the caller frees it
    // with.
    unsafe {
        let mut found: Vec<*mut dirent64> = Vec::new();
        loop {
            let entry = readdir64(dir);
            if entry.is_null() {
                break;
            }
            if select.is_some_and(|select| select(entry) == 0) {
                continue;
            }
            let len = usize::from((*entry).d_reclen);
            let copy = libc::malloc(len.max(size_of::<dirent64>()));
            if copy.is_null() {
                break;
            }
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), len);
            found.push(copy.cast());
        }
        closedir(dir);
        let bytes = found.len().max(1) * size_of::<*mut dirent64>();
        let names = libc::malloc(bytes).cast::<*mut dirent64>();
        if names.is_null() {
            return fail(libc::ENOMEM);
        }
        std::ptr::copy_nonoverlapping(found.as_ptr(), names, found.len());
        if let Some(compare) = compare {
            let size = size_of::<*mut dirent64>();
            libc::qsort(names.cast(), found.len(), size, Some(compare));
        }
        *list = names;
        found.len() as c_int
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir64(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> c_int {
    if job().is_none() {
        return real!(scandir64(path: *const c_char, list: *mut *mut *mut dirent64, select: Select,
            compare: Compare) -> c_int);
    }
    // SAFETY: the caller's functions and place.
    unsafe { scan(opendir(path), list, select, compare) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir(
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> c_int {
    // SAFETY: the caller's functions and place.
    unsafe { scandir64(path, list, select, compare) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandirat64(
    dirfd: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> c_int {
    if job().is_none() {
        return real!(scandirat64(dirfd: c_int, path: *const c_char,
            list: *mut *mut *mut dirent64, select: Select, compare: Compare) -> c_int);
    }
    let fd = open_at(dirfd, path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return -1;
    }
    // SAFETY: the caller's functions and place.
    unsafe { scan(fdopendir(fd), list, select, compare) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandirat(
    dirfd: c_int,
    path: *const c_char,
    list: *mut *mut *mut dirent64,
    select: Select,
    compare: Compare,
) -> c_int {
    // SAFETY: the caller's functions and place.
    unsafe { scandirat64(dirfd, path, list, select, compare) }
}
