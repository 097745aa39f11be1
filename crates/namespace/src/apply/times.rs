//! The times of directories, which change with their names.
//!
//! The inode of a directory may not be in memory when the names change, and in a replay it may come
//! from a stale row (module `replay`). The directory keeps the time until the inode arrives.
//!
//! Invariant: in a replay a change of names does not raise the version of the directory's inode.
//! The versions decide between several rows of an inode, and each row has all events up to its own.

use metastore::DirTouch;
use types::{Ino, Seq};

use super::{Apply, Mode, When};

impl Apply<'_> {
    /// A directory's content changed: its times, and that it must be stored.
    #[inline]
    pub(super) fn touch(&mut self, dir: Ino) {
        self.tree.dirs.note_dirty(self.when.seq, dir);
        self.touch_inode(dir);
    }

    /// As [`Apply::touch`], for a directory that is queued otherwise. Returns whether its inode
    /// is here and has the time; in a merge nothing else keeps the time.
    #[inline]
    pub(super) fn touch_inode(&mut self, dir: Ino) -> bool {
        let When { seq, time, .. } = self.when;
        let waits = self.when.mode == Mode::Replay && self.replay.active;
        let inode = if waits { None } else { self.tree.inodes.get_mut(dir) };
        let Some(inode) = inode else {
            if !self.when.merges() {
                let touched = &mut self.tree.dirs.make(dir).touched;
                // In a replay the store may have a newer state already. Events of a merge share one
                // position.
                if touched.is_none_or(|known| known.seq <= seq) {
                    *touched = Some(DirTouch { time, seq });
                }
            }
            return false;
        };
        if self.when.is_in(inode.version) {
            return true;
        }
        (inode.mtime, inode.ctime) = (time, time);
        inode.stamp(self.when);
        let marks = self.tree.dirs.dirty.marks();
        if inode.flags & marks != marks {
            inode.flags |= marks;
            self.tree.mark_inode(seq, dir);
        }
        true
    }

    /// In a replay, changes of a directory's names up to a position come before a change of its
    /// inode.
    pub(super) fn resolve_replayed_touch(&mut self, ino: Ino, seq: Seq) {
        if self.replay.active {
            self.tree.resolve_touch_up_to(ino, seq);
        }
    }
}
