//! Opening and closing.

use std::ffi::{CStr, c_char, c_int, c_uint};

use jobtree::{Denied, Inode, InodeParts, Kind, PathBuffer, WalkPlace};
use libc::mode_t;

use super::{check, made};
use crate::descriptors;
use crate::job::{self, Inside, job};
use crate::path::{is_address, on_path};
use crate::real::real;

const CREATE: c_int = libc::O_CREAT;

/// Opens a file, wherever it is.
pub(crate) fn open_at(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if job().is_some() {
        shown_descriptor(path);
    }
    let exclusive = flags & (CREATE | libc::O_EXCL) == CREATE | libc::O_EXCL;
    let follow = flags & libc::O_NOFOLLOW == 0 && !exclusive;
    on_path(
        (dirfd, path),
        follow,
        -1,
        |inside, place, buffer| open_inside(inside, place, buffer, flags, mode),
        |dirfd, path| real!(openat64(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int),
    )
}

/// A path that names a descriptor of this process makes it real.
fn shown_descriptor(path: *const c_char) {
    if !is_address(path) {
        return;
    }
    // SAFETY: the caller's path ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let fd = match path {
        b"/dev/stdin" => Some(0),
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        _ => [&b"/dev/fd/"[..], b"/proc/self/fd/"]
            .into_iter()
            .find_map(|prefix| std::str::from_utf8(path.strip_prefix(prefix)?).ok()?.parse().ok()),
    };
    if let Some(fd) = fd {
        // A failure shows when the path is opened.
        let _ = descriptors::make_real(fd);
    }
}

fn open_inside(
    inside: Inside,
    place: &WalkPlace,
    buffer: &PathBuffer,
    flags: c_int,
    mode: mode_t,
) -> Result<c_int, Denied> {
    let region = inside.region();
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return Err(Denied::Errno(libc::EOPNOTSUPP));
    }
    let inode = match place.inode {
        Some(inode) => inode,
        None if flags & CREATE == 0 => return Err(Denied::Errno(libc::ENOENT)),
        None if place.must_be_dir => return Err(Denied::Errno(libc::EISDIR)),
        None => {
            let name = buffer.name(place);
            check(region, place.dir, 3, &job::cred())?;
            let new = new_inode(place.dir, libc::S_IFREG | mode & 0o7777, true);
            match inside.session.create(place.dir, name, &new) {
                Ok(inode) => return describe(&inside, inode, flags),
                Err(Denied::Errno(libc::EEXIST)) if flags & libc::O_EXCL == 0 => {
                    let entry = region.lookup(place.dir, name).ok_or(libc::EEXIST)?;
                    region.inode_of(entry)
                }
                Err(denied) => return Err(denied),
            }
        }
    };
    if flags & (CREATE | libc::O_EXCL) == CREATE | libc::O_EXCL {
        return Err(Denied::Errno(libc::EEXIST));
    }
    check_open(&inside, place, inode, flags)?;
    if let Some(number) = region.stand_in(inode) {
        drop(inside);
        let path = job().ok_or(Denied::Closed)?.stand_in_path(number);
        let flags = flags & !(CREATE | libc::O_EXCL | libc::O_NOFOLLOW);
        // SAFETY: a path that ends with a zero byte.
        let opened =
            unsafe { crate::real::sys!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
        return made(opened);
    }
    inside.session.open_inode(inode)?;
    if flags & libc::O_TRUNC != 0 && region.kind(inode) == Kind::File {
        let keeps = job::cred().uid == 0;
        inside.session.truncate(inode, 0, job::now(), keeps).inspect_err(|_| {
            inside.session.close_inode(inode);
        })?;
    }
    describe(&inside, inode, flags)
}

fn check_open(
    inside: &Inside,
    place: &WalkPlace,
    inode: Inode,
    flags: c_int,
) -> Result<(), Denied> {
    let region = inside.region();
    let access = flags & libc::O_ACCMODE;
    let writes = access != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    match region.kind(inode) {
        Kind::Symlink => return Err(Denied::Errno(libc::ELOOP)),
        Kind::Directory if writes || flags & CREATE != 0 => {
            return Err(Denied::Errno(libc::EISDIR));
        }
        Kind::Directory => {}
        Kind::File if place.must_be_dir || flags & libc::O_DIRECTORY != 0 => {
            return Err(Denied::Errno(libc::ENOTDIR));
        }
        Kind::File => {}
    }
    if flags & libc::O_PATH != 0 {
        return Ok(());
    }
    let reads = access != libc::O_WRONLY;
    let wanted = if reads { 4 } else { 0 } | if writes { 2 } else { 0 };
    check(region, inode, wanted, &job::cred())
}

/// The attributes of a new inode in a directory.
pub(super) fn new_inode(dir: Inode, mode: u32, open: bool) -> InodeParts<'static> {
    let cred = job::cred();
    let mut mode = mode & !job::umask();
    let mut gid = cred.gid;
    if let Some(job) = job() {
        let above = job.region();
        if above.mode(dir) & libc::S_ISGID != 0 {
            gid = above.owner(dir).1;
            if mode & libc::S_IFMT == libc::S_IFDIR {
                mode |= libc::S_ISGID;
            }
        }
    }
    InodeParts { mode, uid: cred.uid, gid, now: job::now(), target: b"", open }
}

/// Makes a descriptor of an inode that was opened.
fn describe(inside: &Inside, inode: Inode, flags: c_int) -> Result<c_int, Denied> {
    let number = match descriptors::number() {
        Ok(number) => number,
        Err(errno) => {
            inside.session.close_inode(inode);
            return Err(Denied::Errno(errno));
        }
    };
    let kept = flags & !(CREATE | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOCTTY);
    let Some(description) = inside.session.describe(inode, kept as u32) else {
        inside.session.close_inode(inode);
        descriptors::keep_number(number);
        return Err(Denied::Unable);
    };
    descriptors::install(number, description, flags & libc::O_CLOEXEC != 0);
    Ok(number)
}

/// A standard stream is one for every program: the kernel must know it.
fn standard(fd: c_int) -> c_int {
    if (0..=2).contains(&fd)
        && !descriptors::is_real(fd)
        && let Err(errno) = descriptors::make_real(fd)
    {
        descriptors::close(fd);
        return crate::real::fail(errno);
    }
    fd
}

#[unsafe(no_mangle)]
pub extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    standard(open_at(libc::AT_FDCWD, path, flags, mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    standard(open_at(libc::AT_FDCWD, path, flags, mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    standard(open_at(libc::AT_FDCWD, path, flags, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    standard(open_at(libc::AT_FDCWD, path, flags, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn openat(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    standard(open_at(dirfd, path, flags, mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn openat64(dirfd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    standard(open_at(dirfd, path, flags, mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn __openat_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    standard(open_at(dirfd, path, flags, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn __openat64_2(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    standard(open_at(dirfd, path, flags, 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    let flags = CREATE | libc::O_TRUNC | libc::O_WRONLY;
    standard(open_at(libc::AT_FDCWD, path, flags, mode))
}

#[unsafe(no_mangle)]
pub extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    creat(path, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if descriptors::close(fd) {
        return 0;
    }
    if descriptors::is_hidden(fd) {
        return crate::real::fail(libc::EBADF);
    }
    real!(close(fd: c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        descriptors::vacate_range(first, last);
    } else {
        for fd in first.min(1 << 12)..=last.min(1 << 12) {
            if !descriptors::is_real(fd as c_int) {
                descriptors::set_close_on_exec(fd as c_int, true);
            }
        }
    }
    real!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int)
}

#[unsafe(no_mangle)]
pub extern "C" fn closefrom(first: c_int) {
    descriptors::vacate_range(first.max(0) as u32, u32::MAX);
    real!(closefrom(first: c_int) -> (), ());
}

/// Makes a name out of a pattern that ends with `XXXXXX` and a suffix, until `make` succeeds.
fn from_pattern(
    pattern: *mut c_char,
    suffix: c_int,
    make: impl Fn(*const c_char) -> c_int,
) -> c_int {
    const LETTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    // SAFETY: the caller's pattern is writable and ends with a zero byte.
    let letters = unsafe {
        let len = libc::strlen(pattern);
        let Some(start) = len.checked_sub(6 + suffix.max(0) as usize) else {
            return crate::real::fail(libc::EINVAL);
        };
        std::slice::from_raw_parts_mut(pattern.cast::<u8>().add(start), 6)
    };
    if suffix < 0 || letters != b"XXXXXX" {
        return crate::real::fail(libc::EINVAL);
    }
    for _ in 0..200 {
        let mut chance = [0_u8; 6];
        // SAFETY: a system call with memory of this function.
        unsafe { crate::real::sys!(libc::SYS_getrandom, chance.as_mut_ptr(), chance.len(), 0) };
        for (letter, byte) in letters.iter_mut().zip(chance) {
            *letter = LETTERS[usize::from(byte) % LETTERS.len()];
        }
        let made = make(pattern);
        if made >= 0 || crate::real::errno() != libc::EEXIST {
            return made;
        }
    }
    -1
}

fn temporary(pattern: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    let flags = flags & !libc::O_ACCMODE | libc::O_RDWR | CREATE | libc::O_EXCL;
    from_pattern(pattern, suffix, |path| open64(path, flags, 0o600))
}

#[unsafe(no_mangle)]
pub extern "C" fn mkstemp(pattern: *mut c_char) -> c_int {
    temporary(pattern, 0, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkstemp64(pattern: *mut c_char) -> c_int {
    temporary(pattern, 0, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkostemp(pattern: *mut c_char, flags: c_int) -> c_int {
    temporary(pattern, 0, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkostemp64(pattern: *mut c_char, flags: c_int) -> c_int {
    temporary(pattern, 0, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkstemps(pattern: *mut c_char, suffix: c_int) -> c_int {
    temporary(pattern, suffix, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkstemps64(pattern: *mut c_char, suffix: c_int) -> c_int {
    temporary(pattern, suffix, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkostemps(pattern: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    temporary(pattern, suffix, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkostemps64(pattern: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    temporary(pattern, suffix, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkdtemp(pattern: *mut c_char) -> *mut c_char {
    let made = from_pattern(pattern, 0, |path| super::names::mkdir(path, 0o700));
    if made < 0 { std::ptr::null_mut() } else { pattern }
}
