//! The invariants of the authority.

use types::{Ino, Rank};

use super::export::ExportStage;
use super::frozen::Frozen;
use super::view::Places;
use super::{Authority, MOVED_MAX};

impl Authority {
    fn validate(&self) {
        let here = self.list.unjoined().all(|subtree| subtree.rank == self.rank);
        let still = self.exports.is_empty() && self.imports.is_empty() && self.preloads.is_empty();
        let whole =
            self.splits.is_empty() && self.reshape.is_none() && self.cross_renames.is_empty();
        let plain = self.rank == Rank(0) && here && still && whole;
        assert!(!self.plain || plain, "requests are looked at while subtrees are elsewhere");
        let frozen = Frozen::of(self);
        assert!(self.frozen == frozen, "the freeze set {:?} is {frozen:?}", self.frozen);
        assert!(self.moved.len() <= MOVED_MAX, "the number of remembered inodes is bounded");
        assert!(!self.reading || !self.writing, "the list is read, or it is replaced");
        for (at, export) in self.exports.iter().enumerate() {
            let root = export.root;
            let twice = self.exports[..at].iter().any(|other| other.root == root);
            assert!(!twice, "{root}: a subtree moves once at a time");
            let open = matches!(
                export.stage,
                ExportStage::Note | ExportStage::Drain | ExportStage::Copy { .. }
            );
            assert!(!open || !export.is_frozen(), "{root}: requests continue until the freeze");
            assert!(export.linked.is_sorted(), "{root}: the leaving inodes are in order");
        }
        self.cross_renames.validate();
        for (at, import) in self.imports.iter().enumerate() {
            let root = import.root;
            let twice = self.imports[..at].iter().any(|other| other.root == root);
            assert!(!twice, "{root}: a subtree arrives once at a time");
            assert!(import.linked.is_sorted(), "{root}: the arriving inodes are in order");
        }
    }
}

impl Places<'_> {
    /// Checks the invariants of the authority; the store executes so many operations on the list
    /// of subtrees.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self, list_ops: usize) {
        let authority = self.authority;
        authority.validate();
        let known = usize::from(authority.reading) + usize::from(authority.writing);
        assert!(list_ops == known, "{list_ops} operations on the list are under way, not {known}");
        // Until the freeze a rename may move a subtree into another one; then that is not frozen.
        let frozen = authority.exports.iter().filter(|export| export.is_frozen());
        for root in frozen.map(|export| export.root) {
            let overlaps = |other: &Ino| *other != root && self.overlap(root, *other);
            let other = authority.exporting().find(overlaps);
            assert!(other.is_none(), "{root}: a frozen subtree and {other:?} do not overlap");
        }
    }
}
