//! The invariants of the namespace.

use types::{FileType, Ino, Set, name_hash};

use crate::Namespace;
use crate::inode::HAS_EXTRA;

impl Namespace {
    /// Checks the invariants of the namespace. The time that this takes grows with the number of
    /// names and inodes.
    ///
    /// # Panics
    /// If one of them does not hold. The message names the invariant.
    pub fn validate(&self) {
        self.inodes.validate();
        self.dirty.validate();
        for (ino, dir) in &self.dirs {
            dir.validate(*ino);
            if let Some(since) = dir.dirty_since {
                let queued = self.dirty.has(since, *ino);
                // A withheld directory is never written, and left out of the queue.
                let known = queued || dir.withheld;
                assert!(known, "{ino}: the queue of dirty directories has the directory");
            }
        }
        if !self.replays {
            self.validate_names();
        }
        self.validate_extras();
    }

    /// Each name leads to an inode that is where the name says.
    fn validate_names(&self) {
        for (dir, content) in &self.dirs {
            for (name, dentry) in content.list(None) {
                let ino = dentry.ino;
                let inode = self.inodes.get(ino);
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
                assert!(home == (*dir, name_hash(name)), "{dir}/{shown}: {ino} lives in {home:?}");
                let same = inode.file_type() == dentry.file_type();
                assert!(same, "{dir}/{shown}: the name says which type of file {ino} is");
            }
        }
    }

    fn validate_extras(&self) {
        for (ino, inode) in self.inodes.iter() {
            let known = self.extras.contains_key(&ino);
            let says = inode.flags & HAS_EXTRA != 0;
            assert!(says || !known, "{ino}: the inode says that it has rare data");
        }
        let lost = self.extras.keys().find(|ino| self.inodes.get(**ino).is_none());
        assert!(lost.is_none(), "{lost:?} has rare data, and is not in memory");
        for ino in self.policies.keys() {
            let is_dir = self.inodes.get(*ino).is_none_or(crate::inode::Inode::is_dir);
            assert!(is_dir, "{ino}: a directory has a policy");
        }
        let noted: Set<Ino> = self.dirty.noted.directories().collect();
        for (ino, _) in self.dirs.iter().filter(|(_, dir)| dir.noted) {
            assert!(noted.contains(ino), "{ino}: a used directory is in the list of those");
        }
    }
}
