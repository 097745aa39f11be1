//! Access control lists: how they are set, and how new inodes inherit them (acl(5)).

use std::sync::Arc;

use journal::Event;
use types::acl::{self, ACCESS_LIST, AccessList, DEFAULT_LIST};
use types::{Cred, Errno, FileType, Ino, MODE_PERMISSIONS, Timestamp, XattrChange};

use super::{Plan, Planned, Planner, SET_GID};
use crate::extra::put_xattr;
use crate::inode::Inode;
use crate::{Extra, Refusal};

impl Planner<'_> {
    /// The mode and the lists, encoded, of a new inode that would have this mode: as the default
    /// list of the directory says, or else without the permissions of the user's mask.
    #[cold]
    pub(super) fn inherit(self, dir: Ino, mode: u32, umask: u32) -> (u32, Vec<u8>) {
        let mut lists = Vec::new();
        let default = self.tree.inodes.extra_of(dir).and_then(|extra| extra.xattr(DEFAULT_LIST));
        let Some((default, inherited)) =
            default.and_then(|default| Some((default, acl::inherited_mode(default, mode)?)))
        else {
            return (mode & !(umask & 0o777), lists);
        };
        if AccessList::decode(default).is_some_and(|list| !list.is_mode_only()) {
            put_xattr(&mut lists, ACCESS_LIST, default);
        }
        if FileType::from_mode(mode) == Some(FileType::Directory) {
            put_xattr(&mut lists, DEFAULT_LIST, default);
        }
        (inherited, lists)
    }

    /// Plans the setting of a list in the form of Linux, for its owner. The event has its record.
    pub(super) fn set_list<'a>(
        self,
        cred: &Cred,
        ino: Ino,
        inode: &Inode,
        change: &XattrChange<'a>,
        time: Timestamp,
    ) -> Plan<'a> {
        let XattrChange { name, value, .. } = *change;
        let Some(value) = value else {
            return Ok(Planned::plain(event_of(ino, inode, name, None, time)));
        };
        let mut list = AccessList::from_linux(value)?;
        if name == ACCESS_LIST {
            list.mode |= inode.mode & MODE_PERMISSIONS & !0o777;
            if !cred.is_root() && !cred.in_group(inode.gid) {
                // As Linux does, for directories, too.
                list.mode &= !SET_GID;
            }
        }
        may_have(inode, name)?;
        let record = Arc::new(Extra::from_parts(&list.encode(), &[]));
        let event = event_of(ino, inode, name, Some(&[]), time);
        Ok(Planned::with_extra(event, Some(record)))
    }

    /// The same of a list that is a record already, in an event that a client has written.
    pub(super) fn judge_list<'a>(
        self,
        cred: &Cred,
        ino: Ino,
        change: &XattrChange<'a>,
        time: Timestamp,
    ) -> Plan<'a> {
        let XattrChange { name, value, .. } = *change;
        let inode = self.tree.inode_up_to_date(ino)?;
        crate::access::owner_only(cred, inode)?;
        if let Some(record) = value {
            let list = AccessList::decode(record).ok_or(Errno::Invalid)?;
            may_have(inode, name)?;
            let is_member = cred.is_root() || cred.in_group(inode.gid);
            let sets_group = list.mode & SET_GID != 0 && !inode.is_dir();
            if name == ACCESS_LIST && sets_group && !is_member {
                return Err(Errno::NotPermitted.into());
            }
        }
        Ok(Planned::plain(event_of(ino, inode, name, value, time)))
    }
}

/// A symbolic link has no list, and only a directory has one for new inodes.
fn may_have(inode: &Inode, name: &[u8]) -> Result<(), Refusal> {
    if inode.file_type() == FileType::Symlink {
        return Err(Errno::NotSupported.into());
    }
    if name == DEFAULT_LIST && !inode.is_dir() { Err(Errno::Access.into()) } else { Ok(()) }
}

fn event_of<'a>(
    ino: Ino,
    inode: &Inode,
    name: &'a [u8],
    value: Option<&'a [u8]>,
    time: Timestamp,
) -> Event<'a> {
    Event::SetXattr { ino, home: inode.home, name, value, time }
}
