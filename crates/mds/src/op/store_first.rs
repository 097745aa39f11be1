//! Changes of policy that need a store write first: directories that only the memory of this server
//! holds are written to the metadata store, and then the request is executed, as if it came only
//! now.
//!
//! Invariant: until then the old policy is in force, also for a recovery; and changes until then
//! are journalled, so that they are as durable as the directories that are being stored.

use namespace::Namespace;
use types::{ConnId, Ino, Set};
use wire::{Answer, Message, Request};

use crate::checkpoint::{SubtreeFlush, Then};
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
    /// Whether the content of a subtree is stored; if not, the write begins, and the request comes
    /// again.
    pub(super) fn is_stored_first(
        &mut self,
        conn: ConnId,
        subtree: Ino,
        request: Request<'_>,
        effects: &mut MdsEffects,
    ) -> bool {
        let at = ReplyTo { conn, tid: request.tid };
        if let Some(place) = self.changes.iter().position(|known| known.at == at && known.stored) {
            self.changes.swap_remove(place);
            return true;
        }
        let frame = Message::Request(request).to_frame();
        self.changes.push(Change { at, subtree, frame, stored: false });
        let (then, answer, seq) = (Then::GoOn, Answer::Done, self.log.last());
        self.checkpointing().flush_subtree(
            SubtreeFlush { at, subtree, then, answer, seq, dirs: Set::default() },
            effects,
        );
        false
    }

    /// The write is done: the request is executed.
    pub(crate) fn go_on_with_change(&mut self, at: ReplyTo, effects: &mut MdsEffects) {
        let Some(place) = self.changes.iter().position(|known| known.at == at) else { return };
        self.changes[place].stored = true;
        let frame = self.changes[place].frame.clone();
        if let Ok(Some((frame, _))) = wire::frame::decode(&frame)
            && let Ok(Message::Request(request)) = Message::decode(frame.payload)
        {
            self.execute(at.conn, &request, effects);
        }
        // The request was refused, or its connection is gone.
        drop_change(&mut self.changes, at);
    }
}

/// Whether a directory is in a subtree that is being stored for another policy.
pub(crate) fn is_in_change(changes: &[Change], namespace: &Namespace, dir: Ino) -> bool {
    changes.iter().any(|change| namespace.is_within(dir, change.subtree))
}

/// It could not be stored.
pub(crate) fn drop_change(changes: &mut Vec<Change>, at: ReplyTo) {
    changes.retain(|known| known.at != at);
}
