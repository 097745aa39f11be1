//! The names of the kinds of requests, for metrics.

use super::request::Op;

/// The name of an operation.
pub(super) fn name(op: &Op<'_>) -> &'static str {
    match op {
        Op::Lookup(_) => "lookup",
        Op::Forget(_) | Op::BatchForget(_) => "forget",
        Op::GetAttr => "getattr",
        Op::SetAttr(_) => "setattr",
        Op::ReadLink => "readlink",
        Op::Symlink(..) => "symlink",
        Op::MakeNode(..) => "mknod",
        Op::MakeDir(..) => "mkdir",
        Op::Unlink(_) => "unlink",
        Op::RemoveDir(_) => "rmdir",
        Op::Rename(..) => "rename",
        Op::Link(..) => "link",
        Op::Open(_) => "open",
        Op::Create(..) => "create",
        Op::Read { .. } => "read",
        Op::Write(_) => "write",
        Op::StatFs => "statfs",
        Op::Flush { .. } => "flush",
        Op::Release { .. } => "release",
        Op::Sync => "fsync",
        Op::SyncDir => "fsyncdir",
        Op::OpenDir => "opendir",
        Op::ReadDir(_) => "readdir",
        Op::ReadDirPlus(_) => "readdirplus",
        Op::ReleaseDir(_) => "releasedir",
        Op::SetXattr(..) => "setxattr",
        Op::GetXattr(..) => "getxattr",
        Op::ListXattr(_) => "listxattr",
        Op::RemoveXattr(_) => "removexattr",
        Op::GetLock(_) => "getlk",
        Op::SetLock(..) => "setlk",
        Op::Allocate { .. } => "fallocate",
        Op::Seek { .. } => "lseek",
        Op::Interrupt(_) | Op::Destroy | Op::Unknown => "other",
    }
}
