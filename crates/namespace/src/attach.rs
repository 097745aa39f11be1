//! Attaching: a directory without names gets all those of a run that is in the metadata store, and is
//! fetched like any other when somebody looks.

use types::{Ino, Seq};

use crate::Namespace;

impl Namespace {
    /// Notes that a directory is about to get names that no journal holds, at this position. It must be
    /// captured next, with [`Namespace::begin_capture`].
    pub fn begin_attach(&mut self, ino: Ino, seq: Seq) {
        self.set_journalled(false);
        self.note_dirty(seq, ino);
        self.set_journalled(true);
    }

    /// Forgets that a directory has no names: it is captured, and the store will tell. Until then
    /// whoever looks has to wait.
    pub fn leave_to_store(&mut self, ino: Ino) {
        if let Some(dir) = self.dirs.get_mut(&ino) {
            debug_assert_eq!(dir.entries, 0, "only a directory without names is left to the store");
            dir.leave_to_store();
        }
    }
}
