//! From the types of the file system to the kernel's, as the library has them that serves branches.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cudele::{Attr, Error, FileType, Result, Timestamp};
use fuser::{Errno, FileAttr, INodeNo, ReplyEmpty, TimeOrNow};

/// Bytes a program should read or write at a time.
pub(crate) const BLOCK_BYTES: u32 = 128 * 1024;

/// In which the room that a file takes is counted.
const BLOCK_UNIT: u64 = 512;
/// From here on reading a file takes so long that looking for its holes is worth it.
const LARGE: u64 = 1 << 30;

pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(i32::from(error.errno.code()))
}

fn system_time(at: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(at.0.unsigned_abs());
    if at.0 >= 0 { UNIX_EPOCH + nanos } else { UNIX_EPOCH - nanos }
}

/// A time that a request says. fuser 0.18 takes the nanoseconds of times before 1970 for the wrong
/// side: the kernel counts them forwards from the second, always.
fn timestamp(at: SystemTime) -> Timestamp {
    let parts =
        |length: Duration| (i128::from(length.as_secs()), i128::from(length.subsec_nanos()));
    let (seconds, nanos) = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => parts(since),
        Err(before) => {
            let (seconds, nanos) = parts(before.duration());
            (-seconds, nanos)
        }
    };
    let nanos = seconds * 1_000_000_000 + nanos;
    let bounded = nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Timestamp(i64::try_from(bounded).unwrap_or_default())
}

pub(crate) fn time(at: TimeOrNow) -> Timestamp {
    match at {
        TimeOrNow::SpecificTime(at) => timestamp(at),
        TimeOrNow::Now => cudele::now(),
    }
}

pub(crate) fn done(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(crate) fn kind(file_type: FileType) -> fuser::FileType {
    match file_type {
        FileType::Regular => fuser::FileType::RegularFile,
        FileType::Directory => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// The room of a file in units of 512 bytes, holes included. A large file takes a unit less than
/// its length: programs that would read all of it (`cp`, `tar -S`) then first ask for its holes.
pub(crate) fn blocks(attr: &Attr) -> u64 {
    if attr.is_dir() {
        return 0;
    }
    if attr.size < LARGE { attr.size.div_ceil(BLOCK_UNIT) } else { attr.size / BLOCK_UNIT - 1 }
}

pub(crate) fn attr(attr: &Attr, number: INodeNo) -> FileAttr {
    FileAttr {
        ino: number,
        size: attr.size,
        blocks: blocks(attr),
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.btime),
        kind: kind(attr.file_type()),
        #[allow(clippy::cast_possible_truncation, reason = "12 bits")]
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As fuser makes them.
    fn requested(seconds: i64, nanos: u32) -> SystemTime {
        let length = Duration::new(seconds.unsigned_abs(), nanos);
        if seconds >= 0 { UNIX_EPOCH + length } else { UNIX_EPOCH - length }
    }

    #[test]
    fn nanoseconds_are_counted_forwards() {
        for (seconds, nanos) in [(0, 0), (0, 1), (5, 7), (-1, 0), (-1, 999_999_999), (-5, 7)] {
            let time = Timestamp::from_parts(seconds, nanos.into());
            assert_eq!(timestamp(requested(seconds, nanos)), time, "{seconds} {nanos}");
        }
    }

    #[test]
    fn times_before_1970_are_before_1970() {
        assert_eq!(system_time(Timestamp(-1)), UNIX_EPOCH - Duration::from_nanos(1));
        assert_eq!(system_time(Timestamp(1)), UNIX_EPOCH + Duration::from_nanos(1));
    }
}
