//! A copy of a part of a namespace, made as it is needed, on which events are tried.
//!
//! A directory is copied whole or not at all, so a later copy never undoes a change of the trial.

use types::{Ino, Path, Seq, Set};

use crate::Namespace;
use crate::dir::Dir;
use crate::inode::Inode;
use crate::page::Target;

/// See the module documentation.
#[derive(Debug)]
pub struct TrialNamespace {
    namespace: Namespace,
    root: Ino,
    /// Inodes with several names that were copied.
    linked: Set<Ino>,
}

impl TrialNamespace {
    /// Of a subtree.
    #[must_use]
    pub fn new(base: &Namespace, root: Ino) -> Self {
        let mut trial = Self { namespace: Namespace::new(), root, linked: Set::default() };
        for hidden in [Ino::ANCHOR, Ino::LINKS] {
            trial.namespace.tree.dirs.insert(hidden, Box::new(Dir::new(true)));
        }
        trial.namespace.tree.dirs.insert(root, Box::new(Dir::new(false)));
        trial.copy_inode(base, root, Ino::ANCHOR);
        trial
    }

    /// The copy.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// For trying events.
    pub fn namespace_mut(&mut self) -> &mut Namespace {
        &mut self.namespace
    }

    /// Copies an inode, unless it was removed in the trial or is nowhere in memory.
    ///
    /// # Errors
    /// A directory that the base must fetch first.
    pub fn bring(&mut self, base: &Namespace, ino: Ino) -> Result<(), Ino> {
        // From the top: parents are copied first.
        let path: Vec<Ino> = base.ancestors(ino).collect();
        for ino in path.into_iter().rev() {
            if self.namespace.knows(ino) {
                continue;
            }
            match base.home_of(ino) {
                Some(Ino::LINKS) => self.copy_linked(base, ino),
                Some(home) if self.namespace.knows(home) => self.load(base, home)?,
                // Above the subtree, or gone from where it stood.
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Copies a directory's names.
    ///
    /// # Errors
    /// A directory that the base must fetch first.
    pub fn load(&mut self, base: &Namespace, dir: Ino) -> Result<(), Ino> {
        if self.namespace.is_complete(dir) {
            return Ok(());
        }
        if base.knows(dir) {
            let content = base.tree.dirs.get(dir).filter(|content| content.complete).ok_or(dir)?;
            let remote = |ino| !base.knows(ino) && !base.is_complete(Ino::LINKS);
            if content.list(None).any(|(_, dentry)| dentry.is_remote() && remote(dentry.ino)) {
                return Err(Ino::LINKS);
            }
            for (name, dentry) in content.list(None) {
                let (ino, remote) = (dentry.ino, dentry.is_remote());
                if self
                    .namespace
                    .tree
                    .dirs
                    .make(dir)
                    .find_any(types::name_hash(name), name)
                    .is_some()
                {
                    continue;
                }
                let target = Target { ino, file_type: dentry.file_type(), remote };
                self.namespace.tree.dirs.make(dir).add_stored(name, target);
                if remote {
                    self.copy_linked(base, ino);
                } else {
                    self.copy_inode(base, ino, dir);
                }
            }
        }
        self.namespace.store().finish_load(dir, Seq(0), Default::default());
        Ok(())
    }

    /// The path of a directory, or of a file with one name, as it is in the trial.
    #[must_use]
    pub fn path_of(&self, base: &Namespace, ino: Ino) -> Option<Path> {
        if !self.namespace.knows(ino) && !base.is_within(ino, self.root) {
            return base.path_of(ino);
        }
        let mut names = Vec::new();
        for ino in self.namespace.ancestors(ino).take_while(|ino| *ino != self.root) {
            let inode = self.namespace.tree.inodes.get(ino)?;
            names.push(
                self.namespace.tree.dirs.get(inode.home)?.name_by_hash(inode.home_hash, ino)?,
            );
        }
        let top = base.path_of(self.root)?;
        self.namespace
            .is_within(ino, self.root)
            .then(|| names.iter().rev().fold(top, |path, name: &Vec<u8>| path.join(name)))
    }

    fn copy_linked(&mut self, base: &Namespace, ino: Ino) {
        if self.linked.insert(ino) && base.knows(ino) {
            let target =
                |inode: &Inode| Target { ino, file_type: inode.file_type(), remote: false };
            if let Some(target) = base.tree.inodes.get(ino).map(target) {
                let name = crate::link_name(ino);
                self.namespace.tree.dirs.make(Ino::LINKS).add_stored(&name, target);
            }
            self.copy_inode(base, ino, Ino::LINKS);
        }
    }

    fn copy_inode(&mut self, base: &Namespace, ino: Ino, home: Ino) {
        let Some(known) = base.tree.inodes.get(ino) else { return };
        let mut inode = Inode { home, home_hash: known.home_hash, ..Inode::default() };
        inode.set_attr(&known.attr(ino));
        let copied = &mut self.namespace.tree.inodes;
        match base.tree.inodes.extra(ino, known) {
            Some(extra) => copied.insert_with(ino, inode, extra.clone()),
            None => copied.insert(ino, inode),
        }
    }
}
