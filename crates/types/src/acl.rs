//! POSIX access control lists, as Linux has them in the attributes [`ACCESS_LIST`] and
//! [`DEFAULT_LIST`] (acl(5)).
//!
//! A list has permissions for the owner, named users, the owning group, named groups and all other
//! users, and a mask that limits the groups and the named users. The mode has three of these
//! already: its first digit is the owner's, its second the mask, its third all other users'. The
//! file system keeps the three in the mode alone, so `chmod` changes the list by changing the mode.
//! The *record* of a list has the rest: the permissions of the owning group and of the named users
//! and groups.
//!
//! Record: version (1), mode as two bytes, the owning group's permissions with a bit for a mask,
//! then for each named user or group its kind, permissions and number (four bytes), sorted. The
//! mode counts when the record is set, and in a default list; in the list of an inode the inode's
//! does.

use crate::bytes::{Put, Reader};
use crate::{Cred, Errno};

/// The attribute with the list of an inode itself.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that new inodes in a directory get.
pub const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

const VERSION: u8 = 1;
const HAS_MASK: u8 = 0x80;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 6;

const LINUX_VERSION: u32 = 2;
const LINUX_ENTRY_BYTES: usize = 8;
/// Tag of an entry in the form of Linux: the owner.
pub const USER_OBJ: u16 = 0x01;
/// A named user.
pub const USER: u16 = 0x02;
/// The owning group.
pub const GROUP_OBJ: u16 = 0x04;
/// A named group.
pub const GROUP: u16 = 0x08;
/// The mask of the groups and the named users.
pub const MASK: u16 = 0x10;
/// All other users.
pub const OTHER: u16 = 0x20;
/// The number of an entry that names no user and no group.
pub const NO_NUMBER: u32 = u32::MAX;

/// A list in the form of Linux: entries with a tag, permissions, and the number of a user or group.
#[must_use]
pub fn linux_form(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = Vec::with_capacity(4 + LINUX_ENTRY_BYTES * entries.len());
    value.put_u32(LINUX_VERSION);
    for (tag, permissions, number) in entries {
        value.put_u16(*tag);
        value.put_u16(*permissions);
        value.put_u32(*number);
    }
    value
}

/// A list in the form of Linux with other numbers of its named users and groups; `None` if a number
/// has no other one, or if the bytes are no list.
#[must_use]
pub fn with_numbers(
    list: &[u8],
    user: impl Fn(u32) -> Option<u32>,
    group: impl Fn(u32) -> Option<u32>,
) -> Option<Vec<u8>> {
    let mut reader = Reader::new(list);
    if reader.u32().ok()? != LINUX_VERSION {
        return None;
    }
    let mut entries = Vec::new();
    while !reader.is_at_end() {
        let (tag, permissions) = (reader.u16().ok()?, reader.u16().ok()?);
        let number = reader.u32().ok()?;
        let number = match tag {
            USER => user(number)?,
            GROUP => group(number)?,
            _ => number,
        };
        entries.push((tag, permissions, number));
    }
    Some(linux_form(&entries))
}

/// Named users and groups of one list, about as many as ext4 keeps: each create below a directory
/// with a default list journals the list again.
const NAMED_MAX: usize = 500;

/// A user or a group with permissions of its own. Users are before groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    User(u32),
    Group(u32),
}

/// A list. See the module documentation.
///
/// Invariants: permissions are 0 to 7; named users and groups are sorted and different, and a list
/// with named users or groups has a mask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    /// The mode that the list gives an inode: the permissions of the owner, of the mask (without a
    /// mask, of the owning group) and of all other users, and the bits above.
    pub mode: u32,
    has_mask: bool,
    group: u8,
    named: Vec<(Named, u8)>,
}

/// Whether an attribute is a list.
#[must_use]
pub fn is_list(name: &[u8]) -> bool {
    name == ACCESS_LIST || name == DEFAULT_LIST
}

impl AccessList {
    /// The list in the form of Linux, as `setxattr` brings it.
    ///
    /// # Errors
    /// `EINVAL` for bytes that are no list, for an entry that is missing or there twice, and for
    /// named users or groups without a mask; `ENOSPC` for more than 500 named users and groups.
    pub fn from_linux(value: &[u8]) -> Result<Self, Errno> {
        let mut reader = Reader::new(value);
        let version = reader.u32().map_err(|_| Errno::Invalid)?;
        if version != LINUX_VERSION || !reader.rest().len().is_multiple_of(LINUX_ENTRY_BYTES) {
            return Err(Errno::Invalid);
        }
        let mut list = Self::default();
        let (mut owner, mut group, mut mask, mut other) = (None, None, None, None);
        while let (Ok(tag), Ok(permissions), Ok(number)) =
            (reader.u16(), reader.u16(), reader.u32())
        {
            let permissions = u8::try_from(permissions).ok().filter(|it| *it <= 7);
            let permissions = permissions.ok_or(Errno::Invalid)?;
            let place = match tag {
                USER_OBJ => &mut owner,
                GROUP_OBJ => &mut group,
                MASK => &mut mask,
                OTHER => &mut other,
                USER | GROUP => {
                    let named =
                        if tag == USER { Named::User(number) } else { Named::Group(number) };
                    list.named.push((named, permissions));
                    continue;
                }
                _ => return Err(Errno::Invalid),
            };
            if place.replace(permissions).is_some() {
                return Err(Errno::Invalid);
            }
        }
        let (Some(owner), Some(group), Some(other)) = (owner, group, other) else {
            return Err(Errno::Invalid);
        };
        if list.named.len() > NAMED_MAX {
            return Err(Errno::NoSpace);
        }
        list.named.sort_unstable();
        list.has_mask = mask.is_some();
        list.group = group;
        list.mode = mode_of(owner, mask.unwrap_or(group), other);
        if list.is_sound() { Ok(list) } else { Err(Errno::Invalid) }
    }

    /// The list in the form of Linux, of an inode with this mode.
    #[must_use]
    pub fn to_linux(&self, mode: u32) -> Vec<u8> {
        let bits = |mode: u32| (mode & 7) as u16;
        let middle = bits(mode >> 3);
        let group = if self.has_mask { u16::from(self.group) } else { middle };
        let mut entries = Vec::with_capacity(4 + self.named.len());
        entries.push((USER_OBJ, bits(mode >> 6), NO_NUMBER));
        let users = self.named.iter().filter(|(named, _)| matches!(named, Named::User(_)));
        let groups = self.named.iter().filter(|(named, _)| matches!(named, Named::Group(_)));
        let entry = |(named, permissions): &(Named, u8)| match *named {
            Named::User(number) => (USER, u16::from(*permissions), number),
            Named::Group(number) => (GROUP, u16::from(*permissions), number),
        };
        entries.extend(users.map(entry));
        entries.push((GROUP_OBJ, group, NO_NUMBER));
        entries.extend(groups.map(entry));
        if self.has_mask {
            entries.push((MASK, middle, NO_NUMBER));
        }
        entries.push((OTHER, bits(mode), NO_NUMBER));
        linux_form(&entries)
    }

    /// Whether the mode alone says the same.
    #[must_use]
    pub fn is_mode_only(&self) -> bool {
        !self.has_mask
    }

    /// The record of the list.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.is_sound(), "{self:?} follows the rules of acl(5)");
        let mut out = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.named.len());
        out.put_u8(VERSION);
        out.put_u16((self.mode & 0o7777) as u16);
        out.put_u8(self.group | if self.has_mask { HAS_MASK } else { 0 });
        for (named, permissions) in &self.named {
            let (kind, number) = match *named {
                Named::User(number) => (0, number),
                Named::Group(number) => (1, number),
            };
            out.put_u8(kind);
            out.put_u8(*permissions);
            out.put_u32(number);
        }
        out
    }

    /// The list of a record; `None` for bytes that are none.
    #[must_use]
    pub fn decode(record: &[u8]) -> Option<Self> {
        let record = Record::new(record)?;
        let named: Option<Vec<_>> = record.entries().collect();
        let Record { mode, group, .. } = record;
        let (has_mask, group) = (group & HAS_MASK != 0, group & !HAS_MASK);
        let list = Self { mode, has_mask, group, named: named? };
        list.is_sound().then_some(list)
    }

    fn is_sound(&self) -> bool {
        let is_sorted = self.named.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let are_known = self.named.iter().all(|(named, permissions)| {
            let (Named::User(number) | Named::Group(number)) = named;
            *permissions <= 7 && *number != NO_NUMBER
        });
        let is_masked = self.named.is_empty() || self.has_mask;
        let has_room = self.named.len() <= NAMED_MAX;
        is_sorted && are_known && is_masked && has_room && self.group <= 7 && self.mode <= 0o7777
    }
}

fn mode_of(owner: u8, middle: u8, other: u8) -> u32 {
    u32::from(owner) << 6 | u32::from(middle) << 3 | u32::from(other)
}

/// A record in its bytes.
struct Record<'a> {
    mode: u32,
    group: u8,
    entries: &'a [u8],
}

impl<'a> Record<'a> {
    fn new(record: &'a [u8]) -> Option<Self> {
        let (header, entries) = record.split_first_chunk::<HEADER_BYTES>()?;
        let [version, low, high, group] = *header;
        let is_whole = version == VERSION && entries.len().is_multiple_of(ENTRY_BYTES);
        let mode = u32::from(u16::from_le_bytes([low, high]));
        is_whole.then_some(Self { mode, group, entries })
    }

    fn entries(&self) -> impl Iterator<Item = Option<(Named, u8)>> + use<'a> {
        self.entries.chunks_exact(ENTRY_BYTES).map(|entry| {
            let [kind, permissions, number @ ..] = *entry.first_chunk::<ENTRY_BYTES>()?;
            let number = u32::from_le_bytes(number);
            match kind {
                0 => Some((Named::User(number), permissions)),
                1 => Some((Named::Group(number), permissions)),
                _ => None,
            }
        })
    }
}

/// The permissions that an inode gives a caller who is neither its owner nor root, by acl(5):
/// `None` if the record is none, or has no mask. `gid` is the owning group. Allocates nothing.
#[must_use]
pub fn is_allowed(record: &[u8], mode: u32, gid: u32, cred: &Cred, want: u32) -> Option<bool> {
    let record = Record::new(record).filter(|record| record.group & HAS_MASK != 0)?;
    let mask = mode >> 3 & 7;
    let group = u32::from(record.group & !HAS_MASK);
    let is_granted = |permissions: u32| permissions & mask & want == want;
    let mut is_member = cred.in_group(gid);
    let mut is_group_granted = is_member && is_granted(group);
    for (named, permissions) in record.entries().flatten() {
        match named {
            Named::User(uid) if uid == cred.uid => return Some(is_granted(permissions.into())),
            Named::Group(gid) if cred.in_group(gid) => {
                is_member = true;
                is_group_granted |= is_granted(permissions.into());
            }
            Named::User(_) | Named::Group(_) => {}
        }
    }
    Some(if is_member { is_group_granted } else { mode & want == want })
}

/// The mode of a new inode in a directory with this default list: it has no more permissions than
/// its maker asked for, and no more than the list gives. `None` if the record is none.
#[must_use]
pub fn inherited_mode(default: &[u8], mode: u32) -> Option<u32> {
    let record = Record::new(default)?;
    Some(mode & !0o777 | mode & record.mode & 0o777)
}

#[cfg(test)]
mod tests;
