//! Work in a decoupled subtree that needs to look: it goes through the client's own view.

use client::Decoupled;
use namespace::Refusal;
use types::{Attr, AttrChange, Errno, Error, FileType, Ino, RenameFlags, Result, XattrFlags};
use wire::{Answer, Op};

use super::Subtree;
use crate::fs::unexpected;

impl Subtree {
    /// Runs an operation on the client's view, fetching directories that it lacks.
    pub(super) fn on_view<T>(
        &mut self,
        name: &[u8],
        mut operation: impl FnMut(&mut Decoupled) -> std::result::Result<T, Refusal>,
    ) -> Result<T> {
        loop {
            match operation(&mut self.inner) {
                Ok(value) => return Ok(value),
                Err(Refusal::Errno(errno)) => {
                    return Err(Error::of(errno, String::from_utf8_lossy(name)));
                }
                Err(Refusal::Cold(dir)) => self.fetch(dir)?,
            }
        }
    }

    /// Brings a directory of the base into the view.
    fn fetch(&mut self, dir: Ino) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let op = Op::List { dir, after: after.as_deref(), limit: 4096, attrs: true };
            let (entries, more) = match self.fs.call(op) {
                Ok(Answer::Entries { entries, more }) => (entries, more),
                Ok(other) => return Err(unexpected(&other)),
                // A directory of this journal that the server has not heard of.
                Err(error) if error.errno == Errno::Stale => (Vec::new(), false),
                Err(error) => return Err(error),
            };
            for (name, attr) in &entries {
                let data = if attr.file_type() == FileType::Symlink {
                    self.fs.read_link(attr.ino)?
                } else {
                    Vec::new()
                };
                self.inner.view().namespace_mut().load_entry(dir, name, attr, &data);
            }
            if !more || entries.is_empty() {
                self.inner.view().namespace_mut().finish_load(
                    dir,
                    types::Seq(0),
                    Default::default(),
                );
                return Ok(());
            }
            after = entries.last().map(|(name, _)| name.clone());
        }
    }

    /// Attributes of a name, in this client's view.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`.
    pub fn lookup(&mut self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let cred = self.fs.cred().clone();
        self.on_view(name, |inner| inner.view().namespace().lookup(&cred, parent, name))
    }

    /// The entries of a directory, in this client's view.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`.
    pub fn list(&mut self, dir: Ino) -> Result<Vec<crate::DirEntry>> {
        let cred = self.fs.cred().clone();
        let entries = self.on_view(b"", |inner| {
            inner.view().namespace().list(&cred, dir, None, usize::MAX, true)
        })?;
        let entries = entries.into_iter();
        Ok(entries.map(|entry| crate::DirEntry { name: entry.name, attr: entry.attr }).collect())
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(name, |inner| inner.unlink(&cred, parent, name, time))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`.
    pub fn rmdir(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(name, |inner| inner.rmdir(&cred, parent, name, time))
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(from.1, |inner| inner.rename(&cred, from, to, flags, time))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(name, |inner| inner.link(&cred, ino, (parent, name), time))
    }

    /// Changes attributes of an inode that stands in a directory.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&mut self, ino: Ino, change: &AttrChange) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        self.on_view(b"", |inner| inner.setattr(&cred, ino, change, time))
    }

    /// Sets or, without a value, removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EFBIG`, `ERANGE`.
    pub fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (cred, time) = (self.fs.cred().clone(), self.now());
        let flags = XattrFlags::default();
        self.on_view(name, |inner| inner.setxattr(&cred, ino, (name, value), flags, time))
    }

    /// Sets attributes without looking: for an inode that this client just created in `home`.
    pub fn set_attr_blindly(&mut self, home: Ino, ino: Ino, change: &AttrChange) {
        let time = self.now();
        self.inner.set_attr_blindly(ino, home, change, time);
    }
}
