//! The invariants of a decoupled subtree.

use super::ClientSubtree;

impl ClientSubtree {
    /// Checks the invariants of the subtree, and of its view. The time that this takes grows with
    /// the view.
    ///
    /// # Panics
    /// If one of them does not hold. The message names the invariant.
    pub fn validate(&self) {
        let (first, next) = (self.first_seq, self.buffer.next_seq());
        assert!(first <= next, "the journal from {first} to {next} is not shorter than empty");
        assert!(self.viewed <= next, "the view is not ahead of the journal");
        let (seen, blocks) = (self.seen, self.buffer.blocks().len());
        assert!(seen <= blocks, "the view has seen {seen} of {blocks} blocks");
        let taken = self.ranges.iter().any(|range| range.contains(self.last));
        assert!(!taken, "the number {} was taken, and is not taken again", self.last);
        if let Some(view) = &self.view {
            assert!(self.unseen.is_empty(), "a view has seen the events before the journal");
            view.namespace().validate();
        }
    }
}
