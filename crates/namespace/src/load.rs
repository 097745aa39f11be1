//! Fetching: a directory's rows from the metadata store go below its entries in memory.

use metastore::{DirTouch, InodeRecord, Row, RowValue};
use types::{FileType, Ino, Seq, name_hash};

use crate::dir::{Counted, Dir};
use crate::inode::{HashedName, Inode, REPLAYED};
use crate::page::Target;
use crate::{Extra, StoreExchange, link_name};

impl StoreExchange<'_> {
    /// Adds rows of a directory. Entries in memory are newer and win. Call
    /// [`StoreExchange::finish_load`] after the last row.
    pub fn load<'a>(&mut self, dir: Ino, rows: impl Iterator<Item = Row<'a>>) {
        for row in rows {
            self.load_row(dir, &row, Newer::Memory);
        }
    }

    /// Drops the effect of replayed events on a directory and takes the stored directory, which has
    /// all of them and more.
    pub fn replace<'a>(
        &mut self,
        ino: Ino,
        rows: impl Iterator<Item = Row<'a>>,
        position: Seq,
        touched: DirTouch,
    ) {
        let old = self.tree.dirs.make(ino);
        let mut new = Dir::new(false);
        (new.touched, new.policy) = (old.touched, old.policy);
        let old = std::mem::replace(old, new);
        for (_, dentry) in old.list(None) {
            if !dentry.is_remote() && self.tree.inodes.home_of(dentry.ino) == Some(ino) {
                if dentry.file_type() == FileType::Directory {
                    self.replay.overtake(dentry.ino);
                }
                self.tree.inodes.remove(dentry.ino);
            }
        }
        for row in rows {
            self.load_row(ino, &row, Newer::Store);
        }
        self.finish_load(ino, position, touched);
    }

    pub(crate) fn load_row(&mut self, dir: Ino, row: &Row<'_>, ties: Newer) {
        match row.value {
            RowValue::Removed => {}
            RowValue::Remote { ino, file_type } => {
                let target = Target { ino, file_type, remote: true };
                self.tree.dirs.make(dir).add_stored(row.name, target);
            }
            RowValue::Inode(record) => self.load_inode(dir, row.name, &record, ties),
        }
    }

    /// In a replay, rows of one inode may be found in several directories: it moved, and not all
    /// of them were checkpointed since. The newest counts.
    fn load_inode(&mut self, dir: Ino, name: &[u8], record: &InodeRecord<'_>, ties: Newer) {
        let ino = record.attr.ino;
        let hash = name_hash(name);
        if self.tree.dirs.make(dir).find_any(hash, name).is_some() {
            return;
        }
        let file_type = record.attr.file_type();
        if let Some(known) = self.tree.inodes.get(ino)
            && known.home_name() != (HashedName { dir, hash })
        {
            let newer = ties.is_memory(known, record.version);
            if newer && known.home == Ino::LINKS {
                self.tree.dirs.make(dir).set(hash, name, Target { ino, file_type, remote: true });
                return self.note_stale(dir);
            }
            if newer {
                self.tree.dirs.make(dir).unset(hash, name);
                return self.note_stale(dir);
            }
            let old = known.home;
            if dir == Ino::LINKS {
                self.tree.make_remote(ino);
            } else {
                self.tree.hide_home(ino);
            }
            self.note_stale(old);
        }
        self.tree.dirs.make(dir).add_stored(name, Target { ino, file_type, remote: false });
        let known = self.tree.inodes.get(ino);
        if known.is_some_and(|known| ties.is_memory(known, record.version)) {
            return;
        }
        let version = record.version;
        let mut inode = Inode { home: dir, home_hash: hash, version, ..Inode::default() };
        inode.set_attr(&record.attr);
        self.tree.inodes.put(ino, inode, Extra::from_parts(record.data, record.extra));
        if file_type == FileType::Directory {
            self.tree.note_policy(ino);
            self.tree.note_quota(ino);
        }
        self.resolve_touch(ino);
    }

    /// A directory's rows in the store were out of date. The event that changed them is unknown, so
    /// no event may be dropped until the directory is stored again.
    fn note_stale(&mut self, ino: Ino) {
        self.tree.dirs.note_dirty(Seq(0), ino);
    }

    /// Adds an entry that a server listed: its attributes and, for small files and links, its
    /// content. Like in the server, an inode with several names lives in [`Ino::LINKS`].
    pub fn load_entry(&mut self, dir: Ino, name: &[u8], attr: &types::Attr, data: &[u8]) {
        let record = InodeRecord { attr: *attr, data, ..InodeRecord::default() };
        if attr.is_dir() || attr.nlink < 2 {
            return self.load_inode(dir, name, &record, Newer::Memory);
        }
        let (ino, file_type) = (attr.ino, attr.file_type());
        self.load_inode(Ino::LINKS, &link_name(ino), &record, Newer::Memory);
        self.tree.dirs.make(dir).add_stored(name, Target { ino, file_type, remote: true });
    }

    /// Adds the content and extended attributes of an entry from a server's listing
    /// ([`StoreExchange::load_entry`]). No change may have touched them since.
    pub fn load_extra(&mut self, ino: Ino, data: &[u8], xattrs: &[(Vec<u8>, Vec<u8>)]) {
        self.tree.inodes.fill(ino, data, xattrs);
    }

    /// Every row of the directory has been added: from now on a missing name does not exist.
    /// `position` is the one up to which the store has everything, and `touched` a change that its
    /// inode may not show.
    pub fn finish_load(&mut self, ino: Ino, position: Seq, touched: DirTouch) {
        let dir = self.tree.dirs.make(ino);
        debug_assert!(dir.stored || dir.complete, "{ino}: a fetched directory is in the store");
        dir.complete = true;
        (dir.counted, dir.hidden) = (Counted::No, (0, 0));
        self.note_loaded(ino, position, touched);
    }

    pub(crate) fn note_loaded(&mut self, ino: Ino, position: Seq, touched: DirTouch) {
        let dir = self.tree.dirs.make(ino);
        dir.stored = true;
        // Which of the events up to there were about this directory is not known.
        dir.journalled = dir.journalled.max(position);
        if dir.touched.is_none_or(|known| known.seq < touched.seq) && touched.seq != Seq(0) {
            dir.touched = Some(touched);
        }
        self.resolve_touch(ino);
    }
}

/// Decides between two inodes of one version in memory and in the store: changes without a journal
/// have the version of the newest event before them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Newer {
    Memory,
    Store,
}

impl Newer {
    fn is_memory(self, known: &Inode, stored: Seq) -> bool {
        match self {
            Self::Memory if known.flags & REPLAYED == 0 => known.version >= stored,
            Self::Memory | Self::Store => known.version > stored,
        }
    }
}

/// Whether a directory is one of those without a name: no inode has this flag.
pub(crate) fn is_hidden(dir: Ino) -> bool {
    dir.0 < 16 || dir.is_mount_stub()
}
