//! Permissions and owners.

use std::ffi::{c_char, c_int};

use jobtree::{Denied, Inode, Kind};
use libc::{gid_t, mode_t, uid_t};

use super::attributes::stand_in_of;
use super::{check, owns};
use crate::descriptors::on_descriptor;
use crate::job::{self, Inside, job};
use crate::path::{is_address, on_path};
use crate::real::{fail, real};

fn access_at(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    on_path(
        (dirfd, path),
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        -1,
        |inside, place, _| {
            let region = inside.region();
            let inode = place.inode.ok_or(libc::ENOENT)?;
            if place.must_be_dir && region.kind(inode) != Kind::Directory {
                return Err(Denied::Errno(libc::ENOTDIR));
            }
            check(region, inode, mode as u32 & 7, &job::cred())?;
            Ok(0)
        },
        |dirfd, path| real!(faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    access_at(libc::AT_FDCWD, path, mode, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn eaccess(path: *const c_char, mode: c_int) -> c_int {
    access_at(libc::AT_FDCWD, path, mode, libc::AT_EACCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
    access_at(libc::AT_FDCWD, path, mode, libc::AT_EACCESS)
}

#[unsafe(no_mangle)]
pub extern "C" fn faccessat(dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    access_at(dirfd, path, mode, flags)
}

/// Changes the permissions of an inode.
pub(super) fn set_mode(inside: &Inside, inode: Inode, mode: mode_t) -> Result<c_int, Denied> {
    let (region, cred) = (inside.region(), job::cred());
    if !owns(region, inode, &cred) {
        return Err(Denied::Errno(libc::EPERM));
    }
    let mut mode = mode & 0o7777;
    let gid = region.owner(inode).1;
    let in_group = cred.uid == 0 || cred.gid == gid || cred.groups.contains(&gid);
    if !in_group {
        mode &= !libc::S_ISGID;
    }
    inside.session.set_mode(inode, mode, job::now());
    Ok(0)
}

fn chmod_at(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    on_path(
        (dirfd, path),
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        -1,
        |inside, place, _| {
            let inode = place.inode.ok_or(libc::ENOENT)?;
            if inside.region().kind(inode) == Kind::Symlink {
                return Err(Denied::Errno(libc::EOPNOTSUPP));
            }
            set_mode(&inside, inode, mode)
        },
        |dirfd, path| real!(fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn chmod(path: *const c_char, mode: mode_t) -> c_int {
    chmod_at(libc::AT_FDCWD, path, mode, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn lchmod(path: *const c_char, mode: mode_t) -> c_int {
    chmod_at(libc::AT_FDCWD, path, mode, libc::AT_SYMLINK_NOFOLLOW)
}

#[unsafe(no_mangle)]
pub extern "C" fn fchmodat(dirfd: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    chmod_at(dirfd, path, mode, flags)
}

/// Runs `inside` for an inode by descriptor: of the region, or of a stand-in.
pub(super) fn on_inode(
    fd: c_int,
    inside: impl Fn(&Inside, Inode) -> Result<c_int, Denied>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    on_descriptor(
        fd,
        -1,
        |entered, _, inode| inside(entered, inode),
        || {
            let Some(job) = job() else { return real() };
            let Some(inode) = stand_in_of(job, fd) else { return real() };
            match job.enter() {
                Ok(entered) => match inside(&entered, inode) {
                    Ok(done) => done,
                    Err(Denied::Errno(errno)) => fail(errno),
                    Err(Denied::Closed | Denied::Unable | Denied::Numbers) => fail(libc::EIO),
                },
                // The keeper passes attributes of a stand-in on when the job ends.
                Err(_) => real(),
            }
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn fchmod(fd: c_int, mode: mode_t) -> c_int {
    on_inode(
        fd,
        |inside, inode| set_mode(inside, inode, mode),
        || real!(fchmod(fd: c_int, mode: mode_t) -> c_int),
    )
}

fn set_owner(inside: &Inside, inode: Inode, uid: uid_t, gid: gid_t) -> Result<c_int, Denied> {
    let (region, cred) = (inside.region(), job::cred());
    let (uid, gid) =
        (Some(uid).filter(|id| *id != u32::MAX), Some(gid).filter(|id| *id != u32::MAX));
    let (owner, group) = region.owner(inode);
    if cred.uid != 0 {
        let in_group = |gid: u32| gid == group || cred.gid == gid || cred.groups.contains(&gid);
        let may =
            cred.uid == owner && uid.is_none_or(|uid| uid == owner) && gid.is_none_or(in_group);
        if !may && (uid.is_some() || gid.is_some()) {
            return Err(Denied::Errno(libc::EPERM));
        }
    }
    let mode = region.mode(inode);
    if region.kind(inode) == Kind::File && (uid.is_some() || gid.is_some()) {
        let drop = if mode & 0o010 == 0 { libc::S_ISUID } else { libc::S_ISUID | libc::S_ISGID };
        if mode & drop != 0 {
            inside.session.set_mode(inode, mode & 0o7777 & !drop, job::now());
        }
    }
    inside.session.set_owner(inode, uid, gid, job::now());
    Ok(0)
}

fn chown_at(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
    // SAFETY: the caller's path.
    if flags & libc::AT_EMPTY_PATH != 0 && is_address(path) && unsafe { *path } == 0 {
        return fchown(dirfd, uid, gid);
    }
    on_path(
        (dirfd, path),
        flags & libc::AT_SYMLINK_NOFOLLOW == 0,
        -1,
        |inside, place, _| set_owner(&inside, place.inode.ok_or(libc::ENOENT)?, uid, gid),
        |dirfd, path| {
            real!(fchownat(dirfd: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int)
                -> c_int)
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    chown_at(libc::AT_FDCWD, path, uid, gid, 0)
}

#[unsafe(no_mangle)]
pub extern "C" fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
    chown_at(libc::AT_FDCWD, path, uid, gid, libc::AT_SYMLINK_NOFOLLOW)
}

#[unsafe(no_mangle)]
pub extern "C" fn fchownat(
    dirfd: c_int,
    path: *const c_char,
    uid: uid_t,
    gid: gid_t,
    flags: c_int,
) -> c_int {
    chown_at(dirfd, path, uid, gid, flags)
}

#[unsafe(no_mangle)]
pub extern "C" fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
    on_inode(
        fd,
        |inside, inode| set_owner(inside, inode, uid, gid),
        || real!(fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int),
    )
}
