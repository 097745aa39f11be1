//! Changes of policy that need a store write first: directories that only the memory of this server
//! holds are written to the metadata store, and then the request is executed, as if it came only
//! now.
//!
//! Invariant: until then the old policy is in force, also for a recovery; and changes until then
//! are journalled, so that they are as durable as the directories that are being stored.

use namespace::Namespace;
use types::Ino;
use wire::{Answer, Message, Request};

use super::Release;
use crate::checkpoint::{CheckpointCx, SubtreeFlush, Then};
use crate::{MdsEffects, ReplyTo};

/// A request that waits.
#[derive(Debug)]
pub(crate) struct Change {
    at: ReplyTo,
    subtree: Ino,
    frame: Vec<u8>,
    /// The write is done.
    stored: bool,
}

impl Change {
    /// Where the reply goes.
    pub(crate) fn at(&self) -> ReplyTo {
        self.at
    }
}

impl CheckpointCx<'_> {
    /// Begins to store a subtree; the request comes again when that is done.
    pub(super) fn store_first(
        &mut self,
        subtree: Ino,
        request: Request<'_>,
        at: ReplyTo,
        effects: &mut MdsEffects,
    ) {
        let frame = Message::Request(request).to_frame();
        self.changes.push(Change { at, subtree, frame, stored: false });
        let (then, answer, seq) = (Then::GoOn, Answer::Done, self.log.last());
        let flush = SubtreeFlush::new(at, subtree, then, answer, seq);
        self.flush_subtree(flush, effects);
    }

    /// Stores a subtree before it is released.
    pub(crate) fn flush_to_release(&mut self, release: Release, effects: &mut MdsEffects) {
        let Release { subtree, client, unused, at, answer, is_stored: _ } = release;
        let (then, seq) = (Then::Release(client, unused), self.log.last());
        self.flush_subtree(SubtreeFlush::new(at, subtree, then, answer, seq), effects);
    }
}

/// The write for a request is done: returns its frame, to execute it.
pub(crate) fn change_stored(changes: &mut [Change], at: ReplyTo) -> Option<Vec<u8>> {
    let change = changes.iter_mut().find(|known| known.at == at)?;
    change.stored = true;
    Some(change.frame.clone())
}

/// Whether a request comes again because its subtree is stored now.
pub(super) fn take_stored(changes: &mut Vec<Change>, at: ReplyTo) -> bool {
    let place = changes.iter().position(|known| known.at == at && known.stored);
    place.map(|place| changes.swap_remove(place)).is_some()
}

/// Whether a directory is in a subtree that is being stored for another policy.
pub(crate) fn is_in_change(changes: &[Change], namespace: &Namespace, dir: Ino) -> bool {
    changes.iter().any(|change| namespace.is_within(dir, change.subtree))
}

/// It could not be stored.
pub(crate) fn drop_change(changes: &mut Vec<Change>, at: ReplyTo) {
    changes.retain(|known| known.at != at);
}
