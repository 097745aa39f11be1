//! An open directory: work in it costs one request per operation.

use std::sync::Arc;

use types::{
    Attr, AttrChange, EntryName, Errno, Error, FileType, Ino, Path, RenameFlags, Result, Timestamp,
};
use wire::{Answer, ChangeOp, NewInode, Op, ReadOp};

use crate::Fs;
use crate::fs::unexpected;
use crate::strong_log::{StrongLog, Terms};

/// Entries asked for at a time.
const LIST_LIMIT: u32 = 4096;

/// What to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// The type.
    pub file_type: FileType,
    /// Permissions.
    pub permissions: u32,
    /// Permissions to take off, unless the directory has a default access control list.
    pub umask: u32,
    /// Owner and group, if not the caller's.
    pub owner: Option<(u32, u32)>,
    /// Device number of a device file.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Its mtime, if not now.
    pub mtime: Option<Timestamp>,
    /// Its atime, if not its mtime.
    pub atime: Option<Timestamp>,
    /// Content of a small file, or target of a symbolic link.
    pub data: &'a [u8],
}

impl Default for NewFile<'_> {
    /// An empty file, mode 644.
    fn default() -> Self {
        Self {
            file_type: FileType::Regular,
            permissions: 0o644,
            umask: 0,
            owner: None,
            rdev: 0,
            size: 0,
            mtime: None,
            atime: None,
            data: &[],
        }
    }
}

impl<'a> NewFile<'a> {
    /// A directory, mode 755.
    #[must_use]
    pub fn directory() -> Self {
        Self { file_type: FileType::Directory, permissions: 0o755, ..Self::default() }
    }

    /// A symbolic link.
    #[must_use]
    pub fn symlink(target: &'a [u8]) -> Self {
        let size = target.len() as u64;
        Self {
            file_type: FileType::Symlink,
            permissions: 0o777,
            size,
            data: target,
            ..Self::default()
        }
    }

    /// Type and permissions, as `st_mode` has them.
    #[inline]
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.file_type.mode_bits() | (self.permissions & 0o7777)
    }

    pub(crate) fn wire(&self) -> NewInode<'a> {
        NewInode {
            mode: self.mode(),
            umask: self.umask,
            owner: self.owner,
            rdev: self.rdev,
            size: self.size,
            mtime: self.mtime,
            atime: self.atime,
            data: self.data,
            open: false,
        }
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The attributes of the inode.
    pub attr: Attr,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Dir {
    fs: Arc<Fs>,
    path: Path,
    ino: Ino,
    /// Where operations are logged on the local disk, if the policy here is `rpcs+local_persist`.
    log: Option<Arc<StrongLog>>,
    inline_bytes: u32,
    checksums: bool,
}

impl Dir {
    pub(crate) fn open(fs: Arc<Fs>, path: Path, ino: Ino) -> Result<Self> {
        let terms = fs.walked(&[(&path, ino)], || fs.strong_logs.for_dir(&fs, ino));
        let Terms { log, inline_bytes, checksums, .. } =
            terms.map_err(|error| error.about(path.to_string()))?;
        Ok(Self { fs, path, ino, log, inline_bytes, checksums })
    }

    /// The largest file in bytes that is kept inline here, by the policy in force when the
    /// directory was opened.
    #[must_use]
    pub fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }

    /// Whether content that is written here gets checksums, by the policy at the time of opening.
    pub(crate) fn checksums(&self) -> bool {
        self.checksums
    }

    /// Whether this machine logs the changes here (`local_persist`).
    pub(crate) fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Its path when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a request about this directory, and the other one that it names.
    fn call_with(&self, other: Option<&Self>, op: Op<'_>, name: &[u8]) -> Result<Answer> {
        let places = [(&self.path, self.ino), other.map_or((&self.path, self.ino), Self::place)];
        let places = if other.is_some() { &places[..] } else { &places[..1] };
        self.fs.walked(places, || self.fs.call(op)).map_err(|error| self.about(error, name))
    }

    pub(crate) fn call(&self, op: Op<'_>, name: &[u8]) -> Result<Answer> {
        self.call_with(None, op, name)
    }

    /// Makes a request about an inode that this directory has under a name. Without a name the
    /// directory is read, if the server has not loaded the inode.
    fn call_about(&self, ino: Ino, name: &[u8], op: Op<'_>) -> Result<Answer> {
        let stale = match self.fs.call(op) {
            Err(error) if error.errno == Errno::Stale => self.about(error, name),
            result => return result.map_err(|error| self.about(error, name)),
        };
        let path = if ino == self.ino {
            self.path.clone()
        } else if name.is_empty() {
            let entry = self.list()?.into_iter().find(|entry| entry.attr.ino == ino);
            self.path.join(&entry.ok_or(stale)?.name)
        } else {
            self.path.join(name)
        };
        let result = self.fs.walked(&[(&path, ino)], || self.fs.call(op));
        result.map_err(|error| error.about(path.to_string()))
    }

    fn place(&self) -> (&Path, Ino) {
        (&self.path, self.ino)
    }

    pub(crate) fn about(&self, error: Error, name: &[u8]) -> Error {
        if name.is_empty() {
            return error.about(self.path.to_string());
        }
        let above = self.path.to_string();
        error.about(format!("{}/{}", above.trim_end_matches('/'), String::from_utf8_lossy(name)))
    }

    /// Logs an executed request, if the policy logs requests here.
    fn logged(&self, note: impl FnOnce(&StrongLog) -> Result<()>) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        note(log)?;
        log.shorten(&self.fs);
        Ok(())
    }

    /// Creates a file, directory, symbolic link or device.
    ///
    /// # Errors
    /// `EEXIST`, `EACCES`, `EINVAL`, `ENAMETOOLONG`, `EBUSY` in another client's subtree.
    pub fn create(&self, name: impl AsRef<[u8]>, new: &NewFile<'_>) -> Result<Attr> {
        let name = name.as_ref();
        let op = Op::Change(ChangeOp::Create { parent: self.ino, name, new: new.wire() });
        let attr = Fs::attr_answer(self.call(op, name)?)?;
        self.logged(|log| log.created(self.ino, name, &attr, new.data))?;
        Ok(attr)
    }

    /// Attributes of a name.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Attr> {
        let name = name.as_ref();
        Fs::attr_answer(self.call(Op::Read(ReadOp::Lookup { parent: self.ino, name }), name)?)
    }

    /// Gives an inode one more name here.
    ///
    /// # Errors
    /// `EEXIST`, `EPERM` for a directory, `EMLINK`.
    pub fn link(&self, ino: Ino, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.call(Op::Change(ChangeOp::Link { ino, parent: self.ino, name }), name)?;
        self.logged(|log| log.linked(self.ino, name, &self.lookup(name)?))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM`.
    pub fn unlink(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.call(Op::Change(ChangeOp::Unlink { parent: self.ino, name }), name)?;
        self.logged(|log| log.removed(self.ino, name, false))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`.
    pub fn rmdir(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.call(Op::Change(ChangeOp::Rmdir { parent: self.ino, name }), name)?;
        self.logged(|log| log.removed(self.ino, name, true))
    }

    /// Moves or swaps names.
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(
        &self,
        name: impl AsRef<[u8]>,
        to: &Dir,
        new_name: impl AsRef<[u8]>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (name, new_name) = (name.as_ref(), new_name.as_ref());
        let op = Op::Change(ChangeOp::Rename {
            parent: self.ino,
            name,
            new_parent: to.ino,
            new_name,
            flags,
        });
        self.call_with(Some(to), op, name)?;
        let Some(log) = self.log.as_ref().or(to.log.as_ref()) else { return Ok(()) };
        let back = if flags.exchange { Some(self.lookup(name)?) } else { None };
        let moved = to.lookup(new_name)?;
        let (from, to) = (EntryName::new(self.ino, name), EntryName::new(to.ino, new_name));
        log.renamed(from, to, &moved, back.as_ref())?;
        log.shorten(&self.fs);
        Ok(())
    }

    /// Changes attributes of a name's inode.
    ///
    /// # Errors
    /// `ENOENT`, `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr(&self, name: impl AsRef<[u8]>, change: &AttrChange) -> Result<()> {
        let name = name.as_ref();
        let attr = self.lookup(name)?;
        self.call_about(
            attr.ino,
            name,
            Op::Change(ChangeOp::SetAttr { ino: attr.ino, change: *change }),
        )?;
        self.logged(|log| log.set_attr(self.ino, attr.ino, change))
    }

    /// Changes attributes of an inode that is known to stand here: one request.
    ///
    /// # Errors
    /// `ESTALE`, `EPERM`, `EACCES`, `EINVAL`, `EISDIR`.
    pub fn set_attr_of(&self, ino: Ino, change: &AttrChange) -> Result<()> {
        self.set_attr_under(b"", ino, change)
    }

    /// The same for an inode whose name here is known.
    pub(crate) fn set_attr_under(&self, name: &[u8], ino: Ino, change: &AttrChange) -> Result<()> {
        self.call_about(ino, name, Op::Change(ChangeOp::SetAttr { ino, change: *change }))?;
        self.logged(|log| log.set_attr(self.ino, ino, change))
    }

    /// Replaces the inline content of a small file, and sets its size.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`, `EACCES`.
    pub fn set_data(&self, ino: Ino, data: &[u8], size: u64) -> Result<()> {
        self.set_data_under(b"", ino, data, size)
    }

    /// The same for a file whose name here is known.
    pub(crate) fn set_data_under(
        &self,
        name: &[u8],
        ino: Ino,
        data: &[u8],
        size: u64,
    ) -> Result<()> {
        self.call_about(ino, name, Op::Change(ChangeOp::SetData { ino, data, size }))?;
        self.logged(|log| log.set_data(self.ino, ino, data, size))
    }

    /// All entries with their attributes, in the directory's own order. A name that exists
    /// throughout is listed exactly once, in spite of creates and removals by other clients during
    /// the listing.
    ///
    /// # Errors
    /// `EACCES`.
    pub fn list(&self) -> Result<Vec<DirEntry>> {
        let mut all: Vec<DirEntry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.name.clone());
            let op = Op::Read(ReadOp::List {
                dir: self.ino,
                after: after.as_deref(),
                limit: LIST_LIMIT,
                attrs: true,
            });
            let answer = self.call(op, b"")?;
            let Answer::Entries { entries, more } = answer else {
                return Err(unexpected(&answer));
            };
            let empty = entries.is_empty();
            all.extend(entries.into_iter().map(|(name, attr)| DirEntry { name, attr }));
            if !more || empty {
                return Ok(all);
            }
        }
    }

    /// Opens a sub-directory with attributes from a listing.
    ///
    /// # Errors
    /// As opening any directory.
    pub fn enter(&self, name: &[u8], ino: Ino) -> Result<Dir> {
        Dir::open(self.fs.clone(), self.path.join(name), ino)
    }
}
