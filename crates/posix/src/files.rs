//! The content of files.

use types::{EntryName, Ino, Result};

use crate::{Caller, Entry, NewNode, unsupported};

/// The mode in which a file is opened. Only the file system's part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// It may be written.
    pub write: bool,
    /// The open empties the file.
    pub truncate: bool,
    /// The file must not exist yet.
    pub exclusive: bool,
}

/// The content of an opened file that a kernel may cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// The cache from before is valid.
    Keep,
    /// Content that the kernel reads from now on.
    Afresh,
    /// None: other clients may change the content at any time.
    None,
}

/// The object of a [`Files::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Written bytes.
    Data,
    /// Unwritten or punched bytes. The end of a file is one.
    Hole,
}

/// The content of files. All handles of an inode share one content.
pub trait Files {
    /// Opens a file. Returns the content that a kernel may cache.
    ///
    /// # Errors
    /// `ESTALE`, also if a copy took the place of the file ([`Files::create`] then opens the copy);
    /// `EISDIR`, `EROFS`; not `EACCES`: the caller has checked permissions.
    fn open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> Result<Caching>;

    /// Makes a regular file and opens it. The kernel holds a reference to the inode from now on.
    ///
    /// # Errors
    /// As [`crate::Names::make`] and [`Files::open`].
    fn create(
        &self,
        caller: &Caller,
        place: EntryName<'_>,
        new: &NewNode<'_>,
        open: OpenMode,
    ) -> Result<(Entry, Caching)>;

    /// Reads from an open file. Returns the number of bytes, fewer than asked for only at its end.
    ///
    /// # Errors
    /// `EIO`, `ESTALE`; those of writes before.
    fn read(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// Writes to an open file; with `append` at its end, wherever that is.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, `EIO`, `ESTALE`.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], append: bool) -> Result<()>;

    /// A program closes a descriptor of the file: a later open sees all writes before this call.
    ///
    /// # Errors
    /// `ENOSPC`, `EIO`, `EBUSY`; the content stays here, and the next flush tries again.
    fn flush(&self, ino: Ino) -> Result<()>;

    /// Makes the writes as durable as the file system promises.
    ///
    /// # Errors
    /// As [`Files::flush`].
    fn sync(&self, ino: Ino) -> Result<()>;

    /// Closes a file that was opened once.
    ///
    /// # Errors
    /// The errors of [`Files::flush`], if no flush has returned them.
    fn close(&self, ino: Ino, write: bool) -> Result<()>;

    /// Allocates or frees a part of a file: `fallocate` without a mode (`KEEP_SIZE` 1), with
    /// `PUNCH_HOLE` (2) or `ZERO_RANGE` (16).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for anything else; `EFBIG`, `EINVAL`, `ENOSPC`, `EIO`; `ENOSYS`.
    fn allocate(&self, ino: Ino, offset: u64, length: u64, mode: u32) -> Result<()> {
        let _ = (ino, offset, length, mode);
        unsupported("fallocate")
    }

    /// The start of data or of a hole at or behind an offset of a file (`SEEK_DATA`, `SEEK_HOLE`).
    ///
    /// # Errors
    /// `ENXIO` behind the end, or for data if there is no more; `EIO`, `ESTALE`; `ENOSYS`.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let _ = (ino, offset, what);
        unsupported("lseek")
    }
}
