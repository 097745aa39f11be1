//! Namespaces that know a part of another one: a client's view of the server's.

use types::{Attr, Ino, name_hash};

use crate::{Extra, StoreExchange};

use crate::inode::Inode;
use crate::page::Target;

impl StoreExchange<'_> {
    /// Makes a directory of another namespace the root of this one: the view of a decoupled client
    /// begins at its subtree. With `empty`, the directory has no entries to be fetched.
    pub fn adopt_root(&mut self, root: &Attr, empty: bool) {
        let known = self.tree.inodes.get(root.ino);
        let (home, home_hash) = known.map_or((Ino::ANCHOR, 0), |it| (it.home, it.home_hash));
        let mut inode = Inode { home, home_hash, ..Inode::default() };
        inode.set_attr(root);
        // The attributes do not say which content and extended attributes the directory has now.
        self.tree.inodes.put(root.ino, inode, Extra::default());
        let dir = self.tree.dirs.make(root.ino);
        dir.complete = empty;
        dir.stored = !empty;
        for hidden in [Ino::ANCHOR, Ino::LINKS] {
            self.tree.dirs.make(hidden).complete = true;
        }
    }

    /// Inodes with several names are fetched like all inodes: for a view of the store, which has
    /// them apart from their names.
    pub fn leave_links_to_store(&mut self) {
        let links = self.tree.dirs.make(Ino::LINKS);
        (links.complete, links.stored) = (false, true);
    }

    /// Adds the name of a directory that is known already.
    pub fn load_name(&mut self, dir: Ino, name: &[u8], attr: &Attr) {
        let target = Target { ino: attr.ino, file_type: attr.file_type(), remote: false };
        self.tree.dirs.make(dir).add_stored(name, target);
        if let Some(inode) = self.tree.inodes.get_mut(attr.ino) {
            (inode.home, inode.home_hash) = (dir, name_hash(name));
        }
    }

    /// Drops a directory and its entries: the view no longer includes it. The content of its
    /// sub-directories stays. Returns the dropped inodes.
    pub fn forget(&mut self, dir: Ino) -> Vec<Ino> {
        let mut forgotten = Vec::new();
        let Some(content) = self.tree.dirs.remove(dir) else { return forgotten };
        for (_, dentry) in content.list(None) {
            if !dentry.is_remote() && !self.tree.dirs.contains(dentry.ino) {
                forgotten.push(dentry.ino);
            }
        }
        let home = self.tree.inodes.home_of(dir).unwrap_or(Ino::ANCHOR);
        if home == Ino::ANCHOR || !self.tree.dirs.contains(home) {
            forgotten.push(dir);
        }
        for ino in &forgotten {
            self.tree.inodes.remove(*ino);
        }
        forgotten
    }
}
