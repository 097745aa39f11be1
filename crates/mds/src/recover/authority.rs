//! The objects about served subtrees, and about cross-rank renames between ranks, that a recovery
//! reads.

use metastore::CROSS_RENAMES_PREFIX;
use metastore::request::{StoreOp, StoreResult};
use types::{Ino, Result};

use super::departed::DepartedSubtrees;
use super::{RecoveryCx, RecoveryNeed, Step};
use crate::{MdsEffects, Waiting};

impl RecoveryCx<'_> {
    /// Reads the list of served subtrees, and the cross-rank renames between ranks.
    pub(super) fn recover_authority(
        &mut self,
        result: StoreResult,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        match (&self.recovery.step, result) {
            (Step::ReadList, read @ (StoreResult::Bytes(..) | StoreResult::Missing)) => {
                Ok(Some(RecoveryNeed::List(read)))
            }
            (Step::ListCrossRenames, StoreResult::Names(names)) => {
                Ok(self.read_cross_renames(names, effects))
            }
            (Step::ReadCrossRename(object, _), StoreResult::Bytes(bytes, version)) => {
                let object = object.clone();
                Ok(Some(RecoveryNeed::CrossRename { object, bytes, version }))
            }
            (Step::ReadCrossRename(..), _) => self.met(effects),
            (_, result) => Err(self.unexpected(&result)),
        }
    }

    /// The authority has the object that was read: the next ones follow.
    pub(super) fn met(&mut self, effects: &mut MdsEffects) -> Result<Option<RecoveryNeed>> {
        match &mut self.recovery.step {
            Step::ReadList => {
                let gone = self.authority.recover_gone(self.tables);
                self.recovery.departed = DepartedSubtrees::new(gone);
                self.recovery.step = Step::ListCrossRenames;
                let prefix = CROSS_RENAMES_PREFIX.to_owned();
                self.store.begin(Waiting::Recovery, StoreOp::List { prefix }, effects);
                Ok(None)
            }
            Step::ReadCrossRename(_, rest) => {
                let rest = std::mem::take(rest);
                Ok(self.read_cross_renames(rest, effects))
            }
            Step::Idle
            | Step::ReadTable
            | Step::TakeOver
            | Step::ListCrossRenames
            | Step::FetchHidden
            | Step::FetchAbove(_)
            | Step::FetchRoot
            | Step::StoreRoot
            | Step::ListSegments
            | Step::ReadSegment(_)
            | Step::Replay
            | Step::ReadMerged(_)
            | Step::ReadStored => Ok(None),
        }
    }

    /// Fetches the inodes with several names if some of them left: all of those are forgotten where
    /// that is due. And the roots that are in hidden directories: the journal's events about such a
    /// root apply there, and not to a directory that the root left long ago, that still lists it,
    /// and that was removed before it was written again.
    pub(super) fn fetch_hidden(&mut self, effects: &mut MdsEffects) -> Option<RecoveryNeed> {
        let lacks = |dir: &Ino| !self.namespace.is_complete(*dir);
        let links = self.recovery.departed.has_linked().then_some(Ino::LINKS);
        let served = self.authority.served_roots().into_iter().map(Ino::mount_stub);
        let served = served.filter(|above| !self.recovery.departed.covers(*above));
        let next = links.into_iter().chain(served).find(lacks);
        if next.is_some() {
            self.recovery.step = Step::FetchHidden;
        } else {
            self.list_segments(effects);
        }
        next.map(RecoveryNeed::Directory)
    }

    /// Reads the cross-rank renames between ranks; then the namespace begins.
    fn read_cross_renames(
        &mut self,
        mut names: Vec<String>,
        effects: &mut MdsEffects,
    ) -> Option<RecoveryNeed> {
        let Some(object) = names.pop() else { return self.begin_namespace(effects) };
        self.recovery.step = Step::ReadCrossRename(object.clone(), names);
        self.get(object, effects);
        None
    }
}
