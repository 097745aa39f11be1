//! Planning: every rule is checked here, nothing is changed, and the result is an event.

use std::sync::Arc;

use journal::{Create, Event, Snapshot};
use types::{
    Attr, AttrChange, Cred, Errno, FileType, Ino, MODE_PERMISSIONS, MODE_TYPE, RenameFlags,
    SYMLINK_BYTES_MAX, Timestamp, XattrFlags, check_name,
};

use crate::inode::Inode;
use crate::{Extra, Namespace, Refusal};

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;
const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
/// Most names of one inode.
const LINKS_MAX: u32 = 65_000;
/// Longest name of an extended attribute, as in Linux.
const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, as in Linux.
const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// All extended attributes of one inode together.
const XATTRS_BYTES_MAX: usize = 131_072;

/// What to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewInode<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Owner and group, if not the caller's (only root may choose).
    pub owner: Option<(u32, u32)>,
    /// Device number of a device file.
    pub rdev: u32,
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

/// A planned event. It holds on to what it says about inodes that move, so that the namespace can
/// be changed while the event exists.
#[derive(Clone, Debug)]
pub struct Planned<'a> {
    event: Event<'a>,
    first: Option<Arc<Extra>>,
    second: Option<Arc<Extra>>,
}

impl<'a> Planned<'a> {
    fn plain(event: Event<'a>) -> Self {
        Self { event, first: None, second: None }
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> Event<'_> {
        match self.event {
            Event::Link { parent, name, ino, home, ref inode, time } => {
                Event::Link { parent, name, ino, home, inode: lend(inode, &self.first), time }
            }
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                ref moved,
                ref exchanged,
                time,
            } => {
                let moved = lend(moved, &self.first);
                let exchanged = exchanged.as_ref().map(|inode| lend(inode, &self.second));
                Event::Rename { parent, name, new_parent, new_name, moved, exchanged, time }
            }
            event @ (Event::Create(_)
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }) => event,
        }
    }
}

/// The snapshot with the content that was set aside for it.
fn lend<'s>(snapshot: &Snapshot<'_>, extra: &'s Option<Arc<Extra>>) -> Snapshot<'s> {
    let (data, encoded): (&[u8], &[u8]) =
        extra.as_ref().map_or((&[], &[]), |extra| (&extra.data, extra.encoded()));
    Snapshot { attr: snapshot.attr, data, extra: encoded }
}

type Plan<'a> = Result<Planned<'a>, Refusal>;

impl Namespace {
    /// Whether a caller has these permissions on an inode. `EACCES` if not.
    pub(crate) fn allow(&self, cred: &Cred, inode: &Inode, want: u32) -> Result<(), Refusal> {
        let is_dir = inode.is_dir();
        if cred.is_root() && (want & EXECUTE == 0 || is_dir || inode.mode & 0o111 != 0) {
            return Ok(());
        }
        let class = if cred.uid == inode.uid {
            6
        } else if cred.in_group(inode.gid) {
            3
        } else {
            0
        };
        if (inode.mode >> class) & want == want { Ok(()) } else { Err(Errno::Access.into()) }
    }

    /// Whether a caller may use an inode in these ways (`access`): bits 4 read, 2 write, 1 execute.
    ///
    /// # Errors
    /// `EACCES`, `ESTALE`.
    pub fn access(&self, cred: &Cred, ino: Ino, want: u32) -> Result<(), Refusal> {
        self.allow(cred, self.inode(ino)?, want)
    }

    fn writable_dir(&self, cred: &Cred, dir: Ino) -> Result<&Inode, Refusal> {
        let inode = self.directory(dir)?;
        self.allow(cred, inode, WRITE | EXECUTE)?;
        Ok(inode)
    }

    /// In a sticky directory only the owner of the entry or of the directory removes it.
    fn sticky(&self, cred: &Cred, dir: &Inode, entry: &Inode) -> Result<(), Refusal> {
        let owner = cred.is_root() || cred.uid == entry.uid || cred.uid == dir.uid;
        if dir.mode & STICKY == 0 || owner { Ok(()) } else { Err(Errno::NotPermitted.into()) }
    }

    fn owner_only(&self, cred: &Cred, inode: &Inode) -> Result<(), Refusal> {
        if cred.is_root() || cred.uid == inode.uid {
            Ok(())
        } else {
            Err(Errno::NotPermitted.into())
        }
    }

    fn existing(&self, parent: Ino, name: &[u8]) -> Result<(Ino, &Inode), Refusal> {
        let ino = self.find(parent, name)?.ok_or(Refusal::Errno(Errno::NotFound))?;
        Ok((ino, self.inode(ino)?))
    }

    /// `create`, `mkdir`, `symlink`, `mknod`.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`, `EACCES`, `EINVAL`, `ENAMETOOLONG`, `EPERM` if a caller other than
    /// root chooses another owner, or [`Refusal::Cold`].
    pub fn plan_create<'a>(
        &self,
        cred: &Cred,
        (parent, name): (Ino, &'a [u8]),
        new: &NewInode<'a>,
        ino: Ino,
    ) -> Plan<'a> {
        check_name(name)?;
        let dir = self.writable_dir(cred, parent)?;
        let file_type = FileType::from_mode(new.mode).ok_or(Errno::Invalid)?;
        if self.find(parent, name)?.is_some() {
            return Err(Errno::Exists.into());
        }
        if file_type == FileType::Symlink {
            let length = new.data.len();
            if length > SYMLINK_BYTES_MAX {
                return Err(Errno::NameTooLong.into());
            }
            if length == 0 || new.data.contains(&0) {
                return Err(Errno::Invalid.into());
            }
        }
        let (uid, mut gid) = new.owner.unwrap_or((cred.uid, cred.gid));
        if !cred.is_root() && (uid != cred.uid || !cred.in_group(gid)) {
            return Err(Errno::NotPermitted.into());
        }
        let mut mode = new.mode & (MODE_TYPE | MODE_PERMISSIONS);
        if dir.mode & SET_GID != 0 && new.owner.is_none() {
            gid = dir.gid;
            mode |= if file_type == FileType::Directory { SET_GID } else { 0 };
        }
        let mtime = new.mtime.unwrap_or(new.time);
        let data_size =
            if file_type == FileType::Symlink { new.data.len() as u64 } else { new.size };
        Ok(Planned::plain(Event::Create(Create {
            parent,
            name,
            ino,
            mode,
            uid,
            gid,
            rdev: new.rdev,
            size: data_size,
            time: new.time,
            mtime,
            atime: new.atime.unwrap_or(mtime),
            data: new.data,
        })))
    }

    fn snapshot(
        &self,
        ino: Ino,
        inode: &Inode,
        time: Timestamp,
    ) -> (Snapshot<'static>, Option<Arc<Extra>>) {
        let attr = Attr { ctime: time, ..inode.attr(ino) };
        (Snapshot { attr, data: &[], extra: &[] }, self.extra(ino, inode).cloned())
    }

    /// `link`: one more name for an inode that is not a directory.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EEXIST`, `EMLINK`, `EACCES`, `ENOTDIR`, `ESTALE` or
    /// [`Refusal::Cold`].
    pub fn plan_link<'a>(
        &self,
        cred: &Cred,
        ino: Ino,
        (parent, name): (Ino, &'a [u8]),
        time: Timestamp,
    ) -> Plan<'a> {
        check_name(name)?;
        let inode = self.inode(ino)?;
        if inode.is_dir() {
            return Err(Errno::NotPermitted.into());
        }
        self.writable_dir(cred, parent)?;
        if self.find(parent, name)?.is_some() {
            return Err(Errno::Exists.into());
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::TooManyLinks.into());
        }
        let (mut snapshot, first) = self.snapshot(ino, inode, time);
        snapshot.attr.nlink += 1;
        let event = Event::Link { parent, name, ino, home: inode.home, inode: snapshot, time };
        Ok(Planned { event, first, second: None })
    }

    /// `unlink`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR` for a directory, `EACCES`, `EPERM` in a sticky directory, `ENOTDIR` or
    /// [`Refusal::Cold`].
    pub fn plan_unlink<'a>(
        &self,
        cred: &Cred,
        parent: Ino,
        name: &'a [u8],
        time: Timestamp,
    ) -> Plan<'a> {
        let dir = self.writable_dir(cred, parent)?;
        let (_, inode) = self.existing(parent, name)?;
        self.sticky(cred, dir, inode)?;
        if inode.is_dir() {
            return Err(Errno::IsDirectory.into());
        }
        Ok(Planned::plain(Event::Unlink { parent, name, time }))
    }

    /// `rmdir`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM` in a sticky directory, or
    /// [`Refusal::Cold`].
    pub fn plan_rmdir<'a>(
        &self,
        cred: &Cred,
        parent: Ino,
        name: &'a [u8],
        time: Timestamp,
    ) -> Plan<'a> {
        let dir = self.writable_dir(cred, parent)?;
        let (ino, inode) = self.existing(parent, name)?;
        if !inode.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        self.sticky(cred, dir, inode)?;
        self.is_empty(ino)?;
        Ok(Planned::plain(Event::Rmdir { parent, name, time }))
    }

    fn is_empty(&self, dir: Ino) -> Result<(), Refusal> {
        match self.dirs.get(&dir) {
            Some(content) if content.entries > 0 => Err(Errno::NotEmpty.into()),
            Some(content) if content.complete => Ok(()),
            Some(_) | None => Err(Refusal::Cold(dir)),
        }
    }

    /// `rename`. `Ok(None)` if both names are already the same inode: POSIX then does nothing.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST` (with `no_replace`), `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EINVAL` if a
    /// directory would move below itself, `EACCES`, `EPERM`, or [`Refusal::Cold`].
    pub fn plan_rename<'a>(
        &self,
        cred: &Cred,
        from: (Ino, &'a [u8]),
        to: (Ino, &'a [u8]),
        flags: RenameFlags,
        time: Timestamp,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        check_name(from.1)?;
        check_name(to.1)?;
        if flags.no_replace && flags.exchange {
            return Err(Errno::Invalid.into());
        }
        let from_dir = self.writable_dir(cred, from.0)?;
        let to_dir = self.writable_dir(cred, to.0)?;
        let (ino, inode) = self.existing(from.0, from.1)?;
        self.sticky(cred, from_dir, inode)?;
        self.may_move_to(cred, (ino, inode), from.0, to.0)?;
        let target = self.find(to.0, to.1)?;
        let (moved, first) = self.snapshot(ino, inode, time);
        let mut planned = Planned {
            event: Event::Unlink { parent: from.0, name: from.1, time },
            first,
            second: None,
        };
        let mut exchanged = None;
        if let Some(target) = target {
            let target_inode = self.inode(target)?;
            if flags.no_replace {
                return Err(Errno::Exists.into());
            }
            if target == ino {
                return Ok(None);
            }
            self.sticky(cred, to_dir, target_inode)?;
            if flags.exchange {
                self.may_move_to(cred, (target, target_inode), to.0, from.0)?;
                let (snapshot, second) = self.snapshot(target, target_inode, time);
                exchanged = Some(snapshot);
                planned.second = second;
            } else {
                self.may_replace(inode, (target, target_inode))?;
            }
        } else if flags.exchange {
            return Err(Errno::NotFound.into());
        }
        planned.event = Event::Rename {
            parent: from.0,
            name: from.1,
            new_parent: to.0,
            new_name: to.1,
            moved,
            exchanged,
            time,
        };
        Ok(Some(planned))
    }

    fn may_move_to(
        &self,
        cred: &Cred,
        (ino, inode): (Ino, &Inode),
        from: Ino,
        to: Ino,
    ) -> Result<(), Refusal> {
        if !inode.is_dir() || from == to {
            return Ok(());
        }
        if self.is_within(to, ino) {
            return Err(Errno::Invalid.into());
        }
        // The directory's `..` changes, so POSIX asks for write permission on it.
        self.allow(cred, inode, WRITE)
    }

    fn may_replace(&self, inode: &Inode, (target, over): (Ino, &Inode)) -> Result<(), Refusal> {
        match (inode.is_dir(), over.is_dir()) {
            (false, false) => Ok(()),
            (false, true) => Err(Errno::IsDirectory.into()),
            (true, false) => Err(Errno::NotDirectory.into()),
            (true, true) => self.is_empty(target),
        }
    }

    /// `chmod`, `chown`, `truncate`, `utimens`.
    ///
    /// # Errors
    /// `EPERM` if the caller does not own the inode (or, for another owner or a foreign group, is
    /// not root), `EACCES` to truncate without write permission, `EISDIR` to truncate a directory,
    /// `EINVAL` to truncate anything else but a file, `ESTALE`.
    pub fn plan_setattr(
        &self,
        cred: &Cred,
        ino: Ino,
        change: &AttrChange,
        time: Timestamp,
    ) -> Plan<'static> {
        let inode = self.inode(ino)?;
        let mut change = *change;
        if change.size.is_some() {
            match inode.file_type() {
                FileType::Regular => self.allow(cred, inode, WRITE)?,
                FileType::Directory => return Err(Errno::IsDirectory.into()),
                FileType::Symlink
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharDevice
                | FileType::BlockDevice => return Err(Errno::Invalid.into()),
            }
        }
        let times = change.atime.is_some() || change.mtime.is_some();
        if change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
            self.owner_only(cred, inode)?;
        } else if times && self.owner_only(cred, inode).is_err() {
            self.allow(cred, inode, WRITE).map_err(|_| Refusal::Errno(Errno::NotPermitted))?;
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
    /// 255 bytes, `EFBIG` over 64 KiB a value or 128 KiB in all, `EINVAL`, `ESTALE`.
    pub fn plan_setxattr<'a>(
        &self,
        cred: &Cred,
        ino: Ino,
        (name, value): (&'a [u8], Option<&'a [u8]>),
        flags: XattrFlags,
        time: Timestamp,
    ) -> Plan<'a> {
        let inode = self.inode(ino)?;
        self.owner_only(cred, inode)?;
        if name.is_empty() || name.contains(&0) {
            return Err(Errno::Invalid.into());
        }
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(Errno::Range.into());
        }
        let extra = self.extra(ino, inode);
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
        Ok(Planned::plain(Event::SetXattr { ino, home: inode.home, name, value, time }))
    }

    /// Replaces the inline content of a small file, or only its size when `data` is empty and the
    /// content is in the object store.
    ///
    /// # Errors
    /// `EACCES`, `EISDIR`, `EINVAL` if it is no file or `data` is longer than `size`, `ESTALE`.
    pub fn plan_setdata<'a>(
        &self,
        cred: &Cred,
        ino: Ino,
        data: &'a [u8],
        size: u64,
        time: Timestamp,
    ) -> Plan<'a> {
        let inode = self.inode(ino)?;
        if inode.is_dir() {
            return Err(Errno::IsDirectory.into());
        }
        if inode.file_type() != FileType::Regular || data.len() as u64 > size {
            return Err(Errno::Invalid.into());
        }
        self.allow(cred, inode, WRITE)?;
        Ok(Planned::plain(Event::SetData { ino, home: inode.home, data, size, time }))
    }

    /// Stores a policy in a directory inode; empty text removes it.
    ///
    /// # Errors
    /// `EPERM` if the caller does not own the directory, `ENOTDIR`, `EINVAL` if the text is no
    /// policy, `ENODATA` to remove what is not there, `ESTALE`.
    pub fn plan_setpolicy<'a>(
        &self,
        cred: &Cred,
        ino: Ino,
        policy: &'a [u8],
        time: Timestamp,
    ) -> Plan<'a> {
        let inode = self.directory(ino)?;
        self.owner_only(cred, inode)?;
        if policy.is_empty() {
            if self.own_policy(ino)?.is_none() {
                return Err(Errno::NoData.into());
            }
        } else if policy::Policy::parse_bytes(policy).is_err() {
            return Err(Errno::Invalid.into());
        }
        Ok(Planned::plain(Event::SetPolicy { ino, home: inode.home, policy, time }))
    }
}

/// A caller other than root who changes the owner, or the mode of a file of a foreign group,
/// loses the set-id bits.
fn strip_set_id(cred: &Cred, inode: &Inode, change: &mut AttrChange) {
    if (change.uid.is_some() || change.gid.is_some()) && !inode.is_dir() {
        let mode = change.mode.unwrap_or(inode.mode & MODE_PERMISSIONS);
        change.mode = Some(mode & !(SET_UID | SET_GID));
    } else if let Some(mode) = change.mode
        && !inode.is_dir()
        && !cred.in_group(inode.gid)
    {
        change.mode = Some(mode & !SET_GID);
    }
}
