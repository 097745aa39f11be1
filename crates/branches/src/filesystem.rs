//! A branch as a file system by inode number: the view of the branch answers all calls, without a
//! server. One process has the branch, so a kernel may cache names for any time.
//!
//! One lock around the branch is enough: the slow operations are reads and writes of the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudele::{DirEntry, NewFile};
use posix::{
    Attributes, Caching, Caller, Directories, Entry, Features, FileSystem, Files, KnownInode,
    Listed, Locks, Names, NewNode, OpenMode,
};
use types::{
    Attr, AttrChange, EntryName, Errno, Error, FileType, Ino, Map, RenameFlags, Result, Space,
    XattrChange, XattrFlags,
};

use crate::BranchFiles;

/// Names change through this file system only.
const NAMES_VALID: Duration = Duration::from_secs(3600);
/// Times and lengths change when content is stored.
const ATTRS_VALID: Duration = Duration::ZERO;

/// See the module documentation.
#[derive(Debug)]
pub struct BranchFs {
    root: Ino,
    state: Mutex<State>,
    /// Whether files may belong to users other than the one of this process.
    for_others: bool,
}

#[derive(Debug)]
struct State {
    files: BranchFiles,
    /// The entries of open directories at their opening.
    listings: Map<u64, (Ino, Vec<DirEntry>)>,
    next: u64,
}

impl BranchFs {
    /// The file system of a branch.
    #[must_use]
    pub fn new(files: BranchFiles) -> Self {
        let (root, for_others) = (files.root(), cudele::own_cred().is_root());
        let state = State { files, listings: Map::default(), next: 1 };
        Self { root, state: Mutex::new(state), for_others }
    }

    /// Makes all changes so far durable, and a part of the branch. Returns the number of events.
    ///
    /// # Errors
    /// As [`BranchFiles::sync`].
    pub fn commit(&self) -> Result<u64> {
        self.held().files.sync()
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode that a caller creates.
    fn wanted<'a>(&self, caller: &Caller, new: &NewNode<'_>) -> NewFile<'a> {
        let NewNode { mode, umask, .. } = *new;
        let owner = self.for_others.then_some((caller.uid, caller.gid));
        let file_type = FileType::from_mode(mode).unwrap_or_default();
        NewFile { file_type, permissions: mode & 0o7777, umask, owner, ..NewFile::default() }
    }
}

fn entry(attr: Attr) -> Entry {
    Entry { attr, valid: ATTRS_VALID, name_valid: NAMES_VALID }
}

impl FileSystem for BranchFs {
    fn features(&self) -> Features {
        Features { access_lists: true, ..Features::default() }
    }

    fn start(self: Arc<Self>, _outdated: Box<dyn Fn(Vec<KnownInode>) + Send>) -> Result<()> {
        Ok(())
    }

    /// Writes nothing: [`BranchFs::commit`] decides whether the work becomes a part of the branch.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

impl Names for BranchFs {
    fn root(&self) -> Ino {
        self.root
    }

    fn lookup(&self, _caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.held().files.lookup(parent, name).map(entry)
    }

    fn absent_valid(&self, _parent: Ino, _name: &[u8]) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _ino: Ino, _count: u64) {}

    fn make(&self, caller: &Caller, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        let NewNode { rdev, target, .. } = *new;
        let wanted = self.wanted(caller, new);
        let new = match wanted.file_type {
            FileType::Symlink => NewFile { owner: wanted.owner, ..NewFile::symlink(target) },
            FileType::Regular
            | FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharDevice
            | FileType::BlockDevice => NewFile { rdev, ..wanted },
        };
        self.held().files.create(parent, name, &new).map(entry)
    }

    fn link(&self, _caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.held().files.link(ino, parent, name).map(entry)
    }

    fn unlink(&self, _caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.held().files.unlink(parent, name)
    }

    fn rmdir(&self, _caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.held().files.rmdir(parent, name)
    }

    fn rename(
        &self,
        _caller: &Caller,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.held().files.rename(from, to, flags)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.held().files.read_link(ino)
    }
}

impl Attributes for BranchFs {
    fn attr(&self, ino: Ino) -> Result<Entry> {
        self.held().files.attr(ino).map(entry)
    }

    fn set_attr(
        &self,
        _caller: &Caller,
        ino: Ino,
        change: &AttrChange,
        _is_open: bool,
    ) -> Result<Entry> {
        self.held().files.set_attr(ino, change).map(entry)
    }

    fn xattr(&self, _caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.held().files.xattr(ino, name)
    }

    fn xattrs(&self, _caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.held().files.xattrs(ino)
    }

    fn set_xattr(
        &self,
        _caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        self.held().files.set_xattr(ino, XattrChange { name, value, flags })
    }

    /// Unknown: no size, and nothing free.
    fn space(&self, _ino: Ino) -> Result<Space> {
        Ok(Space::default())
    }
}

impl Files for BranchFs {
    fn open(&self, _caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        self.held().files.open(ino, mode.truncate).map(|()| Caching::Afresh)
    }

    fn create(
        &self,
        caller: &Caller,
        EntryName { dir, name }: EntryName<'_>,
        new: &NewNode<'_>,
        _open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        let new = self.wanted(caller, new);
        let mut state = self.held();
        let attr = state.files.create(dir, name, &new)?;
        state.files.open(attr.ino, false)?;
        Ok((entry(attr), Caching::Afresh))
    }

    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.held().files.read(ino, offset, buffer.len())?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], append: bool) -> Result<()> {
        let mut state = self.held();
        let offset = if append { state.files.attr(ino)?.size } else { offset };
        state.files.write(ino, offset, data)
    }

    fn flush(&self, ino: Ino) -> Result<()> {
        self.held().files.flush(ino)
    }

    fn sync(&self, _ino: Ino) -> Result<()> {
        self.commit().map(drop)
    }

    fn close(&self, ino: Ino, _write: bool) -> Result<()> {
        self.held().files.close(ino)
    }
}

impl Directories for BranchFs {
    fn open_dir(&self, dir: Ino) -> Result<u64> {
        let mut state = self.held();
        let entries = state.files.list(dir)?;
        let handle = state.next;
        state.next += 1;
        state.listings.insert(handle, (dir, entries));
        Ok(handle)
    }

    fn read_dir(
        &self,
        _caller: &Caller,
        handle: u64,
        _attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let state = self.held();
        let listing = state.listings.get(&handle);
        let (dir, entries) = listing.ok_or_else(|| Error::of(Errno::Stale, "directory"))?;
        // A kernel ignores the inode number of `..`.
        let itself = Attr { ino: *dir, mode: FileType::Directory.mode_bits(), ..Attr::default() };
        let dots = [(&b"."[..], itself), (b"..", itself)];
        let listed = entries.iter().map(|entry| (&entry.name[..], entry.attr));
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for (next, (name, attr)) in (1..).zip(dots.into_iter().chain(listed)).skip(from) {
            if !take(&Listed { next, name, attr }) {
                break;
            }
        }
        Ok(())
    }

    fn close_dir(&self, handle: u64) {
        self.held().listings.remove(&handle);
    }

    fn learn(&self, _dir: Ino, listed: &Listed<'_>) -> Entry {
        entry(listed.attr)
    }

    fn sync_dir(&self, _dir: Ino) -> Result<()> {
        self.commit().map(drop)
    }
}

impl Locks for BranchFs {}
