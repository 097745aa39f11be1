//! Parts of this process's own journal whose merge failed, or was not heard of.
//!
//! Once the server was asked to merge a journal object, the object is the server's: it deletes it
//! when the metadata store has what it says, whether its client was answered or not. So nothing more
//! is written under that name. What was appended until then is sealed as a part, which keeps its
//! name, and the next event begins another part under another one. The parts are *pending* until
//! they are merged in their order, and every mechanism deals with them first.
//!
//! Invariant: what is in the store under a name is at no time more than what it was when the server
//! heard of it. So an object that is gone was merged, and can be gone unmerged from no crash.

use policy::{Composition, Durability, Mechanism};
use types::{Result, Seq};

use super::{Earlier, Subtree};
use crate::mechanism::{Reached, keep_part};

/// What is known of such a part.
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
    /// Takes what is held out of the buffer; the next event begins another part.
    pub(super) fn take_held(&mut self) -> Held {
        self.written = None;
        let (header, blocks) = self.inner.seal();
        let persisted = (self.persisted_locally, self.persisted_globally);
        (self.persisted_locally, self.persisted_globally) = (0, 0);
        Held { header, blocks, next: self.inner.next_seq(), persisted }
    }

    /// A composition did not complete. If the server was asked to apply what is held, that is a part
    /// of its own from now on.
    pub(super) fn seal(&mut self, reached: Reached) {
        if reached.asked && self.inner.events() > 0 {
            let held = self.take_held();
            self.keep(held, reached);
        }
    }

    /// A part stays here: the next completion merges it before what was appended later.
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

    /// Has the parts persisted where a composition persists; what it does with the rest comes after
    /// them.
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

    /// What the parts survive.
    pub(super) fn sealed_durability(&self) -> Durability {
        self.sealed().map(Earlier::durability).min().unwrap_or(Durability::Global)
    }
}
