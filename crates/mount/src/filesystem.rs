//! One method per FUSE request.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

use cudele::{AttrChange, Errno, Ino, Result, XattrFlags};
use fuser::{
    BsdFileFlags, FileHandle, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner, OpenFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use types::FileType;
use vfs::{Entry, Known, NewNode, Vfs};

use crate::asked::{
    O_APPEND, bytes, caller, done, lock_range, open_mode, rename_flags, seek, sought, time,
};
use crate::{answer, content, kernel};

/// Inode numbers are never used twice.
pub(crate) const GENERATION: Generation = Generation(0);
/// Files need no handle of their own: everything is kept by inode.
pub(crate) const FILE: FileHandle = FileHandle(0);
/// Bytes in which room is counted.
const SPACE_UNIT: u64 = 4096;

/// What the kernel calls an inode.
pub(crate) fn number(root: Ino, ino: Ino) -> INodeNo {
    if ino == root { INodeNo::ROOT } else { INodeNo(ino.0) }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Filesystem {
    pub(crate) vfs: Arc<Vfs>,
    /// Where to send what the kernel must forget.
    forget: Sender<Vec<Known>>,
}

impl Filesystem {
    pub(crate) fn new(vfs: Arc<Vfs>, forget: Sender<Vec<Known>>) -> Self {
        Self { vfs, forget }
    }

    pub(crate) fn ino(&self, number: INodeNo) -> Ino {
        if number == INodeNo::ROOT { self.vfs.root() } else { Ino(number.0) }
    }

    pub(crate) fn attr(&self, attr: &cudele::Attr) -> fuser::FileAttr {
        answer::attr(attr, number(self.vfs.root(), attr.ino))
    }

    fn entry(&self, entry: Result<Entry>, reply: ReplyEntry) {
        match entry {
            Ok(Entry { attr, valid }) => reply.entry(&valid, &self.attr(&attr), GENERATION),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn no_entry(reply: ReplyEntry, valid: Duration) {
        let attr = answer::attr(&cudele::Attr::default(), INodeNo(0));
        reply.entry(&valid, &attr, GENERATION);
    }

    fn tell_outdated(&self) {
        let outdated = self.vfs.take_outdated();
        if !outdated.is_empty() {
            // The receiver ends with the mount, and then the kernel forgets everything.
            let _ = self.forget.send(outdated);
        }
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::negotiate(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = self.ino(parent);
        match self.vfs.lookup(&caller(request), parent, name.as_bytes()) {
            Err(error) if error.errno == Errno::NotFound => {
                let valid = self.vfs.absent_valid(parent);
                if valid.is_zero() {
                    reply.error(fuser::Errno::ENOENT);
                } else {
                    Self::no_entry(reply, valid);
                }
            }
            result => self.entry(result, reply),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.vfs.forget(self.ino(ino), count);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.vfs.attr(self.ino(ino)) {
            Ok(Entry { attr, valid }) => reply.attr(&valid, &self.attr(&attr)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(time), mtime.map(time));
        let change = AttrChange { mode, uid, gid, size, atime, mtime };
        match self.vfs.set_attr(&caller(request), self.ino(ino), &change, handle.is_some()) {
            Ok(Entry { attr, valid }) => reply.attr(&valid, &self.attr(&attr)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.vfs.read_link(self.ino(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = NewNode { mode, rdev, target: b"" };
        let made = self.vfs.make(&caller(request), self.ino(parent), name.as_bytes(), &new);
        self.entry(made, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = FileType::Directory.mode_bits() | (mode & 0o7777);
        let new = NewNode { mode, rdev: 0, target: b"" };
        let made = self.vfs.make(&caller(request), self.ino(parent), name.as_bytes(), &new);
        self.entry(made, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.vfs.unlink(&caller(request), self.ino(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.vfs.rmdir(&caller(request), self.ino(parent), name.as_bytes()), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let mode = FileType::Symlink.mode_bits() | 0o777;
        let new = NewNode { mode, rdev: 0, target: target.as_os_str().as_bytes() };
        let made = self.vfs.make(&caller(request), self.ino(parent), name.as_bytes(), &new);
        self.entry(made, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (self.ino(parent), name.as_bytes());
        let to = (self.ino(new_parent), new_name.as_bytes());
        let result = rename_flags(flags.bits())
            .and_then(|flags| self.vfs.rename(&caller(request), from, to, flags));
        done(result, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (ino, parent) = (self.ino(ino), self.ino(parent));
        self.entry(self.vfs.link(&caller(request), ino, parent, name.as_bytes()), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let caching = self.vfs.open(&caller(request), self.ino(ino), open_mode(flags));
        Self::opened(caching, flags, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let at = (self.ino(parent), name.as_bytes());
        let mode = FileType::Regular.mode_bits() | (mode & 0o7777);
        match self.vfs.create(&caller(request), at, mode, open_mode(OpenFlags(flags))) {
            Ok((Entry { attr, valid }, caching)) => {
                let attr = self.attr(&attr);
                let how = content::how(caching, OpenFlags(flags));
                reply.created(&valid, &attr, GENERATION, FILE, how);
            }
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read_content(self.ino(ino), offset, size as usize, reply);
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ino = self.ino(ino);
        let mut result = Ok(());
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            result = self.vfs.drop_set_id(ino);
        }
        let append = flags.0 & O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        match result.and_then(|()| self.vfs.write(ino, offset, data, append)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let ino = self.ino(ino);
        let flushed = self.vfs.flush(ino);
        // After the flush: whoever gets the lock next must see what was written under it.
        self.vfs.unlock_all(ino, lock_owner.0);
        done(flushed, reply);
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(owner) = lock_owner {
            self.vfs.unlock_all(self.ino(ino), owner.0);
        }
        done(self.vfs.close(self.ino(ino), open_mode(flags).write), reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        done(self.vfs.sync(self.ino(ino)), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.vfs.open_dir(self.ino(ino)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let (handle, caller) = (handle.0, caller(request));
        self.read_dir(&caller, handle, offset, reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (dir, caller) = (self.ino(ino), caller(request));
        self.read_dir_plus(&caller, (dir, handle.0), offset, reply);
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.vfs.close_dir(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        done(self.vfs.sync_dir(self.ino(ino)), reply);
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.vfs.space() {
            Ok(space) => {
                let (total, free) = (space.total / SPACE_UNIT, space.available / SPACE_UNIT);
                // Inodes are numbered with 64 bits and take no room of their own.
                let unit = u32::try_from(SPACE_UNIT).unwrap_or(u32::MAX);
                reply.statfs(total, free, free, 0, 0, unit, 255, unit);
            }
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags { create: flags & 1 != 0, replace: flags & 2 != 0 };
        let (caller, ino) = (caller(request), self.ino(ino));
        done(self.vfs.set_xattr(&caller, ino, name.as_bytes(), Some(value), flags), reply);
        self.tell_outdated();
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        bytes(self.vfs.xattr(&caller(request), self.ino(ino), name.as_bytes()), size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.vfs.xattrs(&caller(request), self.ino(ino)).map(|names| {
            let ended = names.into_iter().map(|name| [name, vec![0]].concat());
            ended.collect::<Vec<_>>().concat()
        });
        bytes(names, size, reply);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, ino) = (caller(request), self.ino(ino));
        let flags = XattrFlags::default();
        done(self.vfs.set_xattr(&caller, ino, name.as_bytes(), None, flags), reply);
        self.tell_outdated();
    }

    fn getlk(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let range = lock_range(kind, start, end, pid);
        self.get_lock(self.ino(ino), owner.0, range, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let range = lock_range(kind, start, end, pid);
        self.set_lock(self.ino(ino), (owner.0, request.pid()), (range, sleep), reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = mode.cast_unsigned();
        done(self.vfs.allocate(self.ino(ino), offset, length, mode), reply);
    }
    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let found = seek(offset, whence)
            .and_then(|(offset, what)| self.vfs.seek(self.ino(ino), offset, what));
        sought(found, reply);
    }
}
