//! The work of a client in a decoupled subtree: the journal that grows, the journals that are not
//! merged, and the note of the machine that owns the subtree.
//!
//! A journal object that the server was asked to merge belongs to the server, which deletes it when
//! the metadata store has its events, with or without an answer to the client. So the client writes
//! nothing more under that name. The events so far are *sealed* as a part, which keeps its name,
//! and the next event begins another part with another name. The parts are *pending* until they are
//! merged in their order, and every mechanism first executes on them.
//!
//! Invariant: an object in the store never has more events than it had when the server was asked to
//! merge it. So an object that is gone was merged, and no crash removes an unmerged one.

use journal::SegmentHeader;
use metastore::request::{client_journal_name, client_journal_prefix};
use policy::{Check, Composition, Durability, Mechanism, MergeBy, Policy};
use types::{Attr, ClientId, Epoch, Errno, Error, Ino, InoRange, Result, Seq};
use wire::MergeFlags;

use super::{Earlier, Places, Reached, Sealed};
use crate::{ClientSubtree, Grant};

/// Numbers asked for when a range is used up, at least.
const EXTEND_MIN: u64 = 1_000;

/// The note of a machine about a subtree that it owns, or owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNote {
    /// The client that has the subtree.
    pub client: ClientId,
    /// The ranges of inode numbers, in the order in which they were granted.
    pub ranges: Vec<InoRange>,
    /// The term of the decoupling.
    pub epoch: Epoch,
    /// The position of the first event that is not merged.
    pub next_seq: Seq,
    /// Events before this position may have been merged from journals that are gone.
    pub reached: Seq,
    /// Set when the work is done: the term in which it was merged last.
    pub merged_in: Option<Epoch>,
    /// Whether the subtree was empty when it was decoupled.
    pub empty: bool,
    /// Journal objects that are not merged.
    pub objects: Vec<String>,
    /// The number used last, in the order of the ranges; 0 for none. Journals may have used more.
    pub used: Ino,
    /// The ends of ranges that were given up unused.
    pub unused: Vec<InoRange>,
    /// Journal objects of a dead client, whose work this client took over.
    pub adopted: Vec<String>,
}

impl OwnerNote {
    /// The note of a client that has just decoupled a subtree.
    #[must_use]
    pub fn granted(client: ClientId, granted: &wire::Decoupled) -> Self {
        let wire::Decoupled { range, epoch, empty, .. } = *granted;
        let (ranges, first) = (vec![range], Seq(1));
        Self { client, ranges, epoch, next_seq: first, reached: first, empty, ..Self::default() }
    }

    /// The ranges without the ends that were given up.
    pub fn usable(&self) -> impl Iterator<Item = InoRange> {
        self.ranges.iter().map(|range| {
            let given_up = self.unused.iter().find(|end| range.contains(Ino(end.start)));
            InoRange { end: given_up.map_or(range.end, |end| end.start), ..*range }
        })
    }

    /// Names a journal object that is not merged.
    pub fn note_object(&mut self, object: &str) {
        if !self.objects.iter().any(|known| known == object) {
            self.objects.push(object.to_owned());
        }
    }

    /// The name of the object of the journal that begins at a position, in the subtree with this
    /// root.
    #[must_use]
    pub fn object_from(&self, root: Ino, first: Seq) -> String {
        let grant = self.ranges.first().copied().unwrap_or_default();
        client_journal_name(root, self.client, grant, first.0)
    }
}

/// A part of the journal as it leaves the buffer.
#[derive(Debug)]
pub struct HeldPart {
    /// Its header.
    pub header: SegmentHeader,
    /// Its blocks.
    pub blocks: Vec<Vec<u8>>,
    /// The position after its last event.
    pub next: Seq,
    /// How many of its blocks Local Persist and Global Persist have dealt with before.
    pub persisted: (usize, usize),
}

/// See the module documentation.
#[derive(Debug)]
pub struct SubtreeJob {
    /// The policy in force.
    pub policy: Policy,
    /// The journal that grows, and the client's view of the subtree.
    pub inner: ClientSubtree,
    /// Blocks of the current journal that Local Persist has dealt with.
    pub persisted_locally: usize,
    /// The same of Global Persist.
    pub persisted_globally: usize,
    /// Journals of earlier processes that a merge must include, oldest first, and parts of this
    /// journal whose merge failed.
    pub earlier: Vec<Earlier>,
    /// The note of this machine.
    pub note: OwnerNote,
    /// The server's term in which the last merge took place: in another one it may be lost.
    pub merged_in: Option<Epoch>,
    /// The places in the base of inodes that the view has moved.
    pub places: Places,
}

impl SubtreeJob {
    /// Work in the subtree with this root, which has not begun in this process.
    #[must_use]
    pub fn new(note: OwnerNote, root: Attr, policy: Policy) -> Self {
        let mut usable = note.usable();
        let range = usable.next().unwrap_or_default();
        let check = policy.check == policy::Check::Client;
        let OwnerNote { client, epoch, empty, next_seq, .. } = note;
        let grant = Grant { client, root, range, epoch, empty, check };
        let mut inner = ClientSubtree::new(grant, next_seq);
        usable.for_each(|range| inner.extend(range));
        Self {
            policy,
            inner,
            persisted_locally: 0,
            persisted_globally: 0,
            earlier: Vec::new(),
            note,
            merged_in: None,
            places: Places::default(),
        }
    }

    /// Whether an inode number was granted to this client: only it can have made the inode.
    #[must_use]
    pub fn is_own(&self, ino: Ino) -> bool {
        self.note.ranges.iter().any(|range| range.contains(ino))
    }

    /// Inode numbers granted so far.
    #[must_use]
    pub fn granted(&self) -> u64 {
        self.note.ranges.iter().map(|range| range.len()).sum()
    }

    /// The contract is used up: how many numbers the client asks for, to grow in proportion, or as
    /// many as the hard limit leaves.
    ///
    /// # Errors
    /// `EDQUOT` if the hard limit is reached.
    pub fn extension(&self) -> Result<u64> {
        if !self.policy.hard_limit {
            return Ok(self.granted().max(EXTEND_MIN));
        }
        // The numbers that a failed merge gave up are replaced.
        let given_up: u64 = self.note.unused.iter().map(|range| range.len()).sum();
        let allowed = self.policy.allocated_inodes;
        let count = (allowed + given_up).saturating_sub(self.granted());
        if count > 0 {
            return Ok(count);
        }
        let cause = format!("the policy allows {allowed} inodes");
        Err(Error::new(Errno::Quota, "", cause)
            .remedy("raise allocated_inodes, or set `limit: soft`"))
    }

    /// Takes granted inode numbers.
    pub fn take_range(&mut self, range: InoRange) {
        self.inner.extend(range);
        self.note.ranges.push(range);
    }

    /// The policy's mechanisms, and a merge if it has none.
    #[must_use]
    pub fn visible(&self) -> Composition {
        let composition = self.policy.effective();
        if composition.mechanisms().any(Mechanism::applies) {
            return composition;
        }
        Composition::serial([composition, Composition::One(Mechanism::VolatileApply)])
    }

    /// The mechanisms of the policy that persist, if anything waits for them: the effect of
    /// `fsync`.
    #[must_use]
    pub fn persisting(&self) -> Option<Composition> {
        let ours = [Mechanism::LocalPersist, Mechanism::GlobalPersist].into_iter();
        let ours = ours.filter(|mechanism| self.policy.contains(*mechanism));
        let persist = Composition::parallel(ours.map(Composition::One));
        (!persist.is_nothing() && self.is_pending()).then_some(persist)
    }

    /// Whether the policy asks for merging by reference, and for nothing that needs every event.
    #[must_use]
    pub fn is_by_reference(&self) -> bool {
        self.policy.merge_by == MergeBy::Reference && self.policy.check != Check::Merge
    }

    /// How parts of the journal are merged.
    #[must_use]
    pub fn merge_flags(&self) -> MergeFlags {
        MergeFlags { check: self.policy.check == Check::Merge, ..MergeFlags::default() }
    }

    /// The root of the subtree.
    #[must_use]
    pub fn root(&self) -> Ino {
        self.inner.root()
    }

    /// The note as it is to be written now.
    #[must_use]
    pub fn present_note(&self) -> OwnerNote {
        let (used, reached) = (self.inner.last_taken(), self.inner.next_seq());
        OwnerNote { used, reached, ..self.note.clone() }
    }

    /// The object of the journal that begins at a position.
    #[must_use]
    pub fn object_from(&self, first: Seq) -> String {
        self.note.object_from(self.root(), first)
    }

    /// The object of the journal that grows.
    #[must_use]
    pub fn object_name(&self) -> String {
        self.object_from(self.inner.header().first_seq)
    }

    /// Takes the pending events out of the buffer; the next event begins another part.
    pub fn take_held(&mut self) -> HeldPart {
        // The job goes on, and may ask about what leaves its journal.
        self.inner.view();
        let (header, blocks) = self.inner.seal();
        let persisted = (self.persisted_locally, self.persisted_globally);
        (self.persisted_locally, self.persisted_globally) = (0, 0);
        HeldPart { header, blocks, next: self.inner.next_seq(), persisted }
    }

    /// A composition did not complete. If the server was asked to apply the pending events, they
    /// become a part.
    pub fn seal(&mut self, reached: Reached) {
        if reached.asked && self.inner.events() > 0 {
            let held = self.take_held();
            self.keep(held, reached);
        }
    }

    /// Keeps a part: the next completion merges it before later events.
    pub fn keep(&mut self, held: HeldPart, reached: Reached) {
        let (first, all) = (held.header.first_seq, held.blocks.len());
        let mut bytes = held.header.encode().to_vec();
        held.blocks.iter().for_each(|block| bytes.extend_from_slice(block));
        let (on_disk, whole) =
            (reached.on_disk || held.persisted.0 == all, reached.stored || held.persisted.1 == all);
        let object = whole.then(|| self.object_from(first));
        if let Some(object) = &object {
            self.note.note_object(object);
        }
        let name = format!("journal of {} from {first}", self.root());
        let sealed = Some(Sealed { on_disk, asked: reached.asked, whole });
        self.earlier.push(Earlier {
            name,
            bytes,
            first,
            next: held.next,
            object,
            torn: false,
            sealed,
        });
        self.inner.recycle(held.blocks);
    }

    /// The sealed parts, oldest first.
    pub fn sealed(&self) -> impl Iterator<Item = &Earlier> {
        self.earlier.iter().filter(|part| part.sealed.is_some())
    }

    /// Whether anything waits for the mechanisms of the policy.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.inner.events() > 0 || self.sealed().next().is_some()
    }

    /// The failures that the sealed parts survive.
    #[must_use]
    pub fn sealed_durability(&self) -> Durability {
        self.sealed().map(Earlier::durability).min().unwrap_or(Durability::Global)
    }

    /// The failures that all events so far survive.
    pub fn durable_now(&mut self) -> Durability {
        let blocks = self.inner.blocks().len();
        let newest = if self.inner.events() == 0 || self.persisted_globally == blocks {
            // Earlier events have the durability that they were given.
            self.policy.cell().map_or(Durability::None, |cell| cell.durability)
        } else if self.persisted_locally == blocks {
            Durability::Local
        } else {
            Durability::None
        };
        newest.min(self.sealed_durability())
    }

    /// The journals as they would be merged: those of earlier processes, then this one's.
    pub fn journals(&mut self) -> Vec<Vec<u8>> {
        let usable = self.earlier.iter().filter(|journal| journal.events() > 0);
        let mut all: Vec<_> = usable.map(|journal| journal.bytes.clone()).collect();
        if self.inner.events() > 0 {
            let mut bytes = self.inner.header().encode().to_vec();
            self.inner.blocks().iter().for_each(|block| bytes.extend_from_slice(block));
            all.push(bytes);
        }
        all
    }

    /// Whether a server of another term than that of the last merge may have lost merged events
    /// that only Local Persist kept.
    #[must_use]
    pub fn may_have_lost(&self) -> bool {
        self.merged_in.is_some() && self.policy.contains(Mechanism::LocalPersist)
    }

    /// Those among the journals on this disk that the server of this term has lost. The present
    /// journal is merged separately.
    #[must_use]
    pub fn lost(&self, term: Epoch, journals: Vec<Earlier>) -> Vec<Earlier> {
        if self.merged_in == Some(term) || !self.may_have_lost() {
            return Vec::new();
        }
        let first = self.inner.header().first_seq;
        journals.into_iter().filter(|journal| journal.next <= first).collect()
    }

    /// The prefix of the names of this client's journal objects.
    #[must_use]
    pub fn object_prefix(&self) -> String {
        let grant = self.note.ranges.first().copied().unwrap_or_default();
        client_journal_prefix(self.root(), self.note.client, grant)
    }

    /// The journal objects to be read when a process takes the work up. `listed` are the names
    /// under [`SubtreeJob::object_prefix`]: the note may lack the last object, because a process
    /// can end between the two writes. Objects from before the last merge belong to the server,
    /// which deletes them. An object that is not noted comes with its position.
    #[must_use]
    pub fn left_objects(&self, listed: &[String]) -> Vec<(String, Option<Seq>)> {
        let prefix = self.object_prefix();
        let noted = self.note.objects.iter().map(|name| (name.clone(), None));
        let unnoted = listed.iter().filter_map(|name| {
            let part = u64::from_str_radix(name.strip_prefix(&prefix)?, 16).ok()?;
            let is_new = part >= self.note.next_seq.0 && !self.note.objects.contains(name);
            is_new.then(|| (name.clone(), Some(Seq(part))))
        });
        noted.chain(unnoted).collect()
    }

    /// Takes up a journal object, or the fact that it is gone: the server deletes objects that are
    /// merged and stored.
    ///
    /// # Errors
    /// `EBADMSG` if a noted object is damaged.
    pub fn take_object(
        &mut self,
        name: String,
        unnoted: Option<Seq>,
        bytes: Option<Vec<u8>>,
    ) -> Result<Option<Earlier>> {
        let Some(bytes) = bytes else {
            self.note.objects.retain(|known| *known != name);
            return Ok(None);
        };
        match (Earlier::read(name.clone(), bytes, Some(name.clone())), unnoted) {
            (Ok(journal), None) => Ok(Some(journal)),
            (Ok(journal), Some(_)) => {
                if journal.events() > 0 {
                    self.note.objects.push(name);
                }
                Ok(Some(journal))
            }
            // Nothing in it counts, and it is not noted as if something did.
            (Err(_), Some(part)) => Ok(Some(Earlier::unfinished(name, part))),
            (Err(error), None) => Err(error),
        }
    }

    /// Takes up the journals of earlier processes, in the store and on this disk: they are merged
    /// with this one's, and their inode numbers are used.
    ///
    /// # Errors
    /// `EBADMSG` if a journal cannot be applied.
    pub fn load(&mut self, stored: Vec<Earlier>, local: Vec<Earlier>) -> Result<()> {
        let mut next = self.note.next_seq;
        let mut all = stored;
        all.extend(local.into_iter().filter(|journal| journal.events() > 0));
        // One may be in both places, and longer in the one or the other.
        let all = crate::in_order(all, |journal| (journal.first, journal.next));
        for journal in all {
            if journal.events() > 0 {
                journal.replay(&mut self.inner)?;
                next = next.max(journal.next);
            } else {
                // Its name is not used again.
                next = next.max(Seq(journal.first.0 + 1));
            }
            self.earlier.push(journal);
        }
        // The server knows the names of merged journals, whose objects are gone: no new journal may
        // have such a name.
        self.inner.start_at(next.max(self.note.reached));
        Ok(())
    }

    /// Everything is merged. If the job goes on, it may ask about that.
    pub(super) fn settle(&mut self, goes_on: bool) {
        self.earlier.clear();
        // The server deletes journal objects when it does not need them any more.
        self.note.objects.clear();
        self.inner.clear(goes_on);
        (self.persisted_locally, self.persisted_globally) = (0, 0);
        self.note.next_seq = self.inner.next_seq();
    }
}
