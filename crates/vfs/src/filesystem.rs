//! [`Vfs`] as a file system by inode number. The modules of this crate have the operations.

use std::sync::Arc;
use std::time::Duration;

use cudele::{AttrChange, Ino, RenameFlags, Result, Space, XattrFlags};
use posix::{
    Attributes, Caching, Caller, Directories, Entry, Features, FileSystem, Files, KnownInode,
    Listed, Locker, Locks, Names, NewNode, OpenMode, Range, Seek,
};
use types::EntryName;

use crate::Vfs;

impl FileSystem for Vfs {
    fn features(&self) -> Features {
        Features { locks: true, listed_attributes: true, drops_set_id: true, shared_content: true }
    }

    fn start(self: Arc<Self>, outdated: Box<dyn Fn(Vec<KnownInode>) + Send>) -> Result<()> {
        self.write_back_regularly()?;
        // The callback must not keep the file system alive.
        let vfs = Arc::downgrade(&self);
        self.share(move || {
            if let Some(vfs) = vfs.upgrade() {
                outdated(vfs.take_outdated());
            }
        })
    }

    fn finish(&self) -> Result<()> {
        self.write_back_all()
    }

    fn take_outdated(&self) -> Vec<KnownInode> {
        Self::take_outdated(self)
    }
}

impl Names for Vfs {
    fn root(&self) -> Ino {
        Self::root(self)
    }

    fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry> {
        Self::lookup(self, caller, parent, name)
    }

    fn absent_valid(&self, parent: Ino) -> Duration {
        Self::absent_valid(self, parent)
    }

    fn forget(&self, ino: Ino, count: u64) {
        Self::forget(self, ino, count);
    }

    fn make(&self, caller: &Caller, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        Self::make(self, caller, parent, name, new)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        Self::link(self, caller, ino, parent, name)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        Self::unlink(self, caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        Self::rmdir(self, caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        Self::rename(self, caller, from, to, flags)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        Self::read_link(self, ino)
    }
}

impl Attributes for Vfs {
    fn attr(&self, ino: Ino) -> Result<Entry> {
        Self::attr(self, ino)
    }

    fn set_attr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &AttrChange,
        is_open: bool,
    ) -> Result<Entry> {
        Self::set_attr(self, caller, ino, change, is_open)
    }

    fn drop_set_id(&self, ino: Ino) -> Result<()> {
        Self::drop_set_id(self, ino)
    }

    fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        Self::xattr(self, caller, ino, name)
    }

    fn xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Self::xattrs(self, caller, ino)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        Self::set_xattr(self, caller, ino, name, value, flags)
    }

    fn space(&self) -> Result<Space> {
        Self::space(self)
    }
}

impl Files for Vfs {
    fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        Self::open(self, caller, ino, mode)
    }

    fn create(
        &self,
        caller: &Caller,
        place: EntryName<'_>,
        mode: u32,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        Self::create(self, caller, place, mode, open)
    }

    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        Self::read(self, ino, offset, buffer)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], append: bool) -> Result<()> {
        Self::write(self, ino, offset, data, append)
    }

    fn flush(&self, ino: Ino) -> Result<()> {
        Self::flush(self, ino)
    }

    fn sync(&self, ino: Ino) -> Result<()> {
        Self::sync(self, ino)
    }

    fn close(&self, ino: Ino, write: bool) -> Result<()> {
        Self::close(self, ino, write)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: u32) -> Result<()> {
        Self::allocate(self, ino, offset, length, mode)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        Self::seek(self, ino, offset, what)
    }
}

impl Directories for Vfs {
    fn open_dir(&self, dir: Ino) -> Result<u64> {
        Self::open_dir(self, dir)
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        Self::read_dir(self, caller, handle, attrs, from, take)
    }

    fn close_dir(&self, handle: u64) {
        Self::close_dir(self, handle);
    }

    fn learn(&self, dir: Ino, listed: &Listed<'_>) -> Entry {
        Self::learn(self, dir, listed)
    }

    fn sync_dir(&self, dir: Ino) -> Result<()> {
        self.sync_metadata(dir)
    }
}

impl Locks for Vfs {
    fn lock(&self, ino: Ino, locker: Locker, range: &Range, wait: bool) -> Result<()> {
        Self::lock(self, ino, locker, range, wait)
    }

    fn cancel_lock(&self, ino: Ino, locker: Locker, range: &Range) {
        Self::cancel_lock(self, ino, locker, range);
    }

    fn lock_in_the_way(&self, ino: Ino, locker: Locker, range: &Range) -> Result<Option<Range>> {
        Self::lock_in_the_way(self, ino, locker, range)
    }

    fn unlock_process(&self, ino: Ino, owner: u64) {
        Self::unlock_process(self, ino, owner);
    }

    fn unlock_file(&self, ino: Ino, handle: u64) {
        Self::unlock_file(self, ino, handle);
    }
}
