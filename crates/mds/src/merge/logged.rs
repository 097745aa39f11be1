//! The rights of a user in the merge of a log of requests (strong consistency with local
//! durability).
//!
//! A decoupled subtree is its user's; in the subtree of a log, other users work, too. So each event
//! must be one that the user may request when its turn comes: a log is no way around the
//! permissions. An owner may change an own directory and file whatever the mode is, because the log
//! may be older than the mode.
//!
//! Not here: the checks of every merge (`verify`), and the owners and bits that no journal of a
//! user may set (`rights`).

use journal::Event;
use namespace::{Namespace, Refusal};
use types::{AttrChange, Cred, EntryName, Errno, Ino, acl};

use crate::tables::{NumberHolder, Tables};

/// The permissions to search a directory, and to change a file.
const SEARCH: u32 = 1;
const WRITE: u32 = 2;
/// The bit of a directory in which names belong to the owners of their inodes.
const STICKY: u32 = 0o1000;

/// A user, not root, and the subtree of a log.
#[derive(Debug)]
pub(super) struct LogUser<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) tables: &'a Tables,
    pub(super) cred: &'a Cred,
    /// The holder of the numbers that the log may have; `None` for all numbers.
    pub(super) holder: Option<NumberHolder>,
    pub(super) subtree: Ino,
}

impl LogUser<'_> {
    /// Whether the user may request the change of an event.
    ///
    /// # Errors
    /// `EACCES`, `EPERM`, `ESTALE`, or [`Refusal::Cold`].
    pub(super) fn check(&self, event: &Event<'_>) -> Result<(), Refusal> {
        match *event {
            Event::Create(ref create) => {
                self.may_replace(EntryName::new(create.parent, create.name), create.ino)?;
                allow(self.may_make(create.ino))
            }
            Event::Link { parent, name, ino, .. } => {
                self.may_replace(EntryName::new(parent, name), ino)?;
                self.may_reach(ino)
            }
            Event::Unlink { parent, name, .. } | Event::Rmdir { parent, name, .. } => {
                self.may_replace(EntryName::new(parent, name), Ino(0))
            }
            Event::Rename { parent, name, new_parent, new_name, ref moved, exchanged, .. } => {
                let (from, to) =
                    (EntryName::new(parent, name), EntryName::new(new_parent, new_name));
                self.may_replace(from, Ino(0))?;
                self.may_replace(to, moved.attr.ino)?;
                self.may_move(from, moved.attr.ino)?;
                exchanged.map_or(Ok(()), |back| self.may_move(to, back.attr.ino))
            }
            Event::SetAttr { ino, ref change, .. } => {
                let AttrChange { mode, uid, gid, .. } = *change;
                let is_of_owner = mode.is_some() || uid.is_some() || gid.is_some();
                if is_of_owner { allow(self.owns(ino)) } else { self.may_write(ino) }
            }
            Event::SetXattr { ino, name, .. } if acl::is_list(name) => allow(self.owns(ino)),
            Event::SetXattr { ino, .. } | Event::SetData { ino, .. } => self.may_write(ino),
            // The verification has refused these.
            Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => Err(Errno::NotPermitted.into()),
        }
    }

    /// Whether an inode is the user's, or can become so. An inode of another user with this number
    /// may be in the store alone, but not if the number was given for this user's files.
    fn may_make(&self, ino: Ino) -> bool {
        let known = self.namespace.permissions_of(ino);
        let is_given = || self.holder.is_none_or(|holder| self.tables.gave(holder, ino));
        known.map_or_else(is_given, |known| known.uid == self.cred.uid)
    }

    fn owns(&self, ino: Ino) -> bool {
        self.namespace.permissions_of(ino).is_some_and(|known| known.uid == self.cred.uid)
    }

    /// Whether the user may search all directories up to the subtree's root, and has this
    /// permission on the first one.
    fn may_walk(&self, dir: Ino, mut want: u32) -> Result<(), Refusal> {
        for dir in self.namespace.ancestors(dir) {
            self.namespace.access(self.cred, dir, want)?;
            want = SEARCH;
            if dir == self.subtree {
                break;
            }
        }
        Ok(())
    }

    /// Whether the user may reach an inode by a path.
    fn may_reach(&self, ino: Ino) -> Result<(), Refusal> {
        match self.namespace.home_of(ino) {
            _ if self.owns(ino) => Ok(()),
            // It does not know its names.
            Some(Ino::LINKS) | None => Err(Errno::Access.into()),
            Some(home) => self.may_walk(home, SEARCH),
        }
    }

    fn may_write(&self, ino: Ino) -> Result<(), Refusal> {
        self.may_reach(ino)?;
        if self.owns(ino) { Ok(()) } else { self.namespace.access(self.cred, ino, WRITE) }
    }

    /// Whether a move may change an inode: not another user's that is elsewhere.
    fn may_move(&self, from: EntryName<'_>, ino: Ino) -> Result<(), Refusal> {
        if self.may_make(ino) {
            return Ok(());
        }
        allow(self.namespace.peek(from.dir, from.name)? == Some(ino))
    }

    /// Whether the user may take a name from an inode other than `winner`, or give a free name.
    fn may_replace(&self, entry: EntryName<'_>, winner: Ino) -> Result<(), Refusal> {
        let EntryName { dir, name } = entry;
        if self.owns(dir) {
            return Ok(());
        }
        self.may_walk(dir, WRITE | SEARCH)?;
        let taken = self.namespace.peek(dir, name)?.filter(|ino| *ino != winner);
        let Some(taken) = taken else { return Ok(()) };
        let mode = self.namespace.permissions_of(dir).map_or(STICKY, |known| known.mode);
        // A request does not replace a directory that has names; a merge may.
        let is_kept = mode & STICKY != 0 || self.namespace.is_dir(taken);
        allow(!is_kept || self.owns(taken))
    }
}

fn allow(may: bool) -> Result<(), Refusal> {
    if may { Ok(()) } else { Err(Errno::NotPermitted.into()) }
}
