//! Attributes, extended attributes, and room.

use types::{AttrChange, Ino, Result, Space, XattrFlags};

use crate::{Caller, Entry, unsupported};

/// The attributes of inodes, and the room of the file system.
pub trait Attributes {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ESTALE`.
    fn attr(&self, ino: Ino) -> Result<Entry>;

    /// Changes attributes. `is_open`: the caller changes an open file, and got permission to change
    /// its length at the open.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EINVAL`, `EISDIR`, `EFBIG`, `ENOSPC`, `EROFS`.
    fn set_attr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &AttrChange,
        is_open: bool,
    ) -> Result<Entry>;

    /// A caller without the right to keep them loses set-user-id and set-group-id of a written
    /// file.
    ///
    /// # Errors
    /// `EIO`, `ESTALE`; `ENOSYS`.
    fn drop_set_id(&self, ino: Ino) -> Result<()> {
        let _ = ino;
        unsupported("drop_set_id")
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `ESTALE`; `EOPNOTSUPP` for access control lists; `ENOSYS`.
    fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _ = (caller, ino, name);
        unsupported("getxattr")
    }

    /// The names of all extended attributes, sorted.
    ///
    /// # Errors
    /// `ESTALE`; `ENOSYS`.
    fn xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let _ = (caller, ino);
        unsupported("listxattr")
    }

    /// Sets or, without a value, removes an extended attribute.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EEXIST`, `EFBIG`, `ERANGE`, `EROFS`; `EOPNOTSUPP` for access control
    /// lists; `ENOSYS`.
    fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        let _ = (caller, ino, name, value, flags);
        unsupported("setxattr")
    }

    /// How large the file system is, and how much of that is free.
    ///
    /// # Errors
    /// `EIO`.
    fn space(&self, ino: Ino) -> Result<Space>;
}
