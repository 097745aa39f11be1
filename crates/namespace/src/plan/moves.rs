//! Inodes that change their place as they are: between a directory and its fragments (B-04), and
//! from one rank to another (B-03, F-13).

use journal::Event;
use types::{EntryName, Ino, Timestamp};

use super::{Planned, Planner};
use crate::Refusal;

impl Planner<'_> {
    /// Moves the name of an inode as it is from a directory to one of its fragments, or back:
    /// nothing else of the inode changes, not even its times. A name without an inode is removed.
    ///
    /// # Errors
    /// [`Refusal::Cold`], and `ENOENT` if the name is not there.
    pub fn relocate<'a>(
        self,
        entry: EntryName<'a>,
        ino: Ino,
        to: Ino,
    ) -> Result<Planned<'a>, Refusal> {
        let EntryName { dir: from, name } = entry;
        let Some(inode) = self.tree.inodes.get(ino) else {
            if !self.tree.dirs.is_complete(Ino::LINKS) {
                return Err(Refusal::Cold(Ino::LINKS));
            }
            let time = self.tree.inode(from)?.mtime;
            return Ok(Planned::plain(Event::Unlink { parent: from, name, ino: Ino(0), time }));
        };
        self.tree.inode_up_to_date(ino)?;
        let time = inode.ctime;
        let (moved, extra) = self.tree.inodes.snapshot(ino, inode, time);
        let event = Event::Rename {
            parent: from,
            name,
            new_parent: to,
            new_name: name,
            moved,
            exchanged: None,
            replaced: Ino(0),
            time,
        };
        Ok(Planned::with_extra(event, extra))
    }

    /// The event that gives the root of a subtree its inode as it is here, under a name, in another
    /// namespace. `None` if the root is not in memory, or is not all there.
    #[must_use]
    pub fn offer<'a>(self, root: Ino, entry: EntryName<'a>) -> Option<Planned<'a>> {
        let EntryName { dir: parent, name } = entry;
        let inode = self.tree.inodes.get(root).filter(|inode| inode.is_dir())?;
        self.tree.inode_up_to_date(root).ok()?;
        let (moved, extra) = self.tree.inodes.snapshot(root, inode, inode.ctime);
        let event = Event::Rename {
            parent,
            name,
            new_parent: parent,
            new_name: name,
            moved,
            exchanged: None,
            replaced: Ino(0),
            time: Timestamp::default(),
        };
        Some(Planned::with_extra(event, extra))
    }

    /// The event that gives an inode with several names its home in [`Ino::LINKS`] of another
    /// namespace, under the name from `name_in_links`. `None` if it is not in memory.
    #[must_use]
    pub fn offer_linked<'a>(self, ino: Ino, name: &'a [u8]) -> Option<Planned<'a>> {
        let inode = self.tree.inodes.get(ino).filter(|inode| inode.home == Ino::LINKS)?;
        let (moved, extra) = self.tree.inodes.snapshot(ino, inode, inode.ctime);
        let event = Event::Rename {
            parent: Ino::LINKS,
            name,
            new_parent: Ino::LINKS,
            new_name: name,
            moved,
            exchanged: None,
            replaced: Ino(0),
            time: Timestamp::default(),
        };
        Some(Planned::with_extra(event, extra))
    }
}
