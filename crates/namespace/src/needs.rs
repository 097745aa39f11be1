//! Which directory must be fetched before an event can be applied exactly.
//!
//! The questions change nothing: the caller fetches the directory and asks again.

use journal::{Create, Event, InodeSnapshot, Loss};
use types::{EntryName, FileType, Ino, Seq, name_hash};

use crate::inode::REPLAYED;
use crate::load::is_hidden;
use crate::page::Dentry;
use crate::tree::InodeTree;

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub struct Needs<'n> {
    pub(crate) tree: &'n InodeTree,
    /// A journal is being replayed.
    pub(crate) replays: bool,
}

impl Needs<'_> {
    /// The directory that must be fetched before an event can be applied exactly, if any. Live
    /// events need none, because planning them already fetched their directories.
    #[must_use]
    pub fn of(self, event: &Event<'_>) -> Option<Ino> {
        self.again(Seq(u64::MAX), event)
    }

    /// As [`Needs::of`], for an event of this rank's journal at this position that is
    /// repeated: the namespace may be ahead of it. A directory that got its name later is not the
    /// one that the event replaced, and may be another rank's.
    #[must_use]
    pub fn again(self, seq: Seq, event: &Event<'_>) -> Option<Ino> {
        match *event {
            Event::Create(ref create) if is_dir(create) => {
                let place = EntryName::new(create.parent, create.name);
                self.takeover_needed(seq, place, create.ino)
            }
            Event::Create(_)
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => None,
            Event::Link { ino, home, parent, name, .. } => self
                .old_name_needed(ino, home)
                .or_else(|| self.home_needed(ino, Ino::LINKS))
                .or_else(|| self.tree.dirs.withheld_links())
                .or_else(|| self.name_needed(parent, name)),
            Event::Unlink { parent, name, ino, .. } => self
                .name_needed(parent, name)
                .or_else(|| self.lost_name_needed(EntryName::new(parent, name), ino)),
            Event::Rmdir { parent, name, .. } => self.name_needed(parent, name),
            Event::Rename {
                parent,
                name,
                new_parent,
                new_name,
                moved,
                exchanged,
                replaced,
                ..
            } => self
                .name_needed(parent, name)
                .or_else(|| self.name_needed(new_parent, new_name))
                .or_else(|| self.lost_name_needed(EntryName::new(new_parent, new_name), replaced))
                .or_else(|| self.links_needed(&moved))
                .or_else(|| exchanged.and_then(|back| self.links_needed(&back)))
                .or_else(|| {
                    let to = EntryName::new(new_parent, new_name);
                    self.takeover_needed(seq, to, moved.attr.ino)
                        .filter(|_| moved.attr.is_dir() && exchanged.is_none())
                }),
            Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. }
            | Event::SetData { ino, home, .. }
            | Event::SetPolicy { ino, home, .. } => self
                .home_needed(ino, home)
                .or_else(|| self.moved_home_needed(ino, home))
                .or_else(|| self.times_needed(ino)),
        }
    }

    /// The inode is a directory's, as the store has it. The directory's rows may have newer times,
    /// and must be fetched before a change makes the inode look newer than they are.
    fn times_needed(self, ino: Ino) -> Option<Ino> {
        let inode = self.tree.inodes.get(ino)?;
        let as_stored = inode.is_dir() && inode.flags & REPLAYED == 0;
        (as_stored && !self.tree.dirs.is_complete(ino)).then_some(ino)
    }

    /// Whether an event of another journal gives or takes a name in a directory that does not
    /// exist: existing ones were fetched when the journal was verified. The event is rejected.
    #[must_use]
    pub fn lacks_place(self, event: &Event<'_>) -> bool {
        let lacks = |dir| !self.tree.inodes.knows(dir);
        let other = matches!(*event, Event::Rename { new_parent, .. } if lacks(new_parent));
        event.dentry().is_some_and(|(dir, _)| lacks(dir)) || other
    }

    /// As [`Needs::of`], for an event of another journal. If the event replaces a directory
    /// by a directory, the names of the old one must be in memory to be taken over; if it removes
    /// one, to prove that there are none; and if names are lost with a directory, all names below
    /// it, because their files go with them. `is_new` is true for directories that the journal made
    /// itself: all their names come from it.
    #[must_use]
    pub fn in_merge(self, event: &Event<'_>, is_new: impl Fn(Ino) -> bool) -> Option<Ino> {
        let (parent, name, winner, takes_over) = match *event {
            Event::Create(ref create) if is_dir(create) && is_new(create.parent) => return None,
            Event::Create(ref create) => (create.parent, create.name, create.ino, is_dir(create)),
            Event::Rename { new_parent, new_name, ref moved, .. } => {
                (new_parent, new_name, moved.attr.ino, moved.attr.is_dir())
            }
            Event::Rmdir { parent, name, .. } => (parent, name, Ino(0), false),
            Event::Link { parent, name, ino, home, .. } if self.is_gone(ino, home) => {
                let links = self.home_needed(ino, Ino::LINKS);
                let name_needed = || self.name_needed(parent, name);
                let place = EntryName::new(parent, name);
                return links
                    .or_else(name_needed)
                    .or_else(|| self.tree_needed(self.tree.dirs.dentry(place)?.ino, &is_new));
            }
            Event::Link { parent, name, ino, .. } => (parent, name, ino, false),
            Event::SetAttr { ino, home, .. }
            | Event::SetXattr { ino, home, .. }
            | Event::SetData { ino, home, .. }
                if self.is_gone(ino, home) =>
            {
                return None;
            }
            Event::Unlink { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. }
            | Event::Session { .. }
            | Event::Merged { .. }
            | Event::Stored { .. } => return self.of(event),
            Event::SetAttr { ino, .. } | Event::SetXattr { ino, .. } => {
                return self.of(event).filter(|_| !is_new(ino));
            }
        };
        let loser = self.tree.dirs.get(parent).and_then(|dir| dir.find(name));
        if loser.is_some_and(|loser| is_new(loser.ino)) {
            let lost = || self.tree_needed(loser?.ino, &is_new);
            return if takes_over { None } else { self.of(event).or_else(lost) };
        }
        let name_needed = || self.name_needed(parent, name).filter(|_| !is_new(parent));
        self.of(event).or_else(name_needed).or_else(|| {
            let loser = loser
                .filter(|loser| loser.ino != winner && self.tree.inodes.is_dir(loser.ino))?
                .ino;
            if takes_over {
                return self
                    .adoption_needed(loser, winner)
                    .or_else(|| self.lost_tree_needed(loser, winner, &is_new));
            }
            if winner == Ino(0) {
                // The directory stays if it has names.
                return (!self.tree.dirs.is_complete(loser)).then_some(loser);
            }
            self.tree_needed(loser, &is_new)
        })
    }

    /// Whether an inode is not here, and nor is the directory that another journal says it is in:
    /// that one does not exist any more, because those that do were brought here when the journal
    /// was verified. The store may still have it until it is purged, and everything in it would
    /// come back if it were fetched.
    fn is_gone(self, ino: Ino, home: Ino) -> bool {
        !self.tree.inodes.knows(ino) && !self.tree.inodes.knows(home) && !is_hidden(home)
    }

    /// A directory that is incomplete in memory and is lost when a directory takes over the names
    /// of another: it is below a directory whose name the winner gives to a file.
    fn lost_tree_needed(
        self,
        loser: Ino,
        winner: Ino,
        is_new: impl Fn(Ino) -> bool,
    ) -> Option<Ino> {
        let is_dir = |dentry: Dentry| dentry.file_type() == FileType::Directory;
        let mut pairs = vec![(loser, winner)];
        while let Some((loser, winner)) = pairs.pop() {
            let (lost, own) = (self.tree.dirs.get(loser)?, self.tree.dirs.get(winner)?);
            for (name, dentry) in lost.list(None).filter(|(_, dentry)| is_dir(*dentry)) {
                match own.find(name) {
                    Some(own) if own.ino == dentry.ino => {}
                    Some(own) if is_dir(own) => pairs.push((dentry.ino, own.ino)),
                    Some(_) => {
                        if let Some(dir) = self.tree_needed(dentry.ino, &is_new) {
                            return Some(dir);
                        }
                    }
                    None => {}
                }
            }
        }
        None
    }

    /// A directory of a tree that is incomplete in memory. The tree of a file has none.
    fn tree_needed(self, root: Ino, is_new: impl Fn(Ino) -> bool) -> Option<Ino> {
        let mut todo = vec![root];
        todo.retain(|root| self.tree.inodes.is_dir(*root));
        while let Some(ino) = todo.pop() {
            let dir = self.tree.dirs.get(ino);
            if !is_new(ino) && dir.is_none_or(|dir| !dir.complete) {
                return Some(ino);
            }
            let names = dir.into_iter().flat_map(|dir| dir.list(None));
            let dirs = names.filter(|(_, it)| it.file_type() == FileType::Directory);
            todo.extend(dirs.map(|(_, dentry)| dentry.ino));
        }
        None
    }

    /// A directory that must be fetched before another directory replaces it.
    fn takeover_needed(self, seq: Seq, entry: EntryName<'_>, winner: Ino) -> Option<Ino> {
        let loser = self.tree.dirs.dentry(entry)?.ino;
        let known = self.tree.inodes.get(loser).filter(|known| known.is_dir())?;
        (loser != winner && known.version <= seq && !self.tree.dirs.is_complete(loser))
            .then_some(loser)
    }

    /// A directory that must be here before [`crate::Namespace::lose_again`].
    #[must_use]
    pub fn to_lose(self, loss: &Loss) -> Option<Ino> {
        let Loss { winner, loser, .. } = *loss;
        if loss.create().is_some() || loss.removed().is_some() {
            None
        } else if winner.0 == 0 {
            self.home_needed(loser, Ino::LINKS)
        } else {
            [loser, winner].into_iter().find(|dir| !self.tree.dirs.is_complete(*dir))
        }
    }

    /// A directory that must be here before one takes over the names of another.
    fn adoption_needed(self, loser: Ino, winner: Ino) -> Option<Ino> {
        let mut pairs = vec![(loser, winner)];
        while let Some((loser, winner)) = pairs.pop() {
            if !self.tree.inodes.is_dir(loser) {
                continue;
            }
            let Some(content) = self.tree.dirs.get(loser).filter(|dir| dir.complete) else {
                return Some(loser);
            };
            let Some(own) = self.tree.dirs.get(winner).filter(|dir| dir.complete) else {
                return Some(winner);
            };
            let both = content
                .list(None)
                .filter_map(|(name, dentry)| Some((dentry.ino, own.find(name)?.ino)));
            pairs.extend(both.filter(|(loser, winner)| loser != winner));
        }
        None
    }

    /// The inode is not here, and its home has not been fetched.
    fn home_needed(self, ino: Ino, home: Ino) -> Option<Ino> {
        (!self.tree.inodes.knows(ino) && !self.tree.dirs.is_complete(home)).then_some(home)
    }

    /// The name that becomes one of several must be here to be marked as such.
    fn old_name_needed(self, ino: Ino, home: Ino) -> Option<Ino> {
        let elsewhere = self.tree.inodes.home_of(ino).is_some_and(|known| known != Ino::LINKS);
        (!elsewhere && home != Ino::LINKS && !self.tree.dirs.is_complete(home)).then_some(home)
    }

    /// An inode that is not here may be one with several names.
    fn links_needed(self, snapshot: &InodeSnapshot<'_>) -> Option<Ino> {
        if snapshot.attr.is_dir() { None } else { self.home_needed(snapshot.attr.ino, Ino::LINKS) }
    }

    /// The lost name of an inode is gone already: an inode with further names must be in memory to
    /// count it off.
    fn lost_name_needed(self, entry: EntryName<'_>, ino: Ino) -> Option<Ino> {
        let gone = self.tree.dirs.dentry(entry).is_none_or(|dentry| dentry.ino != ino);
        (gone && ino.0 != 0).then(|| self.home_needed(ino, Ino::LINKS)).flatten()
    }

    /// The object of a name is unknown, or is a hard link to an inode that is not in memory.
    fn name_needed(self, parent: Ino, name: &[u8]) -> Option<Ino> {
        let dir = self.tree.dirs.get(parent);
        match dir.and_then(|dir| dir.find_any(name_hash(name), name)) {
            Some(dentry) if dentry.is_remote() && !self.tree.inodes.knows(dentry.ino) => {
                (!self.tree.dirs.is_complete(Ino::LINKS)).then_some(Ino::LINKS)
            }
            Some(_) => None,
            None => (!self.tree.dirs.is_complete(parent)).then_some(parent),
        }
    }

    /// The directory of an inode at the time of an event. It must be fetched before the event
    /// changes the inode, if the row of the inode in memory is one of another directory and may be
    /// stale.
    pub(crate) fn moved_home_needed(self, ino: Ino, home: Ino) -> Option<Ino> {
        let is_other = |known: Ino| known != home && known != Ino::LINKS;
        let moved = self.replays && self.tree.inodes.home_of(ino).is_some_and(is_other);
        (moved && !self.tree.dirs.is_complete(home)).then_some(home)
    }
}

fn is_dir(create: &Create<'_>) -> bool {
    create.file_type() == FileType::Directory
}
