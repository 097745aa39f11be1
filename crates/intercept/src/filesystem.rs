//! The file system behind the mount of a job with a region.
//!
//! While the region is open, the mount reads from it: programs that do without the library see its
//! files, and the kernel executes them. The kernel may cache nothing of it, because the programs of
//! the region change it without the kernel. A request for a change closes the region, and is then
//! answered from the subtree like in any mount. Files with a stand-in have their length, time and
//! content from there.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use cudele::{AttrChange, Ino, RenameFlags, Result, Space, XattrFlags};
use jobtree::Inode;
use posix::{
    Attributes, Caching, Caller, Directories, Entry, Features, FileSystem, Files, KnownInode,
    Listed, Names, NewNode, OpenMode, Seek,
};
use types::{Attr, EntryName, Errno, Error};
use vfs::Vfs;

use crate::listings::{RegionListing, RegionListings};
use crate::reads;
use crate::stand_ins::{StandIn, set_times};
use crate::{Keeper, io};

/// See the module documentation.
#[derive(Debug)]
pub struct JobFs {
    pub(crate) inner: Arc<Vfs>,
    keeper: Arc<Keeper>,
    listings: RegionListings,
}

/// Names of extended attributes that belong to this file system or to a program, and not to the
/// kernel.
fn may_exist(name: &[u8]) -> bool {
    !name.starts_with(b"security.") && !name.starts_with(b"system.")
}

impl JobFs {
    /// The file system for the mount of a job with this keeper.
    #[must_use]
    pub fn new(inner: Arc<Vfs>, keeper: Arc<Keeper>) -> Self {
        Self { inner, keeper, listings: RegionListings::default() }
    }

    /// A directory of the region, while that is open.
    fn open_dir_of_region(&self, ino: Ino) -> Option<Inode> {
        let dir = self.keeper.region.dir_numbered(ino.0)?;
        self.keeper.is_open().then_some(dir)
    }

    /// Whether an inode is in the region, while that is open.
    fn is_of_region(&self, ino: Ino) -> bool {
        self.open_dir_of_region(ino).is_some() || self.keeper.has_file(ino)
    }

    /// Closes the region if the request is about something in it.
    pub(crate) fn settle(&self, what: &'static str, inos: &[Ino]) -> Result<()> {
        if inos.iter().any(|ino| self.is_of_region(*ino)) {
            return self.keeper.close(Some(what));
        }
        Ok(())
    }

    /// The inode that the region has under a name, while it is open.
    fn in_region(&self, parent: Ino, name: &[u8]) -> Option<Result<Attr>> {
        let dir = self.open_dir_of_region(parent)?;
        self.keeper.look_up(dir, name)
    }

    /// The attributes of an inode of the region, while that is open.
    fn region_attr(&self, ino: Ino) -> Option<Attr> {
        match self.open_dir_of_region(ino) {
            Some(dir) => Some(reads::attr(&self.keeper.region, dir)),
            None => self.keeper.file_attr(ino),
        }
    }

    /// An entry of which the kernel may cache nothing.
    fn uncached(&self, attr: Attr) -> Entry {
        self.shown(Entry { attr, valid: Duration::ZERO, name_valid: Duration::ZERO })
    }

    /// Whether the region answers about an extended attribute: its files have none.
    fn has_no_xattr(&self, ino: Ino, name: &[u8]) -> bool {
        // The root may have some from before the job.
        self.is_of_region(ino)
            && (!may_exist(name) || (ino != self.keeper.root && !name.starts_with(b"cudele.")))
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
        // Stand-ins are files of this machine.
        Features { maps_uncached: true, ..self.inner.features() }
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
        if let Some(found) = self.in_region(parent, name) {
            let attr = found?;
            let _ = self.inner.learn(parent, &Listed { next: 0, name, attr });
            return Ok(self.uncached(attr));
        }
        self.settle("lookup", &[parent])?;
        let entry = self.inner.lookup(caller, parent, name)?;
        // The root of the region.
        match self.region_attr(entry.attr.ino) {
            Some(attr) => Ok(Entry { attr, valid: Duration::ZERO, ..entry }),
            None => Ok(self.shown(entry)),
        }
    }

    fn absent_valid(&self, parent: Ino, name: &[u8]) -> Duration {
        match self.open_dir_of_region(parent) {
            Some(_) => Duration::ZERO,
            None => self.inner.absent_valid(parent, name),
        }
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.keeper.forget(ino, count);
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
        self.keeper.target(ino).map_or_else(|| self.inner.read_link(ino), Ok)
    }
}

impl Attributes for JobFs {
    fn attr(&self, ino: Ino) -> Result<Entry> {
        if let Some(attr) = self.region_attr(ino) {
            return Ok(self.uncached(attr));
        }
        match (self.inner.attr(ino), self.stand_in(ino)) {
            // It lost its last name in the region, while it was open here.
            (Err(error), Some(stand_in)) if error.errno == Errno::Stale => {
                Ok(self.uncached(reads::attr(&self.keeper.region, stand_in.inode)))
            }
            (found, _) => found.map(|entry| self.shown(entry)),
        }
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
        if self.has_no_xattr(ino, name) {
            return Err(Error::of(Errno::NoData, "extended attribute"));
        }
        self.settle("xattr", &[ino])?;
        self.inner.xattr(caller, ino, name)
    }

    fn xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        if ino != self.keeper.root && self.is_of_region(ino) {
            return Ok(Vec::new());
        }
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

    fn space(&self, ino: Ino) -> Result<Space> {
        self.inner.space(ino)
    }
}

impl Files for JobFs {
    fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        if !mode.write && !mode.truncate && self.keeper.open_file(ino) {
            return Ok(Caching::None);
        }
        self.settle("open for writing", &[ino])?;
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
        new: &NewNode<'_>,
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
        self.inner.create(caller, place, new, open)
    }

    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if self.stand_in(ino).is_none()
            && let Some(count) = self.keeper.read(ino, offset, buffer)
        {
            return Ok(count);
        }
        // The region may have closed since: open files have a stand-in then.
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
        self.settle("write", &[ino])?;
        match self.stand_in(ino) {
            Some(stand_in) => {
                let offset = if append { stand_in.size() } else { offset };
                stand_in.file.write_all_at(data, offset).map_err(|error| io("file", error))
            }
            None => self.inner.write(ino, offset, data, append),
        }
    }

    fn flush(&self, ino: Ino) -> Result<()> {
        // Opened for reading.
        if self.keeper.was_opened(ino) { Ok(()) } else { self.inner.flush(ino) }
    }

    fn sync(&self, ino: Ino) -> Result<()> {
        self.settle("fsync", &[ino])?;
        self.keeper.write_back_of(ino)?;
        self.inner.sync(ino)
    }

    fn close(&self, ino: Ino, write: bool) -> Result<()> {
        if !write && self.keeper.close_file(ino) {
            return Ok(());
        }
        self.inner.close(ino, write)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: u32) -> Result<()> {
        self.settle("allocate", &[ino])?;
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
        if let Some(stand_in) = self.stand_in(ino) {
            return stand_in.seek(offset, what);
        }
        match (self.keeper.file_attr(ino), what) {
            (None, _) => self.inner.seek(ino, offset, what),
            (Some(attr), _) if offset >= attr.size => Err(Error::of(Errno::NoSuchPlace, "file")),
            // All of a file in the region counts as data.
            (Some(_), Seek::Data) => Ok(offset),
            (Some(attr), Seek::Hole) => Ok(attr.size),
        }
    }
}

impl JobFs {
    /// The listing for a reader at a position; at the start a new one.
    fn begin(&self, handle: u64, listing: RegionListing, from: u64) -> Result<RegionListing> {
        if from > 0 && (listing.names.is_some() || listing.moved.is_some()) {
            return Ok(listing);
        }
        let names = match (listing.moved, self.keeper.region.dir_numbered(listing.dir.0)) {
            (None, Some(dir)) => self.keeper.names(dir),
            _ => None,
        };
        let begun = match names {
            Some(names) => RegionListing { names: Some(Arc::new(names)), ..listing },
            None => {
                self.keeper.close(Some("listing"))?;
                let moved = listing.moved.map_or_else(|| self.inner.open_dir(listing.dir), Ok)?;
                RegionListing { names: None, moved: Some(moved), ..listing }
            }
        };
        self.listings.set(handle, begun.clone());
        Ok(begun)
    }
}

impl Directories for JobFs {
    fn open_dir(&self, dir: Ino) -> Result<u64> {
        match self.open_dir_of_region(dir) {
            Some(_) => Ok(self.listings.open(dir)),
            None => self.inner.open_dir(dir),
        }
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        let mut take_shown = |listed: &Listed<'_>| match self.stand_in(listed.attr.ino) {
            Some(stand_in) if attrs => {
                let attr = shown_attr(listed.attr, &stand_in);
                take(&Listed { attr, ..*listed })
            }
            Some(_) | None => take(listed),
        };
        let handle = match self.listings.get(handle) {
            None => handle,
            Some(listing) => match self.begin(handle, listing, from)? {
                RegionListing { moved: Some(moved), .. } => moved,
                RegionListing { names, .. } => {
                    let names = names.unwrap_or_default();
                    let start = usize::try_from(from).unwrap_or(usize::MAX);
                    let left = names.get(start..).unwrap_or_default();
                    for (next, found) in (from + 1..).zip(left) {
                        if !take_shown(&Listed { next, name: &found.name, attr: found.attr }) {
                            break;
                        }
                    }
                    return Ok(());
                }
            },
        };
        self.inner.read_dir(caller, handle, attrs, from, &mut take_shown)
    }

    fn close_dir(&self, handle: u64) {
        match self.listings.close(handle) {
            None => self.inner.close_dir(handle),
            Some(listing) => listing.moved.into_iter().for_each(|it| self.inner.close_dir(it)),
        }
    }

    fn learn(&self, dir: Ino, listed: &Listed<'_>) -> Entry {
        let entry = self.inner.learn(dir, listed);
        // A file that has gone since it was listed keeps the attributes of the listing.
        match self.in_region(dir, listed.name) {
            Some(Ok(attr)) if attr.ino == listed.attr.ino => self.uncached(attr),
            Some(_) => self.uncached(listed.attr),
            None => match self.region_attr(entry.attr.ino) {
                // The root of the region, in the directory above.
                Some(attr) => Entry { attr, valid: Duration::ZERO, ..entry },
                None => self.shown(entry),
            },
        }
    }

    fn sync_dir(&self, dir: Ino) -> Result<()> {
        self.settle("sync_dir", &[dir])?;
        self.inner.sync_dir(dir)
    }
}
