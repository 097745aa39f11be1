//! Subtrees that move between the namespaces of two ranks (B-03): one hands over inodes, the other
//! takes them in, and the first forgets them.
//!
//! On the rank that serves a subtree whose name is another rank's, the root's inode is in a hidden
//! directory of its own, [`Ino::above`] the root: the name itself, and all above it, is not there.
//! The rank that has the name keeps an inode of the root that has only its number.

use types::{Ino, Path};

use crate::dir::Dir;
use crate::tree::InodeTree;

/// A subtree that was taken out of a namespace ([`Handover::take_out`]).
#[derive(Debug)]
pub struct DetachedSubtree {
    root: Ino,
    dirs: Vec<(Ino, Box<Dir>)>,
    /// Directories that may be in the subtree, or in any other one.
    astray: Vec<(Ino, Box<Dir>)>,
}

/// The part that takes subtrees out of this rank's namespace, and puts those of other ranks in.
#[derive(Debug)]
pub struct Handover<'n> {
    pub(crate) tree: &'n mut InodeTree,
}

impl Handover<'_> {
    /// Sets the path and the inherited policy (empty for the default) of the root of a subtree
    /// whose name is another rank's.
    pub fn set_above_stub(&mut self, root: Ino, path: Path, policy: &[u8]) {
        let above = Ino::mount_stub(root);
        self.tree.policies.set_top(above, path, policy);
    }

    /// Takes a subtree out that another rank serves, all of which the metadata store has, and
    /// directories of which it is not known where they stand. Its inodes are there until they are
    /// forgotten ([`Handover::forget_out`]), and nothing leads to them.
    ///
    /// # Panics
    /// If a directory of the subtree has something that the store has not.
    pub fn take_out(&mut self, root: Ino) -> DetachedSubtree {
        let clean = |namespace: &Self, dir: &Ino| {
            let dir = namespace.tree.dirs.get(*dir);
            dir.is_none_or(|dir| dir.dirty_since.is_none() && dir.flushing.is_none())
        };
        let astray = self.tree.dirs.directory_list().into_iter();
        let astray = astray.filter(|dir| !dir.is_mount_stub() && !self.tree.is_anchored(*dir));
        let astray: Vec<Ino> = astray.filter(|dir| clean(self, dir)).collect();
        let mut dirs = Vec::new();
        for dir in self.tree.dirs.below(root) {
            assert!(clean(self, &dir), "{dir}: what is handed over is stored");
            dirs.extend(self.tree.dirs.remove(dir).map(|content| (dir, content)));
        }
        let take = |dir| self.tree.dirs.remove(dir).map(|content| (dir, content));
        let astray = astray.into_iter().filter_map(take).collect();
        DetachedSubtree { root, dirs, astray }
    }

    /// Forgets a subtree that was taken out. Returns the forgotten inodes of the subtree; that of
    /// the root stays where its name is. Inodes in directories of unknown place are forgotten, too,
    /// but may be in a subtree that stays.
    pub fn forget_out(&mut self, out: DetachedSubtree) -> Vec<Ino> {
        let DetachedSubtree { root, dirs, astray } = out;
        for ino in self.at_home(&astray) {
            self.tree.forget_inode(ino);
        }
        let mut gone = self.at_home(&dirs);
        let above = Ino::mount_stub(root);
        if self.tree.policies.remove_top(above) {
            self.tree.dirs.remove(above);
            gone.push(root);
        }
        for ino in &gone {
            self.tree.forget_inode(*ino);
        }
        gone
    }

    /// The inodes with their home in these directories.
    fn at_home(&self, dirs: &[(Ino, Box<Dir>)]) -> Vec<Ino> {
        let mut inos = Vec::new();
        for (dir, content) in dirs {
            let names = content.list(None).filter(|(_, dentry)| !dentry.is_remote());
            let named = names.map(|(_, dentry)| dentry.ino);
            inos.extend(named.filter(|ino| self.tree.inodes.home_of(*ino) == Some(*dir)));
        }
        inos
    }

    /// Takes a directory of another rank to be empty, for the replay of events from before it left.
    pub fn take_as_empty(&mut self, dir: Ino) {
        self.tree.dirs.make(dir).complete = true;
    }

    /// Neither writes nor evicts a directory from now on: its objects in the store are damaged.
    pub fn withhold(&mut self, dir: Ino) {
        self.tree.dirs.make(dir).withheld = true;
    }

    /// Names of a directory that are not in memory may be in the metadata store after all.
    pub fn doubt(&mut self, dir: Ino) {
        let dir = self.tree.dirs.make(dir);
        (dir.complete, dir.stored, dir.counted) = (false, true, crate::dir::Counted::No);
    }

    /// Forgets directories that moved to another rank, with all replayed changes, and the inodes
    /// that are at home there.
    pub fn forget_dirs(&mut self, dirs: &[Ino]) {
        for dir in dirs {
            let Some(content) = self.tree.dirs.remove(*dir) else { continue };
            for (_, dentry) in content.list(None).filter(|(_, dentry)| !dentry.is_remote()) {
                if self.tree.inodes.home_of(dentry.ino) == Some(*dir) {
                    self.tree.forget_inode(dentry.ino);
                }
            }
        }
    }
}
