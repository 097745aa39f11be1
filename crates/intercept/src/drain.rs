//! The way of a closed region's tree into the decoupled subtree.
//!
//! The drain reads the tree, not a log of changes: a file that was made and removed leaves nothing.
//! Every directory is placed before its entries, and gets its times after them.

use cudele::{FileType, Ino, NewFile, Placed, Result, Subtree};
use jobtree::{Inode, JobRegion, Kind, ListedName};
use types::{AttrChange, InoRange, Map, Set, Timestamp};

/// How far the tree is placed.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Names that are placed, by the offsets of their entries.
    placed: Set<u64>,
    /// Inodes that are placed, and their first directories.
    inodes: Map<u64, Ino>,
    /// Directories with all their names and times.
    finished: Set<u64>,
}

impl Drain {
    /// Places all that is not placed yet.
    pub(crate) fn run(&mut self, region: &JobRegion, subtree: &mut Subtree) -> Result<()> {
        let (start, end) = region.numbers_left();
        if self.placed.is_empty() {
            subtree.give_numbers_back(InoRange { start, end });
        }
        let mut dirs = vec![region.root()];
        let mut at = 0;
        while let Some(dir) = dirs.get(at).copied() {
            at += 1;
            let mut from = 0;
            while let Some(listed) = region.list(dir, from) {
                from = listed.next;
                self.place(region, subtree, dir, &listed)?;
                if region.kind(listed.inode) == Kind::Directory {
                    dirs.push(listed.inode);
                }
            }
        }
        for dir in dirs.into_iter().rev() {
            if self.finished.insert(dir.0) {
                finish_dir(region, subtree, dir)?;
            }
        }
        Ok(())
    }

    fn place(
        &mut self,
        region: &JobRegion,
        subtree: &mut Subtree,
        dir: Inode,
        listed: &ListedName,
    ) -> Result<()> {
        if self.placed.contains(&listed.entry.0) {
            return Ok(());
        }
        let stat = region.stat(listed.inode);
        let parent = Ino(region.ino(dir));
        if self.inodes.contains_key(&listed.inode.0) {
            subtree.link(Ino(stat.ino), parent, listed.name())?;
        } else {
            let at = Placed {
                ino: Ino(stat.ino),
                parent,
                name: listed.name(),
                ctime: Timestamp(stat.ctime),
            };
            place_inode(region, subtree, listed.inode, &at)?;
            self.inodes.insert(listed.inode.0, parent);
        }
        self.placed.insert(listed.entry.0);
        Ok(())
    }
}

fn place_inode(
    region: &JobRegion,
    subtree: &mut Subtree,
    inode: Inode,
    at: &Placed<'_>,
) -> Result<()> {
    let stat = region.stat(inode);
    let mut new = NewFile {
        file_type: FileType::Regular,
        permissions: stat.mode & 0o7777,
        owner: Some((stat.uid, stat.gid)),
        mtime: Some(Timestamp(stat.mtime)),
        atime: Some(Timestamp(stat.atime)),
        ..NewFile::default()
    };
    match region.kind(inode) {
        Kind::Directory => new.file_type = FileType::Directory,
        Kind::Symlink => {
            let target = region.content(inode);
            (new.file_type, new.data, new.size) = (FileType::Symlink, target, stat.size);
        }
        Kind::File => {
            // The content of a stand-in follows at the end of the job.
            let has_stand_in = region.stand_in(inode).is_some();
            let content = if has_stand_in { b"" } else { region.content(inode) };
            return subtree.place(at, &new, content);
        }
    }
    subtree.place(at, &new, b"")
}

/// The times of a directory, and all that may have changed of the root.
fn finish_dir(region: &JobRegion, subtree: &mut Subtree, dir: Inode) -> Result<()> {
    let stat = region.stat(dir);
    let times = AttrChange {
        atime: Some(Timestamp(stat.atime)),
        mtime: Some(Timestamp(stat.mtime)),
        ..AttrChange::default()
    };
    if dir == region.root() {
        let before = subtree.attr(Ino(stat.ino))?;
        let change = AttrChange {
            mode: Some(stat.mode & 0o7777).filter(|mode| *mode != before.mode & 0o7777),
            uid: Some(stat.uid).filter(|uid| *uid != before.uid),
            gid: Some(stat.gid).filter(|gid| *gid != before.gid),
            ..times
        };
        return subtree.set_attr(Ino(stat.ino), &change);
    }
    let parent = Ino(region.ino(region.parent(dir)));
    let at = Placed { ino: Ino(stat.ino), parent, name: b"", ctime: Timestamp(stat.ctime) };
    subtree.set_placed(&at, &times);
    Ok(())
}
