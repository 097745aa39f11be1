//! A name that goes to a directory of another rank, or comes from one (F-13).
//!
//! A file leaves in a rename to the hidden directory above it, which means that nothing of it stays
//! here: the content is the other rank's. There it arrives by a rename without a source. A
//! directory leaves in the same rename and stays in the hidden directory, with all its entries:
//! only its name is the other rank's.

use journal::{Event, InodeSnapshot};
use types::quota::Usage;
use types::{Cred, EntryName, Errno, Ino, Timestamp, check_name};

use super::{InodeRef, Planned, Planner};
use crate::Refusal;
use crate::access::{WRITE, sticky};

/// The name that an inode has in the hidden directory above it.
const HIDDEN_NAME: &[u8] = b"root";

impl Planner<'_> {
    /// A name leaves its directory for one of another rank. The event has all that the inode says.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES`, `EPERM`; `EXDEV` for a file with several names, and for a directory
    /// under a quota; or [`Refusal::Cold`].
    pub fn departure<'a>(
        self,
        cred: &Cred,
        entry: EntryName<'a>,
        time: Timestamp,
    ) -> Result<(Ino, Planned<'a>), Refusal> {
        let EntryName { dir: parent, name } = entry;
        check_name(name)?;
        let dir = self.writable_dir(cred, parent)?;
        let InodeRef { ino, inode } = self.existing(entry)?;
        sticky(cred, dir, inode)?;
        if inode.is_dir() && self.tree.quota_root(parent).is_some() {
            return Err(Errno::CrossDevice.into());
        }
        if inode.is_dir() {
            // Its `..` changes, as in a rename within one rank.
            self.tree.allow(cred, ino, inode, WRITE)?;
        } else if inode.home == Ino::LINKS || inode.nlink != 1 {
            return Err(Errno::CrossDevice.into());
        }
        self.tree.inode_up_to_date(ino)?;
        let (moved, extra) = self.tree.inodes.snapshot(ino, inode, time);
        let event = Event::Rename {
            parent,
            name,
            new_parent: Ino::mount_stub(ino),
            new_name: HIDDEN_NAME,
            moved,
            exchanged: None,
            replaced: Ino(0),
            time,
        };
        Ok((ino, Planned::with_extra(event, extra)))
    }

    /// An inode of another rank gets a name here.
    ///
    /// # Errors
    /// `EEXIST` with `no_replace`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `EDQUOT`,
    /// `EXDEV` for a directory under a quota, or [`Refusal::Cold`].
    pub fn arrival<'a>(
        self,
        cred: &Cred,
        moved: &InodeSnapshot<'a>,
        entry: EntryName<'a>,
        no_replace: bool,
        time: Timestamp,
    ) -> Result<Event<'a>, Refusal> {
        let EntryName { dir: parent, name } = entry;
        check_name(name)?;
        let dir = self.writable_dir(cred, parent)?;
        let target = self.tree.find(parent, name)?;
        if let Some(target) = target {
            let inode = self.tree.inode(target)?;
            if no_replace {
                return Err(Errno::Exists.into());
            }
            sticky(cred, dir, inode)?;
            match (moved.attr.is_dir(), inode.is_dir()) {
                (false, true) => return Err(Errno::IsDirectory.into()),
                (true, false) => return Err(Errno::NotDirectory.into()),
                (true, true) => self.is_empty(target)?,
                (false, false) => {}
            }
        }
        if moved.attr.is_dir() && self.tree.quota_root(parent).is_some() {
            return Err(Errno::CrossDevice.into());
        }
        self.tree.room(parent, Usage { inodes: 1, bytes: moved.attr.size })?;
        Ok(Event::Rename {
            parent,
            name,
            new_parent: parent,
            new_name: name,
            moved: *moved,
            exchanged: None,
            replaced: target.unwrap_or_default(),
            time,
        })
    }
}
