//! Parsing of requests.

use std::ffi::OsStr;

use posix::{IdMap, NewNode};
use types::{Errno, Error, Result};

use super::abi::{self, Fields, fattr, init, opcode};

/// A request, parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The number that the reply repeats.
    pub(super) unique: u64,
    /// The inode number.
    pub(crate) node: u64,
    /// The caller's user.
    pub(crate) uid: u32,
    /// The caller's group.
    pub(crate) gid: u32,
    /// The calling thread; 0 for the kernel, and for threads of other PID namespaces.
    pub(crate) pid: u32,
    /// The operation and its arguments.
    pub(crate) op: Op<'a>,
    /// The translation that user and group have gone through.
    pub(crate) ids: Option<&'static IdMap>,
}

/// A new time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    Now,
    /// Seconds, and nanoseconds after them, also before 1970.
    At(i64, u32),
}

/// A change of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetAttr {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<Time>,
    pub(crate) mtime: Option<Time>,
    /// The caller changes an open file.
    pub(crate) is_open: bool,
}

/// A lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockAsked {
    /// The handle of the open file.
    pub(crate) handle: u64,
    pub(crate) owner: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub(crate) mode: i32,
    pub(crate) pid: u32,
    /// The lock is one of `flock`, not of `fcntl`.
    pub(crate) is_flock: bool,
}

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write<'a> {
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    /// The flags of open(2).
    pub(crate) flags: i32,
    /// The kernel writes back its page cache.
    pub(crate) is_cached: bool,
    /// The write clears set-user-id and set-group-id.
    pub(crate) drops_set_id: bool,
}

/// A name in a directory other than that of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeName<'a> {
    /// The kernel's number of the directory.
    pub(crate) node: u64,
    pub(crate) name: &'a OsStr,
}

/// A request for a part of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadDir {
    /// The handle of the open directory.
    pub(crate) handle: u64,
    /// The position of the first entry.
    pub(crate) offset: u64,
    /// The size of the kernel's buffer in bytes.
    pub(crate) size: u32,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op<'a> {
    Lookup(&'a OsStr),
    Forget(u64),
    /// Pairs of an inode number and a count.
    BatchForget(Forgets<'a>),
    GetAttr,
    SetAttr(SetAttr),
    ReadLink,
    /// Name and target.
    Symlink(&'a OsStr, &'a OsStr),
    MakeNode(&'a OsStr, NewNode<'static>),
    MakeDir(&'a OsStr, NewNode<'static>),
    Unlink(&'a OsStr),
    RemoveDir(&'a OsStr),
    /// Name, new name, and `RENAME_*`.
    Rename(&'a OsStr, NodeName<'a>, u32),
    /// Inode number and new name.
    Link(u64, &'a OsStr),
    Open(i32),
    /// Name, inode, and the flags of open(2).
    Create(&'a OsStr, NewNode<'static>, i32),
    Read {
        offset: u64,
        size: u32,
    },
    Write(Write<'a>),
    StatFs,
    Flush {
        owner: u64,
    },
    Release {
        handle: u64,
        flags: i32,
    },
    Sync,
    SyncDir,
    OpenDir,
    ReadDir(ReadDir),
    ReadDirPlus(ReadDir),
    ReleaseDir(u64),
    /// Name, value and `XATTR_*`.
    SetXattr(&'a OsStr, &'a [u8], u32),
    /// Name and size of the caller's buffer.
    GetXattr(&'a OsStr, u32),
    ListXattr(u32),
    RemoveXattr(&'a OsStr),
    GetLock(LockAsked),
    /// The flag tells a blocking request.
    SetLock(LockAsked, bool),
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: i64,
        whence: i32,
    },
    /// The caller of the request with this number has a signal to handle.
    Interrupt(u64),
    /// The file system is unmounted.
    Destroy,
    /// An unknown or malformed operation.
    Unknown,
}

/// Inode numbers and the references to drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgets<'a>(Fields<'a>);

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.u64()?, self.0.u64()?))
    }
}

/// The first request of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Init {
    pub(super) unique: u64,
    pub(super) major: u32,
    pub(super) read_ahead_bytes: u32,
    pub(super) flags: u32,
    /// Further flags, if the kernel has them.
    pub(super) more_flags: u32,
}

impl<'a> Request<'a> {
    /// Parses a request; `None` for a malformed header.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (opcode, mut request, fields) = Self::parse_header(bytes)?;
        request.op = parse_op(opcode, fields).unwrap_or(Op::Unknown);
        Some(request)
    }

    /// The same with the cluster's numbers of users and groups.
    ///
    /// # Errors
    /// `EINVAL` for a new owner that is nobody in the cluster.
    pub(crate) fn translated(self, ids: &'static IdMap) -> Result<Self> {
        let (uid, gid) = ids.caller(self.uid, self.gid);
        let mut op = self.op;
        if let Op::SetAttr(change) = &mut op {
            let other = |id: Option<u32>, to: &dyn Fn(u32) -> Option<u32>| {
                let unknown = || Error::new(Errno::Invalid, "owner", "no number in the cluster");
                id.map(|id| to(id).ok_or_else(unknown)).transpose()
            };
            change.uid = other(change.uid, &|id| ids.user(id))?;
            change.gid = other(change.gid, &|id| ids.group(id))?;
        }
        Ok(Self { uid, gid, op, ids: Some(ids), ..self })
    }

    fn parse_header(bytes: &'a [u8]) -> Option<(u32, Self, Fields<'a>)> {
        let mut fields = Fields(bytes);
        let (length, opcode) = (fields.u32()?, fields.u32()?);
        let (unique, node) = (fields.u64()?, fields.u64()?);
        let (uid, gid, pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
        fields.skip(4)?;
        let is_whole = usize::try_from(length) == Ok(bytes.len());
        let request = Self { unique, node, uid, gid, pid, op: Op::Unknown, ids: None };
        is_whole.then_some((opcode, request, fields))
    }
}

impl Init {
    /// Parses the first request; `None` for any other.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (opcode, request, mut fields) = Request::parse_header(bytes)?;
        let (major, _minor) = (fields.u32()?, fields.u32()?);
        let (read_ahead_bytes, flags) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
        let has_more = flags & init::EXT != 0;
        let more_flags = fields.u32().filter(|_| has_more).unwrap_or(0);
        let unique = request.unique;
        let init = Self { unique, major, read_ahead_bytes, flags, more_flags };
        (opcode == opcode::INIT).then_some(init)
    }
}

fn parse_op<'a>(opcode: u32, mut fields: Fields<'a>) -> Option<Op<'a>> {
    let from = &mut fields;
    Some(match opcode {
        opcode::LOOKUP => Op::Lookup(from.name()?),
        opcode::FORGET => Op::Forget(from.u64()?),
        opcode::BATCH_FORGET => {
            from.skip(8)?;
            Op::BatchForget(Forgets(*from))
        }
        opcode::GETATTR => Op::GetAttr,
        opcode::SETATTR => Op::SetAttr(set_attr(from)?),
        opcode::READLINK => Op::ReadLink,
        opcode::SYMLINK => Op::Symlink(from.name()?, from.name()?),
        opcode::UNLINK => Op::Unlink(from.name()?),
        opcode::RMDIR => Op::RemoveDir(from.name()?),
        opcode::MKNOD | opcode::MKDIR | opcode::CREATE | opcode::LINK => made(opcode, from)?,
        opcode::RENAME | opcode::RENAME2 => renamed(opcode, from)?,
        opcode::OPEN => Op::Open(from.u32()?.cast_signed()),
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS => {
            let (handle, offset, size) = (from.u64()?, from.u64()?, from.u32()?);
            match opcode {
                opcode::READ => Op::Read { offset, size },
                opcode::READDIR => Op::ReadDir(ReadDir { handle, offset, size }),
                _ => Op::ReadDirPlus(ReadDir { handle, offset, size }),
            }
        }
        opcode::WRITE => Op::Write(write(from)?),
        opcode::STATFS => Op::StatFs,
        opcode::FLUSH => {
            from.skip(16)?;
            Op::Flush { owner: from.u64()? }
        }
        opcode::RELEASE => Op::Release { handle: from.u64()?, flags: from.u32()?.cast_signed() },
        opcode::RELEASEDIR => Op::ReleaseDir(from.u64()?),
        opcode::FSYNC => Op::Sync,
        opcode::FSYNCDIR => Op::SyncDir,
        opcode::OPENDIR => Op::OpenDir,
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            xattr(opcode, from)?
        }
        opcode::GETLK => Op::GetLock(lock(from)?),
        opcode::SETLK => Op::SetLock(lock(from)?, false),
        opcode::SETLKW => Op::SetLock(lock(from)?, true),
        opcode::FALLOCATE => {
            from.skip(8)?;
            Op::Allocate { offset: from.u64()?, length: from.u64()?, mode: from.u32()? }
        }
        opcode::LSEEK => {
            from.skip(8)?;
            Op::Seek { offset: from.i64()?, whence: from.u32()?.cast_signed() }
        }
        opcode::INTERRUPT => Op::Interrupt(from.u64()?),
        opcode::DESTROY => Op::Destroy,
        _ => return None,
    })
}

fn made<'a>(opcode: u32, from: &mut Fields<'a>) -> Option<Op<'a>> {
    Some(match opcode {
        opcode::MKNOD => {
            let (mode, rdev, umask) = (from.u32()?, from.u32()?, from.u32()?);
            from.skip(4)?;
            Op::MakeNode(from.name()?, NewNode { umask, rdev, ..NewNode::of(mode) })
        }
        opcode::MKDIR => {
            let (mode, umask) = (from.u32()?, from.u32()?);
            Op::MakeDir(from.name()?, NewNode { umask, ..NewNode::of(mode) })
        }
        opcode::CREATE => {
            let (flags, mode) = (from.u32()?.cast_signed(), from.u32()?);
            let umask = from.u32()?;
            from.skip(4)?;
            Op::Create(from.name()?, NewNode { umask, ..NewNode::of(mode) }, flags)
        }
        _ => {
            let ino = from.u64()?;
            Op::Link(ino, from.name()?)
        }
    })
}

fn renamed<'a>(opcode: u32, from: &mut Fields<'a>) -> Option<Op<'a>> {
    let (node, mut flags) = (from.u64()?, 0);
    if opcode == opcode::RENAME2 {
        flags = from.u32()?;
        from.skip(4)?;
    }
    let (old, name) = (from.name()?, from.name()?);
    Some(Op::Rename(old, NodeName { node, name }, flags))
}

fn write<'a>(from: &mut Fields<'a>) -> Option<Write<'a>> {
    from.skip(8)?;
    let (offset, size, how) = (from.u64()?, from.u32()?, from.u32()?);
    from.skip(8)?;
    let flags = from.u32()?.cast_signed();
    from.skip(4)?;
    let data = from.bytes(usize::try_from(size).ok()?)?;
    let (is_cached, drops_set_id) =
        (how & abi::WRITE_CACHE != 0, how & abi::WRITE_KILL_SUIDGID != 0);
    Some(Write { offset, data, flags, is_cached, drops_set_id })
}

fn xattr<'a>(opcode: u32, from: &mut Fields<'a>) -> Option<Op<'a>> {
    if opcode == opcode::REMOVEXATTR {
        return Some(Op::RemoveXattr(from.name()?));
    }
    let (size, flags) = (from.u32()?, from.u32()?);
    Some(match opcode {
        opcode::LISTXATTR => Op::ListXattr(size),
        opcode::GETXATTR => Op::GetXattr(from.name()?, size),
        _ => Op::SetXattr(from.name()?, from.bytes(usize::try_from(size).ok()?)?, flags),
    })
}

fn lock(from: &mut Fields<'_>) -> Option<LockAsked> {
    let (handle, owner, start, end) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
    let (mode, pid, how) = (from.u32()?.cast_signed(), from.u32()?, from.u32()?);
    let is_flock = how & abi::LK_FLOCK != 0;
    Some(LockAsked { handle, owner, start, end, mode, pid, is_flock })
}

fn set_attr(from: &mut Fields<'_>) -> Option<SetAttr> {
    let valid = from.u32()?;
    let has = |flag| valid & flag != 0;
    from.skip(4 + 8)?;
    let size = from.u64()?;
    from.skip(8)?;
    let (atime, mtime, _ctime) = (from.i64()?, from.i64()?, from.i64()?);
    let (atime_nanos, mtime_nanos, _) = (from.u32()?, from.u32()?, from.u32()?);
    let mode = from.u32()?;
    from.skip(4)?;
    let (uid, gid) = (from.u32()?, from.u32()?);
    let time = |set, now, at| has(set).then_some(if has(now) { Time::Now } else { at });
    Some(SetAttr {
        mode: has(fattr::MODE).then_some(mode),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, Time::At(atime, atime_nanos)),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, Time::At(mtime, mtime_nanos)),
        is_open: has(fattr::FH),
    })
}

#[cfg(test)]
mod tests;
