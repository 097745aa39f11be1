//! [`Vfs`] as a file system by inode number: which part carries each call out.

use std::sync::Arc;
use std::time::Duration;

use cudele::{AttrChange, Ino, RenameFlags, Result, Space, XattrFlags};
use posix::{
    Attributes, Caching, Caller, Directories, Entry, Features, FileSystem, Files, KnownInode,
    Listed, Locker, Locks, Names, NewNode, OpenMode, Range, Seek,
};
use types::EntryName;

use crate::Vfs;
use crate::virtual_xattr::is_virtual;

impl FileSystem for Vfs {
    fn features(&self) -> Features {
        Features {
            locks: true,
            listed_attributes: true,
            drops_set_id: true,
            shared_content: true,
            maps_uncached: false,
            access_lists: !self.trees.options.no_access_lists,
        }
    }

    fn start(self: Arc<Self>, outdated: Box<dyn Fn(Vec<KnownInode>) + Send>) -> Result<()> {
        self.write_back_regularly()?;
        self.fs().lend_to_kernel()?;
        // The callback must not keep the file system alive.
        let vfs = Arc::downgrade(&self);
        self.share(move || {
            if let Some(vfs) = vfs.upgrade() {
                outdated(vfs.outdated.take());
            }
        })
    }

    fn finish(&self) -> Result<()> {
        self.content().write_back_all()
    }

    fn take_outdated(&self) -> Vec<KnownInode> {
        self.outdated.take()
    }
}

impl Names for Vfs {
    fn root(&self) -> Ino {
        self.trees.root
    }

    fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.names().lookup(caller, parent, name)
    }

    fn absent_valid(&self, parent: Ino, name: &[u8]) -> Duration {
        self.trees.lent_absence(EntryName::new(parent, name))
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.names().forget(ino, count);
    }

    fn make(&self, caller: &Caller, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Entry> {
        self.names().make(caller, parent, name, new)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry> {
        self.names().link(caller, ino, parent, name)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.names().unlink(caller, parent, name)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.names().rmdir(caller, parent, name)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        self.names().rename(caller, from, to, flags)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.names().read_link(ino)
    }
}

impl Attributes for Vfs {
    fn attr(&self, ino: Ino) -> Result<Entry> {
        self.attrs().attr(ino)
    }

    fn set_attr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &AttrChange,
        is_open: bool,
    ) -> Result<Entry> {
        self.attrs().set_attr(caller, ino, change, is_open)
    }

    fn drop_set_id(&self, ino: Ino) -> Result<()> {
        self.attrs().drop_set_id(ino)
    }

    fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if is_virtual(name) {
            return self.virtual_xattrs().xattr(caller, ino, name);
        }
        self.attrs().xattr(caller, ino, name)
    }

    fn xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.attrs().xattrs(caller, ino)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        if is_virtual(name) {
            return self.virtual_xattrs().set_xattr(caller, ino, name, value);
        }
        self.attrs().set_xattr(caller, ino, name, value, flags)
    }

    fn space(&self, ino: Ino) -> Result<Space> {
        self.attrs().space(ino)
    }
}

impl Files for Vfs {
    fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching> {
        self.files().open(caller, ino, mode)
    }

    fn create(
        &self,
        caller: &Caller,
        place: EntryName<'_>,
        new: &NewNode<'_>,
        open: OpenMode,
    ) -> Result<(Entry, Caching)> {
        self.names().create(caller, place, new, open)
    }

    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.content().read(ino, offset, buffer)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], append: bool) -> Result<()> {
        self.content().write(ino, offset, data, append)
    }

    fn flush(&self, ino: Ino) -> Result<()> {
        self.content().flush(ino)
    }

    fn sync(&self, ino: Ino) -> Result<()> {
        self.content().sync(ino)
    }

    fn close(&self, ino: Ino, write: bool) -> Result<()> {
        self.files().close(ino, write)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: u32) -> Result<()> {
        self.content().allocate(ino, offset, length, mode)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.content().seek(ino, offset, what)
    }
}

impl Directories for Vfs {
    fn open_dir(&self, dir: Ino) -> Result<u64> {
        self.listings().open_dir(dir)
    }

    fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()> {
        self.listings().read_dir(caller, handle, attrs, from, take)
    }

    fn close_dir(&self, handle: u64) {
        self.listings().close_dir(handle);
    }

    fn learn(&self, dir: Ino, listed: &Listed<'_>) -> Entry {
        self.listings().learn(dir, listed)
    }

    fn sync_dir(&self, dir: Ino) -> Result<()> {
        self.trees.sync_metadata(dir)
    }
}

impl Locks for Vfs {
    fn lock(&self, ino: Ino, locker: Locker, range: &Range, wait: bool) -> Result<()> {
        self.locks().lock(ino, locker, range, wait)
    }

    fn cancel_lock(&self, ino: Ino, locker: Locker, range: &Range) {
        self.locks().cancel_lock(ino, locker, range);
    }

    fn lock_in_the_way(&self, ino: Ino, locker: Locker, range: &Range) -> Result<Option<Range>> {
        self.locks().lock_in_the_way(ino, locker, range)
    }

    fn unlock_process(&self, ino: Ino, owner: u64) {
        self.locks().unlock_process(ino, owner);
    }

    fn unlock_file(&self, ino: Ino, handle: u64) {
        self.locks().unlock_file(ino, handle);
    }
}
