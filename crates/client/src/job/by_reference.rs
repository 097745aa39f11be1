//! Merge by reference at the client: the results of the journal go into the object store as sorted
//! runs, and the metadata server receives their list and the rest of the journal.
//!
//! Objects that were stored for this are not deleted again, after any answer: an attempt whose
//! answer was lost may have made a directory of them.

use journal::SegmentHeader;
use metastore::RunList;
use metastore::request::{proof_name, rest_name};
use types::{Attr, Error, Ino, Moment, Result, Seq};
use wire::{Answer, JobOp, MergeFlags, MergeReport, Op, UnusedNumbers};

use super::apply::merged;
use super::composition::seconds;
use super::{Material, MechanismEffect, MechanismInput, MergedBy};
use crate::router::unexpected_answer;
use crate::{ByReference, ByValue, may_go_by_value};

/// A journal as runs and a rest, or the reason why not.
pub type References = std::result::Result<ByReference, ByValue>;

/// A merge for the server.
#[derive(Debug)]
pub struct SentMerge {
    /// The object with the journal, or with the rest of it; may be empty.
    pub object: String,
    /// How to merge.
    pub flags: MergeFlags,
    /// The journal that follows the request.
    pub journal: SentJournal,
}

/// The journal that follows a merge.
#[derive(Debug)]
pub enum SentJournal {
    /// None: the server reads the object.
    Stored,
    /// Only the header of the journal at work.
    Header,
    /// The journal at work.
    Whole,
    /// A list of runs and the rest of the journal.
    Parts(Vec<Vec<u8>>),
}

impl SentMerge {
    /// The journal in parts, of which these are the header and the rest. An empty list means that
    /// the request goes alone.
    #[must_use]
    pub fn parts<'a>(&'a self, header: &'a [u8], blocks: &'a [impl AsRef<[u8]>]) -> Vec<&'a [u8]> {
        match &self.journal {
            SentJournal::Stored => Vec::new(),
            SentJournal::Header => vec![header],
            SentJournal::Whole => {
                std::iter::once(header).chain(blocks.iter().map(AsRef::as_ref)).collect()
            }
            SentJournal::Parts(parts) => parts.iter().map(Vec::as_slice).collect(),
        }
    }

    /// The request, for the subtree with this root and a journal of so many bytes. `unused` are
    /// inode numbers that go back.
    #[must_use]
    pub fn op<'a>(&'a self, subtree: Ino, bytes: u64, unused: &'a [u8]) -> Op<'a> {
        let (object, unused) = (self.object.as_bytes(), UnusedNumbers::new(unused));
        Op::Job(JobOp::Merge { subtree, bytes, object, flags: self.flags, unused })
    }
}

/// The end of a step.
#[derive(Debug)]
pub(super) enum ReferenceStep {
    Effect(MechanismEffect),
    Merged(MergeReport, MergedBy),
    /// The journal is to be merged by value.
    ByValue(MergedBy),
    Failed(Error),
}

/// A merge by the runs that a verifier has proved, or by runs of this client, if that is possible.
#[derive(Clone, Debug)]
pub(super) struct ReferenceMerge {
    flags: MergeFlags,
    /// The position of the last event, if there is one.
    last: Option<Seq>,
    /// An earlier process may have asked the server to merge the object: then the server needs the
    /// object until the metadata store has its events.
    may_be_merged: bool,
    /// When the request was sent.
    sent: Moment,
    state: ReferenceState,
}

#[derive(Clone, Debug)]
enum ReferenceState {
    Begin,
    /// The proof of a verifier is read.
    Proof,
    Proved(RunList, Seq),
    /// The attributes of the root are read.
    Root,
    /// The runs that were written during the job are finished.
    Written(Box<Attr>),
    /// These objects are to be put, the next one last.
    Putting(Box<ByReference>, Vec<(String, Vec<u8>)>),
    Sent(Box<ByReference>),
    /// These objects are to be deleted.
    Deleting(Vec<String>, MergeReport, MergedBy),
}

impl ReferenceMerge {
    pub(super) fn new(flags: MergeFlags, last: Option<Seq>) -> Self {
        Self { flags, last, may_be_merged: false, sent: Moment(0), state: ReferenceState::Begin }
    }

    /// The merge of a journal that an earlier process has left.
    pub(super) fn of_earlier_process(self, may_be_merged: bool) -> Self {
        Self { may_be_merged, ..self }
    }

    /// `stored` says whether the object holds all of the journal.
    pub(super) fn step(
        &mut self,
        asked: &mut bool,
        stored: bool,
        material: &Material<'_>,
        now: Moment,
        input: MechanismInput,
    ) -> ReferenceStep {
        let stepped = match std::mem::replace(&mut self.state, ReferenceState::Begin) {
            ReferenceState::Begin => self.begin(material, stored),
            ReferenceState::Proof => {
                input.object().and_then(|proof| self.send_proved(asked, now, material, proof))
            }
            ReferenceState::Proved(list, first) => match merged(input.answer()) {
                Ok(report) => Ok(self.proved(material, &list, first, report, now)),
                Err(error) if may_go_by_value(error.errno) => Ok(self.by_reference(material)),
                Err(error) => Err(error),
            },
            ReferenceState::Root => input.answer().and_then(|answer| self.root_seen(&answer)),
            ReferenceState::Written(root) => {
                input.written().map(|it| self.choose(asked, now, material, &root, it))
            }
            ReferenceState::Putting(reference, left) => {
                input.done().map(|()| self.put(asked, now, material, reference, left))
            }
            ReferenceState::Sent(reference) => match merged(input.answer()) {
                Ok(report) => Ok(self.merged(material, &reference, report, now)),
                Err(error) if may_go_by_value(error.errno) => {
                    Ok(ReferenceStep::ByValue(MergedBy::value(ByValue::Refused)))
                }
                Err(error) => Err(error),
            },
            ReferenceState::Deleting(left, report, merged_by) => {
                input.done().map(|()| self.delete(left, report, merged_by))
            }
        };
        stepped.unwrap_or_else(ReferenceStep::Failed)
    }

    fn begin(&mut self, material: &Material<'_>, stored: bool) -> Result<ReferenceStep> {
        let checked = self.flags.check && !self.flags.dry_run && stored;
        if let (true, Some(object), Some(_)) = (checked, material.object, self.last) {
            // A verifier may have proved the facts that the server would check.
            self.state = ReferenceState::Proof;
            return Ok(ReferenceStep::Effect(MechanismEffect::Get(proof_name(object))));
        }
        Ok(self.by_reference(material))
    }

    /// Merges the journal in an object by the runs that a verifier has written and proved, if one
    /// has proved all of it and the server trusts the verifier.
    fn send_proved(
        &mut self,
        asked: &mut bool,
        now: Moment,
        material: &Material<'_>,
        proof: Option<Vec<u8>>,
    ) -> Result<ReferenceStep> {
        // A damaged list, or one of a shorter journal, is useless.
        let Some(message) = proof else { return Ok(self.by_reference(material)) };
        let decoded = RunList::decode(&message)
            .ok()
            .and_then(|(list, rest)| Some((list, SegmentHeader::decode(rest).ok()?.first_seq)));
        let Some((list, first)) = decoded.filter(|(list, _)| Some(list.last) == self.last) else {
            return Ok(self.by_reference(material));
        };
        *asked = true;
        let object = rest_name(material.object.unwrap_or_default());
        self.sent = now;
        self.state = ReferenceState::Proved(list, first);
        Ok(self.send(object, vec![message]))
    }

    fn proved(
        &mut self,
        material: &Material<'_>,
        list: &RunList,
        first: Seq,
        mut report: MergeReport,
        now: Moment,
    ) -> ReferenceStep {
        let names = list.dirs.iter().map(|run| run.run.rows).sum::<u64>();
        let merged = report.events;
        report.events = list.last.0 + 1 - first.0;
        report.created += names;
        let (runs, events) = (list.dirs.len() as u64, report.events.saturating_sub(merged));
        let merged_by = MergedBy { runs, events, seconds: seconds(self.sent, now), because: None };
        let object = material.object.unwrap_or_default();
        self.delete(vec![proof_name(object), object.to_owned()], report, merged_by)
    }

    fn by_reference(&mut self, material: &Material<'_>) -> ReferenceStep {
        if !material.by_reference || material.blocks.is_empty() {
            return ReferenceStep::ByValue(MergedBy::default());
        }
        // The answer shows whether other clients have names in the directory; a restarted server
        // reads the directory for it.
        self.state = ReferenceState::Root;
        ReferenceStep::Effect(MechanismEffect::Root)
    }

    fn root_seen(&mut self, answer: &Answer) -> Result<ReferenceStep> {
        let Answer::Attr(root) = answer else { return Err(unexpected_answer(answer)) };
        self.state = ReferenceState::Written(Box::new(*root));
        Ok(ReferenceStep::Effect(MechanismEffect::Written(root.size == 0)))
    }

    fn choose(
        &mut self,
        asked: &mut bool,
        now: Moment,
        material: &Material<'_>,
        root: &Attr,
        written: Option<References>,
    ) -> ReferenceStep {
        let reference = match written {
            Some(Ok(reference)) => Ok(reference),
            Some(Err(_)) | None => {
                let (is_empty, worth) = (root.size == 0, material.worth);
                ByReference::of(&material.header, material.blocks, root, is_empty, worth)
            }
        };
        let mut reference = match reference {
            Ok(reference) => reference,
            Err(reason) => return ReferenceStep::ByValue(MergedBy::value(reason)),
        };
        let mut objects = std::mem::take(&mut reference.objects);
        objects.extend(material.object.map(|object| (rest_name(object), reference.rest())));
        objects.reverse();
        self.put(asked, now, material, Box::new(reference), objects)
    }

    fn put(
        &mut self,
        asked: &mut bool,
        now: Moment,
        material: &Material<'_>,
        reference: Box<ByReference>,
        left: Vec<(String, Vec<u8>)>,
    ) -> ReferenceStep {
        match self.next_put(reference, left) {
            Ok(effect) => effect,
            Err(reference) => {
                *asked = true;
                let message = reference.message();
                self.sent = now;
                self.state = ReferenceState::Sent(reference);
                let rest = material.object.map(rest_name).unwrap_or_default();
                self.send(rest, message)
            }
        }
    }

    /// Puts the next object. Returns the runs if none is left.
    fn next_put(
        &mut self,
        reference: Box<ByReference>,
        mut left: Vec<(String, Vec<u8>)>,
    ) -> std::result::Result<ReferenceStep, Box<ByReference>> {
        let Some((name, bytes)) = left.pop() else { return Err(reference) };
        self.state = ReferenceState::Putting(reference, left);
        Ok(ReferenceStep::Effect(MechanismEffect::Put(name, bytes)))
    }

    fn merged(
        &mut self,
        material: &Material<'_>,
        reference: &ByReference,
        mut report: MergeReport,
        now: Moment,
    ) -> ReferenceStep {
        report.events = reference.list.last.0 + 1 - reference.header.first_seq.0;
        report.created += reference.created;
        let (runs, events) = (reference.list.dirs.len() as u64, reference.events);
        let merged_by = MergedBy { runs, events, seconds: seconds(self.sent, now), because: None };
        // After a crash the server needs the runs and the rest only.
        let object = material.object.map(str::to_owned);
        self.delete(object.into_iter().collect(), report, merged_by)
    }

    fn delete(
        &mut self,
        mut left: Vec<String>,
        report: MergeReport,
        merged_by: MergedBy,
    ) -> ReferenceStep {
        if std::mem::take(&mut self.may_be_merged) && !left.is_empty() {
            self.state = ReferenceState::Deleting(left, report, merged_by);
            return ReferenceStep::Effect(MechanismEffect::Checkpoint);
        }
        let Some(object) = left.pop() else { return ReferenceStep::Merged(report, merged_by) };
        self.state = ReferenceState::Deleting(left, report, merged_by);
        ReferenceStep::Effect(MechanismEffect::Delete(object))
    }

    fn send(&self, object: String, parts: Vec<Vec<u8>>) -> ReferenceStep {
        let flags = MergeFlags { by_reference: true, ..self.flags };
        let journal = SentJournal::Parts(parts);
        ReferenceStep::Effect(MechanismEffect::Merge(SentMerge { object, flags, journal }))
    }
}
