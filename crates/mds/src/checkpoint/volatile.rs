//! Merges that only the memory of the server holds: no journal object and no event repeats them.
//!
//! Requests of other clients in the merged directories are journalled. A crash that undid the merge
//! alone would leave a journal with changes of directories that no event makes. So the first such
//! request waits until the store has the subtree.

use types::{Ino, Seq, Set};
use wire::{Answer, ChangeOp, Op};

use super::{Checkpoint, CheckpointCx, SubtreeFlush, Then};
use crate::apply::directory_of;
use crate::op::touched;
use crate::{MdsEffects, ReplyTo};

impl Checkpoint {
    /// Notes a merge without a journal object. The newest merge of a subtree covers older ones.
    pub(super) fn note_volatile(&mut self, seq: Seq, subtree: Ino) {
        let volatile = &mut self.volatile;
        volatile.retain(|(_, known)| *known != subtree);
        volatile.push((seq, subtree));
    }
}

impl CheckpointCx<'_> {
    /// The merged subtree that the store must have before this operation is journalled.
    pub(crate) fn must_store(&mut self, op: &Op<'_>) -> Option<Ino> {
        if !op.is_mutation() {
            return None;
        }
        let places = touched(op).inodes();
        let mut dirs: Vec<Ino> = places.map(|ino| directory_of(self.namespace, ino)).collect();
        if let Op::Change(ChangeOp::Discard { parent, name }) = *op
            && let Ok(Some(root)) = self.namespace.peek(parent, name)
        {
            // The names below the root are removed by events, too.
            let merged = self.checkpoint.volatile.iter().map(|(_, subtree)| *subtree);
            dirs.extend(merged.filter(|subtree| self.namespace.is_within(*subtree, root)));
        }
        dirs.into_iter().find_map(|dir| {
            let streams = self.namespace.effective_policy(dir).1.streams;
            streams.then(|| self.volatile_above(dir)).flatten()
        })
    }

    /// The subtree of a volatile merge with a directory within. Forgets merges that the store has.
    fn volatile_above(&mut self, dir: Ino) -> Option<Ino> {
        let at = |(_, subtree): &(Seq, Ino)| self.namespace.is_within(dir, *subtree);
        let found = self.checkpoint.volatile.iter().position(at)?;
        let (seq, subtree) = self.checkpoint.volatile[found];
        if self.storable_of(subtree, seq).is_empty() {
            self.checkpoint.volatile.swap_remove(found);
            // Merges may be nested.
            return self.volatile_above(dir);
        }
        Some(subtree)
    }

    /// The directories of a merged subtree that the store has yet to get. A damaged directory is
    /// never written, and no request may wait for it.
    fn storable_of(&self, subtree: Ino, seq: Seq) -> Set<Ino> {
        let mut dirs = self.unwritten_of(subtree, seq);
        dirs.retain(|dir| self.damage.withheld(*dir).is_none());
        dirs
    }

    /// Writes a merged subtree, and then executes the requests that wait for it.
    pub(crate) fn store_merged(&mut self, subtree: Ino, effects: &mut MdsEffects) {
        if self.checkpoint.flushes.has(subtree, &Then::Retry) {
            return;
        }
        let (at, seq) = (ReplyTo::NOBODY, self.log.last());
        let dirs = self.storable_of(subtree, seq);
        let (then, answer) = (Then::Retry, Answer::Done);
        self.flush_dirs(SubtreeFlush { at, subtree, then, answer, seq, dirs }, effects);
    }
}
