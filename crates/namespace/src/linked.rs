//! Inodes with several names that go to another rank with the subtree that has all their names
//! (F-13).
//!
//! They are at home in [`Ino::LINKS`], of which each rank has its own: so they are handed over
//! beside the directories, and get another home while their names stay as they are.
//!
//! Invariant: an inode is at home on one rank, where all its names are.

use types::{Ino, Seq};

use crate::{Handover, link_hash, link_name};

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

impl Handover<'_> {
    /// Drops inodes that went to another rank with all their names, in their state up to this
    /// position. An inode with a later position has come back.
    pub fn forget_linked(&mut self, inos: &[Ino], last: Seq) {
        for ino in inos {
            let went =
                |inode: &&crate::inode::Inode| inode.home == Ino::LINKS && inode.version <= last;
            if self.tree.inodes.get(*ino).filter(went).is_none() {
                continue;
            }
            self.tree.inodes.remove(*ino);
            self.tree.dirs.make(Ino::LINKS).unset(link_hash(*ino), &link_name(*ino));
            self.tree.dirs.note_dirty(last, Ino::LINKS);
        }
    }
}

/// The name of an inode in [`Ino::LINKS`]: its number, 16 hexadecimal digits.
#[must_use]
pub fn name_in_links(ino: Ino) -> [u8; 16] {
    link_name(ino)
}
