//! Planning: every rule is checked here, nothing is changed, and the result is an event.

mod attr;
mod cross_rename;
mod judge;
mod lists;
mod moves;
mod rename;
mod trash;

use std::sync::Arc;

use journal::{Create, Event, InodeSnapshot};
use types::quota::Usage;
use types::{
    Cred, EntryName, Errno, FileType, INLINE_BYTES_MAX, Ino, MODE_PERMISSIONS, MODE_TYPE,
    SYMLINK_BYTES_MAX, Stripe, Timestamp, check_name,
};

use crate::access::{EXECUTE, WRITE, sticky};
use crate::dir::Counted;
use crate::inode::{HAS_EXTRA, Inode};
use crate::tree::InodeTree;
use crate::{Extra, Refusal};

pub use judge::Judge;

const SET_GID: u32 = 0o2000;
/// Most names of one inode.
const LINKS_MAX: u32 = 65_000;

/// What to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedInode<'a> {
    /// File type and permissions.
    pub mode: u32,
    /// Permissions to take off the mode, unless the directory has a default list (`umask`).
    pub umask: u32,
    /// Owner and group, if not the caller's (only root may choose).
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

/// A planned event. It owns its data about moving inodes, so that the namespace can be changed
/// while the event exists.
#[derive(Clone, Debug)]
pub struct Planned<'a> {
    event: Event<'a>,
    first: Option<Arc<Extra>>,
    second: Option<Arc<Extra>>,
}

impl<'a> Planned<'a> {
    pub(crate) fn plain(event: Event<'a>) -> Self {
        Self { event, first: None, second: None }
    }

    pub(crate) fn with_extra(event: Event<'a>, first: Option<Arc<Extra>>) -> Self {
        Self { event, first, second: None }
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
                replaced,
                time,
            } => {
                let moved = lend(moved, &self.first);
                let exchanged = exchanged.as_ref().map(|inode| lend(inode, &self.second));
                Event::Rename {
                    parent,
                    name,
                    new_parent,
                    new_name,
                    moved,
                    exchanged,
                    replaced,
                    time,
                }
            }
            Event::SetXattr { ino, home, name, value, time } => {
                let set_aside = self.first.as_ref().map(|extra| extra.data.as_slice());
                Event::SetXattr { ino, home, name, value: value.and(set_aside.or(value)), time }
            }
            Event::Create(create) => match &self.first {
                Some(lists) => Event::Create(Create { extra: lists.encoded(), ..create }),
                None => Event::Create(create),
            },
            event @ (Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::SetAttr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. }) => event,
        }
    }
}

impl<'a> From<Create<'a>> for Planned<'a> {
    fn from(create: Create<'a>) -> Self {
        Self::plain(Event::Create(create))
    }
}

/// The snapshot with the content that was set aside for it.
fn lend<'s>(snapshot: &InodeSnapshot<'_>, extra: &'s Option<Arc<Extra>>) -> InodeSnapshot<'s> {
    let (data, encoded): (&[u8], &[u8]) =
        extra.as_ref().map_or((&[], &[]), |extra| (&extra.data, extra.encoded()));
    InodeSnapshot { attr: snapshot.attr, data, extra: encoded }
}

/// Plans changes: checks every rule, and returns the event. It has a view of the namespace that
/// cannot change it.
#[derive(Clone, Copy, Debug)]
pub struct Planner<'n> {
    pub(crate) tree: &'n InodeTree,
}

type Plan<'a> = Result<Planned<'a>, Refusal>;

/// An inode together with its number.
#[derive(Clone, Copy)]
struct InodeRef<'n> {
    ino: Ino,
    inode: &'n Inode,
}

impl<'n> Planner<'n> {
    fn writable_dir(self, cred: &Cred, dir: Ino) -> Result<&'n Inode, Refusal> {
        let inode = self.tree.directory(dir)?;
        self.tree.allow(cred, dir, inode, WRITE | EXECUTE)?;
        Ok(inode)
    }

    fn existing(self, entry: EntryName<'_>) -> Result<InodeRef<'n>, Refusal> {
        let found = self.tree.find(entry.dir, entry.name)?;
        let ino = found.ok_or(Refusal::Errno(Errno::NotFound))?;
        Ok(InodeRef { ino, inode: self.tree.inode(ino)? })
    }

    /// `create`, `mkdir`, `symlink`, `mknod`. The event alone: most creates get their number only
    /// when they are planned, and an event with room for moving inodes is a large copy. `inherited`
    /// is room for the lists that the inode gets from its directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`, `EACCES`, `EINVAL`, `ENAMETOOLONG`, `EFBIG` if content is longer than
    /// the inline maximum or a file than [`types::FILE_BYTES_MAX`], `EPERM` if a caller other than
    /// root chooses another owner, `EDQUOT`, or [`Refusal::Cold`].
    pub fn create<'a>(
        self,
        cred: &Cred,
        entry: EntryName<'a>,
        new: &PlannedInode<'a>,
        ino: Ino,
        inherited: &'a mut Vec<u8>,
    ) -> Result<Create<'a>, Refusal> {
        self.create_in(cred, entry, new, ino, |dir, mode| {
            if dir.flags & HAS_EXTRA == 0 {
                return (mode & !(new.umask & 0o777), &[]);
            }
            let (mode, lists) = self.inherit(entry.dir, mode, new.umask);
            *inherited = lists;
            (mode, inherited)
        })
    }

    /// The same as a plan, which owns the inherited lists.
    ///
    /// # Errors
    /// As [`Planner::create`].
    pub fn make<'a>(
        self,
        cred: &Cred,
        entry: EntryName<'a>,
        new: &PlannedInode<'a>,
        ino: Ino,
    ) -> Plan<'a> {
        let mut lists = Vec::new();
        let create = self.create_in(cred, entry, new, ino, |_, mode| {
            let (mode, inherited) = self.inherit(entry.dir, mode, new.umask);
            lists = inherited;
            (mode, &[])
        })?;
        let lists = (!lists.is_empty()).then(|| Arc::new(Extra::from_parts(&[], &lists)));
        Ok(Planned::with_extra(Event::Create(create), lists))
    }

    /// The same; `begins` says with which mode and lists an inode that would have this mode begins
    /// in a directory. A symbolic link has none.
    #[inline]
    fn create_in<'a>(
        self,
        cred: &Cred,
        entry: EntryName<'a>,
        new: &PlannedInode<'a>,
        ino: Ino,
        begins: impl FnOnce(&Inode, u32) -> (u32, &'a [u8]),
    ) -> Result<Create<'a>, Refusal> {
        let EntryName { dir: parent, name } = entry;
        check_name(name)?;
        let dir = self.writable_dir(cred, parent)?;
        let file_type = FileType::from_mode(new.mode).ok_or(Errno::Invalid)?;
        if self.tree.find(parent, name)?.is_some() {
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
        let mut extra: &'a [u8] = &[];
        if file_type != FileType::Symlink {
            (mode, extra) = begins(dir, mode);
        }
        let mtime = new.mtime.unwrap_or(new.time);
        let data_size =
            if file_type == FileType::Symlink { new.data.len() as u64 } else { new.size };
        // Only files have stripes, and only they have no device number.
        let is_file = file_type == FileType::Regular;
        if is_file && new.data.len() > INLINE_BYTES_MAX {
            return Err(Errno::TooBig.into());
        }
        attr::check_length(data_size)?;
        let bytes = if file_type == FileType::Directory { 0 } else { data_size };
        self.tree.room(parent, Usage { inodes: 1, bytes })?;
        let (rdev, stripe) = if is_file { (0, new.stripe) } else { (new.rdev, Stripe::default()) };
        Ok(Create {
            parent,
            name,
            ino,
            mode,
            uid,
            gid,
            rdev,
            stripe,
            size: data_size,
            time: new.time,
            mtime,
            atime: new.atime.unwrap_or(mtime),
            data: new.data,
            extra,
        })
    }

    /// `link`: one more name for an inode that is not a directory.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EEXIST`, `EMLINK`, `EACCES`, `ENOTDIR`, `ESTALE`, `EXDEV` if
    /// other quotas hold there, or [`Refusal::Cold`].
    pub fn link<'a>(
        self,
        cred: &Cred,
        ino: Ino,
        entry: EntryName<'a>,
        time: Timestamp,
    ) -> Plan<'a> {
        let EntryName { dir: parent, name } = entry;
        check_name(name)?;
        let inode = self.tree.inode(ino)?;
        if inode.is_dir() {
            return Err(Errno::NotPermitted.into());
        }
        self.writable_dir(cred, parent)?;
        if self.tree.find(parent, name)?.is_some() {
            return Err(Errno::Exists.into());
        }
        if inode.nlink >= LINKS_MAX {
            return Err(Errno::TooManyLinks.into());
        }
        if !self.tree.has_same_quota(ino, parent) {
            return Err(Errno::CrossDevice.into());
        }
        if let Some(links) = self.tree.dirs.withheld_links() {
            return Err(Refusal::Cold(links));
        }
        let (mut snapshot, first) = self.tree.inodes.snapshot(ino, inode, time);
        snapshot.attr.nlink += 1;
        let event = Event::Link { parent, name, ino, home: inode.home, inode: snapshot, time };
        Ok(Planned { event, first, second: None })
    }

    /// `unlink`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR` for a directory, `EACCES`, `EPERM` in a sticky directory, `ENOTDIR` or
    /// [`Refusal::Cold`].
    pub fn unlink<'a>(self, cred: &Cred, parent: Ino, name: &'a [u8], time: Timestamp) -> Plan<'a> {
        let dir = self.writable_dir(cred, parent)?;
        let ino = match self.existing(EntryName::new(parent, name)) {
            Ok(InodeRef { ino, inode }) => {
                sticky(cred, dir, inode)?;
                if inode.is_dir() {
                    return Err(Errno::IsDirectory.into());
                }
                ino
            }
            // A name of nothing: removing it is all that can be done with it.
            Err(Refusal::Errno(Errno::Io)) => Ino(0),
            Err(refusal) => return Err(refusal),
        };
        Ok(Planned::plain(Event::Unlink { parent, name, ino, time }))
    }

    /// `rmdir`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM` in a sticky directory, or
    /// [`Refusal::Cold`].
    pub fn rmdir<'a>(self, cred: &Cred, parent: Ino, name: &'a [u8], time: Timestamp) -> Plan<'a> {
        let dir = self.writable_dir(cred, parent)?;
        let InodeRef { ino, inode } = self.existing(EntryName::new(parent, name))?;
        if !inode.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        sticky(cred, dir, inode)?;
        self.is_empty(ino)?;
        Ok(Planned::plain(Event::Rmdir { parent, name, ino, time }))
    }

    fn is_empty(self, dir: Ino) -> Result<(), Refusal> {
        if self.tree.dirs.is_split(dir) {
            return Err(Refusal::Cold(dir));
        }
        match self.tree.dirs.get(dir) {
            Some(content) if content.entries > 0 => Err(Errno::NotEmpty.into()),
            Some(content) if content.complete => Ok(()),
            Some(content) if content.counted == Counted::Exactly && content.hidden.0 > 0 => {
                Err(Errno::NotEmpty.into())
            }
            Some(_) | None => Err(Refusal::Cold(dir)),
        }
    }
}
