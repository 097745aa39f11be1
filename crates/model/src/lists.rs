//! Access control lists, by acl(5): whole lists, which `chmod` rewrites. The system keeps parts of
//! a list in the mode instead.

use types::acl::{ACCESS_LIST, AccessList, DEFAULT_LIST};
use types::{Attr, Cred, Errno, Ino, MODE_PERMISSIONS};

use crate::request::{EXECUTE, READ, WRITE};
use crate::{Model, Node};

const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;
const SET_GID: u32 = 0o2000;

/// The entries of a list, sorted: a tag, permissions, and a user or group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct List(Vec<(u16, u32, u16)>);

impl List {
    fn parse(value: &[u8]) -> Result<Self, Errno> {
        let (version, entries) = value.split_first_chunk::<4>().ok_or(Errno::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION || !entries.len().is_multiple_of(8) {
            return Err(Errno::Invalid);
        }
        let entries = entries.chunks(8).map(|entry| {
            let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
            let number = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let is_named = matches!(half(0), USER | GROUP);
            (half(0), if is_named { number } else { u32::MAX }, half(2))
        });
        let mut list = Self(entries.collect());
        list.0.sort_unstable();
        let count = |tag| list.0.iter().filter(|(it, ..)| *it == tag).count();
        let named = count(USER) + count(GROUP);
        let all = named + count(OWNER) + count(GROUP_OWNER) + count(MASK) + count(OTHERS);
        let is_one = [OWNER, GROUP_OWNER, OTHERS].iter().all(|tag| count(*tag) == 1);
        let is_masked = count(MASK) == 1 || (count(MASK) == 0 && named == 0);
        let are_different =
            list.0.windows(2).all(|two| (two[0].0, two[0].1) != (two[1].0, two[1].1));
        let are_numbers = list.0.iter().all(|(tag, number, permissions)| {
            *permissions <= 7 && (*number != u32::MAX || !matches!(*tag, USER | GROUP))
        });
        let is_good = is_one && is_masked && are_different && are_numbers && all == list.0.len();
        if is_good { Ok(list) } else { Err(Errno::Invalid) }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, number, permissions) in &self.0 {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&number.to_le_bytes());
        }
        value
    }

    fn of(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|(it, ..)| *it == tag).map(|(.., permissions)| u32::from(*permissions))
    }

    /// The permissions of the group class: those of the mask, if there is one.
    fn middle(&self) -> u32 {
        self.of(MASK).or(self.of(GROUP_OWNER)).unwrap_or_default()
    }

    fn mode(&self) -> u32 {
        let end = |tag| self.of(tag).unwrap_or_default();
        end(OWNER) << 6 | self.middle() << 3 | end(OTHERS)
    }

    fn chmod(&mut self, mode: u32) {
        let middle = if self.of(MASK).is_some() { MASK } else { GROUP_OWNER };
        for (tag, _, permissions) in &mut self.0 {
            let shift = match *tag {
                OWNER => 6,
                OTHERS => 0,
                _ if *tag == middle => 3,
                _ => continue,
            };
            *permissions = (mode >> shift & 7) as u16;
        }
    }

    fn is_extended(&self) -> bool {
        self.0.len() > 3
    }

    /// Whether it allows a caller who is not root to do something.
    fn allows(&self, cred: &Cred, attr: &Attr, want: u32) -> bool {
        let mask = self.of(MASK).unwrap_or(7);
        let gives = |permissions: u16, mask: u32| u32::from(permissions) & mask & want == want;
        if cred.uid == attr.uid {
            return self.of(OWNER).unwrap_or_default() & want == want;
        }
        if let Some(entry) =
            self.0.iter().find(|(tag, number, _)| (*tag, *number) == (USER, cred.uid))
        {
            return gives(entry.2, mask);
        }
        let groups = self.0.iter().filter(|(tag, number, _)| match *tag {
            GROUP_OWNER => cred.in_group(attr.gid),
            GROUP => cred.in_group(*number),
            _ => false,
        });
        let mut groups = groups.peekable();
        if groups.peek().is_some() {
            return groups.any(|(.., permissions)| gives(*permissions, mask));
        }
        self.of(OTHERS).unwrap_or_default() & want == want
    }
}

impl Node {
    fn list(&self, name: &[u8]) -> Option<List> {
        List::parse(self.xattrs.get(name)?).ok()
    }

    /// Whether its list allows a caller something, if it has one.
    pub(crate) fn listed(&self, cred: &Cred, want: u32) -> Option<bool> {
        Some(self.list(ACCESS_LIST)?.allows(cred, &self.attr, want))
    }

    /// The mode has changed, and the list changes with it.
    pub(crate) fn keep_list_in_step(&mut self) {
        if let Some(mut list) = self.list(ACCESS_LIST) {
            list.chmod(self.attr.mode);
            self.xattrs.insert(ACCESS_LIST.to_vec(), list.bytes());
        }
    }

    /// Sets a list for its owner, in the form of Linux.
    pub(crate) fn set_list(
        &mut self,
        cred: &Cred,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), Errno> {
        let Some(value) = value else {
            self.xattrs.remove(name);
            return Ok(());
        };
        let list = List::parse(value)?;
        if self.attr.file_type() == types::FileType::Symlink {
            return Err(Errno::NotSupported);
        }
        if name == DEFAULT_LIST {
            if !self.attr.is_dir() {
                return Err(Errno::Access);
            }
            self.xattrs.insert(name.to_vec(), list.bytes());
            return Ok(());
        }
        let is_member = cred.is_root() || cred.in_group(self.attr.gid);
        let kept = if is_member { 0o7000 } else { 0o7000 & !SET_GID };
        self.give_list(&list, kept);
        Ok(())
    }

    /// Gives it a list; of the bits above the permissions it keeps some.
    fn give_list(&mut self, list: &List, kept: u32) {
        let above = self.attr.mode & !0o777 & (kept | !MODE_PERMISSIONS);
        self.attr.mode = above | list.mode();
        if list.is_extended() {
            self.xattrs.insert(ACCESS_LIST.to_vec(), list.bytes());
        } else {
            self.xattrs.remove(ACCESS_LIST);
        }
    }

    /// Sets a list as an event has it.
    pub(crate) fn set_recorded_list(&mut self, name: &[u8], record: Option<&[u8]>) {
        let Some(record) = record else { return drop(self.xattrs.remove(name)) };
        let Some(list) = AccessList::decode(record) else { return };
        let value = list.to_linux(list.mode);
        if name == DEFAULT_LIST {
            self.xattrs.insert(name.to_vec(), value);
        } else if let Ok(whole) = List::parse(&value) {
            self.attr.mode = self.attr.mode & !MODE_PERMISSIONS | list.mode;
            self.give_list(&whole, 0o7000);
        }
    }

    /// Gives an inode an extended attribute as an event or the store has it: a list as its record,
    /// whose mode counts in a default list only.
    pub fn load_xattr(&mut self, name: &[u8], value: &[u8]) {
        let list = Some(value).filter(|_| types::acl::is_list(name)).map(AccessList::decode);
        let value = match list {
            None => value.to_vec(),
            Some(None) => return,
            Some(Some(list)) if name == ACCESS_LIST => list.to_linux(self.attr.mode),
            Some(Some(list)) => list.to_linux(list.mode),
        };
        self.xattrs.insert(name.to_vec(), value);
    }

    /// Gives a new inode what its directory says of new inodes, or takes the mask of its maker off.
    pub(crate) fn inherit(&mut self, directory: &Self, umask: u32) {
        if self.attr.file_type() == types::FileType::Symlink {
            return;
        }
        let Some(default) = directory.list(DEFAULT_LIST) else {
            self.attr.mode &= !(umask & 0o777);
            return;
        };
        let mut list = default.clone();
        list.chmod(self.attr.mode & default.mode());
        self.give_list(&list, 0o7000);
        if self.attr.is_dir() {
            self.xattrs.insert(DEFAULT_LIST.to_vec(), default.bytes());
        }
    }
}

impl Model {
    /// Whether a caller may use an inode in these ways.
    pub(crate) fn allow(&self, cred: &Cred, ino: Ino, want: u32) -> Result<(), Errno> {
        let node = self.inode(ino)?;
        let attr = &node.attr;
        let executable = attr.is_dir() || attr.mode & 0o111 != 0;
        let granted = if cred.is_root() {
            READ | WRITE | if executable { EXECUTE } else { 0 }
        } else if let Some(allows) = node.listed(cred, want) {
            return if allows { Ok(()) } else { Err(Errno::Access) };
        } else if cred.uid == attr.uid {
            attr.mode >> 6
        } else if cred.in_group(attr.gid) {
            attr.mode >> 3
        } else {
            attr.mode
        };
        if granted & want == want { Ok(()) } else { Err(Errno::Access) }
    }
}
