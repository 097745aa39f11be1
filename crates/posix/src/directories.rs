//! Listings of directories.

use types::{Attr, Ino, Result};

use crate::{Caller, Entry};

/// An entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The position after it, from which reading continues.
    pub next: u64,
    /// The name.
    pub name: &'a [u8],
    /// The attributes of the named inode. Of `.` and `..` only number and type.
    pub attr: Attr,
}

impl Listed<'_> {
    /// Whether it is the directory itself or the one above.
    #[must_use]
    pub fn is_dot(&self) -> bool {
        self.name == b".".as_slice() || self.name == b"..".as_slice()
    }
}

/// Open directories.
pub trait Directories {
    /// Opens a directory for reading and returns a handle of it.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`; a file system may return them from [`Directories::read_dir`] instead.
    fn open_dir(&self, dir: Ino) -> Result<u64>;

    /// Hands out the entries from a position on, until `take` has enough (then `take` returns
    /// false, and the entry counts as not taken). Without `attrs` entries have only number and
    /// type.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`, `EINVAL` for a position that was never handed out.
    fn read_dir(
        &self,
        caller: &Caller,
        handle: u64,
        attrs: bool,
        from: u64,
        take: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<()>;

    /// Closes a directory.
    fn close_dir(&self, handle: u64);

    /// The kernel learns of an entry from a listing, and holds a reference to the inode from now
    /// on.
    #[must_use]
    fn learn(&self, dir: Ino, listed: &Listed<'_>) -> Entry;

    /// Makes all changes in a directory as durable as the file system promises.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    fn sync_dir(&self, dir: Ino) -> Result<()>;
}
