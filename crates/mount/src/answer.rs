//! From the types of the file system to the kernel's.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cudele::{Attr, Error, FileType, Timestamp};
use fuser::{Errno, FileAttr, INodeNo};

/// Bytes a program should read or write at a time.
const BLOCK_BYTES: u32 = 128 * 1024;

pub(crate) fn errno(error: &Error) -> Errno {
    Errno::from_i32(i32::from(error.errno.code()))
}

pub(crate) fn time(at: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(at.0.unsigned_abs());
    if at.0 >= 0 { UNIX_EPOCH + nanos } else { UNIX_EPOCH - nanos }
}

pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    let nanos = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
        Err(before) => -i128::try_from(before.duration().as_nanos()).unwrap_or(i128::MAX),
    };
    let bounded = nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Timestamp(i64::try_from(bounded).unwrap_or_default())
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

pub(crate) fn attr(attr: &Attr, number: INodeNo) -> FileAttr {
    FileAttr {
        ino: number,
        size: attr.size,
        blocks: if attr.is_dir() { 0 } else { attr.size.div_ceil(512) },
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        crtime: time(attr.btime),
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

    #[test]
    fn times_survive_both_ways() {
        for nanos in [0, 1, -1, i64::MAX, i64::MIN + 1, 1_700_000_000_123_456_789] {
            assert_eq!(timestamp(time(Timestamp(nanos))), Timestamp(nanos));
        }
    }
}
