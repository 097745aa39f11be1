//! Lost changes: the client answered them, and the server rejected them later, as async operations
//! or as replays after a restart.
//!
//! The error of the first lost change belongs to the client, and one sync returns it. Each file has
//! its own error besides, because another program may take the first error.

use std::collections::BTreeMap;

use types::Ino;
use wire::Failure;

use super::Session;

/// The number of files whose errors are kept.
const FILES_MAX: usize = 65_536;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Lost {
    first: Option<Failure>,
    files: BTreeMap<Ino, Failure>,
}

impl Lost {
    /// Adds a lost change of this inode, or of none (0).
    pub(super) fn add(&mut self, ino: Ino, failure: Failure) {
        if ino.0 != 0 {
            self.files.insert(ino, failure.clone());
            if self.files.len() > FILES_MAX {
                self.files.pop_first();
            }
        }
        self.first.get_or_insert(failure);
    }
}

impl Session {
    /// The error of the first lost change, once.
    pub fn take_lost(&mut self) -> Option<Failure> {
        self.lost.first.take()
    }

    /// The error of a lost change of this file.
    #[must_use]
    pub fn lost_of(&self, ino: Ino) -> Option<&Failure> {
        self.lost.files.get(&ino)
    }

    /// Forgets the error of a file, after the client has repeated the change.
    pub fn forget_lost(&mut self, ino: Ino) {
        self.lost.files.remove(&ino);
    }
}
