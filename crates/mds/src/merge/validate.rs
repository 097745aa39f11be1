//! The invariants of the merges.

use super::{Merge, MergeStage, Merges};

impl Merges {
    /// Checks the invariants of the merges, between two inputs.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        for merge in &self.receiving {
            assert!(merge.stage == MergeStage::Receiving, "a journal is being received");
            let (bytes, expected) = (merge.bytes.len() as u64, merge.expected);
            assert!(bytes <= expected, "a journal of {expected} bytes has {bytes} bytes");
        }
        for merge in &self.queue {
            assert!(merge.stage != MergeStage::Receiving, "a queued journal is received");
            merge.validate();
        }
        for merge in self.queue.iter().skip(1) {
            let waits = merge.stage == MergeStage::Verifying && merge.applied == 0;
            assert!(waits, "merges are executed one after the other");
        }
        let all = self.receiving.iter().chain(&self.held).chain(&self.queue);
        let known = all.clone().all(|merge| merge.id <= self.next_id);
        assert!(known, "a merge has a number that was given");
        let mut numbers: Vec<u64> = all.map(|merge| merge.id).collect();
        numbers.sort_unstable();
        let twice = numbers.iter().zip(numbers.iter().skip(1)).find(|(one, next)| one == next);
        assert!(twice.is_none(), "two merges have the number {twice:?}");
        assert!(self.batch.is_empty(), "creates of a merge are applied at the end of a slice");
        assert!(
            !self.waiting || !self.queue.is_empty(),
            "the merge at the head of the queue waits"
        );
        for (object, unfinished) in &self.unfinished {
            assert!(!object.is_empty(), "an interrupted merge has a journal object");
            assert!(unfinished.begun.0 > 0, "{object}: the journal has a record of the merge");
        }
    }
}

impl Merge {
    fn validate(&self) {
        let (applied, recorded) = (self.applied, self.recorded);
        assert!(recorded <= applied, "{recorded} events are recorded, and {applied} applied");
        assert!(self.offset <= self.bytes.len(), "the next block is in the journal");
        let begun = self.begun.is_none() || self.is_recorded();
        assert!(begun, "a merge with a record has a journal object");
    }
}
