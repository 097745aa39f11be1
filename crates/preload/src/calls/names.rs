//! Names.

use std::ffi::{CStr, c_char, c_int, c_uint};

use jobtree::{Denied, Inode, InodeParts, JobRegion, Kind, PathBuffer, WalkPlace};
use libc::{mode_t, size_t, ssize_t};

use super::open::new_inode;
use super::{check, owns};
use crate::job::{self, Inside, job};
use crate::path::{Resolved, is_address, on_path, resolve};
use crate::real::real;
use crate::{descriptors, keeper};

fn mkdir_at(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
    on_path(
        (dirfd, path),
        false,
        -1,
        |inside, place, buffer| {
            if place.inode.is_some() {
                return Err(Denied::Errno(libc::EEXIST));
            }
            check(inside.region(), place.dir, 3, &job::cred())?;
            let new = new_inode(place.dir, libc::S_IFDIR | mode & 0o1777, false);
            inside.session.create(place.dir, buffer.name(place), &new)?;
            Ok(0)
        },
        |dirfd, path| real!(mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    mkdir_at(libc::AT_FDCWD, path, mode)
}

#[unsafe(no_mangle)]
pub extern "C" fn mkdirat(dirfd: c_int, path: *const c_char, mode: mode_t) -> c_int {
    mkdir_at(dirfd, path, mode)
}

/// Whether the sticky bit of a directory lets an identity take this name away.
fn may_take(region: &JobRegion, dir: Inode, inode: Inode) -> bool {
    let cred = job::cred();
    region.mode(dir) & libc::S_ISVTX == 0 || owns(region, inode, &cred) || owns(region, dir, &cred)
}

fn unlink_at(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    on_path(
        (dirfd, path),
        false,
        -1,
        |inside, place, buffer| {
            if flags & libc::AT_REMOVEDIR != 0 {
                remove_dir(inside, place, buffer, path)
            } else {
                remove_file(&inside, place, buffer)
            }
        },
        |dirfd, path| real!(unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int),
    )
}

fn remove_file(inside: &Inside, place: &WalkPlace, buffer: &PathBuffer) -> Result<c_int, Denied> {
    let region = inside.region();
    if !place.is_named() {
        return Err(Denied::Errno(libc::EISDIR));
    }
    let inode = place.inode.ok_or(libc::ENOENT)?;
    if place.must_be_dir && region.kind(inode) != Kind::Directory {
        return Err(Denied::Errno(libc::ENOTDIR));
    }
    check(region, place.dir, 3, &job::cred())?;
    let allowed = |inode| may_take(region, place.dir, inode);
    inside.session.unlink(place.dir, buffer.name(place), job::now(), allowed)?;
    Ok(0)
}

fn remove_dir(
    inside: Inside,
    place: &WalkPlace,
    buffer: &PathBuffer,
    path: *const c_char,
) -> Result<c_int, Denied> {
    let region = inside.region();
    if !place.is_named() {
        // SAFETY: the caller's path ends with a zero byte.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let errno = if place.inode == Some(region.root()) && !path.ends_with(b".") {
            // The root of a decoupled subtree.
            libc::EBUSY
        } else if path.ends_with(b"..") {
            libc::ENOTEMPTY
        } else {
            libc::EINVAL
        };
        return Err(Denied::Errno(errno));
    }
    place.inode.ok_or(libc::ENOENT)?;
    check(region, place.dir, 3, &job::cred())?;
    let session = inside.session;
    drop(inside);
    let allowed = |inode| may_take(region, place.dir, inode);
    session.rmdir(place.dir, buffer.name(place), job::now(), allowed)?;
    Ok(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn unlink(path: *const c_char) -> c_int {
    unlink_at(libc::AT_FDCWD, path, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
    unlink_at(dirfd, path, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn rmdir(path: *const c_char) -> c_int {
    unlink_at(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
}

#[unsafe(no_mangle)]
pub extern "C" fn remove(path: *const c_char) -> c_int {
    let done = unlink_at(libc::AT_FDCWD, path, 0);
    if done != 0 && matches!(crate::real::errno(), libc::EISDIR | libc::EPERM) {
        return unlink_at(libc::AT_FDCWD, path, libc::AT_REMOVEDIR);
    }
    done
}

/// One end of a call with two paths.
enum End {
    /// In the region: the directory, the inode if there is one, and whether a slash follows.
    Inside {
        dir: Inode,
        inode: Option<Inode>,
        must_be_dir: bool,
    },
    Outside,
}

/// The ends of a call with two paths, and the names in them.
fn ends<T: Copy>(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    follow: bool,
    failed: T,
    inside: impl Fn(&'static job::Job, (&End, &[u8]), (&End, &[u8])) -> Result<T, Denied>,
    real: impl Fn((c_int, *const c_char), (c_int, *const c_char)) -> T,
) -> T {
    let Some(job) = job() else { return real(from, to) };
    if !is_address(from.1) || !is_address(to.1) {
        return real(from, to);
    }
    // SAFETY: the caller's paths end with a zero byte.
    let (one, other) =
        unsafe { (CStr::from_ptr(from.1).to_bytes(), CStr::from_ptr(to.1).to_bytes()) };
    loop {
        let (mut first, mut second) = (PathBuffer::new(), PathBuffer::new());
        let done = (|| {
            let (start, from) = end(job, from, one, follow, &mut first)?;
            let (target, to) = end(job, to, other, false, &mut second)?;
            match (&start.0, &target.0) {
                (End::Outside, End::Outside) => Ok(real(from, to)),
                (End::Inside { .. }, End::Inside { .. }) => {
                    let names = (&first.rest()[..start.1], &second.rest()[..target.1]);
                    inside(job, (&start.0, names.0), (&target.0, names.1))
                }
                (End::Inside { .. }, End::Outside) | (End::Outside, End::Inside { .. }) => {
                    Err(Denied::Errno(libc::EXDEV))
                }
            }
        })();
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

type PathAt = (c_int, *const c_char);

/// Resolves one end: where it is with the length of the last name, and the path for the kernel.
fn end(
    job: &'static job::Job,
    at: PathAt,
    path: &[u8],
    follow: bool,
    buffer: &mut PathBuffer,
) -> Result<((End, usize), PathAt), Denied> {
    match resolve(job, at.0, path, follow, buffer)? {
        Resolved::Inside(_, place) => {
            let WalkPlace { dir, inode, must_be_dir, .. } = place;
            Ok(((End::Inside { dir, inode, must_be_dir }, buffer.name(&place).len()), at))
        }
        Resolved::Real => {
            if path.first() != Some(&b'/') {
                descriptors::make_real(at.0).map_err(Denied::Errno)?;
            }
            Ok(((End::Outside, 0), at))
        }
        Resolved::RealPath => Ok(((End::Outside, 0), (libc::AT_FDCWD, buffer.as_ptr().cast()))),
    }
}

fn rename_at(from: PathAt, to: PathAt, flags: c_uint) -> c_int {
    ends(
        from,
        to,
        false,
        -1,
        |job, from, to| rename_inside(job, from, to, flags),
        |(from_dir, from), (to_dir, to)| {
            if flags == 0 {
                return real!(renameat(from_dir: c_int, from: *const c_char, to_dir: c_int,
                    to: *const c_char) -> c_int);
            }
            real!(renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
                flags: c_uint) -> c_int)
        },
    )
}

fn rename_inside(
    job: &'static job::Job,
    (from, name): (&End, &[u8]),
    (to, new_name): (&End, &[u8]),
    flags: c_uint,
) -> Result<c_int, Denied> {
    let (
        End::Inside { dir, inode, must_be_dir },
        End::Inside { dir: new_dir, inode: target, must_be_dir: new_must },
    ) = (from, to)
    else {
        return Err(Denied::Errno(libc::EXDEV));
    };
    if name.is_empty() || new_name.is_empty() {
        return Err(Denied::Errno(libc::EBUSY));
    }
    let (region, cred) = (job.region(), job::cred());
    let moved = inode.ok_or(libc::ENOENT)?;
    let is_dir = region.kind(moved) == Kind::Directory;
    if (*must_be_dir || *new_must) && !is_dir {
        return Err(Denied::Errno(libc::ENOTDIR));
    }
    check(region, *dir, 3, &cred)?;
    check(region, *new_dir, 3, &cred)?;
    if is_dir && dir != new_dir {
        check(region, moved, 2, &cred)?;
    }
    let session = job.session().ok_or(Denied::Unable)?;
    let allowed = |dir, inode| may_take(region, dir, inode);
    let (from, to, now) = ((*dir, name), (*new_dir, new_name), job::now());
    match flags {
        0 => session.rename(from, to, false, now, allowed)?,
        libc::RENAME_NOREPLACE => session.rename(from, to, true, now, allowed)?,
        libc::RENAME_EXCHANGE => {
            target.ok_or(libc::ENOENT)?;
            session.exchange(from, to, now, allowed)?;
        }
        _ => return Err(Denied::Errno(libc::EINVAL)),
    }
    Ok(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    rename_at((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    rename_at((from_dir, from), (to_dir, to), 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    rename_at((from_dir, from), (to_dir, to), flags)
}

fn link_at(from: PathAt, to: PathAt, flags: c_int) -> c_int {
    if flags & libc::AT_EMPTY_PATH != 0 {
        // The name of a file without a name: the mount's work.
        let _ = descriptors::make_real(from.0);
    }
    ends(
        from,
        to,
        flags & libc::AT_SYMLINK_FOLLOW != 0,
        -1,
        |job, (from, old), (to, name)| {
            let (End::Inside { dir: home, inode, .. }, End::Inside { dir, inode: target, .. }) =
                (from, to)
            else {
                return Err(Denied::Errno(libc::EXDEV));
            };
            inode.ok_or(libc::ENOENT)?;
            if old.is_empty() {
                return Err(Denied::Errno(libc::EPERM));
            }
            if target.is_some() {
                return Err(Denied::Errno(libc::EEXIST));
            }
            let inside = job.enter()?;
            // Found again: the record may have been given to another inode in between.
            let region = inside.region();
            let inode = region.inode_of(region.lookup(*home, old).ok_or(libc::ENOENT)?);
            check(region, *dir, 3, &job::cred())?;
            inside.session.link(inode, *dir, name, job::now())?;
            Ok(0)
        },
        |(from_dir, from), (to_dir, to)| {
            real!(linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char,
                flags: c_int) -> c_int)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    link_at((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    link_at((from_dir, from), (to_dir, to), flags)
}

fn symlink_at(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    on_path(
        (dirfd, path),
        false,
        -1,
        |inside, place, buffer| {
            if place.inode.is_some() {
                return Err(Denied::Errno(libc::EEXIST));
            }
            if place.must_be_dir {
                return Err(Denied::Errno(libc::ENOENT));
            }
            if !is_address(target) {
                return Err(Denied::Errno(libc::EFAULT));
            }
            // SAFETY: the caller's target ends with a zero byte.
            let target = unsafe { CStr::from_ptr(target) }.to_bytes();
            if target.is_empty() {
                return Err(Denied::Errno(libc::ENOENT));
            }
            if target.len() >= jobtree::PATH_BYTES_MAX {
                return Err(Denied::Errno(libc::ENAMETOOLONG));
            }
            check(inside.region(), place.dir, 3, &job::cred())?;
            let like = new_inode(place.dir, 0, false);
            let new = InodeParts { mode: libc::S_IFLNK | 0o777, target, ..like };
            inside.session.create(place.dir, buffer.name(place), &new)?;
            Ok(0)
        },
        |dirfd, path| real!(symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    symlink_at(target, libc::AT_FDCWD, path)
}

#[unsafe(no_mangle)]
pub extern "C" fn symlinkat(target: *const c_char, dirfd: c_int, path: *const c_char) -> c_int {
    symlink_at(target, dirfd, path)
}

fn readlink_at(dirfd: c_int, path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
    on_path(
        (dirfd, path),
        false,
        -1,
        |inside, place, _| {
            let region = inside.region();
            let inode = place.inode.ok_or(libc::ENOENT)?;
            if region.kind(inode) != Kind::Symlink || size == 0 {
                return Err(Denied::Errno(libc::EINVAL));
            }
            let target = region.content(inode);
            let len = target.len().min(size);
            // SAFETY: the caller's buffer has `size` bytes.
            unsafe { std::ptr::copy_nonoverlapping(target.as_ptr(), to.cast(), len) };
            Ok(len as ssize_t)
        },
        |dirfd, path| {
            real!(readlinkat(dirfd: c_int, path: *const c_char, to: *mut c_char, size: size_t)
                -> ssize_t)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn readlink(path: *const c_char, to: *mut c_char, size: size_t) -> ssize_t {
    readlink_at(libc::AT_FDCWD, path, to, size)
}

#[unsafe(no_mangle)]
pub extern "C" fn __readlink_chk(
    path: *const c_char,
    to: *mut c_char,
    size: size_t,
    _room: size_t,
) -> ssize_t {
    readlink_at(libc::AT_FDCWD, path, to, size)
}

#[unsafe(no_mangle)]
pub extern "C" fn readlinkat(
    dirfd: c_int,
    path: *const c_char,
    to: *mut c_char,
    size: size_t,
) -> ssize_t {
    readlink_at(dirfd, path, to, size)
}

#[unsafe(no_mangle)]
pub extern "C" fn __readlinkat_chk(
    dirfd: c_int,
    path: *const c_char,
    to: *mut c_char,
    size: size_t,
    _room: size_t,
) -> ssize_t {
    readlink_at(dirfd, path, to, size)
}
