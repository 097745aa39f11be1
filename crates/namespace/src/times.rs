//! The times of directories, which change with their names.
//!
//! The inode of a directory may not be in memory when the names change, and in a replay it may come
//! from a stale row (module `replay`). The directory keeps the time until the inode arrives.
//!
//! Invariant: in a replay a change of names does not raise the version of the directory's inode.
//! The versions decide between several rows of an inode, and each row has all events up to its own.

use metastore::DirTouch;
use types::{Ino, Seq};

use crate::apply::When;
use crate::inode::REPLAYED;
use crate::{Mode, Namespace};

impl Namespace {
    /// A directory's content changed: its times, and that it must be stored.
    #[inline]
    pub(crate) fn touch(&mut self, when: When, dir: Ino) {
        self.note_dirty(when.seq, dir);
        self.touch_inode(when, dir);
    }

    /// As [`Namespace::touch`], for a directory that is queued otherwise. Returns whether its inode
    /// is here and has the time; in a merge nothing else keeps the time.
    #[inline]
    pub(crate) fn touch_inode(&mut self, when: When, dir: Ino) -> bool {
        let When { seq, time, .. } = when;
        let waits = when.mode == Mode::Replay && self.replays;
        let inode = if waits { None } else { self.inodes.get_mut(dir) };
        let Some(inode) = inode else {
            if !when.merges() {
                let touched = &mut self.dir_mut(dir).touched;
                // In a replay the store may have a newer state already. Events of a merge share one
                // position.
                if touched.is_none_or(|known| known.seq <= seq) {
                    *touched = Some(DirTouch { time, seq });
                }
            }
            return false;
        };
        if when.is_in(inode.version) {
            return true;
        }
        (inode.mtime, inode.ctime) = (time, time);
        inode.stamp(when);
        let marks = self.dirty.marks();
        if inode.flags & marks != marks {
            inode.flags |= marks;
            self.mark_inode(seq, dir);
        }
        true
    }

    /// The inode of a directory came: it changes as the names did that came before it. In a replay
    /// that waits for the end.
    pub(crate) fn resolve_touch(&mut self, ino: Ino) {
        if !self.replays {
            self.resolve_touch_up_to(ino, Seq(u64::MAX));
        }
    }

    /// In a replay, changes of a directory's names up to a position come before a change of its
    /// inode.
    pub(crate) fn resolve_replayed_touch(&mut self, ino: Ino, seq: Seq) {
        if self.replays {
            self.resolve_touch_up_to(ino, seq);
        }
    }

    /// The replay is at its end, and the inodes change as the names did.
    pub(crate) fn resolve_replayed(&mut self) {
        let touched = self.dirs.iter().filter(|(_, dir)| dir.touched.is_some());
        for ino in touched.map(|(ino, _)| *ino).collect::<Vec<_>>() {
            self.resolve_touch(ino);
            if let Some(inode) = self.inodes.get_mut(ino) {
                inode.flags |= REPLAYED;
            }
        }
    }

    fn resolve_touch_up_to(&mut self, ino: Ino, last: Seq) {
        let Some(inode) = self.inodes.get_mut(ino) else { return };
        let is_here = |touched: &mut DirTouch| touched.seq <= last;
        let touched = self.dirs.get_mut(&ino).and_then(|dir| dir.touched.take_if(is_here));
        if let Some(DirTouch { time, seq }) = touched
            && inode.version < seq
        {
            (inode.mtime, inode.ctime, inode.version) = (time, time, seq);
            self.mark_inode(seq, ino);
        }
    }
}
