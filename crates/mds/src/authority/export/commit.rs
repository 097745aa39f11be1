//! Replacing the list of subtrees: the moment in which subtrees change hands.

use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{SUBTREES_NAME, Subtrees};
use types::{Ino, Moment};

use super::{Export, ExportStage, give};
use crate::authority::RETRY;
use crate::transfer::TransferEvent;
use crate::{Mds, MdsEffects, Waiting};

impl Mds {
    /// Replaces the list once for all subtrees that may go now.
    pub(super) fn commit_ready(&mut self, effects: &mut MdsEffects) {
        let mut ready = Vec::new();
        for export in &mut self.authority.exports {
            if std::mem::take(&mut export.ready) {
                ready.push(export.root);
            }
        }
        // A replacement of the list is under way; the next step checks again.
        if ready.is_empty() || self.authority.is_busy() {
            return;
        }
        let mut list = self.authority.list.clone();
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
                        self.set_export_stage(root, ExportStage::Commit);
                    }
                }
                None => self.abort_export(root, "its root is not here any more", effects),
            }
        }
        if any {
            self.put_list(list, effects);
        }
    }

    fn exports_at(&self, stage: ExportStage) -> Vec<Ino> {
        let exports = self.authority.exports.iter().filter(|export| export.stage == stage);
        exports.map(|export| export.root).collect()
    }

    pub(in crate::authority) fn put_list(&mut self, list: Subtrees, effects: &mut MdsEffects) {
        let condition = match self.authority.version {
            Some(version) => Condition::Version(version),
            None => Condition::Absent,
        };
        assert!(!self.authority.is_busy(), "one operation on the list at a time");
        self.authority.writing = true;
        let (object, data) = (SUBTREES_NAME.to_owned(), list.encode());
        self.authority.proposed = Some(list);
        self.store.begin(Waiting::Subtrees, StoreOp::Put { object, data, condition }, effects);
    }

    /// The list was replaced, or not; or it was read to find that out.
    pub(in crate::authority) fn list_written(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        match result {
            Ok(StoreResult::Stored(version)) => self.list_replaced(version, effects),
            Ok(StoreResult::Conflict) => {
                // Another rank replaced it; or it was this one, and its answer was lost.
                self.authority.writing = true;
                let object = SUBTREES_NAME.to_owned();
                self.store.begin(Waiting::Subtrees, StoreOp::Get { object }, effects);
            }
            Ok(read @ (StoreResult::Bytes(..) | StoreResult::Missing)) => {
                if let Err(error) = self.take_list(&read) {
                    effects.fatal = Some(error);
                    return;
                }
                self.list_found(effects);
            }
            Ok(_) | Err(_) => self.list_again(effects),
        }
    }

    fn list_again(&mut self, effects: &mut MdsEffects) {
        let until = self.clock.now + RETRY;
        self.retry_exports(until, effects);
        self.imports_again(false, effects);
        self.reshape_listed(true);
        self.cross_renames_listed(Some(until));
    }

    fn retry_exports(&mut self, until: Moment, effects: &mut MdsEffects) {
        for root in self.exports_at(ExportStage::Commit) {
            if !self.give_event(root, TransferEvent::Unknown, effects) {
                self.set_export_stage(root, ExportStage::Retry(until));
            }
        }
    }

    /// The list was replaced as proposed.
    fn list_replaced(&mut self, version: u64, effects: &mut MdsEffects) {
        self.authority.version = Some(version);
        if let Some(list) = self.authority.proposed.take() {
            self.authority.list = list;
            self.note_fragments();
        }
        self.reshape_listed(false);
        self.cross_renames_listed(None);
        if !self.imports_acknowledged(effects) {
            for root in self.exports_at(ExportStage::Commit) {
                if !self.give_event(root, TransferEvent::Replaced, effects) {
                    self.exported(root, effects);
                }
            }
        }
    }

    /// The list was read while a replacement of it was pending.
    fn list_found(&mut self, effects: &mut MdsEffects) {
        self.imports_again(true, effects);
        self.reshape_listed(false);
        self.cross_renames_listed(Some(self.clock.now));
        for root in self.exports_at(ExportStage::Commit) {
            let Some(Export { to, pinned, .. }) = self.authority.export_of(root) else { continue };
            let (to, pinned) = (*to, *pinned);
            let list = &self.authority.list;
            let here = list.unjoined_at(root).is_none_or(|subtree| subtree.rank == self.rank);
            let noted = list.get(root).is_some_and(|subtree| subtree.pinned == pinned);
            let noted = to == self.rank && noted;
            if here && self.authority.imports.iter().any(|import| import.root == root) {
                // It went, and came back.
                self.set_export_stage(root, ExportStage::Retry(self.clock.now + RETRY));
            } else if here && !noted && to == self.rank {
                self.set_export_stage(root, ExportStage::Note);
            } else if !self.give_event(root, TransferEvent::List(give::view(!here)), effects) {
                self.exported(root, effects);
            }
        }
    }
}
