//! What a request says, in the terms of the file system; and the answers that say least.

use cudele::{Errno, Error, LockMode, RenameFlags, Result, Timestamp};
use fuser::{OpenAccMode, OpenFlags, ReplyEmpty, ReplyLseek, ReplyXattr, Request, TimeOrNow};
use vfs::{Caller, OpenMode, Range, Seek, Vfs};

use crate::answer;

pub(crate) const O_APPEND: i32 = 0o2000;
pub(crate) const O_EXCL: i32 = 0o200;
pub(crate) const O_TRUNC: i32 = 0o1000;
pub(crate) const F_RDLCK: i32 = 0;
pub(crate) const F_WRLCK: i32 = 1;
pub(crate) const F_UNLCK: i32 = 2;
pub(crate) const SEEK_DATA: i32 = 3;
pub(crate) const SEEK_HOLE: i32 = 4;
pub(crate) const RENAME_NOREPLACE: u32 = 1;
pub(crate) const RENAME_EXCHANGE: u32 = 2;

pub(crate) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

pub(crate) fn done(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(answer::errno(&error)),
    }
}

pub(crate) fn sought(result: Result<u64>, reply: ReplyLseek) {
    match result {
        // No file is as long as that.
        Ok(at) => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)),
        Err(error) => reply.error(answer::errno(&error)),
    }
}

pub(crate) fn bytes(result: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(fuser::Errno::ERANGE),
        Err(error) => reply.error(answer::errno(&error)),
    }
}

pub(crate) fn open_mode(flags: OpenFlags) -> OpenMode {
    OpenMode {
        write: flags.acc_mode() != OpenAccMode::O_RDONLY,
        truncate: flags.0 & O_TRUNC != 0,
        exclusive: flags.0 & O_EXCL != 0,
    }
}

pub(crate) fn seek(offset: i64, whence: i32) -> Result<(u64, Seek)> {
    let what = match whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        // The kernel knows the others.
        _ => return Err(Error::of(Errno::Invalid, "lseek")),
    };
    // A position before the file.
    let offset = u64::try_from(offset).map_err(|_| Error::of(Errno::NoSuchPlace, "lseek"))?;
    Ok((offset, what))
}

pub(crate) fn time(at: TimeOrNow) -> Timestamp {
    match at {
        TimeOrNow::SpecificTime(at) => answer::timestamp(at),
        TimeOrNow::Now => cudele::now(),
    }
}

pub(crate) fn lock_range(kind: i32, start: u64, end: u64, pid: u32) -> Result<Range> {
    let mode = match kind {
        F_RDLCK => LockMode::Read,
        F_WRLCK => LockMode::Write,
        _ => LockMode::Unlock,
    };
    Vfs::lock_range(mode, start, end, pid)
}

pub(crate) fn rename_flags(flags: u32) -> Result<RenameFlags> {
    if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
        return Err(Error::of(Errno::Invalid, "rename"));
    }
    let (no_replace, exchange) = (flags & RENAME_NOREPLACE != 0, flags & RENAME_EXCHANGE != 0);
    Ok(RenameFlags { no_replace, exchange })
}
