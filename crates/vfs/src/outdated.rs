//! Cached objects that a kernel must drop.

use std::sync::Mutex;

use posix::KnownInode;

use crate::held;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Outdated(Mutex<Vec<KnownInode>>);

impl Outdated {
    pub(crate) fn add(&self, known: KnownInode) {
        held(&self.0).push(known);
    }

    pub(crate) fn extend(&self, known: Vec<KnownInode>) {
        held(&self.0).extend(known);
    }

    /// The objects since the last call.
    pub(crate) fn take(&self) -> Vec<KnownInode> {
        std::mem::take(&mut held(&self.0))
    }
}
