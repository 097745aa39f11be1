//! The tree of a namespace: inodes, directories and policies, and the ways through them.
//!
//! A shared reference to it is a view that changes nothing: planning and the question which
//! directory must be fetched get no more. Parts that change the tree borrow it exclusively.

use metastore::DirTouch;
use types::{FileType, Ino, Map, Seq};

use crate::dir_table::DirTable;
use crate::inode::{Inode, REPLAYED};
use crate::inodes::Inodes;
use crate::page::Target;
use crate::policies::Policies;
use crate::quotas::Quotas;
use crate::{NamedElsewhere, Refusal, link_hash, link_name};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct InodeTree {
    pub(crate) inodes: Inodes,
    pub(crate) dirs: DirTable,
    pub(crate) policies: Policies,
    pub(crate) quotas: Quotas,
}

impl InodeTree {
    pub(crate) fn new() -> Self {
        let (inodes, dirs) = (Inodes::default(), DirTable::new());
        Self { inodes, dirs, policies: Policies::new(), quotas: Quotas::default() }
    }

    /// The directory that has the name of an inode, and the name.
    pub(crate) fn name_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        let inode = self.inodes.get(ino)?;
        let name = self.dirs.get(inode.home)?.name_by_hash(inode.home_hash, ino)?;
        Some((inode.home, name))
    }

    /// Whether an inode is in memory with a name. A replay leaves inodes without a name in memory:
    /// the inodes of a directory that another directory replaced.
    pub(crate) fn has_name(&self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get(ino) else { return false };
        let home = self.dirs.get(inode.home);
        home.is_some_and(|dir| dir.name_by_hash(inode.home_hash, ino).is_some())
    }

    /// The inodes with several names that have all of them in a subtree, in order. As far as the
    /// directories are in memory.
    pub(crate) fn linked_below(&self, root: Ino) -> Result<Vec<Ino>, NamedElsewhere> {
        let mut names: Map<Ino, (u32, Ino)> = Map::default();
        for dir in self.dirs.below(root) {
            let Some(content) = self.dirs.get(dir) else { continue };
            for (_, dentry) in content.list(None).filter(|(_, dentry)| dentry.is_remote()) {
                names.entry(dentry.ino).or_insert((0, dir)).0 += 1;
            }
        }
        // A name of nothing may go: there is nothing that could stay.
        let mut all: Vec<(Ino, u32, Ino)> =
            names.into_iter().map(|(ino, (count, dir))| (ino, count, dir)).collect();
        all.retain(|(ino, ..)| self.inodes.knows(*ino));
        all.sort_unstable();
        let stays = |(ino, count, _): &&(Ino, u32, Ino)| {
            self.inodes.get(*ino).is_some_and(|inode| inode.nlink != *count)
        };
        match all.iter().find(stays) {
            None => Ok(all.into_iter().map(|(ino, ..)| ino).collect()),
            Some((ino, _, dir)) => {
                let mut names = self.dirs.get(*dir).into_iter().flat_map(|dir| dir.list(None));
                let name = names.find(|(_, dentry)| dentry.ino == *ino);
                let name = name.map_or_else(Vec::new, |(name, _)| name.to_vec());
                Err(NamedElsewhere { ino: *ino, dir: *dir, name })
            }
        }
    }

    /// The inode, if it shows every change before this one. The times of a directory may be stored
    /// with its names rather than with its inode. A change of the inode that came before they are
    /// known would make them look older than it, and they would be lost.
    pub(crate) fn inode_up_to_date(&self, ino: Ino) -> Result<&Inode, Refusal> {
        let inode = self.inode(ino)?;
        // The times came with the first fetched names.
        if inode.is_dir() && self.dirs.may_be_counted(ino) {
            return Err(Refusal::Cold(ino));
        }
        Ok(inode)
    }

    /// The inode must be stored again with its dentry.
    pub(crate) fn mark_inode(&mut self, seq: Seq, ino: Ino) {
        let Some(inode) = self.inodes.get(ino) else { return };
        self.dirs.mark(seq, inode.home_name(), ino);
    }

    /// The one name of an inode becomes one of several.
    pub(crate) fn make_remote(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get(ino) else { return };
        let (hash, file_type) = (inode.home_hash, inode.file_type());
        let Some(dir) = self.dirs.get_mut(inode.home) else { return };
        if let Some(name) = dir.name_by_hash(hash, ino) {
            dir.set(hash, &name, Target { ino, file_type, remote: true });
        }
    }

    /// Takes the one name of an inode away. Returns whether it existed.
    pub(crate) fn hide_home(&mut self, ino: Ino) -> bool {
        let Some(inode) = self.inodes.get(ino) else { return false };
        let hash = inode.home_hash;
        let Some(dir) = self.dirs.get_mut(inode.home) else { return false };
        let Some(name) = dir.name_by_hash(hash, ino) else { return false };
        dir.unset(hash, &name).is_some()
    }

    /// Makes [`Ino::LINKS`] the home of an inode.
    pub(crate) fn keep_in_links(&mut self, seq: Seq, ino: Ino, file_type: FileType) {
        debug_assert!(file_type != FileType::Directory, "{ino}: a directory has one name");
        let hash = link_hash(ino);
        if let Some(inode) = self.inodes.get_mut(ino) {
            (inode.home, inode.home_hash) = (Ino::LINKS, hash);
        }
        let target = Target { ino, file_type, remote: false };
        self.dirs.make(Ino::LINKS).set(hash, &link_name(ino), target);
        self.dirs.note_dirty(seq, Ino::LINKS);
    }

    /// Forgets an inode, and nothing of its names if it is a directory.
    pub(crate) fn forget_inode(&mut self, ino: Ino) {
        self.inodes.remove(ino);
        self.policies.forget(ino);
        self.quotas.forget(ino);
    }

    /// Forgets a directory that an event removed, and the inodes of its stale rows. The directory
    /// was empty at that time, so all rows that it has left are stale. The content of a directory
    /// among these inodes stays: the journal may have changes of it.
    pub(crate) fn bury(&mut self, dir: Ino) {
        let Some(content) = self.dirs.remove(dir) else { return };
        self.policies.forget(dir);
        self.quotas.forget(dir);
        for (_, dentry) in content.list(None).filter(|(_, dentry)| !dentry.is_remote()) {
            if self.inodes.home_of(dentry.ino) == Some(dir) {
                self.forget_inode(dentry.ino);
            }
        }
    }

    pub(crate) fn resolve_touch_up_to(&mut self, ino: Ino, last: Seq) {
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        let is_here = |touched: &mut DirTouch| touched.seq <= last;
        let touched = self.dirs.get_mut(ino).and_then(|dir| dir.touched.take_if(is_here));
        if let Some(DirTouch { time, seq }) = touched
            && inode.version < seq
        {
            (inode.mtime, inode.ctime, inode.version) = (time, time, seq);
            self.mark_inode(seq, ino);
        }
    }

    /// The replay is at its end, and the inodes change as the names did.
    pub(crate) fn resolve_replayed(&mut self) {
        let touched = self.dirs.iter().filter(|(_, dir)| dir.touched.is_some());
        for ino in touched.map(|(ino, _)| ino).collect::<Vec<_>>() {
            self.resolve_touch_up_to(ino, Seq(u64::MAX));
            if let Some(inode) = self.inodes.get_mut(ino) {
                inode.flags |= REPLAYED;
            }
        }
    }
}
