//! Parts of this process's own journal whose merge failed, or was not answered.
//!
//! A journal object that the server was asked to merge belongs to the server, which deletes it when
//! the metadata store has its events, with or without an answer to the client. So the client writes
//! nothing more under that name. The events so far are sealed as a part, which keeps its name, and
//! the next event begins another part with another name. The parts are *pending* until they are
//! merged in their order, and every mechanism first executes on them.
//!
//! Invariant: an object in the store never has more events than it had when the server was asked to
//! merge it. So an object that is gone was merged, and no crash removes an unmerged one.

use policy::{Composition, Durability, Mechanism};
use types::{Result, Seq};

use super::{Earlier, Subtree};
use crate::mechanism::{Reached, keep_part};

/// The state of such a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sealed {
    /// All of it is in a file of this disk.
    pub(super) on_disk: bool,
    /// The server was asked to apply it: it may be applied.
    pub(super) asked: bool,
    /// All of it was in the store when the server was asked.
    pub(super) whole: bool,
}

/// A part of the journal as it leaves the buffer.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) header: journal::SegmentHeader,
    pub(super) blocks: Vec<Vec<u8>>,
    pub(super) next: Seq,
    /// How many of its blocks each persist has dealt with before.
    pub(super) persisted: (usize, usize),
}

impl Subtree {
    /// Takes the pending events out of the buffer; the next event begins another part.
    pub(super) fn take_held(&mut self) -> Held {
        self.written = None;
        let (header, blocks) = self.inner.seal();
        let persisted = (self.persisted_locally, self.persisted_globally);
        (self.persisted_locally, self.persisted_globally) = (0, 0);
        Held { header, blocks, next: self.inner.next_seq(), persisted }
    }

    /// A composition did not complete. If the server was asked to apply the pending events, they
    /// become a part.
    pub(super) fn seal(&mut self, reached: Reached) {
        if reached.asked && self.inner.events() > 0 {
            let held = self.take_held();
            self.keep(held, reached);
        }
    }

    /// Keeps a part: the next completion merges it before later events.
    pub(super) fn keep(&mut self, held: Held, reached: Reached) {
        let (first, all) = (held.header.first_seq, held.blocks.len());
        let mut bytes = held.header.encode().to_vec();
        held.blocks.iter().for_each(|block| bytes.extend_from_slice(block));
        let (on_disk, whole) =
            (reached.on_disk || held.persisted.0 == all, reached.stored || held.persisted.1 == all);
        let object = whole.then(|| self.object_from(first));
        if let Some(object) = &object {
            self.note_object(object);
        }
        let name = format!("journal of {} from {first}", self.path);
        let sealed = Sealed { on_disk, asked: reached.asked, whole };
        self.earlier.push(Earlier::sealed((name, bytes), (first, held.next), object, sealed));
        self.inner.recycle(held.blocks);
    }

    /// There is a journal object that is not merged.
    pub(super) fn note_object(&mut self, object: &str) {
        if !self.owner.objects.iter().any(|known| known == object) {
            self.owner.objects.push(object.to_owned());
        }
    }

    /// The parts, oldest first.
    pub(super) fn sealed(&self) -> impl Iterator<Item = &Earlier> {
        self.earlier.iter().filter(|part| part.sealed.is_some())
    }

    /// Whether anything waits for the mechanisms of the policy.
    pub(super) fn is_pending(&self) -> bool {
        self.inner.events() > 0 || self.sealed().next().is_some()
    }

    /// Persists the parts if a composition persists; its other mechanisms follow.
    pub(super) fn persist_sealed(&mut self, composition: &Composition) -> Result<()> {
        if composition.contains(Mechanism::GlobalPersist) {
            self.store_earlier()?;
        }
        if composition.contains(Mechanism::LocalPersist) {
            for part in &mut self.earlier {
                if let Some(sealed) = part.sealed.as_mut().filter(|sealed| !sealed.on_disk) {
                    keep_part(&self.state, part.first, &part.bytes)?;
                    sealed.on_disk = true;
                }
            }
        }
        Ok(())
    }

    /// The failures that the parts survive.
    pub(super) fn sealed_durability(&self) -> Durability {
        self.sealed().map(Earlier::durability).min().unwrap_or(Durability::Global)
    }
}
