//! Attaching: a directory without names gets all names of a run in the metadata store, and is
//! fetched on demand like any other.

use types::{Ino, Seq};

use crate::StoreExchange;

impl StoreExchange<'_> {
    /// Records that a directory is about to get names that no journal holds, at this position. It
    /// must be captured next, with [`StoreExchange::begin_capture`].
    pub fn begin_attach(&mut self, ino: Ino, seq: Seq) {
        self.tree.dirs.set_journalled(false);
        self.tree.dirs.note_dirty(seq, ino);
        self.tree.dirs.set_journalled(true);
    }

    /// Marks a captured directory as incomplete, because the store now has its names. Readers wait
    /// until these are fetched.
    pub fn leave_to_store(&mut self, ino: Ino) {
        if let Some(dir) = self.tree.dirs.get_mut(ino) {
            debug_assert_eq!(dir.entries, 0, "only a directory without names is left to the store");
            dir.leave_to_store();
        }
        // No event says how much is there.
        self.tree.doubt_quotas(ino);
    }
}
