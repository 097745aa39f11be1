//! Connections and error messages.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::ptr::without_provenance_mut;
use std::sync::Arc;

use calls::Mount;
use cudele::{Errno, Error};

use super::memory::{Outcome, check_place, done, put, text_or_null};
use crate::error;
use crate::handle::Table;

/// A connection to a cluster.
#[derive(Debug)]
pub struct CudeleFs(());

static CONNECTIONS: Table<Mount> = Table::new("connection");

pub(super) fn mount(fs: *mut CudeleFs) -> Outcome<Arc<Mount>> {
    CONNECTIONS.get(fs.addr())
}

/// Connects to a cluster: to the monitor at the address `mon` (`unix:PATH`, `tcp:HOST:PORT`, or
/// `plain:HOST:PORT` on this machine), or if that is NULL to the cluster in the directory `dir`. If
/// both are NULL, `$CUDELE_MON`, `$CUDELE_DIR` and the cluster that this user started last are
/// tried. Over TCP, `$CUDELE_KEY` names the key file, and calls have its rights; else they have the
/// rights of the user of this process.
///
/// Errors: `ENOENT` if no cluster is named, `ECONNREFUSED` if it does not run, `EINVAL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_connect(
    mon: *const c_char,
    dir: *const c_char,
    fs: *mut *mut CudeleFs,
) -> c_int {
    done(|| {
        check_place(fs, "fs")?;
        // SAFETY: strings of the caller.
        let (mon, dir) = unsafe { (text_or_null(mon), text_or_null(dir)) };
        let mon = mon.map(|mon| {
            let not_text = |_| Error::new(Errno::Invalid, "mon", "the address is not UTF-8 text");
            std::str::from_utf8(mon).map(str::to_owned).map_err(not_text)
        });
        let dir = dir.map(|dir| OsStr::from_bytes(dir).into());
        let mount = Mount::connect(mon.transpose()?, dir)?;
        let handle = CONNECTIONS.insert(mount);
        // SAFETY: a place of the caller.
        unsafe { put(fs, without_provenance_mut(handle)) };
        Ok(())
    })
}

/// Ends a connection. Written data is flushed to the server first, but not made durable: see
/// cudele_sync. The part of a decoupled subtree's journal that was neither persisted nor merged is
/// lost.
///
/// Errors: `EBUSY` if files, directories or subtrees of it are open; `EIO`. Then it is still there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_disconnect(fs: *mut CudeleFs) -> c_int {
    done(|| {
        mount(fs)?.finish()?;
        CONNECTIONS.remove(fs.addr()).map(drop)
    })
}

/// Waits until everything that was changed through this connection is as durable as the policies
/// promise. Of decoupled subtrees it is cudele_subtree_persist and its like that do that.
///
/// Errors: `EIO`, `ENOSPC`; the error of a change that was answered and is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_sync(fs: *mut CudeleFs) -> c_int {
    done(|| Ok(mount(fs)?.sync()?))
}

/// The message of this thread's last failed call, for people: the path, the cause, and the remedy.
/// Never NULL; empty if none has failed. It stays until the next call of this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn cudele_last_error() -> *const c_char {
    error::last()
}
