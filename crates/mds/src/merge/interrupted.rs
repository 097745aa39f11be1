//! Merges that a crash interrupted.

use std::collections::BTreeMap;

use types::{ClientId, ConnId, Ino, Tid};
use wire::{MergeFlags, Op, Unused};

use super::Merges;
use crate::{Effects, Mds};

impl Merges {
    /// Whether a journal of a subtree is on its way into the namespace.
    pub(crate) fn is_about(&self, subtree: Ino) -> bool {
        self.receiving.iter().chain(&self.queue).any(|merge| merge.subtree == subtree)
    }

    /// What a crash interrupted is to be done to its end.
    pub(crate) fn leave(&mut self, unfinished: BTreeMap<String, (Ino, ClientId)>) {
        self.unfinished = unfinished;
    }
}

impl Mds {
    /// Goes on with merges that a crash interrupted, whose journals the store has: after a recovery
    /// all of a merge is there or, if nothing of it was recorded, nothing (F-03). Their client may
    /// be gone for good, so they go on with the credentials with which the subtree was decoupled.
    pub(crate) fn finish_interrupted(&mut self, effects: &mut Effects) {
        for (object, (subtree, client)) in std::mem::take(&mut self.merges.unfinished) {
            let (bytes, flags) = (0, MergeFlags::default());
            let (object, unused) = (object.as_bytes(), Unused::default());
            let op = Op::Merge { subtree, bytes, object, flags, unused };
            // Refused if its client does not have the subtree any more: then it was finished.
            let Some(known) = self.tables.decoupled.get(&subtree) else { continue };
            let cred = known.cred.clone();
            let _ = self.begin_merge((ConnId::NOBODY, Tid(0)), (client, &cred), &op, effects);
        }
    }
}
