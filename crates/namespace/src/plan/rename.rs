//! `rename` and its many edges.

use journal::Event;
use types::{Cred, Errno, Ino, RenameFlags, Timestamp, check_name};

use super::{Planned, WRITE};
use crate::inode::Inode;
use crate::{Namespace, Refusal};

impl Namespace {
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
        // The event has all that its inode says.
        self.inode_up_to_date(ino)?;
        let (moved, first) = self.snapshot(ino, inode, time);
        let mut planned = Planned {
            event: Event::Unlink { parent: from.0, name: from.1, ino, time },
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
                self.inode_up_to_date(target)?;
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
            replaced: target.filter(|_| !flags.exchange).unwrap_or_default(),
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
}
