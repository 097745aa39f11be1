//! Files.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::Arc;

use calls::OpenFile;

use super::connection::{CudeleFs, mount};
use super::memory::{Outcome, bytes, check_place, done, put, room, text};
use super::names::CudeleStat;
use crate::error::answer;
use crate::handle::Table;

/// A file that is open.
#[derive(Debug)]
pub struct CudeleFile(());

static FILES: Table<OpenFile> = Table::new("file");

/// The file of a handle.
pub(super) fn file(open: *mut CudeleFile) -> Outcome<Arc<OpenFile>> {
    FILES.get(open.addr())
}

fn count(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Opens a file. `flags` are those of open(2): one of `O_RDONLY`, `O_WRONLY` and `O_RDWR`, and any
/// of `O_CREAT`, `O_EXCL`, `O_TRUNC` and `O_APPEND`; `mode` are the permissions of a new file,
/// without an umask.
///
/// Other clients see written data when the file is closed or synced; if several clients have it
/// open, when the write returns, unless its policy shares lazily.
///
/// Errors: those of open(2); `EBUSY` in another client's subtree.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_open(
    fs: *mut CudeleFs,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut *mut CudeleFile,
) -> c_int {
    done(|| {
        check_place(file, "file")?;
        // SAFETY: a string of the caller.
        let open = OpenFile::open(&mount(fs)?, unsafe { text(path, "path") }?, flags, mode)?;
        // SAFETY: a place of the caller.
        unsafe { put(file, without_provenance_mut(FILES.insert(open))) };
        Ok(())
    })
}

/// Reads from the end of the last read or write of this handle. Returns the number of bytes, which
/// is less than `length` only at the end of the file, and 0 there.
///
/// Errors: `EBADF` if it is not open for reading, `EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_read(
    file: *mut CudeleFile,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        let open = FILES.get(file.addr())?;
        // SAFETY: a buffer of the caller.
        open.read(unsafe { room(buffer.cast(), length) }?).map(count)
    })
}

/// As cudele_read, from a position.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_pread(
    file: *mut CudeleFile,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    answer(|| {
        let open = FILES.get(file.addr())?;
        // SAFETY: a buffer of the caller.
        open.read_at(offset, unsafe { room(buffer.cast(), length) }?).map(count)
    })
}

/// Writes where the last read or write of this handle ended; with `O_APPEND` at the end. Returns
/// `length`: all of it is written, or the call fails.
///
/// Errors: `EBADF` if it is not open for writing, `EFBIG`, `ENOSPC`, `EIO`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_write(
    file: *mut CudeleFile,
    buffer: *const c_void,
    length: usize,
) -> i64 {
    answer(|| {
        let open = FILES.get(file.addr())?;
        // SAFETY: a buffer of the caller.
        open.write(unsafe { bytes(buffer.cast(), length) }?)?;
        Ok(count(length))
    })
}

/// As cudele_write, at a position; with `O_APPEND` at the end all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_pwrite(
    file: *mut CudeleFile,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> i64 {
    answer(|| {
        let open = FILES.get(file.addr())?;
        // SAFETY: a buffer of the caller.
        open.write_at(offset, unsafe { bytes(buffer.cast(), length) }?)?;
        Ok(count(length))
    })
}

/// Moves where the next read or write begins, in bytes from the beginning of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_seek(file: *mut CudeleFile, offset: u64) -> c_int {
    done(|| {
        FILES.get(file.addr())?.seek(offset);
        Ok(())
    })
}

/// Attributes of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_fstat(file: *mut CudeleFile, stat: *mut CudeleStat) -> c_int {
    done(|| {
        check_place(stat, "stat")?;
        // SAFETY: a place of the caller.
        unsafe { put(stat, (&FILES.get(file.addr())?.attr()?).into()) };
        Ok(())
    })
}

/// Waits until written data of a file is as durable as its policy promises.
///
/// Errors: `EIO`, `ENOSPC`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_fsync(file: *mut CudeleFile) -> c_int {
    done(|| FILES.get(file.addr())?.sync())
}

/// Closes a file. A later open, by any client, sees the written data.
///
/// Errors: `EIO`, `ENOSPC`. Then the file is still open and keeps the written data: try again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudele_close(file: *mut CudeleFile) -> c_int {
    done(|| {
        FILES.get(file.addr())?.finish()?;
        FILES.remove(file.addr()).map(drop)
    })
}
