//! Work in a decoupled subtree that needs to look: it goes through the client's own view.

use std::borrow::Cow;

use client::ClientSubtree;
use namespace::Refusal;
use types::acl::DEFAULT_LIST;
use types::{
    Attr, AttrChange, Cred, EntryName, Errno, Error, FileType, INLINE_BYTES_MAX, Ino, RenameFlags,
    Result, Stripe, Timestamp, XattrChange, XattrFlags,
};
use wire::{Answer, Op, ReadOp};

use super::Subtree;
use crate::fs::unexpected;

/// A directory with so many names is read from the object store, not asked for a page at a time.
const STORED_NAMES_MIN: u64 = 16 << 10;

impl Subtree {
    /// Runs an operation on the client's view, fetching directories that it lacks.
    pub(super) fn on_view<T>(
        &mut self,
        name: &[u8],
        mut operation: impl FnMut(&mut ClientSubtree) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        loop {
            match operation(&mut self.job.inner) {
                Ok(value) => return Ok(value),
                Err(Refusal::Errno(errno)) => {
                    return Err(Error::of(errno, String::from_utf8_lossy(name)));
                }
                Err(Refusal::Cold(dir)) => self.fetch(dir)?,
            }
        }
    }

    /// Asks once whether the root directory has extended attributes: they may be lists of access
    /// that new inodes get. One without any costs no view.
    pub(super) fn look_at_root(&mut self) -> Result<()> {
        let root = self.root();
        if self.ask_base(root, |fs| fs.as_user(&Cred::root()).xattrs(root))?.is_empty() {
            self.bare.remove(&root);
            return Ok(());
        }
        self.fill(root)
    }

    /// Brings a directory of the base into the view.
    fn fetch(&mut self, dir: Ino) -> Result<()> {
        let root = &self.job.inner.grant().root;
        let size = match dir == root.ino {
            true => root.size,
            false => self.job.inner.view().namespace().getattr(dir).map_or(0, |attr| attr.size),
        };
        if size >= STORED_NAMES_MIN && !self.job.is_own(dir) {
            match self.fetch_stored(dir) {
                // Another server has the directory, or it is not in the memory of this one: a
                // question for it returns the error.
                Err(error) if matches!(error.errno, Errno::NotSupported | Errno::Stale) => {}
                fetched => return fetched.and_then(|()| self.fill(dir)),
            }
        }
        let mut after: Option<Vec<u8>> = None;
        let mut walked = false;
        loop {
            let op =
                Op::Read(ReadOp::List { dir, after: after.as_deref(), limit: 4096, attrs: true });
            let (entries, more) = match self.fs.call_as(&Cred::root(), op) {
                Ok(Answer::Entries { entries, more }) => (entries, more),
                Ok(other) => return Err(unexpected(&other)),
                // A directory that the server has not in memory: walking there brings it back.
                Err(error) if error.errno == Errno::Stale && !walked => {
                    walked = true;
                    if self.walk_to(dir)? {
                        continue;
                    }
                    // One of this journal that the server has not heard of?
                    if !self.job.is_own(dir) {
                        return Err(error);
                    }
                    (Vec::new(), false)
                }
                Err(error) => return Err(error),
            };
            for (name, attr) in &entries {
                let data = if attr.file_type() == FileType::Symlink {
                    self.fs.read_link(attr.ino)?
                } else {
                    self.bare.insert(attr.ino);
                    Vec::new()
                };
                let namespace = self.job.inner.view().namespace_mut();
                namespace.store().load_entry(dir, name, attr, &data);
                self.job.places.note_loaded(namespace, EntryName::new(dir, name), attr);
            }
            if !more || entries.is_empty() {
                let namespace = self.job.inner.view().namespace_mut();
                namespace.store().finish_load(dir, types::Seq(0), Default::default());
                // Its access control lists count from now on.
                return self.fill(dir);
            }
            after = entries.last().map(|(name, _)| name.clone());
        }
    }

    /// Brings content and extended attributes of an inode of the base into the view, before they
    /// are asked for or changed.
    pub(super) fn fill(&mut self, ino: Ino) -> Result<()> {
        if !self.bare.contains(&ino) {
            return Ok(());
        }
        let attr = self.job.inner.view().namespace().getattr(ino).unwrap_or_default();
        let small = attr.size <= INLINE_BYTES_MAX as u64 && attr.file_type() == FileType::Regular;
        let (data, xattrs) = self.ask_base(ino, |fs| {
            let root = Cred::root();
            let user = fs.as_user(&root);
            let data = if small { user.data(ino)? } else { Vec::new() };
            let mut xattrs = Vec::new();
            for name in user.xattrs(ino)? {
                let value = user.xattr(ino, &name)?;
                xattrs.push((name, value));
            }
            Ok((data, xattrs))
        })?;
        self.inherits |= xattrs.iter().any(|(name, _)| name == DEFAULT_LIST);
        let namespace = self.job.inner.view().namespace_mut();
        namespace.store().load_extra(ino, &data, &xattrs);
        self.bare.remove(&ino);
        Ok(())
    }

    /// Notes the place of the inode under a name that the view is about to remove.
    fn note_place(&mut self, entry: EntryName<'_>) {
        let EntryName { dir, name } = entry;
        // After a failure here, the removal fails as well.
        let known = self.on_view(name, |inner| inner.view().namespace().peek(dir, name));
        if let Ok(Some(ino)) = known
            && !self.job.is_own(ino)
        {
            self.job.places.note(ino, entry);
        }
    }

    /// Asks the server about an inode of the base, and again after a walk if the server does not
    /// have it in memory.
    fn ask_base<T>(&mut self, ino: Ino, ask: impl Fn(&crate::Fs) -> Result<T>) -> Result<T> {
        let stale = match ask(&self.fs) {
            Err(error) if error.errno == Errno::Stale => error,
            answered => return answered,
        };
        if self.walk_to(ino)? { ask(&self.fs) } else { Err(stale) }
    }

    /// Makes the server walk to an inode of the base. Returns whether it was found.
    fn walk_to(&mut self, ino: Ino) -> Result<bool> {
        for path in self.job.paths_to(&self.path, ino) {
            if self.fs.walk_to_as(&Cred::root(), Ino::ROOT, &path, ino)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The time for one operation of a waiting caller.
    pub(super) fn now_exactly(&mut self) -> Timestamp {
        self.time_for = 0;
        self.now()
    }

    /// Attributes of a name, in this client's view.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let cred = self.cred.clone();
        self.on_view(name, |inner| inner.view().namespace().lookup(&cred, parent, name))
    }

    /// The attributes of an inode that this client's view knows.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn attr(&mut self, ino: Ino) -> Result<Attr> {
        self.on_view(b"", |inner| inner.view().namespace().getattr(ino))
    }

    /// The entries of a directory, in this client's view.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn list(&mut self, dir: Ino) -> Result<Vec<crate::DirEntry>> {
        self.list_from(dir, None, usize::MAX, true)
    }

    /// Up to `limit` entries after a name, in the directory's own order. A name that exists
    /// throughout is listed exactly once, in spite of changes during the listing. Without `attrs`,
    /// entries have number and type only.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn list_from(
        &mut self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        attrs: bool,
    ) -> Result<Vec<crate::DirEntry>> {
        let cred = self.cred.clone();
        let entries = self
            .on_view(b"", |inner| inner.view().namespace().list(&cred, dir, after, limit, attrs))?;
        let entries = entries.into_iter();
        Ok(entries.map(|entry| crate::DirEntry { name: entry.name, attr: entry.attr }).collect())
    }

    /// The content of a small file, or the target of a symbolic link; empty if there is none.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn data(&mut self, ino: Ino) -> Result<Vec<u8>> {
        self.fill(ino)?;
        self.on_view(b"", |inner| inner.view().namespace().data(ino).map(<[u8]>::to_vec))
    }

    /// Replaces the inline content of a file, and sets its size.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`, `EACCES`, `ESTALE`.
    pub fn set_data(&mut self, ino: Ino, data: &[u8], size: u64) -> Result<()> {
        self.fill(ino)?;
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        self.on_view(b"", |inner| inner.setdata(&cred, ino, data, size, time))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`.
    pub fn xattr(&mut self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.fill(ino)?;
        self.on_view(name, |inner| inner.view().namespace().xattr(ino, name).map(Cow::into_owned))
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn xattrs(&mut self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.fill(ino)?;
        self.on_view(b"", |inner| {
            let names = inner.view().namespace().xattr_names(ino)?;
            Ok(names.into_iter().map(<[u8]>::to_vec).collect())
        })
    }

    /// Files that lost their last name since the last call, with stripe and length: their content
    /// in the store is of no use.
    pub fn take_freed(&mut self) -> Vec<(Ino, Stripe, u64)> {
        if !self.job.inner.has_view() {
            return Vec::new();
        }
        let freed = self.job.inner.view().namespace_mut().take_freed();
        let files = freed.into_iter().filter(|freed| !freed.is_dir && freed.is_stored);
        files.map(|freed| (freed.ino, freed.stripe, freed.size)).collect()
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        self.on_view(name, |inner| inner.unlink(&cred, parent, name, time))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`.
    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        self.note_place(EntryName::new(parent, name));
        self.on_view(name, |inner| inner.rmdir(&cred, parent, name, time))
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        self.note_place(from);
        self.note_place(to);
        self.on_view(from.name, |inner| inner.rename(&cred, from, to, flags, time))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        let to = EntryName::new(parent, name);
        self.on_view(name, |inner| inner.link(&cred, ino, to, time))
    }

    /// Changes attributes of an inode that stands in a directory.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&mut self, ino: Ino, change: &AttrChange) -> Result<()> {
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        self.on_view(b"", |inner| inner.setattr(&cred, ino, change, time))
    }

    /// Content was read then: the time of the last access. Nothing else changes.
    ///
    /// # Errors
    /// `ESTALE`, `EPERM`.
    pub fn accessed(&mut self, ino: Ino, at: Timestamp) -> Result<()> {
        let (cred, time) = (self.cred.clone(), self.attr(ino)?.ctime);
        let change = AttrChange { atime: Some(at), ..AttrChange::default() };
        self.on_view(b"", |inner| inner.setattr(&cred, ino, &change, time))
    }

    /// Sets or, without a value, removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EEXIST`, `EFBIG`, `ERANGE`.
    pub fn set_xattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        self.fill(ino)?;
        self.inherits |= name == DEFAULT_LIST;
        let (cred, time) = (self.cred.clone(), self.now_exactly());
        let change = XattrChange { name, value, flags };
        self.on_view(name, |inner| inner.setxattr(&cred, ino, change, time))
    }

    /// Sets attributes without looking: for an inode that this client just created in `home`.
    pub fn set_attr_blindly(&mut self, home: Ino, ino: Ino, change: &AttrChange) {
        let time = self.now();
        self.job.inner.set_attr_blindly(ino, home, change, time);
    }
}
