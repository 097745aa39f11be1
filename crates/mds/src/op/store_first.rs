//! Changes of policy that need a store write first: directories that only the memory of this server
//! holds are written to the metadata store, and then the request is executed, as if it came only
//! now.
//!
//! Invariant: until then the old policy is in force, also for a recovery; and changes until then
//! are journalled, so that they are as durable as the directories that are being stored.

use namespace::Namespace;
use types::{ConnId, Ino};
use wire::{Answer, Message, Request};

use crate::checkpoint::{CheckpointCx, SubtreeFlush, Then};
use crate::fetch::decode;
use crate::{Mds, MdsEffects, ReplyTo};

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

impl Mds {
    /// Begins to store a subtree; the request comes again when that is done.
    pub(super) fn store_first(
        &mut self,
        subtree: Ino,
        request: Request<'_>,
        conn: ConnId,
        effects: &mut MdsEffects,
    ) {
        let at = ReplyTo { conn, tid: request.tid };
        let frame = Message::Request(request).to_frame();
        self.changes.push(Change { at, subtree, frame, stored: false });
        let (then, answer, seq) = (Then::GoOn, Answer::Done, self.log.last());
        let flush = SubtreeFlush::new(at, subtree, then, answer, seq);
        CheckpointCx::of(self).flush_subtree(flush, effects);
    }

    /// The write is done: the request is executed.
    pub(crate) fn go_on_with_change(&mut self, at: ReplyTo, effects: &mut MdsEffects) {
        let Some(place) = self.changes.iter().position(|known| known.at == at) else { return };
        self.changes[place].stored = true;
        let frame = self.changes[place].frame.clone();
        if let Some(Message::Request(request)) = decode(&frame) {
            self.execute(at.conn, &request, effects);
        }
        // The request was refused, or its connection is gone.
        drop_change(&mut self.changes, at);
    }
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
