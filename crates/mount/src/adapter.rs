//! The adapter between the kernel and a file system by inode number: dispatch of requests.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::Sender;

use posix::{Caller, FileSystem, IdMap, KnownInode, Locker, Range};
use types::{Ino, LockMode, Result};

use crate::fuse::{Handler, Op, Out, Request, Ticket};

/// The kernel's number of the root of every mount.
const ROOT: u64 = 1;

/// The kernel's number of an inode.
pub(crate) fn number(root: Ino, ino: Ino) -> u64 {
    if ino == root { ROOT } else { ino.0 }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The channel to the thread that invalidates the kernel's caches.
    forget: Sender<Vec<KnownInode>>,
    /// The next handle of an open file. Only locks are kept by handle, all else by inode.
    pub(crate) next_handle: AtomicU64,
    /// The translation of users and groups, if the machine has numbers of its own.
    pub(crate) ids: Option<&'static IdMap>,
}

/// A resource that a reply transfers to the caller.
#[derive(Debug)]
pub(crate) enum Given {
    Nothing,
    /// A reference of the kernel to an inode.
    Reference(Ino),
    /// An open file, and whether it is open for writing.
    File(Ino, bool),
    /// An open file and a reference to it.
    Created(Ino, bool),
    /// The handle of an open directory.
    Directory(u64),
    /// References of the kernel to several inodes.
    References(Vec<Ino>),
    /// A lock.
    Lock(Ino, Locker, Range),
}

/// The caller of a request.
pub(crate) fn caller(request: &Request<'_>) -> Caller {
    Caller { uid: request.uid, gid: request.gid, pid: request.pid, ids: request.ids }
}

impl Adapter {
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        forget: Sender<Vec<KnownInode>>,
        ids: Option<&'static IdMap>,
    ) -> Self {
        Self { fs, forget, next_handle: AtomicU64::new(1), ids }
    }

    pub(crate) fn ino(&self, number: u64) -> Ino {
        if number == ROOT { self.fs.root() } else { Ino(number) }
    }

    pub(crate) fn number(&self, ino: Ino) -> u64 {
        number(self.fs.root(), ino)
    }

    pub(crate) fn notify_outdated(&self) {
        let outdated = self.fs.take_outdated();
        if !outdated.is_empty() {
            // After an unmount, the receiver is gone and the kernel has no caches to invalidate.
            let _ = self.forget.send(outdated);
        }
    }

    fn forget(&self, number: u64, count: u64) {
        self.fs.forget(self.ino(number), count);
    }

    /// Requests about names.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the other parts handle the rest")]
    fn handle_name(&self, request: &Request<'_>, out: &mut Out) -> Option<Result<Given>> {
        Some(match request.op {
            Op::Lookup(name) => self.lookup(request, name, out),
            Op::Symlink(name, target) => self.symlink(request, name, target, out),
            Op::MakeNode(name, new) => self.make(request, name, &new, out),
            Op::MakeDir(name, new) => self.make_dir(request, name, new, out),
            Op::Unlink(name) => self.unlink(request, name),
            Op::RemoveDir(name) => self.remove_dir(request, name),
            Op::Rename(name, to, flags) => self.rename(request, name, to, flags),
            Op::Link(ino, name) => self.link(request, ino, name, out),
            Op::Create(name, new, flags) => self.create(request, name, new, flags, out),
            Op::ReadLink => self.read_link(request, out),
            _ => return None,
        })
    }

    /// Requests about inodes and directories.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the other parts handle the rest")]
    fn handle_inode(&self, request: &Request<'_>, out: &mut Out) -> Option<Result<Given>> {
        let (ino, caller) = (self.ino(request.node), caller(request));
        Some(match request.op {
            Op::GetAttr => self.get_attr(ino, out),
            Op::SetAttr(change) => self.set_attr(&caller, ino, &change, out),
            Op::SetXattr(name, value, flags) => {
                self.set_xattr(&caller, ino, name.as_bytes(), Some(value), flags)
            }
            Op::RemoveXattr(name) => self.set_xattr(&caller, ino, name.as_bytes(), None, 0),
            Op::GetXattr(name, size) => self.get_xattr(&caller, ino, name.as_bytes(), size, out),
            Op::ListXattr(size) => self.list_xattr(&caller, ino, size, out),
            Op::StatFs => self.stat_fs(ino, out),
            Op::SyncDir => self.fs.sync_dir(ino).map(|()| Given::Nothing),
            Op::OpenDir => self.open_dir(ino, out),
            Op::ReadDir(part) => self.read_dir(&caller, part, out),
            Op::ReadDirPlus(part) => self.read_dir_plus(&caller, ino, part, out),
            Op::ReleaseDir(handle) => {
                self.fs.close_dir(handle);
                Ok(Given::Nothing)
            }
            _ => return None,
        })
    }

    /// Requests about open files.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the other parts handle the rest")]
    fn handle_file(
        &self,
        request: &Request<'_>,
        out: &mut Out,
        ticket: Ticket<'_>,
    ) -> Option<Result<Given>> {
        let ino = self.ino(request.node);
        Some(match request.op {
            Op::Open(flags) => self.open(&caller(request), ino, flags, out),
            Op::Read { offset, size } => self.read(ino, offset, size, out),
            Op::Write(write) => self.write(ino, &write, out),
            Op::Flush { owner } => self.flush(ino, owner),
            Op::Release { handle, flags } => self.release(ino, handle, flags),
            Op::Sync => self.fs.sync(ino).map(|()| Given::Nothing),
            Op::GetLock(asked) => self.get_lock(ino, &asked, out),
            Op::SetLock(asked, waits) => self.set_lock(ino, &asked, waits.then_some(ticket)),
            Op::Allocate { offset, length, mode } => {
                self.fs.allocate(ino, offset, length, mode).map(|()| Given::Nothing)
            }
            Op::Seek { offset, whence } => self.seek(ino, offset, whence, out),
            _ => return None,
        })
    }
}

impl Adapter {
    fn dispatch(
        &self,
        request: &Request<'_>,
        out: &mut Out,
        ticket: Ticket<'_>,
    ) -> Option<Result<Given>> {
        if let Op::Forget(count) = request.op {
            self.forget(request.node, count);
        } else if let Op::BatchForget(all) = request.op {
            all.for_each(|(number, count)| self.forget(number, count));
        } else {
            return self
                .handle_file(request, out, ticket)
                .or_else(|| self.handle_name(request, out))
                .or_else(|| self.handle_inode(request, out));
        }
        Some(Ok(Given::Nothing))
    }
}

impl Handler for Adapter {
    type Given = Given;

    fn handle(
        &self,
        request: &Request<'_>,
        out: &mut Out,
        ticket: Ticket<'_>,
    ) -> Option<Result<Given>> {
        out.translate(self.ids);
        match self.ids.map(|ids| request.translated(ids)) {
            None => self.dispatch(request, out, ticket),
            Some(Ok(request)) => self.dispatch(&request, out, ticket),
            Some(Err(error)) => Some(Err(error)),
        }
    }

    fn take_back(&self, given: Given) {
        match given {
            Given::Nothing => {}
            Given::Reference(ino) => self.fs.forget(ino, 1),
            Given::References(all) => all.into_iter().for_each(|ino| self.fs.forget(ino, 1)),
            // The next flush of the file reports errors of writing.
            Given::File(ino, write) => drop(self.fs.close(ino, write)),
            Given::Created(ino, write) => {
                let _ = self.fs.close(ino, write);
                self.fs.forget(ino, 1);
            }
            Given::Directory(handle) => self.fs.close_dir(handle),
            Given::Lock(ino, locker, range) => {
                let range = Range { mode: LockMode::Unlock, ..range };
                // Without an answer the session ends, and its locks with it.
                let _ = self.fs.lock(ino, locker, &range, false);
            }
        }
    }
}
