//! The directories that must be stored, their order, and their changes that the journal does not
//! hold.

use std::collections::VecDeque;

use types::{Ino, Seq};

use crate::dir::Dir;
use crate::hits::Noted;
use crate::inode::{ATTR_DIRTY, ATTR_UNJOURNALLED};

/// Directories that the store does not have as they are.
#[derive(Debug)]
pub(crate) struct Dirty {
    /// By the position of the oldest change that is not stored. An entry is void if the directory
    /// says something else.
    queue: VecDeque<(Seq, Ino)>,
    /// Whether changes are in the journal, from now on.
    pub(crate) journalled: bool,
    /// Directories that were used lately.
    pub(crate) noted: Noted,
}

impl Dirty {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::new(), journalled: true, noted: Noted::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Notes a change of a directory.
    #[inline]
    pub(crate) fn note(&mut self, dir: &mut Dir, seq: Seq, ino: Ino) {
        dir.hits.inode_writes = dir.hits.inode_writes.wrapping_add(1);
        self.noted.note(dir, ino);
        if self.journalled {
            dir.journalled = dir.journalled.max(seq);
        } else {
            dir.unjournalled = true;
        }
        if dir.dirty_since.is_none_or(|since| since > seq) {
            self.insert(dir, seq, ino);
        }
    }

    /// Mostly the new position is the largest. A late discovery has an older one: a directory was
    /// out of date in the store.
    fn insert(&mut self, dir: &mut Dir, seq: Seq, ino: Ino) {
        debug_assert!(dir.dirty_since.is_none_or(|since| since > seq), "{ino} is dirty since then");
        // If it was dirty since later, that entry of the queue is void now.
        dir.dirty_since = Some(seq);
        if self.queue.back().is_none_or(|(last, _)| *last <= seq) {
            self.queue.push_back((seq, ino));
        } else {
            let at = self.queue.partition_point(|(queued, _)| *queued <= seq);
            self.queue.insert(at, (seq, ino));
        }
    }

    /// Checks that the queue is in the order of positions.
    ///
    /// # Panics
    /// If it is not.
    pub(crate) fn validate(&self) {
        assert!(self.queue.iter().is_sorted_by_key(|(seq, _)| *seq), "dirty directories in order");
    }

    /// Whether a directory waits that is dirty since a position.
    pub(crate) fn has(&self, since: Seq, ino: Ino) -> bool {
        let first = self.queue.partition_point(|(queued, _)| *queued < since);
        let same = self.queue.iter().skip(first).take_while(|(queued, _)| *queued == since);
        same.into_iter().any(|(_, dir)| *dir == ino)
    }

    /// The flags of an inode whose home knows of a change like the present ones.
    #[inline]
    pub(crate) fn marks(&self) -> u8 {
        if self.journalled { ATTR_DIRTY } else { ATTR_DIRTY | ATTR_UNJOURNALLED }
    }

    /// The first entry that `is_valid`.
    pub(crate) fn first(&mut self, is_valid: impl Fn(Seq, Ino) -> bool) -> Option<(Seq, Ino)> {
        while let Some(&(seq, ino)) = self.queue.front() {
            if is_valid(seq, ino) {
                return Some((seq, ino));
            }
            self.queue.pop_front();
        }
        None
    }
}
