//! The journals of a decoupled subtree that are not merged, besides the one that grows: those that
//! earlier processes of this client left, and parts of this process whose merge failed.

use journal::{Block, SegmentHeader};
use policy::Durability;
use types::{Errno, Error, Ino, Moment, Result, Seq};
use wire::{MergeFlags, MergeReport};

use super::apply::merged;
use super::by_reference::{ReferenceMerge, ReferenceStep, SentJournal, SentMerge};
use super::{Completion, Material, MechanismEffect, MechanismInput, MergedBy};
use crate::{ClientSubtree, IntactJournal, RunThreshold};

/// The state of a part of this process whose merge failed, or was not answered.
#[derive(Clone, Copy, Debug)]
pub struct Sealed {
    /// All of it is in a file of this disk.
    pub on_disk: bool,
    /// The server was asked to apply it: it may be applied.
    pub asked: bool,
    /// All of it was in the store when the server was asked.
    pub whole: bool,
}

/// A journal of an earlier process, or a part of this one's that was not merged.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// Where it is, for people.
    pub name: String,
    /// The intact bytes.
    pub bytes: Vec<u8>,
    /// The position of the first event.
    pub first: Seq,
    /// The position after the last event.
    pub next: Seq,
    /// The journal object, if it is in the store: then the server reads it from there, and again
    /// after a crash.
    pub object: Option<String>,
    /// Whether it ended with something that was not written completely.
    pub torn: bool,
    /// If it is of this process.
    pub sealed: Option<Sealed>,
}

impl Earlier {
    /// The part of a journal that is intact.
    ///
    /// # Errors
    /// `EBADMSG` if the journal is damaged before its end.
    pub fn read(name: String, bytes: Vec<u8>, object: Option<String>) -> Result<Self> {
        let left = IntactJournal::read(bytes).map_err(|error| error.in_journal(&name))?;
        let IntactJournal { bytes, first, next, torn } = left;
        Ok(Self { name, bytes, first, next, object, torn, sealed: None })
    }

    /// An object of which nothing can be used: it was being written for the first time.
    #[must_use]
    pub fn unfinished(object: String, part: Seq) -> Self {
        let (name, object) = (object.clone(), Some(object));
        let (bytes, sealed) = (Vec::new(), None);
        Self { name, bytes, first: part, next: part, object, torn: true, sealed }
    }

    /// The number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.next.0 - self.first.0
    }

    /// The failures that the part survives.
    #[must_use]
    pub fn durability(&self) -> Durability {
        match (&self.object, self.sealed) {
            (Some(_), _) => Durability::Global,
            (None, Some(sealed)) if !sealed.on_disk => Durability::None,
            (None, _) => Durability::Local,
        }
    }

    /// Applies it to the client's view.
    ///
    /// # Errors
    /// `EBADMSG` if the journal is damaged.
    pub fn replay(&self, inner: &mut ClientSubtree) -> Result<()> {
        inner.replay(&self.bytes).map_err(|error| error.in_journal(&self.name))
    }

    /// Whether the server was asked to merge it: then it may be applied.
    fn is_asked(&self) -> bool {
        self.sealed.is_some_and(|sealed| sealed.asked)
    }

    /// Whether this journal replaces an object with these bytes, or a missing one. An object of the
    /// name may be of a merge that the server would repeat, and hold more than this disk, which
    /// keeps a journal as it was when it was written here last.
    #[must_use]
    pub fn replaces(&self, object: Option<Vec<u8>>) -> bool {
        let there = object.and_then(|bytes| IntactJournal::read(bytes).ok());
        there.is_none_or(|there| there.next < self.next)
    }

    /// The blocks of the journal.
    fn blocks(&self) -> Result<(SegmentHeader, Vec<Vec<u8>>)> {
        let damaged = |error: journal::JournalError| error.in_journal(&self.name);
        let header = SegmentHeader::decode(&self.bytes).map_err(damaged)?;
        let (mut blocks, mut at) = (Vec::new(), journal::segment::HEADER_BYTES);
        while at < self.bytes.len() {
            let (_, next) = Block::read(&self.bytes, at).map_err(damaged)?;
            blocks.push(self.bytes[at..next].to_vec());
            at = next;
        }
        Ok((header, blocks))
    }
}

/// The merge of such a journal: by reference if that is wanted, possible, and was not tried before,
/// because an earlier attempt may have applied it.
#[derive(Debug)]
pub struct EarlierMerge {
    root: Ino,
    flags: MergeFlags,
    worth: Option<RunThreshold>,
    /// The journal in blocks, for a merge by reference.
    blocks: Vec<Vec<u8>>,
    header: Option<SegmentHeader>,
    merged_by: MergedBy,
    state: EarlierState,
}

#[derive(Debug)]
enum EarlierState {
    Begin,
    ByReference(Box<ReferenceMerge>),
    /// An object without events is deleted.
    Deleting,
    /// A torn object is replaced by one that the server can read.
    Replacing,
    /// The server was asked to read the object.
    SentObject,
    /// The journal was sent.
    SentWhole,
    /// The server says that the object of the request is gone.
    Gone(Error),
}

impl EarlierMerge {
    /// A merge into the subtree with this root; by reference only if it is given which directories
    /// are worth a run.
    #[must_use]
    pub fn new(root: Ino, flags: MergeFlags, worth: Option<RunThreshold>) -> Self {
        let (blocks, header, merged_by) = (Vec::new(), None, MergedBy::default());
        Self { root, flags, worth, blocks, header, merged_by, state: EarlierState::Begin }
    }

    /// The next effect, after the result of the last one. The journal is the same each time.
    pub fn handle(
        &mut self,
        journal: &Earlier,
        now: Moment,
        input: MechanismInput,
    ) -> MechanismEffect {
        match std::mem::replace(&mut self.state, EarlierState::Begin) {
            EarlierState::Begin => match self.begin(journal) {
                Ok(Some(merge)) => self.by_reference(journal, merge, now, MechanismInput::Start),
                Ok(None) => self.by_value(journal),
                Err(error) => MechanismEffect::Done(Err(error)),
            },
            EarlierState::ByReference(merge) => self.by_reference(journal, merge, now, input),
            EarlierState::Deleting => match input.done() {
                Ok(()) => self.end(MergeReport::default()),
                Err(error) => MechanismEffect::Done(Err(error)),
            },
            EarlierState::Replacing => match input.done() {
                Ok(()) => self.send_object(journal),
                Err(error) => MechanismEffect::Done(Err(error)),
            },
            EarlierState::SentObject => match (merged(input.answer()), &journal.object) {
                (Ok(report), _) => self.end(report),
                (Err(error), Some(object)) if error.errno == Errno::NotFound => {
                    self.state = EarlierState::Gone(error);
                    MechanismEffect::Exists(object.clone())
                }
                (Err(error), _) => MechanismEffect::Done(Err(error)),
            },
            EarlierState::SentWhole => match merged(input.answer()) {
                Ok(report) => self.end(report),
                Err(error) => MechanismEffect::Done(Err(error)),
            },
            EarlierState::Gone(error) => match input.exists() {
                Ok(false) => self.object_gone(journal),
                Ok(true) | Err(_) => MechanismEffect::Done(Err(error)),
            },
        }
    }

    /// The merge by reference, if one is tried.
    fn begin(&mut self, journal: &Earlier) -> Result<Option<Box<ReferenceMerge>>> {
        let may_be_proved = self.flags.check && journal.object.is_some();
        if journal.is_asked()
            || self.flags.dry_run
            || journal.events() == 0
            || (self.worth.is_none() && !may_be_proved)
        {
            return Ok(None);
        }
        let (header, blocks) = journal.blocks()?;
        (self.header, self.blocks) = (Some(header), blocks);
        let last = Some(Seq(journal.next.0 - 1));
        let merge = ReferenceMerge::new(self.flags, last);
        Ok(Some(Box::new(merge.of_earlier_process(journal.sealed.is_none()))))
    }

    fn by_reference(
        &mut self,
        journal: &Earlier,
        mut merge: Box<ReferenceMerge>,
        now: Moment,
        input: MechanismInput,
    ) -> MechanismEffect {
        let Some(header) = self.header else { return self.by_value(journal) };
        let material = Material {
            subtree: self.root,
            header,
            blocks: &self.blocks,
            persisted_locally: 0,
            persisted_globally: 0,
            merge: self.flags,
            by_reference: self.worth.is_some(),
            worth: self.worth.unwrap_or_default(),
            unused: &[],
            object: journal.object.as_deref(),
        };
        let stored = journal.object.is_some();
        match merge.step(&mut false, stored, &material, now, input) {
            ReferenceStep::Effect(effect) => {
                self.state = EarlierState::ByReference(merge);
                effect
            }
            ReferenceStep::Failed(error) => MechanismEffect::Done(Err(error)),
            ReferenceStep::Merged(report, merged_by) => {
                self.merged_by = merged_by;
                self.end(report)
            }
            ReferenceStep::ByValue(merged_by) => {
                self.merged_by = merged_by;
                self.by_value(journal)
            }
        }
    }

    /// Merges every event. The object of a journal is first replaced by one that the server can
    /// read.
    fn by_value(&mut self, journal: &Earlier) -> MechanismEffect {
        let Some(object) = &journal.object else { return self.send_whole(self.flags) };
        match (journal.events(), self.flags.dry_run) {
            (0, true) => self.end(MergeReport::default()),
            (0, false) => {
                self.state = EarlierState::Deleting;
                MechanismEffect::Delete(object.clone())
            }
            (_, true) if journal.torn => self.send_whole(self.flags),
            (_, false) if journal.torn => {
                self.state = EarlierState::Replacing;
                MechanismEffect::Put(object.clone(), journal.bytes.clone())
            }
            _ => self.send_object(journal),
        }
    }

    /// Merges the journal from its object. The server deletes an object when the metadata store has
    /// its events: if the object is gone, an earlier attempt succeeded.
    fn send_object(&mut self, journal: &Earlier) -> MechanismEffect {
        self.state = EarlierState::SentObject;
        let object = journal.object.clone().unwrap_or_default();
        let (flags, journal) = (self.flags, SentJournal::Stored);
        MechanismEffect::Merge(SentMerge { object, flags, journal })
    }

    fn object_gone(&mut self, journal: &Earlier) -> MechanismEffect {
        if journal.sealed.is_none_or(|sealed| sealed.whole || !sealed.asked) {
            return self.end(MergeReport::default());
        }
        // The server has read a shorter journal under this name. A merge without an object cannot
        // be repeated, so it is stored before the answer.
        self.send_whole(MergeFlags { store: true, ..self.flags })
    }

    fn send_whole(&mut self, flags: MergeFlags) -> MechanismEffect {
        self.state = EarlierState::SentWhole;
        let journal = SentJournal::Whole;
        MechanismEffect::Merge(SentMerge { object: String::new(), flags, journal })
    }

    fn end(&self, report: MergeReport) -> MechanismEffect {
        let (merge, merged_by) = (Some(report), self.merged_by);
        MechanismEffect::Done(Ok(Completion { merge, merged_by, ..Completion::default() }))
    }
}
