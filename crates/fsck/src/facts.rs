//! The facts of all directories, in about 40 bytes of memory for each inode.

use std::collections::{BTreeMap, BTreeSet};

use journal::{Block, Event};
use mds::RankTable;
use metastore::{Row, RowValue};
use types::{DirFragId, FileType, Ino, Seq};

use crate::quotas::QuotaFacts;

/// A directory, and a name in it.
pub(crate) type Place = (Ino, Box<[u8]>);

/// Where an inode's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Home {
    pub(crate) ino: Ino,
    /// The change that it contains; of two records the later is the one to keep.
    pub(crate) version: Seq,
    pub(crate) dirfrag: DirFragId,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Each record of an inode, sorted by [`Facts::sort`].
    pub(crate) homes: Vec<Home>,
    /// Files that may have content in the store.
    pub(crate) files: Vec<Ino>,
    /// Each directory's name.
    pub(crate) dirs: BTreeMap<Ino, (Ino, Box<[u8]>)>,
    /// Names of inodes that have several: inode, directory, name.
    pub(crate) remotes: Vec<(Ino, DirFragId, Box<[u8]>)>,
    /// How many names the inodes in [`Ino::LINKS`] of all ranks count.
    pub(crate) links: BTreeMap<Ino, u32>,
    pub(crate) tables: Vec<RankTable>,
    /// Removed inodes that servers have yet to purge.
    pub(crate) removed: BTreeSet<Ino>,
    /// The positions of manifests.
    pub(crate) positions: Vec<Seq>,
    pub(crate) quotas: QuotaFacts,
    /// Files whose names are sought, each with its directory and name once the check has seen them.
    pub(crate) sought: BTreeMap<Ino, Option<Place>>,
}

impl Facts {
    /// Adds the facts of one row.
    pub(crate) fn add(&mut self, dirfrag: DirFragId, row: &Row<'_>) {
        self.quotas.add(dirfrag, row);
        match row.value {
            RowValue::Removed => {}
            RowValue::Remote { ino, .. } => self.remotes.push((ino, dirfrag, row.name.into())),
            RowValue::Inode(record) => {
                let attr = record.attr;
                let home = Home { ino: attr.ino, version: record.version, dirfrag };
                self.homes.push(home);
                if let Some(sought) = self.sought.get_mut(&attr.ino) {
                    *sought = Some((dirfrag.ino, row.name.into()));
                }
                match attr.file_type() {
                    FileType::Directory => {
                        self.dirs.insert(attr.ino, (dirfrag.ino, row.name.into()));
                    }
                    FileType::Regular => self.files.push(attr.ino),
                    FileType::Symlink
                    | FileType::BlockDevice
                    | FileType::CharDevice
                    | FileType::Fifo
                    | FileType::Socket => {}
                }
                if dirfrag.ino.is_links() {
                    self.links.insert(attr.ino, attr.nlink);
                }
            }
        }
    }

    /// Takes in the inodes with several names that the list of subtrees has, and no rank yet.
    pub(crate) fn add_handed_over(&mut self, blocks: &[u8]) -> Result<(), String> {
        let mut offset = 0;
        while offset < blocks.len() {
            let (block, next) = Block::read(blocks, offset).map_err(|error| error.to_string())?;
            let mut events = block.events();
            while let Some(record) = events.next_event().map_err(|error| error.to_string())? {
                if let Event::Rename { parent: Ino::LINKS, moved, .. } = record.event {
                    self.links.insert(moved.attr.ino, moved.attr.nlink);
                    self.files.push(moved.attr.ino);
                }
            }
            offset = next;
        }
        Ok(())
    }

    pub(crate) fn sort(&mut self) {
        self.homes.sort_unstable();
        self.files.sort_unstable();
        self.remotes.sort_unstable();
    }

    /// Whether a client that has a decoupled subtree may have used this number already.
    pub(crate) fn is_granted(&self, ino: Ino) -> bool {
        let ranges = self.tables.iter().flat_map(|table| &table.decoupled);
        ranges.flat_map(|(_, _, ranges)| ranges).any(|range| range.contains(ino))
    }

    /// The path of a directory; nothing if it does not lead to the root.
    pub(crate) fn path(&self, dir: Ino) -> Option<String> {
        let (mut at, mut names) = (dir, Vec::new());
        while at != Ino::ROOT {
            let (home, name) = self.dirs.get(&at).filter(|_| names.len() <= self.dirs.len())?;
            names.push(name.escape_ascii().to_string());
            at = *home;
        }
        names.reverse();
        Some(format!("/{}", names.join("/")))
    }
}
