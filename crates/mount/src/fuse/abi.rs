//! Constants of the kernel's protocol (`linux/fuse.h`, version 7.40), and a reader of its fields.
//!
//! Messages are structures in the machine's byte order with explicit padding, so their fields are
//! read and written one after another.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The version of the protocol.
pub(super) const VERSION: (u32, u32) = (7, 40);

/// Bytes before every reply.
pub(super) const OUT_HEADER_BYTES: usize = 16;

/// Operations (`FUSE_*`).
pub(super) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
}

/// Capabilities of the kernel (flags of `FUSE_INIT`).
pub(super) mod init {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u32 = 1 << 1;
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    pub(crate) const DONT_MASK: u32 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u32 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u32 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const POSIX_ACL: u32 = 1 << 20;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
    /// There are further flags.
    pub(crate) const EXT: u32 = 1 << 30;
    /// Of the further flags: files without a cache may be mapped (Linux 6.6).
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u32 = 1 << (36 - 32);
    /// Of the further flags: requests over io_uring (Linux 6.14).
    pub(crate) const OVER_IO_URING: u32 = 1 << (41 - 32);
}

/// Valid fields of `FUSE_SETATTR` (`FATTR_*`).
pub(super) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
}

/// Caching of an open file (`FOPEN_*`).
pub(crate) mod fopen {
    /// The kernel forwards every read and write.
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    /// The page cache of the file is still valid.
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
}

/// The write comes from the page cache, without a caller.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// The write clears set-user-id and set-group-id.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// The lock is one of `flock`.
pub(super) const LK_FLOCK: u32 = 1 << 0;

/// Notifications (`FUSE_NOTIFY_*`).
pub(super) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
}

/// The remaining fields of a request. A missing field is `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_ne_bytes)
    }

    pub(super) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// A name, terminated by a zero byte.
    pub(super) fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}
