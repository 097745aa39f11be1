//! The file system behind the mount of a job with a region.
//!
//! While the region is open, the kernel may know its directories only: programs change into
//! them (`chdir`), and start programs there. Nothing of that may be cached, because the programs of
//! the region change it without the kernel. Every other request closes the region, and is then
//! answered from the subtree like in any mount. Files with a stand-in have their length, time and
//! content from there.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use cudele::{AttrChange, Ino, RenameFlags, Result, Space, XattrFlags};
use jobtree::{Inode, Kind};
use posix::{
    Attributes, Caching, Caller, Directories, Entry, Features, FileSystem, Files, KnownInode,
    Listed, Locker, Locks, Names, NewNode, OpenMode, Range, Seek,
};
use types::{Attr, EntryName, Timestamp};
use vfs::Vfs;

use crate::stand_ins::{StandIn, set_times};
use crate::{Keeper, held, io};

/// See the module documentation.
#[derive(Debug)]
pub struct JobFs {
    inner: Arc<Vfs>,
    keeper: Arc<Keeper>,
}

impl JobFs {
    /// The file system for the mount of a job with this keeper.
    #[must_use]
    pub fn new(inner: Arc<Vfs>, keeper: Arc<Keeper>) -> Self {
        Self { inner, keeper }
    }

    /// A directory of the region, while that is open.
    fn open_dir_of_region(&self, ino: Ino) -> Option<Inode> {
        let dir = self.keeper.region.dir_numbered(ino.0)?;
        self.keeper.is_open().then_some(dir)
    }

    /// Closes the region if the request is about something in it.
    fn settle(&self, what: &'static str, inos: &[Ino]) -> Result<()> {
        if inos.iter().any(|ino| self.open_dir_of_region(*ino).is_some()) {
            return self.keeper.close(Some(what));
        }
        Ok(())
    }

    fn region_attr(&self, dir: Inode) -> Attr {
        let stat = self.keeper.region.stat(dir);
        Attr {
            ino: Ino(stat.ino),
            mode: stat.mode,
            nlink: u32::try_from(stat.nlink).unwrap_or(u32::MAX),
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            atime: Timestamp(stat.atime),
            mtime: Timestamp(stat.mtime),
            ctime: Timestamp(stat.ctime),
            ..Attr::default()
        }
    }

    /// A directory of the region by name, while that is open. `None` for anything else.
    fn subdirectory(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        let dir = self.open_dir_of_region(parent)?;
        let state = held(&self.keeper.state);
        let session = self.keeper.session(&state);
        let _inside = session.enter().ok()?;
        let region = &self.keeper.region;
        let found = region.inode_of(region.lookup(dir, name)?);
        (region.kind(found) == Kind::Directory).then(|| self.region_attr(found))
    }

    /// The attributes as the stand-in has them, if there is one.
    fn shown(&self, entry: Entry) -> Entry {
        match self.stand_in(entry.attr.ino) {
            Some(stand_in) => Entry {
                attr: shown_attr(entry.attr, &stand_in),
                valid: Duration::ZERO,
                name_valid: entry.name_valid,
            },
            None => entry,
        }
    }

    fn stand_in(&self, ino: Ino) -> Option<Arc<StandIn>> {
        if self.keeper.stand_ins.is_empty() {
            return None;
        }
        self.keeper.stand_ins.of(ino)
    }
}

fn shown_attr(attr: Attr, stand_in: &StandIn) -> Attr {
    Attr { size: stand_in.size(), mtime: stand_in.mtime(), ..attr }
}

impl FileSystem for JobFs {
    fn features(&self) -> Features {
        self.inner.features()
    }

    fn start(self: Arc<Self>, outdated: Box<dyn Fn(Vec<KnownInode>) + Send>) -> Result<()> {
        self.inner.clone().start(outdated)
    }

    fn finish(&self) -> Result<()> {
        self.inner.finish()
    }

    fn take_outdated(&self) -> Vec<KnownInode> {
        self.inner.take_outdated()
    }
}

impl Names for JobFs {
    fn root(&self) -> Ino {
        self.inner.root()
    }

    fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry> {
        if let Some(attr) = self.subdirectory(parent, name) {
            let learned = self.inner.learn(parent, &Listed { next: 0, name, attr });
            return Ok(Entry { attr, ..Entry::new(learned.attr, Duration::ZERO) });
        }
        self.settle("lookup", &[parent])?;
        let entry = self.inner.lookup(caller, parent, name)?;
        if let Some(dir) = self.open_dir_of_region(entry.attr.ino) {
            // The root of the region.
            let attr = self.region_attr(dir);
            return Ok(Entry { attr, valid: Duration::ZERO, ..entry });
        }
        Ok(self.shown(entry))
    }

    fn absent_valid(&self, parent: Ino) -> Duration {
        self.inner.absent_valid(parent)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.inner.forget(ino, count);
    }

    fn make(&self, caller: &Caller, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        self.settle("make", &[parent])?;
        self.inner.make(caller, parent, name, new)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.settle("link", &[parent])?;
        self.inner.link(caller, ino, parent, name).map(|entry| self.shown(entry))
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.settle("unlink", &[parent])?;
        self.inner.unlink(caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.settle("rmdir", &[parent])?;
        self.inner.rmdir(caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.settle("rename", &[from.dir, to.dir])?;
        self.inner.rename(caller, from, to, flags)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.inner.read_link(ino)
    }
}

impl Attributes for JobFs {
    fn attr(&self, ino: Ino) -> Result<Entry> {
        if let Some(dir) = self.open_dir_of_region(ino) {
            return Ok(Entry::new(self.region_attr(dir), Duration::ZERO));
        }
        self.inner.attr(ino).map(|entry| self.shown(entry))
    }

    fn set_attr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &AttrChange,
        is_open: bool,
    ) -> Result<Entry> {
        self.settle("set_attr", &[ino])?;
        let Some(stand_in) = self.stand_in(ino) else {
            return self.inner.set_attr(caller, ino, change, is_open);
        };
        // The length of the file follows at the end of the job.
        let rest = AttrChange { size: None, ..*change };
        let entry = if rest.is_empty() {
            self.inner.attr(ino)?
        } else {
            self.inner.set_attr(caller, ino, &rest, is_open)?
        };
        if let Some(size) = change.size {
            stand_in.file.set_len(size).map_err(|error| io("file", error))?;
        }
        set_times(&stand_in.file, None, change.mtime.map(|time| time.0))?;
        Ok(self.shown(entry))
    }

    fn drop_set_id(&self, ino: Ino) -> Result<()> {
        self.settle("drop_set_id", &[ino])?;
        self.inner.drop_set_id(ino)
    }

    fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.settle("xattr", &[ino])?;
        self.inner.xattr(caller, ino, name)
    }

    fn xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.settle("xattrs", &[ino])?;
        self.inner.xattrs(caller, ino)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        self.settle("set_xattr", &[ino])?;
        self.inner.set_xattr(caller, ino, name, value, flags)
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
}

impl Files for JobFs {
    fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        let Some(stand_in) = self.stand_in(ino) else {
            return self.inner.open(caller, ino, mode);
        };
        self.inner.open(caller, ino, OpenMode { truncate: false, ..mode })?;
        if mode.truncate {
            stand_in.file.set_len(0).map_err(|error| io("file", error))?;
        }
        Ok(Caching::None)
    }

    fn create(
        &self,
        caller: &Caller,
        place: EntryName<'_>,
        mode: u32,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        self.settle("create", &[place.dir])?;
        if !self.keeper.stand_ins.is_empty()
            && let Ok(entry) = self.inner.lookup(caller, place.dir, place.name)
        {
            if self.stand_in(entry.attr.ino).is_some() && !open.exclusive {
                let caching = self.open(caller, entry.attr.ino, open)?;
                return Ok((self.shown(entry), caching));
            }
            self.inner.forget(entry.attr.ino, 1);
        }
        self.inner.create(caller, place, mode, open)
    }

    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.stand_in(ino) {
            Some(stand_in) => {
                let mut done = 0;
                while done < buffer.len() {
                    let read = stand_in.file.read_at(&mut buffer[done..], offset + done as u64);
                    match read.map_err(|error| io("file", error))? {
                        0 => break,
                        count => done += count,
                    }
                }
                Ok(done)
            }
            None => self.inner.read(ino, offset, buffer),
        }
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], append: bool) -> Result<()> {
        match self.stand_in(ino) {
            Some(stand_in) => {
                let offset = if append { stand_in.size() } else { offset };
                stand_in.file.write_all_at(data, offset).map_err(|error| io("file", error))
            }
            None => self.inner.write(ino, offset, data, append),
        }
    }

    fn flush(&self, ino: Ino) -> Result<()> {
        self.inner.flush(ino)
    }

    fn sync(&self, ino: Ino) -> Result<()> {
        self.keeper.write_back_of(ino)?;
        self.inner.sync(ino)
    }

    fn close(&self, ino: Ino, write: bool) -> Result<()> {
        self.inner.close(ino, write)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: u32) -> Result<()> {
        match self.stand_in(ino) {
            Some(stand_in) => {
                let flags = rustix::fs::FallocateFlags::from_bits_retain(mode);
                let done = rustix::fs::fallocate(&stand_in.file, flags, offset, length);
                done.map_err(|errno| io("file", errno))
            }
            None => self.inner.allocate(ino, offset, length, mode),
        }
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let Some(stand_in) = self.stand_in(ino) else {
            return self.inner.seek(ino, offset, what);
        };
        // All of it counts as data.
        let size = stand_in.size();
        match what {
            _ if offset >= size => Err(types::Error::of(types::Errno::NoSuchPlace, "file")),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}

impl Directories for JobFs {
    fn open_dir(&self, dir: Ino) -> Result<u64> {
        self.settle("open_dir", &[dir])?;
        self.inner.open_dir(dir)
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        self.inner.read_dir(caller, handle, attrs, from, &mut |listed| match self
            .stand_in(listed.attr.ino)
        {
            Some(stand_in) if attrs => {
                let attr = shown_attr(listed.attr, &stand_in);
                take(&Listed { attr, ..*listed })
            }
            Some(_) | None => take(listed),
        })
    }

    fn close_dir(&self, handle: u64) {
        self.inner.close_dir(handle);
    }

    fn learn(&self, dir: Ino, listed: &Listed<'_>) -> Entry {
        let entry = self.inner.learn(dir, listed);
        match self.open_dir_of_region(entry.attr.ino) {
            // The root of the region, in the directory above.
            Some(_) => Entry { valid: Duration::ZERO, ..entry },
            None => self.shown(entry),
        }
    }

    fn sync_dir(&self, dir: Ino) -> Result<()> {
        self.settle("sync_dir", &[dir])?;
        self.inner.sync_dir(dir)
    }
}

impl Locks for JobFs {
    fn lock(&self, ino: Ino, locker: Locker, range: &Range, wait: bool) -> Result<()> {
        self.inner.lock(ino, locker, range, wait)
    }

    fn cancel_lock(&self, ino: Ino, locker: Locker, range: &Range) {
        self.inner.cancel_lock(ino, locker, range);
    }

    fn lock_in_the_way(&self, ino: Ino, locker: Locker, range: &Range) -> Result<Option<Range>> {
        self.inner.lock_in_the_way(ino, locker, range)
    }

    fn unlock_process(&self, ino: Ino, owner: u64) {
        self.inner.unlock_process(ino, owner);
    }

    fn unlock_file(&self, ino: Ino, handle: u64) {
        self.inner.unlock_file(ino, handle);
    }
}
