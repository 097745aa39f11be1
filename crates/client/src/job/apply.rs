//! Volatile Apply (M-04) and Nonvolatile Apply (M-05), seen from the client.
//!
//! Under Volatile Apply the journal is transferred to the metadata server, which applies it to its
//! memory. The transfer is part of the cost (J-15). Under Nonvolatile Apply the journal goes into
//! the object store, and the metadata server applies it from there and writes the changes to the
//! metadata store before it answers. They survive any later kill, and the server need not restart.

use policy::Mechanism;
use types::{Errno, Error, Moment, Result};
use wire::{Answer, MergeFlags, MergeReport};

use super::by_reference::{ReferenceMerge, ReferenceStep, SentJournal, SentMerge};
use super::{
    Completion, Material, MechanismEffect, MechanismInput, MechanismStage, MergedBy, Reached,
};
use crate::router::unexpected_answer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApplyKind {
    Volatile,
    Nonvolatile,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Apply {
    kind: ApplyKind,
    merged_by: MergedBy,
    state: ApplyState,
}

#[derive(Clone, Debug)]
enum ApplyState {
    New,
    /// A merge by reference is tried.
    ByReference(Box<ReferenceMerge>),
    /// The journal is written to its object.
    Storing,
    /// These bytes went to the store before.
    Sent(u64),
    /// The server did not find the object: it may have merged the object, and crashed before the
    /// answer.
    Gone(u64, Error),
    /// The observer knows that the journal is applied.
    Applied(Completion),
}

impl Apply {
    pub(super) fn new(kind: ApplyKind) -> Self {
        Self { kind, merged_by: MergedBy::default(), state: ApplyState::New }
    }

    /// The bytes of the result are those of the step.
    pub(super) fn step(
        &mut self,
        reached: &mut Reached,
        material: &Material<'_>,
        now: Moment,
        mut input: MechanismInput,
    ) -> MechanismEffect {
        loop {
            match std::mem::replace(&mut self.state, ApplyState::New) {
                ApplyState::New => {
                    let merge = ReferenceMerge::new(self.flags(material), material.last_seq());
                    self.state = ApplyState::ByReference(Box::new(merge));
                    input = MechanismInput::Start;
                }
                ApplyState::ByReference(mut merge) => {
                    let stored = reached.stored;
                    match merge.step(&mut reached.asked, stored, material, now, input) {
                        ReferenceStep::Effect(effect) => {
                            self.state = ApplyState::ByReference(merge);
                            return effect;
                        }
                        ReferenceStep::Failed(error) => return MechanismEffect::Done(Err(error)),
                        ReferenceStep::Merged(report, merged_by) => {
                            self.merged_by = merged_by;
                            let bytes = if self.is_volatile() { material.bytes() } else { 0 };
                            return self.applied(report, bytes);
                        }
                        ReferenceStep::ByValue(merged_by) => {
                            self.merged_by = merged_by;
                            return self.by_value(reached, material);
                        }
                    }
                }
                ApplyState::Storing => match input.bytes() {
                    Ok(bytes) => {
                        reached.stored = true;
                        return self.merge_stored(reached, material, bytes);
                    }
                    Err(error) => return MechanismEffect::Done(Err(error)),
                },
                ApplyState::Sent(stored) => match merged(input.answer()) {
                    Ok(report) => {
                        let bytes = if self.is_volatile() { material.bytes() } else { stored };
                        return self.applied(report, bytes);
                    }
                    Err(error) => {
                        let stored_object = material.object.filter(|_| !self.is_volatile());
                        return match stored_object {
                            Some(object) if error.errno == Errno::NotFound => {
                                self.state = ApplyState::Gone(stored, error);
                                MechanismEffect::Exists(object.to_owned())
                            }
                            _ => MechanismEffect::Done(Err(error)),
                        };
                    }
                },
                // The server deletes an object when the metadata store has its events.
                ApplyState::Gone(stored, error) => match input.exists() {
                    Ok(false) => return self.applied(MergeReport::default(), stored),
                    Ok(true) | Err(_) => return MechanismEffect::Done(Err(error)),
                },
                ApplyState::Applied(done) => return MechanismEffect::Done(Ok(done)),
            }
        }
    }

    fn is_volatile(&self) -> bool {
        self.kind == ApplyKind::Volatile
    }

    fn flags(&self, material: &Material<'_>) -> MergeFlags {
        MergeFlags { store: !self.is_volatile(), ..material.merge }
    }

    fn applied(&mut self, report: MergeReport, bytes: u64) -> MechanismEffect {
        let (merge, merged_by) = (Some(report), self.merged_by);
        let done = Completion { bytes, merge, merged_by, ..Completion::default() };
        if !self.is_volatile() {
            return MechanismEffect::Done(Ok(done));
        }
        self.state = ApplyState::Applied(done);
        MechanismEffect::Note(Mechanism::VolatileApply, MechanismStage::Applied)
    }

    fn by_value(&mut self, reached: &mut Reached, material: &Material<'_>) -> MechanismEffect {
        if self.is_volatile() {
            reached.asked |= !material.merge.dry_run;
            self.state = ApplyState::Sent(0);
            let object = material.object.unwrap_or_default().to_owned();
            return self.send(material, object, SentJournal::Whole);
        }
        if material.object.is_none() {
            // Nothing to put into the store.
            reached.asked = true;
            self.state = ApplyState::Sent(0);
            return self.send(material, String::new(), SentJournal::Header);
        }
        // A mechanism before this one may have put it there.
        if reached.stored {
            return self.merge_stored(reached, material, 0);
        }
        self.state = ApplyState::Storing;
        MechanismEffect::WriteObject { from: material.persisted_globally }
    }

    fn merge_stored(
        &mut self,
        reached: &mut Reached,
        material: &Material<'_>,
        bytes: u64,
    ) -> MechanismEffect {
        reached.asked = true;
        self.state = ApplyState::Sent(bytes);
        let object = material.object.unwrap_or_default().to_owned();
        self.send(material, object, SentJournal::Stored)
    }

    fn send(
        &self,
        material: &Material<'_>,
        object: String,
        journal: SentJournal,
    ) -> MechanismEffect {
        MechanismEffect::Merge(SentMerge { object, flags: self.flags(material), journal })
    }
}

/// The report in the answer to a merge.
pub(super) fn merged(answer: Result<Answer>) -> Result<MergeReport> {
    let answer = answer?;
    let Answer::Merged(report) = answer else { return Err(unexpected_answer(&answer)) };
    Ok(*report)
}
