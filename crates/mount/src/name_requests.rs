//! Requests about names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use posix::{Entry, NewNode};
use types::{Attr, EntryName, Errno, FileType, Result};

use crate::adapter::{Adapter, Given, caller};
use crate::arguments::{open_mode, rename_flags};
use crate::content;
use crate::fuse::{NodeName, Out, Request};

impl Adapter {
    /// Replies with an entry.
    fn entry(&self, entry: Result<Entry>, out: &mut Out) -> Result<Given> {
        let entry = entry?;
        out.entry(&entry, self.number(entry.attr.ino));
        Ok(Given::Reference(entry.attr.ino))
    }

    pub(crate) fn lookup(
        &self,
        request: &Request<'_>,
        name: &OsStr,
        out: &mut Out,
    ) -> Result<Given> {
        let parent = self.ino(request.node);
        match self.fs.lookup(&caller(request), parent, name.as_bytes()) {
            Err(error) if error.errno == Errno::NotFound => {
                let valid = self.fs.absent_valid(parent, name.as_bytes());
                if valid.is_zero() {
                    return Err(error);
                }
                out.entry(&Entry::new(Attr::default(), valid), 0);
                Ok(Given::Nothing)
            }
            found => self.entry(found, out),
        }
    }

    pub(crate) fn make(
        &self,
        request: &Request<'_>,
        name: &OsStr,
        new: &NewNode<'_>,
        out: &mut Out,
    ) -> Result<Given> {
        let parent = self.ino(request.node);
        self.entry(self.fs.make(&caller(request), parent, name.as_bytes(), new), out)
    }

    pub(crate) fn make_dir(
        &self,
        request: &Request<'_>,
        name: &OsStr,
        new: NewNode<'_>,
        out: &mut Out,
    ) -> Result<Given> {
        let mode = FileType::Directory.mode_bits() | (new.mode & 0o7777);
        self.make(request, name, &NewNode { mode, ..new }, out)
    }

    pub(crate) fn symlink(
        &self,
        request: &Request<'_>,
        name: &OsStr,
        target: &OsStr,
        out: &mut Out,
    ) -> Result<Given> {
        let mode = FileType::Symlink.mode_bits() | 0o777;
        let new = NewNode { target: target.as_bytes(), ..NewNode::of(mode) };
        self.make(request, name, &new, out)
    }

    pub(crate) fn unlink(&self, request: &Request<'_>, name: &OsStr) -> Result<Given> {
        self.fs.unlink(&caller(request), self.ino(request.node), name.as_bytes())?;
        Ok(Given::Nothing)
    }

    pub(crate) fn remove_dir(&self, request: &Request<'_>, name: &OsStr) -> Result<Given> {
        self.fs.rmdir(&caller(request), self.ino(request.node), name.as_bytes())?;
        Ok(Given::Nothing)
    }

    pub(crate) fn rename(
        &self,
        request: &Request<'_>,
        name: &OsStr,
        to: NodeName<'_>,
        flags: u32,
    ) -> Result<Given> {
        let from = EntryName::new(self.ino(request.node), name.as_bytes());
        let to = EntryName::new(self.ino(to.node), to.name.as_bytes());
        self.fs.rename(&caller(request), from, to, rename_flags(flags)?)?;
        Ok(Given::Nothing)
    }

    pub(crate) fn link(
        &self,
        request: &Request<'_>,
        number: u64,
        name: &OsStr,
        out: &mut Out,
    ) -> Result<Given> {
        let (ino, parent) = (self.ino(number), self.ino(request.node));
        self.entry(self.fs.link(&caller(request), ino, parent, name.as_bytes()), out)
    }

    pub(crate) fn create(
        &self,
        request: &Request<'_>,
        name: &OsStr,
        new: NewNode<'_>,
        flags: i32,
        out: &mut Out,
    ) -> Result<Given> {
        let at = EntryName::new(self.ino(request.node), name.as_bytes());
        let mode = FileType::Regular.mode_bits() | (new.mode & 0o7777);
        let (new, open) = (NewNode { mode, ..new }, open_mode(flags));
        let (entry, caching) = self.fs.create(&caller(request), at, &new, open)?;
        let ino = entry.attr.ino;
        out.entry(&entry, self.number(ino));
        let how = content::how(caching, flags, self.fs.features());
        out.opened(self.next_handle.fetch_add(1, Ordering::Relaxed), how);
        Ok(Given::Created(ino, open.write))
    }

    pub(crate) fn read_link(&self, request: &Request<'_>, out: &mut Out) -> Result<Given> {
        out.bytes(&self.fs.read_link(self.ino(request.node))?);
        Ok(Given::Nothing)
    }
}
