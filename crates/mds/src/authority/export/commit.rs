//! The exports and the list of subtrees: the moment in which subtrees change hands.

use types::{Ino, Moment};

use super::{Export, ExportCx, ExportStage, give};
use crate::MdsEffects;
use crate::authority::RETRY;
use crate::transfer::TransferEvent;

impl ExportCx<'_> {
    /// Replaces the list once for all subtrees that may go now.
    pub(super) fn commit_ready(&mut self, effects: &mut MdsEffects) {
        let is_busy = self.base.authority.is_busy();
        let mut ready = Vec::new();
        for export in &mut self.base.authority.exports {
            let is_ready = std::mem::take(&mut export.ready);
            // An operation on the list is under way; the next step checks again.
            export.is_held_back = is_ready && is_busy;
            if is_ready && !is_busy {
                ready.push(export.root);
            }
        }
        if ready.is_empty() {
            return;
        }
        let mut list = self.base.authority.list.clone();
        let mut any = false;
        for root in ready {
            if !self.is_given_leave(root, effects) {
                continue;
            }
            match self.list_with(list.clone(), root) {
                Some(with) => {
                    list = with;
                    any = true;
                    if !self.give_event(root, TransferEvent::Ready, effects) {
                        self.set_stage(root, ExportStage::Commit);
                    }
                }
                None => self.abort(root, "its root is not here any more", effects),
            }
        }
        if any {
            self.base.authority.put_list(list, self.base.store, effects);
        }
    }

    fn exports_at(&self, stage: ExportStage) -> Vec<Ino> {
        let exports = self.base.authority.exports.iter().filter(|export| export.stage == stage);
        exports.map(|export| export.root).collect()
    }

    /// It is not known whether the list was replaced.
    pub(in crate::authority) fn list_unknown(&mut self, until: Moment, effects: &mut MdsEffects) {
        for root in self.exports_at(ExportStage::Commit) {
            if !self.give_event(root, TransferEvent::Unknown, effects) {
                self.set_stage(root, ExportStage::Retry(until));
            }
        }
    }

    /// The list was replaced as proposed.
    pub(in crate::authority) fn list_replaced(&mut self, effects: &mut MdsEffects) {
        for root in self.exports_at(ExportStage::Commit) {
            if !self.give_event(root, TransferEvent::Replaced, effects) {
                self.exported(root, effects);
            }
        }
    }

    /// The list was read while a replacement of it was pending.
    pub(in crate::authority) fn list_found(&mut self, effects: &mut MdsEffects) {
        for root in self.exports_at(ExportStage::Commit) {
            let Some(Export { to, pinned, .. }) = self.base.authority.export_of(root) else {
                continue;
            };
            let (to, pinned) = (*to, *pinned);
            let list = &self.base.authority.list;
            let here = list.unjoined_at(root).is_none_or(|subtree| subtree.rank == self.base.rank);
            let noted = list.get(root).is_some_and(|subtree| subtree.pinned == pinned);
            let noted = to == self.base.rank && noted;
            if here && self.base.authority.is_importing(root) {
                // It went, and came back.
                self.set_stage(root, ExportStage::Retry(self.base.clock.now + RETRY));
            } else if here && !noted && to == self.base.rank {
                self.set_stage(root, ExportStage::Note);
            } else if !self.give_event(root, TransferEvent::List(give::view(!here)), effects) {
                self.exported(root, effects);
            }
        }
    }
}
