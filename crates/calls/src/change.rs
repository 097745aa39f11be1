//! Changes of attributes, further names, and extended attributes.

use cudele::{AttrChange, Errno, Error, Result, Timestamp, XattrFlags};

use crate::failure::about;
use crate::mount::Mount;
use crate::place::Follow;

/// Times to set; a missing time stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the content.
    pub mtime: Option<Timestamp>,
}

impl Mount {
    /// Changes attributes of the object at a path.
    ///
    /// # Errors
    /// `ENOENT`, `EPERM`, `EACCES`, `EISDIR`, `EINVAL`, `EFBIG`, `EBUSY` in another client's
    /// subtree.
    pub fn change(&self, path: &[u8], change: &AttrChange, follow: Follow) -> Result<()> {
        let run = || {
            let place = self.object(path, follow)?;
            if place.attr.is_dir() && change.size.is_some() {
                return Err(Error::of(Errno::IsDirectory, ""));
            }
            self.fs.set_attr(&self.caller, place.ino, change, false).map(drop)
        };
        run().map_err(|error| about(path, error))
    }

    /// Cuts a file off, or lengthens it with zeros.
    ///
    /// # Errors
    /// As [`Mount::change`].
    pub fn truncate(&self, path: &[u8], size: u64) -> Result<()> {
        self.change(path, &AttrChange { size: Some(size), ..AttrChange::default() }, Follow::Last)
    }

    /// Changes the permissions.
    ///
    /// # Errors
    /// As [`Mount::change`].
    pub fn set_permissions(&self, path: &[u8], mode: u32) -> Result<()> {
        let change = AttrChange { mode: Some(mode & 0o7777), ..AttrChange::default() };
        self.change(path, &change, Follow::Last)
    }

    /// Sets times.
    ///
    /// # Errors
    /// As [`Mount::change`].
    pub fn set_times(&self, path: &[u8], times: Times, follow: Follow) -> Result<()> {
        let Times { atime, mtime } = times;
        self.change(path, &AttrChange { atime, mtime, ..AttrChange::default() }, follow)
    }

    /// Adds a name to the object at a path.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`, `EXDEV` across the border of a decoupled
    /// subtree.
    pub fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let old = self.object(from, Follow::Not).map_err(|error| about(from, error))?;
        let run = || {
            let new = self.parent(to)?;
            let entry = self.fs.link(&self.caller, old.ino, new.ino, &new.name)?;
            self.fs.forget(entry.attr.ino, 1);
            Ok(())
        };
        run().map_err(|error| about(to, error))
    }

    /// The value of an extended attribute; names that begin with `cudele.` are facts that Cudele
    /// knows about a file or directory.
    ///
    /// # Errors
    /// `ENODATA` if there is none, and those of looking a path up.
    pub fn xattr(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        let run = || {
            let place = self.object(path, Follow::Last)?;
            self.fs.xattr(&self.caller, place.ino, name)
        };
        run().map_err(|error| about_attribute(path, name, error))
    }

    /// The names of all extended attributes but those of Cudele, sorted.
    ///
    /// # Errors
    /// Those of looking a path up.
    pub fn xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let run = || {
            let place = self.object(path, Follow::Last)?;
            self.fs.xattrs(&self.caller, place.ino)
        };
        run().map_err(|error| about(path, error))
    }

    /// Sets or, without a value, removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` to remove a missing attribute, `EPERM`, `ERANGE`, `EFBIG`.
    pub fn set_xattr(&self, path: &[u8], name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let run = || {
            let place = self.object(path, Follow::Last)?;
            let flags = XattrFlags::default();
            self.fs.set_xattr(&self.caller, place.ino, name, value, flags)
        };
        run().map_err(|error| about_attribute(path, name, error))
    }

    /// Whether permissions allow this process to read (4), write (2) or search and execute (1) the
    /// object at a path; 0 checks its existence.
    ///
    /// # Errors
    /// `EACCES` if they do not, and those of looking a path up.
    pub fn access(&self, path: &[u8], want: u32) -> Result<()> {
        let run = || {
            let place = self.object(path, Follow::Last)?;
            crate::file::check_allowed(self, &place, want & 7)
        };
        run().map_err(|error| about(path, error))
    }

    /// How large the object store is, and how much of that is free, in bytes. A quota of the root
    /// directory makes it smaller.
    ///
    /// # Errors
    /// `EIO`.
    pub fn space(&self) -> Result<types::Space> {
        let root = self.object(b"/", Follow::Last)?;
        self.fs.space(root.ino)
    }
}

fn about_attribute(path: &[u8], name: &[u8], error: Error) -> Error {
    if error.errno == Errno::NoData {
        let cause = format!("there is no attribute {}", String::from_utf8_lossy(name));
        return about(path, Error { cause, subject: String::new(), ..error });
    }
    about(path, error)
}
