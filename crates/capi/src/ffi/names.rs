//! Names, attributes, directories and policies.

use std::ffi::{c_char, c_int};
use std::ptr::without_provenance_mut;

use calls::{Follow, OpenDir};
use cudele::{Attr, FileType, Timestamp};

use super::connection::{CudeleFs, mount};
use super::memory::{check_place, copy_text, done, put, text, text_or_null};
use crate::error::answer;
use crate::handle::Table;

/// Attributes, with the meaning of stat(2).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudeleStat {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes; of a directory, the number of its entries as far as that is known.
    pub size: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Last access: seconds since 1970, and nanoseconds.
    pub atime: i64,
    /// See `atime`.
    pub atime_nanos: u32,
    /// Last change of the content.
    pub mtime: i64,
    /// See `mtime`.
    pub mtime_nanos: u32,
    /// Last change of the attributes.
    pub ctime: i64,
    /// See `ctime`.
    pub ctime_nanos: u32,
}

impl From<&Attr> for CudeleStat {
    fn from(attr: &Attr) -> Self {
        let parts = |time: Timestamp| {
            let nanos = u32::try_from(time.0.rem_euclid(1_000_000_000)).unwrap_or(0);
            (time.0.div_euclid(1_000_000_000), nanos)
        };
        let (atime, atime_nanos) = parts(attr.atime);
        let (mtime, mtime_nanos) = parts(attr.mtime);
        let (ctime, ctime_nanos) = parts(attr.ctime);
        let Attr { ino, size, mode, uid, gid, nlink, .. } = *attr;
        Self {
            ino: ino.0,
            size,
            mode,
            uid,
            gid,
            nlink,
            atime,
            atime_nanos,
            mtime,
            mtime_nanos,
            ctime,
            ctime_nanos,
        }
    }
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudeleEntry {
    /// The name, with a zero byte at its end.
    pub name: [c_char; 256],
    /// What it names; of a symbolic link, the link itself.
    pub stat: CudeleStat,
}

/// A directory that is being read.
#[derive(Debug)]
pub struct CudeleDir(());

static DIRS: Table<OpenDir> = Table::new("directory");

/// Attributes of the object at a path; a symbolic link at its end is followed.
///
/// Errors: `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `EBUSY` in another client's subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_stat(
    fs: *mut CudeleFs,
    path: *const c_char,
    stat: *mut CudeleStat,
) -> c_int {
    done(|| {
        check_place(stat, "stat")?;
        // SAFETY: a string and a place of the caller.
        unsafe { put(stat, (&mount(fs)?.stat(text(path, "path")?, Follow::Last)?).into()) };
        Ok(())
    })
}

/// As cudele_stat, but of a symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_lstat(
    fs: *mut CudeleFs,
    path: *const c_char,
    stat: *mut CudeleStat,
) -> c_int {
    done(|| {
        check_place(stat, "stat")?;
        // SAFETY: a string and a place of the caller.
        unsafe { put(stat, (&mount(fs)?.stat(text(path, "path")?, Follow::Not)?).into()) };
        Ok(())
    })
}

/// Makes a directory. The permissions are `mode` as it is: no umask is taken off.
///
/// Errors: `EEXIST`, `ENOENT`, `EACCES`, `EBUSY` in another client's subtree, `EDQUOT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_mkdir(fs: *mut CudeleFs, path: *const c_char, mode: u32) -> c_int {
    let mode = FileType::Directory.mode_bits() | (mode & 0o7777);
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.make(unsafe { text(path, "path") }?, mode, &[])?))
}

/// Makes an empty file, and fails if the name exists; cudele_open with `O_CREAT` makes and opens
/// one.
///
/// Errors: as cudele_mkdir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_create(fs: *mut CudeleFs, path: *const c_char, mode: u32) -> c_int {
    let mode = FileType::Regular.mode_bits() | (mode & 0o7777);
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.make(unsafe { text(path, "path") }?, mode, &[])?))
}

/// Makes a symbolic link.
///
/// Errors: as cudele_mkdir; `ENOENT` for an empty target.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_symlink(
    fs: *mut CudeleFs,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: strings of the caller.
        let (target, path) = unsafe { (text(target, "target")?, text(path, "path")?) };
        Ok(mount(fs)?.symlink(target, path)?)
    })
}

/// Copies the target of a symbolic link to a buffer, as much as fits, and a zero byte. Returns the
/// length of the whole target: if it is not less than `length`, the buffer was too small.
///
/// Errors: `EINVAL` if it is no symbolic link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_readlink(
    fs: *mut CudeleFs,
    path: *const c_char,
    buffer: *mut c_char,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: a string of the caller.
        let target = mount(fs)?.read_link(unsafe { text(path, "path") }?)?;
        // SAFETY: a buffer of the caller.
        unsafe { copy_text(&target, buffer, length) }
    })
}

/// Removes a name of anything but a directory.
///
/// Errors: `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_unlink(fs: *mut CudeleFs, path: *const c_char) -> c_int {
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.unlink(unsafe { text(path, "path") }?)?))
}

/// Removes an empty directory.
///
/// Errors: `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`; `EBUSY` for the root of a decoupled subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_rmdir(fs: *mut CudeleFs, path: *const c_char) -> c_int {
    // SAFETY: a string of the caller.
    done(|| Ok(mount(fs)?.rmdir(unsafe { text(path, "path") }?)?))
}

/// Moves a name, and replaces an existing entry of the new name, as rename(2) does.
///
/// Errors: those of rename(2); `EXDEV` across the border of a decoupled subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_rename(
    fs: *mut CudeleFs,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: strings of the caller.
        let (from, to) = unsafe { (text(from, "from")?, text(to, "to")?) };
        Ok(mount(fs)?.rename(from, to)?)
    })
}

/// Opens a directory for reading.
///
/// Errors: `ENOENT`, `ENOTDIR`, `EACCES`, `EBUSY` in another client's subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_opendir(
    fs: *mut CudeleFs,
    path: *const c_char,
    dir: *mut *mut CudeleDir,
) -> c_int {
    done(|| {
        check_place(dir, "dir")?;
        // SAFETY: a string of the caller.
        let open = OpenDir::open(&mount(fs)?, unsafe { text(path, "path") }?)?;
        // SAFETY: a place of the caller.
        unsafe { put(dir, without_provenance_mut(DIRS.insert(open))) };
        Ok(())
    })
}

/// Reads the next entry, without `.` and `..`. Returns 1, or 0 at the end. Names that exist
/// throughout are seen exactly once, even while other names are made and removed; the order is the
/// directory's own.
///
/// Errors: `EACCES`, `ESTALE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_readdir(dir: *mut CudeleDir, entry: *mut CudeleEntry) -> c_int {
    let read = answer(|| {
        check_place(entry, "entry")?;
        let Some((name, attr)) = DIRS.get(dir.addr())?.next()? else { return Ok(0) };
        let mut found = CudeleEntry { name: [0; 256], stat: (&attr).into() };
        // The last byte stays zero: names have at most 255.
        for (to, byte) in found.name[..255].iter_mut().zip(&name) {
            *to = c_char::from_ne_bytes([*byte]);
        }
        // SAFETY: a place of the caller.
        unsafe { put(entry, found) };
        Ok(1)
    });
    c_int::try_from(read).unwrap_or(-1)
}

/// Restarts the listing of a directory, which then shows later changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_rewinddir(dir: *mut CudeleDir) -> c_int {
    done(|| {
        DIRS.get(dir.addr())?.rewind();
        Ok(())
    })
}

/// Closes a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_closedir(dir: *mut CudeleDir) -> c_int {
    done(|| DIRS.remove(dir.addr()).map(drop))
}

/// Copies the policy in force in a directory to a buffer, as the text of a policy file, as much as
/// fits, and a zero byte. The last line is a comment with the directory that sets it. Returns the
/// length of the whole text: if it is not less than `length`, the buffer was too small.
///
/// Errors: `ENOENT`, `ENOTDIR`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_policy_get(
    fs: *mut CudeleFs,
    path: *const c_char,
    buffer: *mut c_char,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: a string of the caller.
        let policy = mount(fs)?.policy(unsafe { text(path, "path") }?)?;
        // SAFETY: a buffer of the caller.
        unsafe { copy_text(&policy, buffer, length) }
    })
}

/// Sets the policy of a directory: the name of a preset such as `batchfs`, of a cell of Table II
/// such as `weak-global`, or the text of a policy file; NULL removes its own policy. Existing files
/// are under the new policy when this returns, unless another client has the subtree: then from the
/// moment at which that client gives it back.
///
/// Errors: `EINVAL` with line and column for a text that is no policy, `EPERM`, `ENOTDIR`;
/// `ENODATA` to remove a missing policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_policy_set(
    fs: *mut CudeleFs,
    path: *const c_char,
    policy: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: strings of the caller.
        let (path, policy) = unsafe { (text(path, "path")?, text_or_null(policy)) };
        Ok(mount(fs)?.set_policy(path, policy)?)
    })
}
