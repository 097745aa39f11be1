//! Trees that are removed as a whole: each goes to [`Ino::TRASH`] with one event, and comes back
//! with another.
//!
//! Limit: the rules are those of the root of the tree. Whether the caller could remove every name
//! below is a question about the whole tree, so these plans are for callers who may.

use journal::Event;
use types::{Cred, EntryName, Errno, Ino, Timestamp, check_name};

use super::{InodeRef, Plan, Planned, Planner};
use crate::Refusal;
use crate::access::sticky;

impl Planner<'_> {
    /// The directory that a caller removes with everything below it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `EPERM` in a sticky directory, or [`Refusal::Cold`].
    pub fn discarded(self, cred: &Cred, entry: EntryName<'_>) -> Result<Ino, Refusal> {
        check_name(entry.name)?;
        let dir = self.writable_dir(cred, entry.dir)?;
        let InodeRef { ino, inode } = self.existing(entry)?;
        if !inode.is_dir() {
            return Err(Errno::NotDirectory.into());
        }
        sticky(cred, dir, inode)?;
        self.trash()?;
        // The event has all that its inode says.
        self.tree.inode_up_to_date(ino)?;
        Ok(ino)
    }

    /// Removes a directory with everything below it: the directory is under this name in
    /// [`Ino::TRASH`] from then on.
    ///
    /// # Errors
    /// As [`Planner::discarded`].
    pub fn discard<'a>(
        self,
        cred: &Cred,
        entry: EntryName<'a>,
        kept_as: &'a [u8],
        time: Timestamp,
    ) -> Plan<'a> {
        let ino = self.discarded(cred, entry)?;
        self.moved(entry, EntryName::new(Ino::TRASH, kept_as), ino, time)
    }

    /// Gives a removed tree a name again. `kept_as` is its name in [`Ino::TRASH`].
    ///
    /// # Errors
    /// `ENOENT` if it is not there, `EEXIST`, `ENOTDIR`, `EACCES`, and the errors of
    /// [`check_name`]; or [`Refusal::Cold`].
    pub fn restore<'a>(
        self,
        cred: &Cred,
        kept_as: &'a [u8],
        to: EntryName<'a>,
        time: Timestamp,
    ) -> Plan<'a> {
        check_name(to.name)?;
        let ino = self.in_trash(kept_as)?;
        self.writable_dir(cred, to.dir)?;
        if self.tree.find(to.dir, to.name)?.is_some() {
            return Err(Errno::Exists.into());
        }
        self.moved(EntryName::new(Ino::TRASH, kept_as), to, ino, time)
    }

    /// Gives a removed tree another name in [`Ino::TRASH`].
    ///
    /// # Errors
    /// `ENOENT` if it is not there, or [`Refusal::Cold`].
    pub fn rename_in_trash<'a>(
        self,
        kept_as: &'a [u8],
        new: &'a [u8],
        time: Timestamp,
    ) -> Plan<'a> {
        let ino = self.in_trash(kept_as)?;
        let (from, to) = (EntryName::new(Ino::TRASH, kept_as), EntryName::new(Ino::TRASH, new));
        self.moved(from, to, ino, time)
    }

    /// Removes the root of a tree of which everything else is removed.
    ///
    /// # Errors
    /// `ENOENT` if it is not there, `ENOTEMPTY`, or [`Refusal::Cold`].
    pub fn reaped<'a>(self, kept_as: &'a [u8], time: Timestamp) -> Plan<'a> {
        let ino = self.in_trash(kept_as)?;
        self.is_empty(ino)?;
        Ok(Planned::plain(Event::Rmdir { parent: Ino::TRASH, name: kept_as, ino, time }))
    }

    fn moved<'a>(
        self,
        from: EntryName<'a>,
        to: EntryName<'a>,
        ino: Ino,
        time: Timestamp,
    ) -> Plan<'a> {
        let inode = self.tree.inode_up_to_date(ino)?;
        let (moved, extra) = self.tree.inodes.snapshot(ino, inode, time);
        let event = Event::Rename {
            parent: from.dir,
            name: from.name,
            new_parent: to.dir,
            new_name: to.name,
            moved,
            exchanged: None,
            replaced: Ino(0),
            time,
        };
        Ok(Planned::with_extra(event, extra))
    }

    /// `Cold` unless every name in the trash is in memory.
    fn trash(self) -> Result<(), Refusal> {
        let complete = self.tree.dirs.is_complete(Ino::TRASH);
        if complete { Ok(()) } else { Err(Refusal::Cold(Ino::TRASH)) }
    }

    fn in_trash(self, kept_as: &[u8]) -> Result<Ino, Refusal> {
        self.trash()?;
        let found = self.tree.dirs.get(Ino::TRASH).and_then(|trash| trash.find(kept_as));
        let ino = found.map(|dentry| dentry.ino).ok_or(Errno::NotFound)?;
        self.tree.directory(ino)?;
        Ok(ino)
    }
}
