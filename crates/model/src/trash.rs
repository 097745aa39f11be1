//! Trees that are removed at once: each is below a directory of its own that has no name, and comes
//! back from there, or does not.

use std::collections::BTreeSet;

use types::{Cred, EntryName, Errno, Ino, Timestamp, check_name};

use crate::Model;
use crate::request::sticky;

impl Model {
    /// Whether an inode is in a removed tree. Inodes with several names are nowhere in particular.
    #[must_use]
    pub fn is_removed(&self, ino: Ino) -> bool {
        let mut at = ino;
        for _ in 0..=self.names.len() {
            if at == Ino::TRASH {
                return true;
            }
            if self.nodes.get(&at).is_some_and(|node| node.linked) {
                return false;
            }
            match self.names_of(at).first() {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        false
    }

    /// The roots of the removed trees that can be restored.
    pub fn kept(&self) -> impl Iterator<Item = Ino> {
        self.entries(Ino::TRASH).map(|(_, ino)| ino).filter(|ino| !self.ended.contains(ino))
    }

    /// Every inode of these trees.
    #[must_use]
    pub fn kept_inodes(&self) -> BTreeSet<Ino> {
        let mut all = BTreeSet::new();
        let mut todo: Vec<Ino> = self.kept().collect();
        while let Some(ino) = todo.pop() {
            if all.insert(ino) {
                todo.extend(self.entries(ino).map(|(_, below)| below));
            }
        }
        all
    }

    /// Whether an inode is in a removed tree that cannot be restored any more.
    #[must_use]
    pub fn is_in_ended_tree(&self, ino: Ino) -> bool {
        self.is_removed(ino) && !self.kept_inodes().contains(&ino)
    }

    /// Takes the removed trees of another model.
    pub fn take_removed(&mut self, other: &Self) {
        let mut todo = vec![Ino::TRASH];
        while let Some(dir) = todo.pop() {
            for (name, ino) in other.entries(dir) {
                self.names.insert((dir, name.to_vec()), ino);
                if let Some(node) = other.nodes.get(&ino) {
                    self.nodes.insert(ino, node.clone());
                }
                todo.push(ino);
            }
        }
        self.ended.clone_from(&other.ended);
    }

    /// Removes a directory with everything below it.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EACCES`, `EPERM` in a sticky directory and unless the caller is root,
    /// `ESTALE`.
    pub fn discard(
        &mut self,
        cred: &Cred,
        EntryName { dir, name }: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(), Errno> {
        check_name(name)?;
        let parent = self.writable(cred, dir)?;
        let (ino, attr) = self.named(dir, name)?;
        if !attr.is_dir() {
            return Err(Errno::NotDirectory);
        }
        sticky(cred, &parent, &attr)?;
        if !cred.is_root() {
            return Err(Errno::NotPermitted);
        }
        self.names.remove(&(dir, name.to_vec()));
        self.names.insert((Ino::TRASH, ino.to_string().into_bytes()), ino);
        self.changed(ino, time);
        self.touch(dir, time);
        Ok(())
    }

    /// Gives a removed tree a name again.
    ///
    /// # Errors
    /// `ENOENT` for a tree without a way back, `EPERM` unless the caller is root, `EEXIST`,
    /// `ENOTDIR`, `EACCES`, `ESTALE`.
    pub fn restore(
        &mut self,
        cred: &Cred,
        ino: Ino,
        EntryName { dir, name }: EntryName<'_>,
        time: Timestamp,
    ) -> Result<(), Errno> {
        let kept_as = ino.to_string().into_bytes();
        self.peek(Ino::TRASH, &kept_as).ok_or(Errno::NotFound)?;
        // The server forgets an ended tree at an unknown time.
        if self.ended.contains(&ino) {
            return Err(Errno::NotFound);
        }
        if !cred.is_root() {
            return Err(Errno::NotPermitted);
        }
        check_name(name)?;
        self.writable(cred, dir)?;
        self.free_name(dir, name)?;
        self.names.remove(&(Ino::TRASH, kept_as));
        self.names.insert((dir, name.to_vec()), ino);
        self.changed(ino, time);
        self.touch(dir, time);
        Ok(())
    }

    /// Has a removed tree that cannot be restored any more.
    ///
    /// # Errors
    /// `ESTALE` if there is no such tree, `EPERM` unless the caller is root.
    pub fn empty_trash(&mut self, cred: &Cred, ino: Ino) -> Result<(), Errno> {
        self.peek(Ino::TRASH, ino.to_string().as_bytes()).ok_or(Errno::Stale)?;
        if !cred.is_root() {
            return Err(Errno::NotPermitted);
        }
        self.ended.insert(ino);
        Ok(())
    }
}
