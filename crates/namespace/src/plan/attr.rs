//! Changes of an inode's own data: attributes, extended attributes, content, policy.

use journal::Event;
use types::{
    AttrChange, Cred, Errno, FILE_BYTES_MAX, FileType, INLINE_BYTES_MAX, Ino, MODE_PERMISSIONS,
    Timestamp, XattrChange,
};
use types::{acl, quota};

use super::{Plan, Planned, Planner, SET_GID};
use crate::Refusal;
use crate::access::{WRITE, owner_only};
use crate::inode::Inode;

const SET_UID: u32 = 0o4000;
/// Longest name of an extended attribute, as in Linux.
const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, as in Linux.
const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// All extended attributes of one inode together.
const XATTRS_BYTES_MAX: usize = 131_072;

/// Checks how long a file would become.
pub(super) fn check_length(size: u64) -> Result<(), Refusal> {
    if size > FILE_BYTES_MAX { Err(Errno::TooBig.into()) } else { Ok(()) }
}

impl Planner<'_> {
    /// `chmod`, `chown`, `truncate`, `utimens`.
    ///
    /// # Errors
    /// `EPERM` if the caller does not own the inode (or, for another owner or a foreign group, is
    /// not root), `EACCES` to truncate without write permission, `EISDIR` to truncate a directory,
    /// `EINVAL` to truncate anything else but a file, `EFBIG` to make it longer than
    /// [`FILE_BYTES_MAX`], `ESTALE`.
    pub fn setattr(
        self,
        cred: &Cred,
        ino: Ino,
        change: &AttrChange,
        time: Timestamp,
    ) -> Plan<'static> {
        let inode = self.tree.inode_up_to_date(ino)?;
        let mut change = *change;
        if change.size.is_some() {
            match inode.file_type() {
                FileType::Regular => self.tree.allow(cred, ino, inode, WRITE)?,
                FileType::Directory => return Err(Errno::IsDirectory.into()),
                FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharDevice
                | FileType::BlockDevice => return Err(Errno::Invalid.into()),
            }
            let size = change.size.unwrap_or_default();
            check_length(size)?;
            self.tree.room_to_grow(ino, size.saturating_sub(inode.size))?;
        }
        let times = change.atime.is_some() || change.mtime.is_some();
        // A change without attributes sets the time of the last change, like any other.
        if change.is_empty()
            || change.mode.is_some()
            || change.uid.is_some()
            || change.gid.is_some()
        {
            owner_only(cred, inode)?;
        } else if times && owner_only(cred, inode).is_err() {
            // The permissions of a symbolic link give everybody everything, and mean nothing.
            let may_write = inode.file_type() != FileType::Symlink
                && self.tree.allow(cred, ino, inode, WRITE).is_ok();
            if !may_write {
                return Err(Errno::NotPermitted.into());
            }
        }
        if !cred.is_root() {
            let other_owner = change.uid.is_some_and(|uid| uid != inode.uid);
            let foreign_group =
                change.gid.is_some_and(|gid| gid != inode.gid && !cred.in_group(gid));
            if other_owner || foreign_group {
                return Err(Errno::NotPermitted.into());
            }
            strip_set_id(cred, inode, &mut change);
        }
        let home = inode.home;
        Ok(Planned::plain(Event::SetAttr { ino, home, change, time }))
    }

    /// `setxattr` and, with no value, `removexattr`.
    ///
    /// # Errors
    /// `EPERM` if the caller does not own the inode, `ENODATA`, `EEXIST`, `ERANGE` for a name over
    /// 255 bytes, `EFBIG` over 64 KiB a value or 128 KiB in all, `EINVAL`, `ESTALE`; for an access
    /// control list also `EACCES` (a default list of a file), `EOPNOTSUPP` (of a link) and `ENOSPC`
    /// (more than 500 named users and groups).
    pub fn setxattr<'a>(
        self,
        cred: &Cred,
        ino: Ino,
        change: XattrChange<'a>,
        time: Timestamp,
    ) -> Plan<'a> {
        let XattrChange { name, value, flags } = change;
        let inode = self.tree.inode_up_to_date(ino)?;
        owner_only(cred, inode)?;
        if name.is_empty() || name.contains(&0) {
            return Err(Errno::Invalid.into());
        }
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Errno::Range.into());
        }
        let extra = self.tree.inodes.extra(ino, inode);
        let exists = extra.is_some_and(|extra| extra.xattrs().any(|(known, _)| known == name));
        if flags.create && exists {
            return Err(Errno::Exists.into());
        }
        if (flags.replace || value.is_none()) && !exists {
            return Err(Errno::NoData.into());
        }
        let length = value.map_or(0, <[u8]>::len);
        let total = extra.map_or(0, |extra| extra.encoded().len()) + name.len() + length;
        if length > XATTR_VALUE_BYTES_MAX || total > XATTRS_BYTES_MAX {
            return Err(Errno::TooBig.into());
        }
        if name == quota::LIMITS {
            self.check_limits(cred, inode, value)?;
        }
        if acl::is_list(name) {
            return self.set_list(cred, ino, inode, &change, time);
        }
        Ok(Planned::plain(Event::SetXattr { ino, home: inode.home, name, value, time }))
    }

    /// Only root sets limits, and only on directories.
    fn check_limits(self, cred: &Cred, inode: &Inode, value: Option<&[u8]>) -> Result<(), Refusal> {
        if !self.tree.quotas.is_enforced() {
            return Err(Errno::NotSupported.into());
        }
        if !cred.is_root() {
            return Err(Errno::NotPermitted.into());
        }
        if !inode.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        value
            .map_or(Ok(()), |text| quota::QuotaLimits::parse(text).map(drop).map_err(Refusal::from))
    }

    /// Replaces the inline content of a small file, or only its size when `data` is empty and the
    /// content is in the object store.
    ///
    /// # Errors
    /// `EACCES`, `EISDIR`, `EINVAL` if it is no file or `data` is longer than `size`, `EFBIG` if it
    /// is longer than the inline maximum or `size` than [`FILE_BYTES_MAX`], `ESTALE`.
    pub fn setdata<'a>(
        self,
        cred: &Cred,
        ino: Ino,
        data: &'a [u8],
        size: u64,
        time: Timestamp,
    ) -> Plan<'a> {
        let inode = self.tree.inode(ino)?;
        if inode.is_dir() {
            return Err(Errno::IsDirectory.into());
        }
        if inode.file_type() != FileType::Regular || data.len() as u64 > size {
            return Err(Errno::Invalid.into());
        }
        if data.len() > INLINE_BYTES_MAX {
            return Err(Errno::TooBig.into());
        }
        check_length(size)?;
        self.tree.allow(cred, ino, inode, WRITE)?;
        self.tree.room_to_grow(ino, size.saturating_sub(inode.size))?;
        Ok(Planned::plain(Event::SetData { ino, home: inode.home, data, size, time }))
    }

    /// Stores a policy in a directory inode; empty text removes it.
    ///
    /// # Errors
    /// `EPERM` if the caller does not own the directory, `ENOTDIR`, `EINVAL` if the text is no
    /// policy, `ENODATA` to remove a missing policy, `ESTALE`.
    pub fn setpolicy<'a>(
        self,
        cred: &Cred,
        ino: Ino,
        policy: &'a [u8],
        time: Timestamp,
    ) -> Plan<'a> {
        self.tree.directory(ino)?;
        let inode = self.tree.inode_up_to_date(ino)?;
        owner_only(cred, inode)?;
        if policy.is_empty() {
            if self.tree.own_policy(ino)?.is_none() {
                return Err(Errno::NoData.into());
            }
        } else if policy::Policy::parse_bytes(policy).is_err() {
            return Err(Errno::Invalid.into());
        }
        Ok(Planned::plain(Event::SetPolicy { ino, home: inode.home, policy, time }))
    }
}

/// A caller other than root loses the set-id bits of a file with a change of its owner, and the
/// set-group-id bit of a file or directory of a foreign group with a change of its mode.
fn strip_set_id(cred: &Cred, inode: &Inode, change: &mut AttrChange) {
    if (change.uid.is_some() || change.gid.is_some()) && !inode.is_dir() {
        let mode = change.mode.unwrap_or(inode.mode & MODE_PERMISSIONS);
        change.mode = Some(mode & !(SET_UID | SET_GID));
    } else if let Some(mode) = change.mode
        && !cred.in_group(change.gid.unwrap_or(inode.gid))
    {
        change.mode = Some(mode & !SET_GID);
    }
}
