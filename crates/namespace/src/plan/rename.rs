//! `rename` and its many edges.

use journal::Event;
use types::quota::Usage;
use types::{Cred, EntryName, Errno, Ino, RenameFlags, Timestamp, check_name};

use super::{InodeRef, Planned, Planner};
use crate::Refusal;
use crate::access::{WRITE, sticky};
use crate::inode::Inode;

impl Planner<'_> {
    /// `rename`. `Ok(None)` if both names are already the same inode: POSIX then does nothing.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST` (with `no_replace`), `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EINVAL` if a
    /// directory would move below itself, `EXDEV` if a directory or a file with several names would
    /// leave its quota, `EDQUOT`, `EACCES`, `EPERM`, or [`Refusal::Cold`].
    pub fn rename<'a>(
        self,
        cred: &Cred,
        from: EntryName<'a>,
        to: EntryName<'a>,
        flags: RenameFlags,
        time: Timestamp,
    ) -> Result<Option<Planned<'a>>, Refusal> {
        check_name(from.name)?;
        check_name(to.name)?;
        if flags.no_replace && flags.exchange {
            return Err(Errno::Invalid.into());
        }
        let from_dir = self.writable_dir(cred, from.dir)?;
        let to_dir = self.writable_dir(cred, to.dir)?;
        let source = self.existing(from)?;
        let InodeRef { ino, inode } = source;
        sticky(cred, from_dir, inode)?;
        self.may_move_to(cred, source, from.dir, to.dir)?;
        let target = self.tree.find(to.dir, to.name)?;
        self.may_leave_quota(source, from.dir, to.dir, target.filter(|_| !flags.exchange))?;
        // The event has all that its inode says.
        self.tree.inode_up_to_date(ino)?;
        let (moved, first) = self.tree.inodes.snapshot(ino, inode, time);
        let mut planned = Planned {
            event: Event::Unlink { parent: from.dir, name: from.name, ino, time },
            first,
            second: None,
        };
        let mut exchanged = None;
        if let Some(target) = target {
            let other = InodeRef { ino: target, inode: self.tree.inode(target)? };
            if flags.no_replace {
                return Err(Errno::Exists.into());
            }
            if target == ino {
                return Ok(None);
            }
            sticky(cred, to_dir, other.inode)?;
            if flags.exchange {
                self.may_move_to(cred, other, to.dir, from.dir)?;
                self.may_leave_quota(other, to.dir, from.dir, Some(ino))?;
                self.tree.inode_up_to_date(target)?;
                let (snapshot, second) = self.tree.inodes.snapshot(target, other.inode, time);
                exchanged = Some(snapshot);
                planned.second = second;
            } else {
                self.may_replace(inode, other)?;
            }
        } else if flags.exchange {
            return Err(Errno::NotFound.into());
        }
        planned.event = Event::Rename {
            parent: from.dir,
            name: from.name,
            new_parent: to.dir,
            new_name: to.name,
            moved,
            exchanged,
            replaced: target.filter(|_| !flags.exchange).unwrap_or_default(),
            time,
        };
        Ok(Some(planned))
    }

    fn may_move_to(
        self,
        cred: &Cred,
        moving: InodeRef<'_>,
        from: Ino,
        to: Ino,
    ) -> Result<(), Refusal> {
        let InodeRef { ino, inode } = moving;
        if !inode.is_dir() || from == to {
            return Ok(());
        }
        if self.tree.is_within(to, ino) {
            return Err(Errno::Invalid.into());
        }
        // The directory's `..` changes, so POSIX asks for write permission on it.
        self.tree.allow(cred, ino, inode, WRITE)
    }

    /// A file goes to a directory with other quotas if these have room. A whole tree is not counted
    /// on the way: programs copy it then, as from one file system to another.
    fn may_leave_quota(
        self,
        moving: InodeRef<'_>,
        from: Ino,
        to: Ino,
        replaced: Option<Ino>,
    ) -> Result<(), Refusal> {
        let InodeRef { ino, inode } = moving;
        if self.tree.quota_root(from) == self.tree.quota_root(to) {
            return Ok(());
        }
        if inode.is_dir() || inode.home == Ino::LINKS {
            return Err(Errno::CrossDevice.into());
        }
        let freed = replaced.filter(|it| *it != ino).and_then(|it| self.tree.inodes.get(it));
        let freed = freed.filter(|it| it.home != Ino::LINKS);
        let freed = freed.map_or_else(Usage::default, |it| Usage { inodes: 1, bytes: it.size });
        let moved = Usage { inodes: 1, bytes: inode.size };
        self.tree.room_to_move(from, to, moved.minus(freed))
    }

    fn may_replace(self, inode: &Inode, target: InodeRef<'_>) -> Result<(), Refusal> {
        match (inode.is_dir(), target.inode.is_dir()) {
            (false, false) => Ok(()),
            (false, true) => Err(Errno::IsDirectory.into()),
            (true, false) => Err(Errno::NotDirectory.into()),
            (true, true) => self.is_empty(target.ino),
        }
    }
}
