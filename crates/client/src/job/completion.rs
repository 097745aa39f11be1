//! The results of mechanisms: how far they came, how long they took, and the reports of merges.

use policy::{Composition, Mechanism};
use wire::MergeReport;

use crate::ByValue;

/// How far a composition came that did not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The request to apply the journal was sent: it may be applied, with any answer.
    pub asked: bool,
    /// All of the journal is on this disk.
    pub on_disk: bool,
    /// All of it is in its object.
    pub stored: bool,
}

impl Reached {
    /// All that a composition can reach.
    #[must_use]
    pub fn all(composition: &Composition) -> Self {
        let does = |wanted| composition.contains(wanted);
        Self {
            asked: composition.mechanisms().any(Mechanism::applies),
            on_disk: does(Mechanism::LocalPersist),
            stored: does(Mechanism::GlobalPersist) || does(Mechanism::NonvolatileApply),
        }
    }
}

/// The part of a merge that went by reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MergedBy {
    /// Directories that were written as runs, which the server linked.
    pub runs: u64,
    /// Events that were not sent, because the runs have their results.
    pub events: u64,
    /// From when the runs were in the store until the server had answered, in seconds.
    pub seconds: f64,
    /// Why something was told event by event although the policy asks for runs, in words.
    pub because: Option<&'static str>,
}

impl MergedBy {
    /// All of it by value, for this reason.
    #[must_use]
    pub fn value(because: ByValue) -> Self {
        Self { because: Some(because.reason()), ..Self::default() }
    }

    /// The sum of two merges.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            events: self.events + other.events,
            seconds: self.seconds + other.seconds,
            because: self.because.or(other.because),
        }
    }
}

/// One mechanism that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Which.
    pub mechanism: Mechanism,
    /// How long it took.
    pub seconds: f64,
    /// Bytes written or transferred.
    pub bytes: u64,
}

/// A composition that was carried out completely: its promise holds now (P-08).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// Events in the journal.
    pub events: u64,
    /// Bytes of the journal.
    pub bytes: u64,
    /// The mechanisms, in the order in which they ended.
    pub steps: Vec<Step>,
    /// How long all of it took, in seconds; less than the sum of the steps if some ran in parallel.
    pub seconds: f64,
    /// The report of the merge, if there was one.
    pub merge: Option<MergeReport>,
    /// How that was told.
    pub merged_by: MergedBy,
    /// Parts that were merged during the job (U-03); their reports are included.
    pub syncs: u64,
}

impl Completion {
    /// Adds an earlier or parallel completion.
    pub fn absorb(&mut self, other: Completion) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.syncs += other.syncs;
        for step in other.steps {
            match self.steps.iter_mut().find(|known| known.mechanism == step.mechanism) {
                Some(known) => {
                    known.seconds += step.seconds;
                    known.bytes += step.bytes;
                }
                None => self.steps.push(step),
            }
        }
        self.merged_by = self.merged_by.and(other.merged_by);
        self.merge = match (self.merge.take(), other.merge) {
            (Some(first), Some(second)) => Some(sum_of_reports(second, first)),
            (one, other) => one.or(other),
        };
    }
}

/// The sum of two merge reports.
#[must_use]
pub fn sum_of_reports(first: MergeReport, second: MergeReport) -> MergeReport {
    let mut samples = first.samples;
    samples.extend(second.samples);
    MergeReport {
        events: first.events + second.events,
        created: first.created + second.created,
        replaced: first.replaced + second.replaced,
        rejected: first.rejected + second.rejected,
        verify_nanos: first.verify_nanos + second.verify_nanos,
        apply_nanos: first.apply_nanos + second.apply_nanos,
        samples,
    }
}
