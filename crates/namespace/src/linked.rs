//! Inodes with several names that go to another rank with the subtree that has all their names
//! (F-13).
//!
//! They are at home in [`Ino::LINKS`], of which each rank has its own: so they are handed over
//! beside the directories, and get another home while their names stay as they are.
//!
//! Invariant: an inode is at home on one rank, where all its names are.

use journal::{Event, InodeSnapshot};
use types::{Ino, Map, Seq, Timestamp};

use crate::apply::When;
use crate::{ApplyOutcome, Namespace, Planned, link_hash, link_name};

/// An inode inside a subtree that cannot go with it, because it has names outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedElsewhere {
    /// The inode.
    pub ino: Ino,
    /// A directory of the subtree.
    pub dir: Ino,
    /// The name in it.
    pub name: Vec<u8>,
}

impl Namespace {
    /// The inodes with several names that have all of them in a subtree, in order. As far as the
    /// directories are in memory.
    ///
    /// # Errors
    /// [`NamedElsewhere`] if one has other names, or counts more than it has.
    pub fn linked_below(&self, root: Ino) -> Result<Vec<Ino>, NamedElsewhere> {
        let mut names: Map<Ino, (u32, Ino)> = Map::default();
        for dir in self.below(root) {
            let Some(content) = self.dirs.get(&dir) else { continue };
            for (_, dentry) in content.list(None).filter(|(_, dentry)| dentry.is_remote()) {
                names.entry(dentry.ino).or_insert((0, dir)).0 += 1;
            }
        }
        // A name of nothing may go: there is nothing that could stay.
        let mut all: Vec<(Ino, u32, Ino)> =
            names.into_iter().map(|(ino, (count, dir))| (ino, count, dir)).collect();
        all.retain(|(ino, ..)| self.knows(*ino));
        all.sort_unstable();
        let stays = |(ino, count, _): &&(Ino, u32, Ino)| {
            self.inodes.get(*ino).is_some_and(|inode| inode.nlink != *count)
        };
        match all.iter().find(stays) {
            None => Ok(all.into_iter().map(|(ino, ..)| ino).collect()),
            Some((ino, _, dir)) => {
                let mut names = self.dirs.get(dir).into_iter().flat_map(|dir| dir.list(None));
                let name = names.find(|(_, dentry)| dentry.ino == *ino);
                let name = name.map_or_else(Vec::new, |(name, _)| name.to_vec());
                Err(NamedElsewhere { ino: *ino, dir: *dir, name })
            }
        }
    }

    /// The data of an inode besides its attributes: content and extended attributes, in bytes.
    #[must_use]
    pub fn extra_bytes(&self, ino: Ino) -> usize {
        self.extras.get(&ino).map_or(0, |extra| extra.data.len() + extra.encoded().len())
    }

    /// The event that gives an inode with several names its home in [`Ino::LINKS`] of another
    /// namespace, under the name from [`name_in_links`]. `None` if it is not in memory.
    #[must_use]
    pub fn offer_linked<'a>(&self, ino: Ino, name: &'a [u8]) -> Option<Planned<'a>> {
        let inode = self.inodes.get(ino).filter(|inode| inode.home == Ino::LINKS)?;
        let (moved, extra) = self.snapshot(ino, inode, inode.ctime);
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

    /// Drops inodes that went to another rank with all their names, in their state up to this
    /// position. An inode with a later position has come back.
    pub fn forget_linked(&mut self, inos: &[Ino], last: Seq) {
        for ino in inos {
            let went =
                |inode: &&crate::inode::Inode| inode.home == Ino::LINKS && inode.version <= last;
            if self.inodes.get(*ino).filter(went).is_none() {
                continue;
            }
            self.inodes.remove(*ino);
            self.extras.remove(ino);
            self.dir_mut(Ino::LINKS).unset(link_hash(*ino), &link_name(*ino));
            self.note_dirty(last, Ino::LINKS);
        }
    }

    /// An inode with several names came from another rank, with all of them.
    #[cold]
    pub(crate) fn apply_linked(&mut self, when: When, moved: &InodeSnapshot<'_>) -> ApplyOutcome {
        if when.merges() {
            return ApplyOutcome::Rejected;
        }
        let ino = moved.attr.ino;
        match self.inodes.get(ino).map(|known| (known.home, known.file_type())) {
            None => self.insert_linked(when, moved),
            Some((Ino::LINKS, _)) => self.refresh(when, moved),
            Some((home, file_type)) => {
                self.make_remote(ino);
                self.note_dirty(when.seq, home);
                self.refresh(when, moved);
                self.keep_in_links(when.seq, ino, file_type);
            }
        }
        self.mark_inode(when.seq, ino);
        ApplyOutcome::Done
    }
}

/// The name of an inode in [`Ino::LINKS`]: its number, 16 hexadecimal digits.
#[must_use]
pub fn name_in_links(ino: Ino) -> [u8; 16] {
    link_name(ino)
}
