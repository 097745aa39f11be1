//! Requests about attributes and extended attributes, and about room.

use posix::{Caller, Entry};
use types::acl;
use types::{AttrChange, Errno, Error, Ino, Result, XattrFlags};

use crate::adapter::{Adapter, Given};
use crate::arguments::time;
use crate::fuse::{Out, SetAttr};

/// Bytes of the unit in which room is counted.
const SPACE_UNIT: u32 = 4096;
/// Bytes of the longest name.
const NAME_BYTES_MAX: u32 = 255;
/// Flags of setxattr(2).
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

impl Adapter {
    fn attributes(&self, entry: Result<Entry>, out: &mut Out) -> Result<Given> {
        let Entry { attr, valid, .. } = entry?;
        out.attributes(&attr, self.number(attr.ino), valid);
        Ok(Given::Nothing)
    }

    pub(crate) fn get_attr(&self, ino: Ino, out: &mut Out) -> Result<Given> {
        self.attributes(self.fs.attr(ino), out)
    }

    pub(crate) fn set_attr(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttr,
        out: &mut Out,
    ) -> Result<Given> {
        let SetAttr { mode, uid, gid, size, atime, mtime, is_open } = *change;
        let (atime, mtime) = (atime.map(time), mtime.map(time));
        let change = AttrChange { mode, uid, gid, size, atime, mtime };
        self.attributes(self.fs.set_attr(caller, ino, &change, is_open), out)
    }

    pub(crate) fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        flags: u32,
    ) -> Result<Given> {
        let translated = match (self.ids, value) {
            (Some(ids), Some(list)) if acl::is_list(name) => {
                let list = acl::with_numbers(list, |id| ids.user(id), |id| ids.group(id));
                let unknown = "a user or group of the list has no number in the cluster";
                Some(list.ok_or_else(|| Error::new(Errno::Invalid, "list", unknown))?)
            }
            _ => None,
        };
        let value = translated.as_deref().or(value);
        let (create, replace) = (flags & XATTR_CREATE != 0, flags & XATTR_REPLACE != 0);
        let done = self.fs.set_xattr(caller, ino, name, value, XattrFlags { create, replace });
        self.notify_outdated();
        done.map(|()| Given::Nothing)
    }

    pub(crate) fn get_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        size: u32,
        out: &mut Out,
    ) -> Result<Given> {
        let mut value = self.fs.xattr(caller, ino, name)?;
        if let Some(ids) = self.ids.filter(|_| acl::is_list(name)) {
            let (user, group) = (|id| Some(ids.user_here(id)), |id| Some(ids.group_here(id)));
            value = acl::with_numbers(&value, user, group).unwrap_or(value);
        }
        sized(&value, size, out)
    }

    pub(crate) fn list_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        size: u32,
        out: &mut Out,
    ) -> Result<Given> {
        let names = self.fs.xattrs(caller, ino)?.into_iter();
        let ended = names.map(|name| [name, vec![0]].concat());
        sized(&ended.collect::<Vec<_>>().concat(), size, out)
    }

    pub(crate) fn stat_fs(&self, ino: Ino, out: &mut Out) -> Result<Given> {
        let space = self.fs.space(ino)?;
        let unit = u64::from(SPACE_UNIT);
        let (total, free) = (space.total / unit, space.available / unit);
        // Without a quota there is no limit: inode numbers have 64 bits.
        [total, free, free, space.inodes, space.inodes_available]
            .into_iter()
            .for_each(|value| out.u64(value));
        [SPACE_UNIT, NAME_BYTES_MAX, SPACE_UNIT].into_iter().for_each(|value| out.u32(value));
        [0; 7].into_iter().for_each(|value| out.u32(value));
        Ok(Given::Nothing)
    }
}

/// Replies with a value if it fits into `size` bytes; size 0 asks for its length.
fn sized(value: &[u8], size: u32, out: &mut Out) -> Result<Given> {
    if size == 0 {
        out.count(u32::try_from(value.len()).unwrap_or(u32::MAX));
    } else if value.len() <= size as usize {
        out.bytes(value);
    } else {
        return Err(Error::of(Errno::Range, "extended attribute"));
    }
    Ok(Given::Nothing)
}
