//! Requests: each checks the rules of POSIX, in the order in which the system checks them, and then
//! changes the maps. Rejected requests change nothing.

use types::{
    Attr, AttrChange, Cred, EntryName, Errno, FILE_BYTES_MAX, FileType, INLINE_BYTES_MAX, Ino,
    MODE_PERMISSIONS, MODE_TYPE, RenameFlags, SYMLINK_BYTES_MAX, Stripe, Timestamp, XattrChange,
    check_name,
};

use crate::{Model, Node};

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const LINKS_MAX: usize = 65_000;
const XATTR_NAME_BYTES_MAX: usize = 255;
const XATTR_VALUE_BYTES_MAX: usize = 65_536;

/// What to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct New<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Permissions to take off, unless the directory has a default list.
    pub umask: u32,
    /// Owner and group, if not the caller's.
    pub owner: Option<(u32, u32)>,
    /// Device number of a device file.
    pub rdev: u32,
    /// How a file is striped.
    pub stripe: Stripe,
    /// Length in bytes.
    pub size: u64,
    /// When.
    pub time: Timestamp,
    /// Its mtime, if not `time`.
    pub mtime: Option<Timestamp>,
    /// Its atime, if not its mtime.
    pub atime: Option<Timestamp>,
    /// Content of a small file, or target of a symbolic link.
    pub data: &'a [u8],
}

impl Model {
    pub(crate) fn inode(&self, ino: Ino) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::Stale)
    }

    fn directory(&self, ino: Ino) -> Result<&Node, Errno> {
        let node = self.inode(ino)?;
        if node.attr.is_dir() { Ok(node) } else { Err(Errno::NotDirectory) }
    }

    pub(crate) fn writable(&self, cred: &Cred, dir: Ino) -> Result<Attr, Errno> {
        let attr = self.directory(dir)?.attr;
        self.allow(cred, dir, WRITE | EXECUTE)?;
        Ok(attr)
    }

    pub(crate) fn named(&self, dir: Ino, name: &[u8]) -> Result<(Ino, Attr), Errno> {
        check_name(name)?;
        let ino = self.peek(dir, name).ok_or(Errno::NotFound)?;
        Ok((ino, self.inode(ino)?.attr))
    }

    pub(crate) fn free_name(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        if self.peek(dir, name).is_some() { Err(Errno::Exists) } else { Ok(()) }
    }

    /// `access`: bits 4 read, 2 write, 1 execute.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`.
    pub fn access(&self, cred: &Cred, ino: Ino, want: u32) -> Result<(), Errno> {
        self.allow(cred, ino, want)
    }

    /// Looks a name up.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `ESTALE`, and the errors of [`check_name`].
    pub fn lookup(&self, cred: &Cred, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        self.directory(dir)?;
        self.allow(cred, dir, EXECUTE)?;
        self.getattr(self.named(dir, name)?.0)
    }

    /// Lists a directory, in order of bytes.
    ///
    /// # Errors
    /// `ENOTDIR`, `EACCES`, `ESTALE`.
    pub fn list(&self, cred: &Cred, dir: Ino) -> Result<Vec<(Vec<u8>, Attr)>, Errno> {
        self.directory(dir)?;
        self.allow(cred, dir, READ)?;
        self.entries(dir).map(|(name, ino)| Ok((name.to_vec(), self.getattr(ino)?))).collect()
    }

    /// `create`, `mkdir`, `symlink`, `mknod`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`, `EACCES`, `EINVAL`, `ENAMETOOLONG`, `EPERM`, `ESTALE`.
    pub fn create(
        &mut self,
        cred: &Cred,
        EntryName { dir, name }: EntryName<'_>,
        new: &New<'_>,
        ino: Ino,
    ) -> Result<(), Errno> {
        check_name(name)?;
        let parent = self.writable(cred, dir)?;
        let file_type = FileType::from_mode(new.mode).ok_or(Errno::Invalid)?;
        self.free_name(dir, name)?;
        let mut size = new.size;
        if file_type == FileType::Symlink {
            if new.data.len() > SYMLINK_BYTES_MAX {
                return Err(Errno::NameTooLong);
            }
            if new.data.is_empty() || new.data.contains(&0) {
                return Err(Errno::Invalid);
            }
            size = new.data.len() as u64;
        }
        let (uid, mut gid) = new.owner.unwrap_or((cred.uid, cred.gid));
        if !cred.is_root() && (uid != cred.uid || !cred.in_group(gid)) {
            return Err(Errno::NotPermitted);
        }
        let mut mode = new.mode & (MODE_TYPE | MODE_PERMISSIONS);
        if parent.mode & SET_GID != 0 && new.owner.is_none() {
            gid = parent.gid;
            if file_type == FileType::Directory {
                mode |= SET_GID;
            }
        }
        if file_type == FileType::Regular && new.data.len() > INLINE_BYTES_MAX {
            return Err(Errno::TooBig);
        }
        check_length(size)?;
        let mtime = new.mtime.unwrap_or(new.time);
        let atime = new.atime.unwrap_or(mtime);
        let mut attr = Attr { ino, mode, uid, gid, size, atime, mtime, ..Attr::default() };
        (attr.ctime, attr.btime) = (new.time, new.time);
        if file_type == FileType::Regular {
            attr.stripe = new.stripe;
        } else {
            attr.rdev = new.rdev;
        }
        let mut node = Node { attr, data: new.data.to_vec(), ..Node::default() };
        node.inherit(self.directory(dir)?, new.umask);
        self.nodes.insert(ino, node);
        self.names.insert((dir, name.to_vec()), ino);
        self.touch(dir, new.time);
        Ok(())
    }

    /// `link`.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EEXIST`, `EMLINK`, `EACCES`, `ENOTDIR`, `ESTALE`.
    pub fn link(
        &mut self,
        cred: &Cred,
        ino: Ino,
        EntryName { dir, name }: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(), Errno> {
        check_name(name)?;
        if self.inode(ino)?.attr.is_dir() {
            return Err(Errno::NotPermitted);
        }
        self.writable(cred, dir)?;
        self.free_name(dir, name)?;
        if self.names_of(ino).len() >= LINKS_MAX {
            return Err(Errno::TooManyLinks);
        }
        self.names.insert((dir, name.to_vec()), ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.attr.ctime = time;
            node.linked = true;
        }
        self.touch(dir, time);
        Ok(())
    }

    /// `unlink`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EACCES`, `EPERM` in a sticky directory, `ENOTDIR`, `ESTALE`.
    pub fn unlink(
        &mut self,
        cred: &Cred,
        EntryName { dir, name }: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(), Errno> {
        let parent = self.writable(cred, dir)?;
        let (ino, attr) = self.named(dir, name)?;
        sticky(cred, &parent, &attr)?;
        if attr.is_dir() {
            return Err(Errno::IsDirectory);
        }
        self.remove(dir, name, ino, time);
        Ok(())
    }

    /// `rmdir`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM` in a sticky directory, `ESTALE`.
    pub fn rmdir(
        &mut self,
        cred: &Cred,
        EntryName { dir, name }: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(), Errno> {
        let parent = self.writable(cred, dir)?;
        let (ino, attr) = self.named(dir, name)?;
        if !attr.is_dir() {
            return Err(Errno::NotDirectory);
        }
        sticky(cred, &parent, &attr)?;
        self.is_empty(ino)?;
        self.remove(dir, name, ino, time);
        Ok(())
    }

    fn remove(&mut self, dir: Ino, name: &[u8], ino: Ino, time: Timestamp) {
        self.names.remove(&(dir, name.to_vec()));
        self.lost_name(ino, time);
        self.touch(dir, time);
    }

    fn is_empty(&self, dir: Ino) -> Result<(), Errno> {
        if self.entries(dir).next().is_some() { Err(Errno::NotEmpty) } else { Ok(()) }
    }

    /// `rename`.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST` (with `no_replace`), `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EINVAL` if a
    /// directory would move below itself, `EACCES`, `EPERM`, `ESTALE`.
    pub fn rename(
        &mut self,
        cred: &Cred,
        from: EntryName<'_>,
        to: EntryName<'_>,
        flags: RenameFlags,
        time: Timestamp,
    ) -> Result<(), Errno> {
        check_name(from.name)?;
        check_name(to.name)?;
        if flags.no_replace && flags.exchange {
            return Err(Errno::Invalid);
        }
        let from_dir = self.writable(cred, from.dir)?;
        let to_dir = self.writable(cred, to.dir)?;
        let (ino, attr) = self.named(from.dir, from.name)?;
        sticky(cred, &from_dir, &attr)?;
        self.may_move(cred, &attr, from.dir, to.dir)?;
        let target = self.peek(to.dir, to.name);
        if let Some(target) = target {
            if flags.no_replace {
                return Err(Errno::Exists);
            }
            if target == ino {
                return Ok(());
            }
            let over = self.inode(target)?.attr;
            sticky(cred, &to_dir, &over)?;
            if flags.exchange {
                self.may_move(cred, &over, to.dir, from.dir)?;
            } else {
                self.may_replace(&attr, &over)?;
            }
        } else if flags.exchange {
            return Err(Errno::NotFound);
        }
        self.names.remove(&(from.dir, from.name.to_vec()));
        self.names.insert((to.dir, to.name.to_vec()), ino);
        self.changed(ino, time);
        match target {
            Some(target) if flags.exchange => {
                self.names.insert((from.dir, from.name.to_vec()), target);
                self.changed(target, time);
            }
            Some(target) => self.lost_name(target, time),
            None => {}
        }
        self.touch(from.dir, time);
        self.touch(to.dir, time);
        Ok(())
    }

    pub(crate) fn changed(&mut self, ino: Ino, time: Timestamp) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.attr.ctime = time;
        }
    }

    fn may_move(&self, cred: &Cred, attr: &Attr, from: Ino, to: Ino) -> Result<(), Errno> {
        if !attr.is_dir() || from == to {
            return Ok(());
        }
        if self.is_within(to, attr.ino) {
            return Err(Errno::Invalid);
        }
        self.allow(cred, attr.ino, WRITE)
    }

    fn may_replace(&self, attr: &Attr, over: &Attr) -> Result<(), Errno> {
        match (attr.is_dir(), over.is_dir()) {
            (false, false) => Ok(()),
            (false, true) => Err(Errno::IsDirectory),
            (true, false) => Err(Errno::NotDirectory),
            (true, true) => self.is_empty(over.ino),
        }
    }

    /// `chmod`, `chown`, `truncate`, `utimens`.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EISDIR`, `EINVAL`, `ESTALE`.
    pub fn setattr(
        &mut self,
        cred: &Cred,
        ino: Ino,
        change: &AttrChange,
        time: Timestamp,
    ) -> Result<(), Errno> {
        let attr = self.inode(ino)?.attr;
        let mut change = *change;
        if change.size.is_some() {
            match attr.file_type() {
                FileType::Regular => self.allow(cred, ino, WRITE)?,
                FileType::Directory => return Err(Errno::IsDirectory),
                FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharDevice
                | FileType::BlockDevice => return Err(Errno::Invalid),
            }
            check_length(change.size.unwrap_or_default())?;
        }
        let owns = cred.is_root() || cred.uid == attr.uid;
        // Also a change of nothing, which sets the time of the last change.
        let of_owner = change.is_empty()
            || change.mode.is_some()
            || change.uid.is_some()
            || change.gid.is_some();
        let times = change.atime.is_some() || change.mtime.is_some();
        let may_write =
            attr.file_type() != FileType::Symlink && self.allow(cred, ino, WRITE).is_ok();
        if !owns && (of_owner || (times && !may_write)) {
            return Err(Errno::NotPermitted);
        }
        if !cred.is_root() {
            if change.uid.is_some_and(|uid| uid != attr.uid)
                || change.gid.is_some_and(|gid| gid != attr.gid && !cred.in_group(gid))
            {
                return Err(Errno::NotPermitted);
            }
            let kept = change.mode.unwrap_or(attr.mode & MODE_PERMISSIONS);
            if !attr.is_dir() && (change.uid.is_some() || change.gid.is_some()) {
                change.mode = Some(kept & !(SET_UID | SET_GID));
            } else if change.mode.is_some() && !cred.in_group(change.gid.unwrap_or(attr.gid)) {
                change.mode = Some(kept & !SET_GID);
            }
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.change(&change, time);
        }
        Ok(())
    }

    /// `setxattr` and, with no value, `removexattr`. The limit on all extended attributes of an
    /// inode together depends on their encoding and is not modelled.
    ///
    /// # Errors
    /// `EPERM`, `ENODATA`, `EEXIST`, `ERANGE`, `EFBIG`, `EINVAL`, `ESTALE`; for a list also
    /// `EACCES`, `EOPNOTSUPP`.
    pub fn setxattr(
        &mut self,
        cred: &Cred,
        ino: Ino,
        XattrChange { name, value, flags }: XattrChange<'_>,
        time: Timestamp,
    ) -> Result<(), Errno> {
        let node = self.inode(ino)?;
        if !cred.is_root() && cred.uid != node.attr.uid {
            return Err(Errno::NotPermitted);
        }
        if name.is_empty() || name.contains(&0) {
            return Err(Errno::Invalid);
        }
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Errno::Range);
        }
        let exists = node.xattrs.contains_key(name);
        if flags.create && exists {
            return Err(Errno::Exists);
        }
        if !exists && (flags.replace || value.is_none()) {
            return Err(Errno::NoData);
        }
        if value.is_some_and(|value| value.len() > XATTR_VALUE_BYTES_MAX) {
            return Err(Errno::TooBig);
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            if types::acl::is_list(name) {
                node.set_list(cred, name, value)?;
                node.attr.ctime = time;
            } else {
                node.set_xattr(name, value, time);
            }
        }
        Ok(())
    }

    /// Replaces the inline content of a small file and its size.
    ///
    /// # Errors
    /// `EACCES`, `EISDIR`, `EINVAL`, `EFBIG`, `ESTALE`.
    pub fn setdata(
        &mut self,
        cred: &Cred,
        ino: Ino,
        data: &[u8],
        size: u64,
        time: Timestamp,
    ) -> Result<(), Errno> {
        let attr = self.inode(ino)?.attr;
        if attr.is_dir() {
            return Err(Errno::IsDirectory);
        }
        if attr.file_type() != FileType::Regular || data.len() as u64 > size {
            return Err(Errno::Invalid);
        }
        if data.len() > INLINE_BYTES_MAX {
            return Err(Errno::TooBig);
        }
        check_length(size)?;
        self.allow(cred, ino, WRITE)?;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.set_data(data, size, time);
        }
        Ok(())
    }
}

fn check_length(size: u64) -> Result<(), Errno> {
    if size > FILE_BYTES_MAX { Err(Errno::TooBig) } else { Ok(()) }
}

impl Node {
    pub(crate) fn change(&mut self, change: &AttrChange, time: Timestamp) {
        let attr = &mut self.attr;
        let mode = change.mode.unwrap_or(attr.mode);
        attr.mode = (attr.mode & !MODE_PERMISSIONS) | (mode & MODE_PERMISSIONS);
        attr.uid = change.uid.unwrap_or(attr.uid);
        attr.gid = change.gid.unwrap_or(attr.gid);
        if let Some(size) = change.size {
            (attr.size, attr.mtime) = (size, time);
        }
        attr.atime = change.atime.unwrap_or(attr.atime);
        attr.mtime = change.mtime.unwrap_or(attr.mtime);
        attr.ctime = time;
        self.keep_list_in_step();
    }

    pub(crate) fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>, time: Timestamp) {
        match value {
            Some(value) => self.xattrs.insert(name.to_vec(), value.to_vec()),
            None => self.xattrs.remove(name),
        };
        self.attr.ctime = time;
    }

    pub(crate) fn set_data(&mut self, data: &[u8], size: u64, time: Timestamp) {
        self.data = data.to_vec();
        self.attr.size = size;
        (self.attr.mtime, self.attr.ctime) = (time, time);
    }
}

/// In a sticky directory only root and the owner of the entry or of the directory removes it.
pub(crate) fn sticky(cred: &Cred, dir: &Attr, entry: &Attr) -> Result<(), Errno> {
    let may = cred.is_root() || cred.uid == entry.uid || cred.uid == dir.uid;
    if dir.mode & STICKY == 0 || may { Ok(()) } else { Err(Errno::NotPermitted) }
}
