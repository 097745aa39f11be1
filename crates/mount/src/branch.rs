//! A branch as a file system of the kernel: the view of the branch answers all requests, without a
//! server. One process has the branch, so the kernel may cache names for any time.
//!
//! One lock around the branch is enough: the slow operations are reads and writes of the store.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use branches::BranchFiles;
use cudele::{Attr, AttrChange, DirEntry, Errno, Error, FileType, Ino, NewFile, Result};
use fuser::{
    BackgroundSession, BsdFileFlags, FileHandle, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};
use types::Map;

use crate::answer::{self, done, time};
use crate::asked::{O_APPEND, O_TRUNC, rename_flags};
use crate::fuse::device;
use crate::{Options, kernel};

/// Inode numbers are never used twice.
const GENERATION: Generation = Generation(0);
/// Files need no handle of their own: everything is kept by inode.
const FILE: FileHandle = FileHandle(0);

/// Names change through this mount only.
const NAMES_VALID: Duration = Duration::from_secs(3600);
/// Times and lengths change when content is stored.
const ATTRS_VALID: Duration = Duration::ZERO;

/// The state behind the mount of a branch.
#[derive(Debug)]
struct State {
    files: BranchFiles,
    /// Directories that are open, as they were then.
    listings: Map<u64, Vec<DirEntry>>,
    next: u64,
}

/// See the module documentation.
#[derive(Debug)]
struct BranchMount {
    root: Ino,
    state: Arc<Mutex<State>>,
    /// Whether files may belong to other users than the one who runs this.
    for_others: bool,
}

/// A branch that is mounted. Dropping it unmounts it.
#[derive(Debug)]
pub struct MountedBranch {
    state: Arc<Mutex<State>>,
    at: PathBuf,
    session: Option<BackgroundSession>,
}

/// Mounts a branch on a directory.
///
/// # Errors
/// As [`crate::mount`].
pub fn mount_branch(files: BranchFiles, at: &Path, name: &str) -> Result<MountedBranch> {
    let is_root = rustix::process::getuid().is_root();
    let options = Options { allow_other: is_root, set_id: is_root, ..Options::default() };
    let source = format!("cudele-branch:{name}");
    let config = kernel::config(&source, &options);
    let root = files.root();
    let state = Arc::new(Mutex::new(State { files, listings: Map::default(), next: 1 }));
    let filesystem = BranchMount { root, state: state.clone(), for_others: is_root };
    let acl = config.acl;
    let session = device::mount(at, &source, &options)
        .and_then(|device| Session::from_fd(filesystem, device, acl, config))
        .and_then(Session::spawn);
    let session = session.map_err(|error| crate::session::mount_error(at, &error))?;
    Ok(MountedBranch { state, at: at.to_owned(), session: Some(session) })
}

impl MountedBranch {
    /// Makes all changes so far durable, and a part of the branch. Returns the number of events.
    ///
    /// # Errors
    /// As [`BranchFiles::sync`].
    pub fn sync(&self) -> Result<u64> {
        held(&self.state).files.sync()
    }

    /// Unmounts it: nothing is changed in it any more.
    pub fn unmount(&mut self) {
        let Some(session) = self.session.take() else { return };
        // A user may have unmounted it already.
        if session.guard.is_finished() || crate::unmount(&self.at, false).is_ok() {
            let _ = session.join();
        } else {
            // The file system is in use: its threads end with its last user.
            let _ = crate::unmount(&self.at, true);
        }
    }
}

impl Drop for MountedBranch {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// The kernel's number of an inode.
fn number(root: Ino, ino: Ino) -> INodeNo {
    INodeNo(crate::filesystem::number(root, ino))
}

fn held(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BranchMount {
    fn ino(&self, number: INodeNo) -> Ino {
        if number == INodeNo::ROOT { self.root } else { Ino(number.0) }
    }

    fn attr(&self, attr: &Attr) -> fuser::FileAttr {
        answer::attr(attr, number(self.root, attr.ino))
    }

    fn entry(&self, entry: Result<Attr>, reply: ReplyEntry) {
        match entry {
            Ok(attr) => {
                let attr = self.attr(&attr);
                reply.entry_with_ttls(&NAMES_VALID, &ATTRS_VALID, &attr, GENERATION);
            }
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    /// The inode that a request creates.
    fn wanted<'a>(&self, request: &Request, mode: u32) -> NewFile<'a> {
        let owner = self.for_others.then(|| (request.uid(), request.gid()));
        let file_type = FileType::from_mode(mode).unwrap_or_default();
        NewFile { file_type, permissions: mode & 0o7777, owner, ..NewFile::default() }
    }
}

impl fuser::Filesystem for BranchMount {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::negotiate_plainly(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = held(&self.state).files.lookup(self.ino(parent), name.as_bytes());
        self.entry(found, reply);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match held(&self.state).files.attr(self.ino(ino)) {
            Ok(attr) => reply.attr(&ATTRS_VALID, &self.attr(&attr)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(time), mtime.map(time));
        let change = AttrChange { mode, uid, gid, size, atime, mtime };
        match held(&self.state).files.set_attr(self.ino(ino), &change) {
            Ok(attr) => reply.attr(&ATTRS_VALID, &self.attr(&attr)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match held(&self.state).files.read_link(self.ino(ino)) {
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
        let new = NewFile { rdev, ..self.wanted(request, mode) };
        let made = held(&self.state).files.create(self.ino(parent), name.as_bytes(), &new);
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
        let new = self.wanted(request, FileType::Directory.mode_bits() | (mode & 0o7777));
        let made = held(&self.state).files.create(self.ino(parent), name.as_bytes(), &new);
        self.entry(made, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(held(&self.state).files.unlink(self.ino(parent), name.as_bytes()), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(held(&self.state).files.rmdir(self.ino(parent), name.as_bytes()), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (data, owner) = (target.as_os_str().as_bytes(), self.wanted(request, 0).owner);
        let new = NewFile { owner, ..NewFile::symlink(data) };
        let made = held(&self.state).files.create(self.ino(parent), name.as_bytes(), &new);
        self.entry(made, reply);
    }

    fn rename(
        &self,
        _request: &Request,
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
            .and_then(|flags| held(&self.state).files.rename(from, to, flags));
        done(result, reply);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (ino, parent) = (self.ino(ino), self.ino(parent));
        let linked = held(&self.state).files.link(ino, parent, name.as_bytes());
        self.entry(linked, reply);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match held(&self.state).files.open(self.ino(ino), flags.0 & O_TRUNC != 0) {
            Ok(()) => reply.opened(FILE, FopenFlags::empty()),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = self.wanted(request, FileType::Regular.mode_bits() | (mode & 0o7777));
        let mut state = held(&self.state);
        let made = state.files.create(self.ino(parent), name.as_bytes(), &new);
        let opened = made.and_then(|attr| state.files.open(attr.ino, false).map(|()| attr));
        match opened {
            Ok(attr) => {
                let attr = self.attr(&attr);
                reply.created(&ATTRS_VALID, &attr, GENERATION, FILE, FopenFlags::empty());
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
        match held(&self.state).files.read(self.ino(ino), offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(answer::errno(&error)),
        }
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
        let (ino, mut state) = (self.ino(ino), held(&self.state));
        let append = flags.0 & O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let offset = if append { state.files.attr(ino).map(|attr| attr.size) } else { Ok(offset) };
        match offset.and_then(|offset| state.files.write(ino, offset, data)) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        done(held(&self.state).files.flush(self.ino(ino)), reply);
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        done(held(&self.state).files.close(self.ino(ino)), reply);
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        done(held(&self.state).files.sync().map(drop), reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        done(held(&self.state).files.sync().map(drop), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let mut state = held(&self.state);
        match state.files.list(self.ino(ino)) {
            Ok(entries) => {
                let handle = state.next;
                state.next += 1;
                state.listings.insert(handle, entries);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let state = held(&self.state);
        let Some(entries) = state.listings.get(&handle.0) else {
            let error = Error::of(Errno::Stale, "directory");
            return reply.error(answer::errno(&error));
        };
        // The kernel ignores the inode number of `..`.
        let dots =
            [(ino, &b"."[..]), (ino, b"..")].map(|(ino, name)| (ino, FileType::Directory, name));
        let listed = entries.iter().map(|entry| {
            (number(self.root, entry.attr.ino), entry.attr.file_type(), &entry.name[..])
        });
        let all = dots.into_iter().chain(listed);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (number, file_type, name)) in (1..).zip(all).skip(from) {
            if reply.add(number, at, answer::kind(file_type), OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        held(&self.state).listings.remove(&handle.0);
        reply.ok();
    }
}
