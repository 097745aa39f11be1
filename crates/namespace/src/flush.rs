//! Checkpoints: rows of a directory that the metadata store lacks.
//!
//! A directory is captured page by page, so that requests are served in between; a page that
//! changes during that is simply dirty again. The result is a fuzzy picture, and that is enough:
//! the journal keeps every event since the oldest change that is not captured, and replaying it
//! over the picture gives the present (see [`Mode::Replay`](crate::Mode::Replay)).

use metastore::{InodeRecord, RowValue, Rows};
use types::{Ino, Seq};

use crate::StoreExchange;
use crate::inode::{ATTR_DIRTY, ATTR_UNJOURNALLED};
use crate::inodes::Inodes;
use crate::page::Dentry;

/// A checkpoint of one directory under way.
#[derive(Debug)]
pub struct Capture {
    /// The directory.
    pub dir: Ino,
    /// If it is about to be stored with changes that no journal holds: the position of the newest
    /// journalled event that may have changed it, or the directory above. In a replay, an event
    /// that is older than the stored directory may put another one in its place there, which takes
    /// over its names. If replay could begin at or before that, an
    /// [`Event::Stored`](journal::Event::Stored) must go first.
    pub overtakes: Option<Seq>,
    page: usize,
}

impl StoreExchange<'_> {
    /// Starts a checkpoint of a directory. From now until [`StoreExchange::end_capture`] it must
    /// not be fetched.
    pub fn begin_capture(&mut self, ino: Ino) -> Option<Capture> {
        let above = self.tree.inodes.home_of(ino).and_then(|home| self.tree.dirs.get(home));
        let above = above.map_or(Seq(0), |dir| dir.journalled);
        let dir = self.tree.dirs.get_mut(ino)?;
        assert!(dir.flushing.is_none(), "{ino}: one write of a directory at a time");
        dir.flushing = Some(dir.dirty_since.take().unwrap_or(Seq(u64::MAX)));
        // Names that are removed from here on must leave tombstones: the run that is being
        // written may bring them back.
        dir.stored = true;
        let unjournalled = std::mem::take(&mut dir.unjournalled);
        dir.overtaking = unjournalled;
        let overtakes = unjournalled.then_some(dir.journalled.max(above));
        Some(Capture { dir: ino, overtakes, page: 0 })
    }

    /// Captures pages until about `budget` rows were taken. Returns whether the directory is done.
    pub fn capture(&mut self, capture: &mut Capture, rows: &mut Rows, budget: usize) -> bool {
        let target = rows.len().saturating_add(budget);
        let Some(dir) = self.tree.dirs.get_mut(capture.dir) else { return true };
        while let Some(page) = dir.page_mut(capture.page) {
            if rows.len() >= target {
                return false;
            }
            if page.dirty > 0 {
                let inodes = &mut self.tree.inodes;
                page.clean(|name, dentry| push_row(inodes, name, dentry, rows));
            }
            capture.page += 1;
        }
        true
    }

    /// The checkpoint is in the store, or the directory is gone.
    pub fn end_capture(&mut self, ino: Ino) {
        if let Some(dir) = self.tree.dirs.get_mut(ino) {
            dir.flushing = None;
            dir.overtaking = false;
        }
    }

    /// Marks everything in a complete directory for the next checkpoint, which can then replace
    /// all its runs.
    pub fn mark_all_dirty(&mut self, ino: Ino, seq: Seq) {
        let Some(dir) = self.tree.dirs.get_mut(ino) else { return };
        for page in 0..dir.page_count() {
            if let Some(page) = dir.page_mut(page) {
                page.mark_all_dirty();
            }
        }
        self.tree.dirs.note_dirty(seq, ino);
    }
}

fn push_row(inodes: &mut Inodes, name: &[u8], dentry: Dentry, rows: &mut Rows) {
    if dentry.is_tombstone() {
        rows.push(name, RowValue::Removed);
        return;
    }
    if dentry.is_remote() {
        let (ino, file_type) = (dentry.ino, dentry.file_type());
        rows.push(name, RowValue::Remote { ino, file_type });
        return;
    }
    let Some(inode) = inodes.get_mut(dentry.ino) else {
        debug_assert!(false, "a primary dentry names an inode in memory");
        return;
    };
    inode.flags &= !(ATTR_DIRTY | ATTR_UNJOURNALLED);
    let attr = inode.attr(dentry.ino);
    let version = inode.version;
    let extra = inodes.extra_of(dentry.ino);
    let (data, encoded): (&[u8], &[u8]) =
        extra.map_or((&[], &[]), |extra| (&extra.data, extra.encoded()));
    rows.push(
        name,
        RowValue::Inode(InodeRecord { attr, version, data, extra: encoded, pointer: None }),
    );
}
