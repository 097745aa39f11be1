//! Directories that are split (B-04): all their names are in hidden directories, one for each
//! fragment, which are entries of the directory under names of their own.
//!
//! A split directory answers no question that its fragments can answer: a request for one of its
//! names gets [`Refusal::Cold`] with the directory, and the server replies with the fragments. The
//! moves between a directory and its fragments are ordinary events, which change nothing but the
//! place.

use journal::Event;
use types::{EntryName, Ino, Set};

use crate::plan::Planned;
use crate::{Namespace, Refusal};

impl Namespace {
    /// Says which directories are split.
    pub fn set_split(&mut self, dirs: Set<Ino>) {
        self.split = dirs;
    }

    /// Whether all names of a directory are in its fragments.
    #[inline]
    #[must_use]
    pub fn is_split(&self, dir: Ino) -> bool {
        !self.split.is_empty() && self.split.contains(&dir)
    }

    /// Names that are in a directory itself, split or not, after a name or from the start.
    #[must_use]
    pub fn names_in(&self, dir: Ino, after: Option<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Ino)> {
        let Some(content) = self.dirs.get(&dir) else { return Vec::new() };
        let names = content.list(after).take(limit);
        names.map(|(name, dentry)| (name.to_vec(), dentry.ino)).collect()
    }

    /// How many names are in a directory itself, split or not, as far as that is known.
    #[must_use]
    pub fn names_here(&self, dir: Ino) -> u64 {
        let Some(content) = self.dirs.get(&dir) else { return 0 };
        content.count().map_or(content.entries, |(names, _)| names)
    }

    /// Moves the name of an inode as it is from a directory to one of its fragments, or back:
    /// nothing else of the inode changes, not even its times. A name without an inode is removed.
    ///
    /// # Errors
    /// [`Refusal::Cold`], and `ENOENT` if the name is not there.
    pub fn plan_move<'a>(
        &self,
        entry: EntryName<'a>,
        ino: Ino,
        to: Ino,
    ) -> Result<Planned<'a>, Refusal> {
        let EntryName { dir: from, name } = entry;
        let Some(inode) = self.inodes.get(ino) else {
            if !self.is_complete(Ino::LINKS) {
                return Err(Refusal::Cold(Ino::LINKS));
            }
            let time = self.inode(from)?.mtime;
            return Ok(Planned::plain(Event::Unlink { parent: from, name, ino: Ino(0), time }));
        };
        self.inode_up_to_date(ino)?;
        let time = inode.ctime;
        let (moved, extra) = self.snapshot(ino, inode, time);
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
}
