//! A file system that does nothing: the base of comparison for the mount.
//!
//! It is on the same terms with the kernel as ours (module `kernel`) and keeps names, attributes
//! and content in memory. No rules, no permissions, no removal, no server; calls that the
//! experiment does not need are answered with `ENOSYS`, which the kernel takes as "never ask
//! again".

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cudele::Result;
use fuser::{
    BackgroundSession, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    Session, TimeOrNow, WriteFlags,
};
use types::Map;

use super::kernel;

const VALID: Duration = Duration::from_secs(3600);
const GENERATION: Generation = Generation(0);
const FILE: FileHandle = FileHandle(0);
/// Content is kept in pieces, so that a file grows without moving.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Node {
    attr: FileAttr,
    parent: u64,
    names: Map<Box<[u8]>, u64>,
    /// The same names in order, for listings.
    order: Vec<(Box<[u8]>, u64)>,
    /// Content, or the target of a symbolic link.
    pieces: Vec<Vec<u8>>,
}

/// See the module documentation. Inode `n` is the one at `n - 1`.
#[derive(Debug)]
struct Nothing {
    nodes: Mutex<Vec<Node>>,
}

/// Mounts it.
///
/// # Errors
/// As `mount::mount`.
pub(crate) fn mount(at: &Path, options: &mount::MountOptions) -> Result<BackgroundSession> {
    let root = node(1, 1, FileType::Directory, Access { perm: 0o755, uid: 0, gid: 0 });
    let config = kernel::config("nothing", options);
    let session = Session::new(Nothing { nodes: Mutex::new(vec![root]) }, at, &config);
    session.and_then(Session::spawn).map_err(|error| terminal::io(at, &error))
}

/// The permissions and the owner of an inode.
#[derive(Clone, Copy)]
struct Access {
    perm: u16,
    uid: u32,
    gid: u32,
}

fn node(ino: u64, parent: u64, kind: FileType, access: Access) -> Node {
    let Access { perm, uid, gid } = access;
    let now = SystemTime::now();
    let attr = FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm,
        nlink: 1,
        uid,
        gid,
        rdev: 0,
        blksize: 128 * 1024,
        flags: 0,
    };
    Node { attr, parent, names: Map::default(), order: Vec::new(), pieces: Vec::new() }
}

fn index(ino: u64) -> usize {
    usize::try_from(ino - 1).unwrap_or(usize::MAX)
}

fn kind_of(mode: u32) -> FileType {
    types::FileType::from_mode(mode).map_or(FileType::RegularFile, |kind| match kind {
        types::FileType::Regular => FileType::RegularFile,
        types::FileType::Directory => FileType::Directory,
        types::FileType::Symlink => FileType::Symlink,
        types::FileType::Fifo => FileType::NamedPipe,
        types::FileType::Socket => FileType::Socket,
        types::FileType::CharDevice => FileType::CharDevice,
        types::FileType::BlockDevice => FileType::BlockDevice,
    })
}

fn permissions(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

fn time(at: TimeOrNow) -> SystemTime {
    match at {
        TimeOrNow::SpecificTime(at) => at,
        TimeOrNow::Now => SystemTime::now(),
    }
}

impl Nothing {
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        kind: FileType,
        perm: u16,
    ) -> std::result::Result<FileAttr, Errno> {
        let mut nodes = self.nodes();
        let ino = nodes.len() as u64 + 1;
        let dir = &mut nodes[index(parent.0)];
        let name: Box<[u8]> = name.as_bytes().into();
        if dir.names.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        dir.names.insert(name.clone(), ino);
        dir.order.push((name, ino));
        let access = Access { perm, uid: request.uid(), gid: request.gid() };
        let new = node(ino, parent.0, kind, access);
        let attr = new.attr;
        nodes.push(new);
        Ok(attr)
    }

    /// Hands out entries from a position on until `take` has enough.
    fn list(&self, dir: INodeNo, from: u64, take: &mut dyn FnMut(u64, &[u8], &FileAttr) -> bool) {
        let nodes = self.nodes();
        let here = &nodes[index(dir.0)];
        for at in from..here.order.len() as u64 + 2 {
            let (name, ino): (&[u8], u64) = match at {
                0 => (b".", dir.0),
                1 => (b"..", here.parent),
                _ => {
                    let (name, ino) = &here.order[index(at - 1)];
                    (name, *ino)
                }
            };
            if !take(at + 1, name, &nodes[index(ino)].attr) {
                return;
            }
        }
    }
}

fn entry(made: std::result::Result<FileAttr, Errno>, reply: ReplyEntry) {
    match made {
        Ok(attr) => reply.entry(&VALID, &attr, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn write(node: &mut Node, offset: u64, data: &[u8]) {
    let end = offset + data.len() as u64;
    let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
    let mut left = data;
    while !left.is_empty() {
        let (piece, start) = (at / PIECE_BYTES, at % PIECE_BYTES);
        let count = left.len().min(PIECE_BYTES - start);
        if node.pieces.len() <= piece {
            node.pieces.resize_with(piece + 1, Vec::new);
        }
        let held = &mut node.pieces[piece];
        if held.len() < start + count {
            held.resize(start, 0);
            held.extend_from_slice(&left[..count]);
        } else {
            held[start..start + count].copy_from_slice(&left[..count]);
        }
        (at, left) = (at + count, &left[count..]);
    }
    node.attr.size = node.attr.size.max(end);
}

fn read(node: &Node, offset: u64, size: u32) -> Vec<u8> {
    let length = u64::from(size).min(node.attr.size.saturating_sub(offset));
    let mut data = Vec::with_capacity(usize::try_from(length).unwrap_or(usize::MAX));
    let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
    while (data.len() as u64) < length {
        let (piece, start) = (at / PIECE_BYTES, at % PIECE_BYTES);
        let held = node.pieces.get(piece).map_or(&[][..], |held| &held[start.min(held.len())..]);
        let rest = usize::try_from(length).unwrap_or(usize::MAX) - data.len();
        let taken = &held[..held.len().min(rest)];
        if taken.is_empty() {
            break;
        }
        data.extend_from_slice(taken);
        at += taken.len();
    }
    data
}

impl Filesystem for Nothing {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::negotiate(config);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let nodes = self.nodes();
        match nodes[index(parent.0)].names.get(name.as_bytes()) {
            Some(ino) => reply.entry(&VALID, &nodes[index(*ino)].attr, GENERATION),
            None => {
                let mut absent = nodes[0].attr;
                absent.ino = INodeNo(0);
                reply.entry(&VALID, &absent, GENERATION);
            }
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.nodes()[index(ino.0)].attr);
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
        let mut nodes = self.nodes();
        let attr = &mut nodes[index(ino.0)].attr;
        attr.perm = mode.map_or(attr.perm, permissions);
        attr.uid = uid.unwrap_or(attr.uid);
        attr.gid = gid.unwrap_or(attr.gid);
        attr.size = size.unwrap_or(attr.size);
        attr.atime = atime.map_or(attr.atime, time);
        attr.mtime = mtime.map_or(attr.mtime, time);
        reply.attr(&VALID, attr);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        reply.data(&read(&self.nodes()[index(ino.0)], 0, u32::MAX));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        entry(self.make(request, parent, name, kind_of(mode), permissions(mode)), reply);
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
        let made = self.make(request, parent, name, FileType::Directory, permissions(mode));
        entry(made, reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let mut made = self.make(request, parent, name, FileType::Symlink, 0o777);
        if let Ok(attr) = &mut made {
            let mut nodes = self.nodes();
            let node = &mut nodes[index(attr.ino.0)];
            write(node, 0, target.as_os_str().as_bytes());
            *attr = node.attr;
        }
        entry(made, reply);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let mut nodes = self.nodes();
        let dir = &mut nodes[index(parent.0)];
        let name: Box<[u8]> = name.as_bytes().into();
        dir.names.insert(name.clone(), ino.0);
        dir.order.push((name, ino.0));
        let attr = &mut nodes[index(ino.0)].attr;
        attr.nlink += 1;
        reply.entry(&VALID, attr, GENERATION);
    }

    fn open(&self, _request: &Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let how = kernel::open_flags(flags);
        reply.opened(FILE, FopenFlags::FOPEN_KEEP_CACHE | how);
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
        let how = kernel::open_flags(OpenFlags(flags));
        match self.make(request, parent, name, FileType::RegularFile, permissions(mode)) {
            Ok(attr) => reply.created(&VALID, &attr, GENERATION, FILE, how),
            Err(errno) => reply.error(errno),
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
        let data = read(&self.nodes()[index(ino.0)], offset, size);
        reply.data(&data);
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        write(&mut self.nodes()[index(ino.0)], offset, data);
        reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX));
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.list(ino, offset, &mut |next, name, attr| {
            !reply.add(attr.ino, next, attr.kind, OsStr::from_bytes(name))
        });
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.list(ino, offset, &mut |next, name, attr| {
            !reply.add(attr.ino, next, OsStr::from_bytes(name), &VALID, attr, GENERATION)
        });
        reply.ok();
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut nodes = self.nodes();
        let dir = &mut nodes[index(parent.0)];
        let Some(ino) = dir.names.remove(name.as_bytes()) else {
            return reply.error(Errno::ENOENT);
        };
        dir.order.retain(|(known, _)| **known != *name.as_bytes());
        nodes[index(ino)].pieces = Vec::new();
        reply.ok();
    }
}
