//! Decoupled subtrees.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::without_provenance_mut;

use calls::{Ending, OpenSubtree};
use cudele::{Completion, Ino, NewFile};

use super::connection::{CudeleFs, mount};
use super::memory::{Outcome, bytes, check_place, done, put, text, text_or_null};
use crate::handle::Table;

/// A subtree that this process has decoupled: its own until it is merged or discarded. Paths in it
/// work with every other call of the same connection, without any request to the server.
#[derive(Debug)]
pub struct CudeleSubtree(());

/// The result of a completion or merge.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CudeleCompletion {
    /// Events of the journal.
    pub events: u64,
    /// Bytes of the journal.
    pub bytes: u64,
    /// Inodes that were made.
    pub created: u64,
    /// Names of other clients that lost to this client's.
    pub replaced: u64,
    /// Rejected events, because another client removed their directory or inode.
    pub rejected: u64,
    /// How long it took.
    pub seconds: f64,
}

impl From<&Completion> for CudeleCompletion {
    fn from(done: &Completion) -> Self {
        let merge = done.merge.as_ref();
        Self {
            events: done.events,
            bytes: done.bytes,
            created: merge.map_or(0, |merge| merge.created),
            replaced: merge.map_or(0, |merge| merge.replaced),
            rejected: merge.map_or(0, |merge| merge.rejected),
            seconds: done.seconds,
        }
    }
}

static SUBTREES: Table<OpenSubtree> = Table::new("subtree");

/// Takes a directory, with everything below it, for this client alone: later changes there are
/// appended to a journal in memory. `policy` is as with cudele_policy_set and must decouple; NULL
/// means the policy in force there.
///
/// Errors: `EBUSY` if another client has it, `EINVAL` if the policy does not decouple, `ENOENT`,
/// `ENOTDIR`, `EACCES`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_decouple(
    fs: *mut CudeleFs,
    path: *const c_char,
    policy: *const c_char,
    subtree: *mut *mut CudeleSubtree,
) -> c_int {
    done(|| {
        check_place(subtree, "subtree")?;
        // SAFETY: strings of the caller.
        let (path, policy) = unsafe { (text(path, "path")?, text_or_null(policy)) };
        let open = OpenSubtree::decouple(&mount(fs)?, path, policy)?;
        // SAFETY: a place of the caller.
        unsafe { put(subtree, without_provenance_mut(SUBTREES.insert(open))) };
        Ok(())
    })
}

/// Continues with a subtree that an earlier process of this user decoupled on this machine, from
/// its persisted journal.
///
/// Errors: `ENOENT` if this machine does not own one there, `EBADMSG` if a journal is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_attach(
    fs: *mut CudeleFs,
    path: *const c_char,
    subtree: *mut *mut CudeleSubtree,
) -> c_int {
    done(|| {
        check_place(subtree, "subtree")?;
        // SAFETY: a string of the caller.
        let open = OpenSubtree::attach(&mount(fs)?, unsafe { text(path, "path") }?)?;
        // SAFETY: a place of the caller.
        unsafe { put(subtree, without_provenance_mut(SUBTREES.insert(open))) };
        Ok(())
    })
}

/// The inode number of a subtree's root, in which to append.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_root(subtree: *mut CudeleSubtree, ino: *mut u64) -> c_int {
    done(|| {
        check_place(ino, "ino")?;
        // SAFETY: a place of the caller.
        unsafe { put(ino, SUBTREES.get(subtree.addr())?.root().0) };
        Ok(())
    })
}

/// Appends the creation of a file with content to the journal of a subtree, in the directory with
/// the inode number `parent`: the fastest way to make files. Unless the policy has `check: client`,
/// no check is made for an existing name, or for `parent` to be a directory of the subtree; the
/// merge rejects and counts impossible events. `ino`, if it is not NULL, is set to the number of
/// the new file.
///
/// Errors: `EINVAL`, `ENAMETOOLONG` for the name, `EDQUOT`; `ENOSPC` and `EIO` for large content.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_append_file(
    subtree: *mut CudeleSubtree,
    parent: u64,
    name: *const c_char,
    mode: u32,
    content: *const c_void,
    length: usize,
    ino: *mut u64,
) -> c_int {
    done(|| {
        // SAFETY: a string and a buffer of the caller.
        let (name, data) = unsafe { (text(name, "name")?, bytes(content.cast(), length)?) };
        let new = NewFile { permissions: mode & 0o7777, data, ..NewFile::default() };
        let made = SUBTREES.get(subtree.addr())?.append(Ino(parent), name, &new)?;
        // SAFETY: a place of the caller.
        unsafe { put(ino, made.0) };
        Ok(())
    })
}

/// Appends the making of a directory, as cudele_append_file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_append_mkdir(
    subtree: *mut CudeleSubtree,
    parent: u64,
    name: *const c_char,
    mode: u32,
    ino: *mut u64,
) -> c_int {
    done(|| {
        let new = NewFile { permissions: mode & 0o7777, ..NewFile::directory() };
        // SAFETY: a string of the caller.
        let name = unsafe { text(name, "name") }?;
        let made = SUBTREES.get(subtree.addr())?.append(Ino(parent), name, &new)?;
        // SAFETY: a place of the caller.
        unsafe { put(ino, made.0) };
        Ok(())
    })
}

/// How many events a subtree holds that are not merged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_pending(
    subtree: *mut CudeleSubtree,
    events: *mut u64,
) -> c_int {
    done(|| {
        check_place(events, "events")?;
        // SAFETY: a place of the caller.
        unsafe { put(events, SUBTREES.get(subtree.addr())?.pending()?) };
        Ok(())
    })
}

/// Makes the journal of a subtree as durable as its policy promises, on this machine's disk, in the
/// object store, or not at all. Other clients see nothing of it.
///
/// Errors: `EIO`, `ENOSPC`; the subtree keeps its journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_persist(subtree: *mut CudeleSubtree) -> c_int {
    done(|| Ok(SUBTREES.get(subtree.addr())?.persist()?))
}

/// Runs every mechanism of the policy: its promise holds when this returns. The subtree stays this
/// client's. `completion`, here and below, may be NULL.
///
/// Errors: those of the mechanisms; the subtree keeps its journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_complete(
    subtree: *mut CudeleSubtree,
    completion: *mut CudeleCompletion,
) -> c_int {
    // SAFETY: a place of the caller.
    done(|| unsafe { run(subtree, completion, |open| open.end(Ending::Complete)) })
}

/// Namespace sync: publishes the journal so far to other clients, under any policy. The subtree
/// stays this client's.
///
/// Errors: as cudele_subtree_complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_sync(
    subtree: *mut CudeleSubtree,
    completion: *mut CudeleCompletion,
) -> c_int {
    // SAFETY: a place of the caller.
    done(|| unsafe { run(subtree, completion, OpenSubtree::sync) })
}

/// Merges a subtree and gives it back: all clients see the work, under any policy, and may work
/// there. Closes the handle.
///
/// Errors: those of the mechanisms; then the handle stays open and the subtree keeps its journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_merge(
    subtree: *mut CudeleSubtree,
    completion: *mut CudeleCompletion,
) -> c_int {
    done(|| {
        // SAFETY: a place of the caller.
        unsafe { run(subtree, completion, |open| open.end(Ending::Merge)) }?;
        SUBTREES.remove(subtree.addr()).map(drop)
    })
}

/// Gives a subtree back without a merge and discards its unmerged work. Closes the handle.
///
/// Errors: `EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_discard(subtree: *mut CudeleSubtree) -> c_int {
    done(|| {
        SUBTREES.get(subtree.addr())?.end(Ending::Discard)?;
        SUBTREES.remove(subtree.addr()).map(drop)
    })
}

/// Closes the handle and nothing else: the subtree stays this client's. cudele_attach continues
/// from the persisted journal, in a later process or, after cudele_disconnect, in this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_subtree_close(subtree: *mut CudeleSubtree) -> c_int {
    done(|| SUBTREES.remove(subtree.addr()).map(drop))
}

/// # Safety
/// The place is null, or fit for a completion without a second user.
unsafe fn run(
    subtree: *mut CudeleSubtree,
    place: *mut CudeleCompletion,
    call: impl FnOnce(&OpenSubtree) -> cudele::Result<Completion>,
) -> Outcome<()> {
    let done = call(&*SUBTREES.get(subtree.addr())?)?;
    // SAFETY: as this function's.
    unsafe { put(place, (&done).into()) };
    Ok(())
}
