//! Names: looking them up, making and removing them.

use std::time::Duration;

use types::{Attr, EntryName, Ino, RenameFlags, Result};

use crate::Caller;

/// A name that was looked up or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The attributes of the named inode.
    pub attr: Attr,
    /// The time for which a kernel may cache the attributes.
    pub valid: Duration,
    /// The time for which a kernel may cache the name.
    pub name_valid: Duration,
}

impl Entry {
    /// An entry whose name and attributes may be cached for the same time.
    #[must_use]
    pub fn new(attr: Attr, valid: Duration) -> Self {
        Self { attr, valid, name_valid: valid }
    }
}

/// An inode to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode<'a> {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// The caller's mask: permissions to take off, unless the directory has a default access
    /// control list.
    pub umask: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: &'a [u8],
}

impl NewNode<'_> {
    /// A file, directory or link with this type and exactly these permissions.
    #[must_use]
    pub fn of(mode: u32) -> Self {
        Self { mode, umask: 0, rdev: 0, target: b"" }
    }
}

/// The names of a file system.
pub trait Names {
    /// The directory that is shown as the root.
    fn root(&self) -> Ino;

    /// Looks a name up. The kernel holds a reference to the inode from now on.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `EBUSY` in another client's subtree.
    fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Entry>;

    /// The time for which a kernel may cache that a name does not exist.
    fn absent_valid(&self, parent: Ino, name: &[u8]) -> Duration;

    /// The kernel gives references up.
    fn forget(&self, ino: Ino, count: u64);

    /// Makes a file, directory, symbolic link or device. The kernel holds a reference to the inode
    /// from now on.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, `EINVAL`, `ENAMETOOLONG`, `EROFS`, `EBUSY` in another client's subtree,
    /// `EDQUOT` where a policy limits the number of inodes.
    fn make(&self, caller: &Caller, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Entry>;

    /// Gives an inode one more name. The kernel holds one more reference to the inode from now on.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`, `EXDEV`, `EROFS`.
    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry>;

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`, `EROFS`.
    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `EROFS`, `EBUSY`.
    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()>;

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    fn rename(
        &self,
        caller: &Caller,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
    ) -> Result<()>;

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for any other inode, `ESTALE`.
    fn read_link(&self, ino: Ino) -> Result<Vec<u8>>;
}
