//! Creates that are applied together, so that their cache misses overlap.
//!
//! Every create reads one place of a large table: the slot of its name. Once a directory has more
//! names than the processor's caches hold, waiting for that place is most of the work, and the
//! processor cannot prefetch the next create's place because there are too many instructions in
//! between. A [`CreateBatch`] collects creates with the hashes of their names;
//! [`Namespace::apply_batch`] reads all their slots in one tight loop, where the misses overlap,
//! and then applies the creates one by one.
//!
//! A batch is neither a transaction nor a different way to apply. The outcome is that of calling
//! [`Namespace::apply`] for each create in order.

use std::hint::black_box;

use journal::{Create, Event};
use types::{Ino, Seq, name_hash};

use crate::apply::When;
use crate::{ApplyOutcome, Mode, Namespace};

/// Creates in a batch: enough to keep every outstanding miss of a core busy (a dozen), few enough
/// for the lines that were fetched first to be still there when their turn comes.
const BATCH_CREATES: usize = 32;

/// A create without its bytes.
#[derive(Clone, Copy, Debug)]
struct Staged {
    seq: Seq,
    create: Create<'static>,
    hash: u32,
    /// Where the name, behind it the data, and behind them the extended attributes end in
    /// [`CreateBatch::bytes`].
    name_end: usize,
    data_end: usize,
    extra_end: usize,
}

/// Creates waiting to be applied together. See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct CreateBatch {
    staged: Vec<Staged>,
    bytes: Vec<u8>,
}

impl CreateBatch {
    /// Adds a create of this position. It is copied, because a journal's reader lends an event only
    /// until the next.
    #[inline]
    pub fn push(&mut self, seq: Seq, create: &Create<'_>) {
        self.bytes.extend_from_slice(create.name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(create.data);
        let data_end = self.bytes.len();
        self.bytes.extend_from_slice(create.extra);
        let extra_end = self.bytes.len();
        let hash = name_hash(create.name);
        let create = Create { name: &[], data: &[], extra: &[], ..*create };
        self.staged.push(Staged { seq, create, hash, name_end, data_end, extra_end });
    }

    /// Creates held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.staged.len()
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// Whether it is worth applying: more creates may be added, but gain nothing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.staged.len() >= BATCH_CREATES
    }
}

impl Namespace {
    /// Applies the creates of a batch in order, as [`Namespace::apply`] would, calls back with
    /// each one and its outcome, and leaves the batch empty.
    pub fn apply_batch(
        &mut self,
        mode: Mode,
        batch: &mut CreateBatch,
        mut done: impl FnMut(&Create<'_>, ApplyOutcome),
    ) {
        self.touch_slots(batch);
        // No create makes or removes a quota.
        let charges = self.tree.charges(mode);
        let mut start = 0;
        for staged in &batch.staged {
            let name = &batch.bytes[start..staged.name_end];
            let data = &batch.bytes[staged.name_end..staged.data_end];
            let extra = &batch.bytes[staged.data_end..staged.extra_end];
            start = staged.extra_end;
            let create = Create { name, data, extra, ..staged.create };
            if charges {
                self.tree.charge(mode, &Event::Create(create));
            }
            done(
                &create,
                self.applying(When { seq: staged.seq, mode, time: create.time })
                    .create_hashed(&create, staged.hash),
            );
        }
        batch.staged.clear();
        batch.bytes.clear();
    }

    /// Reads the slots that the creates are about to search. The values are ignored.
    ///
    /// Where to read is worked out beforehand, so that the loop that reads is short: the fewer
    /// instructions lie between two reads, the more of them are under way at once.
    fn touch_slots(&self, batch: &CreateBatch) {
        let mut places = [None; BATCH_CREATES];
        let mut last = (Ino(0), None);
        for (place, staged) in places.iter_mut().zip(&batch.staged) {
            let parent = staged.create.parent;
            if last.0 != parent {
                last = (parent, self.tree.dirs.get(parent));
            }
            *place = last.1.and_then(|dir| Some((dir.page(staged.hash)?, staged.hash)));
        }
        let touched = places.iter().flatten().fold(0, |sum, (page, hash)| sum ^ page.touch(*hash));
        black_box(touched);
    }
}

#[cfg(test)]
mod tests;
