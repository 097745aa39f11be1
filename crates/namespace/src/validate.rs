//! The invariants of the namespace.

use types::{FileType, Ino, Set, name_hash};

use crate::Namespace;

impl Namespace {
    /// Checks the invariants of the namespace. The time that this takes grows with the number of
    /// names and inodes.
    ///
    /// # Panics
    /// If one of them does not hold. The message names the invariant.
    pub fn validate(&self) {
        self.tree.inodes.validate();
        self.tree.dirs.dirty.validate();
        let absent: u64 = self.tree.dirs.iter().map(|(_, dir)| dir.absent).sum();
        let at_most = self.tree.dirs.absent_at_most();
        assert!(absent <= at_most, "{absent} missing names are here, counted as {at_most} at most");
        for (ino, dir) in self.tree.dirs.iter() {
            dir.validate(ino);
            if let Some(since) = dir.dirty_since {
                let queued = self.tree.dirs.dirty.has(since, ino);
                // A withheld directory is never written, and left out of the queue.
                let known = queued || dir.withheld;
                assert!(known, "{ino}: the queue of dirty directories has the directory");
            }
        }
        if !self.replay.active {
            self.validate_names();
        }
        self.validate_policies();
        self.validate_noted();
    }

    /// Each name leads to an inode that is where the name says.
    fn validate_names(&self) {
        for (dir, content) in self.tree.dirs.iter() {
            for (name, dentry) in content.list(None) {
                let ino = dentry.ino;
                let inode = self.tree.inodes.get(ino);
                let shown = String::from_utf8_lossy(name);
                if dentry.is_remote() {
                    let home = inode.is_none_or(|inode| inode.home == Ino::LINKS);
                    assert!(home, "{dir}/{shown}: {ino} lives among the inodes with several names");
                    let file = dentry.file_type() != FileType::Directory;
                    assert!(file, "{dir}/{shown}: {ino} is a directory, and has one name");
                    continue;
                }
                let Some(inode) = inode else { panic!("{dir}/{shown}: {ino} is in memory") };
                let home = (inode.home, inode.home_hash);
                assert!(home == (dir, name_hash(name)), "{dir}/{shown}: {ino} lives in {home:?}");
                let same = inode.file_type() == dentry.file_type();
                assert!(same, "{dir}/{shown}: the name says which type of file {ino} is");
            }
        }
    }

    fn validate_policies(&self) {
        let is_file = |ino| self.tree.inodes.get(ino).is_some_and(|inode| !inode.is_dir());
        self.tree.policies.validate(is_file);
        self.tree.quotas.validate(is_file);
    }

    fn validate_noted(&self) {
        let noted: Set<Ino> = self.tree.dirs.dirty.noted.directories().collect();
        for (ino, _) in self.tree.dirs.iter().filter(|(_, dir)| dir.noted) {
            assert!(noted.contains(&ino), "{ino}: a used directory is in the list of those");
        }
    }
}
