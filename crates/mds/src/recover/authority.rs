//! The objects about served subtrees, and about names between ranks, that a recovery reads.

use metastore::request::{StoreOp, StoreResult};
use metastore::{CROSS_RENAMES_PREFIX, SUBTREES_NAME};
use types::{Errno, Error, Ino, Result};

use super::departed::DepartedSubtrees;
use super::{RecoveryCx, RecoveryNeed, Step};
use crate::{MdsEffects, Waiting};

impl RecoveryCx<'_> {
    /// Reads the list of served subtrees, and ends the reservations of earlier terms in it.
    pub(super) fn recover_authority(
        &mut self,
        result: StoreResult,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        match (std::mem::take(&mut self.recovery.step), result) {
            (Step::ReadList, read @ (StoreResult::Bytes(..) | StoreResult::Missing)) => {
                Ok(Some(RecoveryNeed::List(read)))
            }
            (Step::RaiseFence(list), StoreResult::Stored(version)) => {
                self.authority.list_is(list, version);
                self.list_known(effects);
                Ok(None)
            }
            // Another rank was faster.
            (Step::RaiseFence(_), StoreResult::Conflict) => {
                self.recovery.step = Step::ReadList;
                self.get(SUBTREES_NAME.to_owned(), effects);
                Ok(None)
            }
            (Step::ListCrossRenames, StoreResult::Names(names)) => match names.first() {
                None => Ok(self.begin_namespace(effects)),
                Some(object) => {
                    let cause = "a server of an earlier version has not ended this rename";
                    let remedy = "start the servers of that version, wait until no object is below \
                                  mds/passage/, and stop them before this version starts";
                    Err(Error::new(Errno::NotSupported, object, cause).remedy(remedy))
                }
            },
            (step, result) => {
                self.recovery.step = step;
                Err(self.unexpected(&result))
            }
        }
    }

    /// The authority has the list that was read.
    pub(super) fn list_adopted(&mut self, effects: &mut MdsEffects) {
        let Some(list) = self.authority.list_of_term() else { return self.list_known(effects) };
        let (object, data) = (SUBTREES_NAME.to_owned(), list.encode());
        let condition = self.authority.condition();
        self.recovery.step = Step::RaiseFence(list);
        self.store.begin(Waiting::Recovery, StoreOp::Put { object, data, condition }, effects);
    }

    fn list_known(&mut self, effects: &mut MdsEffects) {
        let gone = self.authority.recover_gone(self.tables);
        self.recovery.departed = DepartedSubtrees::new(gone);
        self.recovery.step = Step::ListCrossRenames;
        let prefix = CROSS_RENAMES_PREFIX.to_owned();
        self.store.begin(Waiting::Recovery, StoreOp::List { prefix }, effects);
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
}
