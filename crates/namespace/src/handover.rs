//! Subtrees that move between the namespaces of two ranks (B-03): one hands over inodes, the other
//! takes them in, and the first forgets them.
//!
//! On the rank that serves a subtree whose name is another rank's, the root's inode is in a hidden
//! directory of its own, [`Ino::above`] the root: the name itself, and all above it, is not there.
//! The rank that has the name keeps an inode of the root that has only its number.

use journal::Event;
use types::{EntryName, Ino, Path, Timestamp};

use crate::dir::Dir;
use crate::{Namespace, Planned};

/// A subtree that was taken out of a namespace ([`Namespace::take_out`]).
#[derive(Debug)]
pub struct DetachedSubtree {
    root: Ino,
    dirs: Vec<(Ino, Box<Dir>)>,
}

impl Namespace {
    /// The event that gives the root of a subtree its inode as it is here, under a name, in another
    /// namespace. `None` if the root is not in memory, or is not all there.
    #[must_use]
    pub fn offer<'a>(&self, root: Ino, entry: EntryName<'a>) -> Option<Planned<'a>> {
        let EntryName { dir: parent, name } = entry;
        let inode = self.inodes.get(root).filter(|inode| inode.is_dir())?;
        self.inode_up_to_date(root).ok()?;
        let (moved, extra) = self.snapshot(root, inode, inode.ctime);
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

    /// The directory that has the name of an inode, and the name.
    #[must_use]
    pub fn name_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        let inode = self.inodes.get(ino)?;
        let name = self.dirs.get(&inode.home)?.name_by_hash(inode.home_hash, ino)?;
        Some((inode.home, name))
    }

    /// Sets the path and the inherited policy (empty for the default) of the root of a subtree
    /// whose name is another rank's.
    pub fn set_above_stub(&mut self, root: Ino, path: Path, policy: &[u8]) {
        let above = Ino::mount_stub(root);
        self.tops.insert(above, path);
        self.set_inherited(above, policy);
    }

    /// The directories of a subtree that are in memory, its root first.
    #[must_use]
    pub fn below(&self, root: Ino) -> Vec<Ino> {
        let mut all = Vec::new();
        let mut next = vec![root];
        while let Some(at) = next.pop() {
            let Some(dir) = self.dirs.get(&at) else { continue };
            all.push(at);
            let dirs = dir.list(None).map(|(_, dentry)| dentry.ino);
            next.extend(dirs.filter(|ino| *ino != at && self.dirs.contains_key(ino)));
        }
        all
    }

    /// Takes a subtree out that another rank serves, all of which the metadata store has, and
    /// directories of which it is not known where they stand. Its inodes are there until they are
    /// forgotten ([`Namespace::forget_out`]), and nothing leads to them.
    ///
    /// # Panics
    /// If a directory of the subtree has something that the store has not.
    pub fn take_out(&mut self, root: Ino) -> DetachedSubtree {
        let clean = |namespace: &Self, dir: &Ino| {
            let dir = namespace.dirs.get(dir);
            dir.is_none_or(|dir| dir.dirty_since.is_none() && dir.flushing.is_none())
        };
        let astray = self.directory_list().into_iter();
        let astray = astray.filter(|dir| !dir.is_mount_stub() && !self.is_anchored(*dir));
        let astray: Vec<Ino> = astray.filter(|dir| clean(self, dir)).collect();
        let mut dirs = Vec::new();
        for dir in self.below(root).into_iter().chain(astray) {
            assert!(clean(self, &dir), "{dir}: what is handed over is stored");
            dirs.extend(self.dirs.remove(&dir).map(|content| (dir, content)));
        }
        DetachedSubtree { root, dirs }
    }

    /// Forgets a subtree that was taken out. Returns the forgotten inodes; that of the root stays
    /// where its name is.
    pub fn forget_out(&mut self, out: DetachedSubtree) -> Vec<Ino> {
        let DetachedSubtree { root, dirs } = out;
        let mut gone = Vec::new();
        for (dir, content) in dirs {
            let names = content.list(None).filter(|(_, dentry)| !dentry.is_remote());
            let inos = names.map(|(_, dentry)| dentry.ino);
            gone.extend(inos.filter(|ino| self.home_of(*ino) == Some(dir)));
        }
        let above = Ino::mount_stub(root);
        if self.tops.remove(&above).is_some() {
            self.dirs.remove(&above);
            self.set_inherited(above, b"");
            gone.push(root);
        }
        for ino in &gone {
            self.inodes.remove(*ino);
            self.extras.remove(ino);
            if self.policies.remove(ino).is_some() {
                self.policy_generation += 1;
            }
        }
        gone
    }

    /// Takes a directory of another rank to be empty, for the replay of events from before it left.
    pub fn take_as_empty(&mut self, dir: Ino) {
        self.dir_mut(dir).complete = true;
    }

    /// Neither writes nor evicts a directory from now on: its objects in the store are damaged.
    pub fn withhold(&mut self, dir: Ino) {
        self.dir_mut(dir).withheld = true;
    }

    /// Names of a directory that are not in memory may be in the metadata store after all.
    pub fn doubt(&mut self, dir: Ino) {
        let dir = self.dir_mut(dir);
        (dir.complete, dir.stored, dir.counted) = (false, true, crate::dir::Counted::No);
    }

    /// Forgets directories that moved to another rank, with all replayed changes, and the inodes
    /// that are at home there.
    pub fn forget_dirs(&mut self, dirs: &[Ino]) {
        for dir in dirs {
            let Some(content) = self.dirs.remove(dir) else { continue };
            for (_, dentry) in content.list(None).filter(|(_, dentry)| !dentry.is_remote()) {
                if self.home_of(dentry.ino) == Some(*dir) {
                    self.forget_inode(dentry.ino);
                }
            }
        }
    }

    fn set_inherited(&mut self, above: Ino, policy: &[u8]) {
        let parsed = policy::Policy::parse_bytes(policy).ok().filter(|_| !policy.is_empty());
        match parsed {
            Some(parsed) => {
                let in_force = crate::ActivePolicy::new(parsed.policy);
                self.policies.insert(above, std::sync::Arc::new(in_force));
            }
            None => drop(self.policies.remove(&above)),
        }
        self.policy_generation += 1;
    }
}
