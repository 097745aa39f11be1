//! The objects about served subtrees, and about cross-rank renames between ranks, that a recovery
//! reads.

use metastore::CROSS_RENAMES_PREFIX;
use metastore::request::{StoreOp, StoreResult};
use types::{Errno, Error, Ino};

use super::Step;
use super::departed::DepartedSubtrees;
use crate::fetch::Waiter;
use crate::{Mds, MdsEffects, Waiting};

impl Mds {
    /// Reads the list of served subtrees, and the cross-rank renames between ranks.
    pub(super) fn recover_authority(
        &mut self,
        result: StoreResult,
        effects: &mut MdsEffects,
    ) -> Result<(), Error> {
        match (&self.recovery.step, result) {
            (Step::ReadList, read @ (StoreResult::Bytes(..) | StoreResult::Missing)) => {
                self.take_list(&read)?;
                self.drop_left();
                self.recovery.departed = DepartedSubtrees::new(self.recover_gone());
                self.recovery.step = Step::ListCrossRenames;
                let prefix = CROSS_RENAMES_PREFIX.to_owned();
                self.store.begin(Waiting::Recovery, StoreOp::List { prefix }, effects);
            }
            (Step::ListCrossRenames, StoreResult::Names(names)) => {
                self.read_cross_renames(names, effects)
            }
            (Step::ReadCrossRename(name, rest), read) => {
                let (name, rest) = (name.clone(), rest.clone());
                if let StoreResult::Bytes(bytes, version) = &read {
                    self.recall_cross_rename(&name, (bytes, *version))?;
                }
                self.read_cross_renames(rest, effects);
            }
            (step, result) => {
                let cause = format!("recovery expected something else: {step:?}, {result:?}");
                return Err(Error::new(Errno::Io, self.rank.to_string(), cause));
            }
        }
        Ok(())
    }

    /// Fetches the inodes with several names if some of them left: all of those are forgotten where
    /// that is due. And the roots that are in hidden directories: the journal's events about such a
    /// root apply there, and not to a directory that the root left long ago, that still lists it,
    /// and that was removed before it was written again.
    pub(super) fn fetch_hidden(&mut self, effects: &mut MdsEffects) {
        let lacks = |dir: &Ino| !self.namespace.is_complete(*dir);
        let links = self.recovery.departed.has_linked().then_some(Ino::LINKS);
        let served = self.served_roots().into_iter().map(Ino::mount_stub);
        let served = served.filter(|above| !self.recovery.departed.covers(*above));
        let next = links.into_iter().chain(served).find(lacks);
        match next {
            None => self.list_segments(effects),
            Some(dir) => {
                self.recovery.step = Step::FetchHidden;
                self.fetching().wait_for_whole(dir, Waiter::Recovery, effects);
            }
        }
    }

    /// Reads the cross-rank renames between ranks; then the namespace begins.
    fn read_cross_renames(&mut self, mut names: Vec<String>, effects: &mut MdsEffects) {
        match names.pop() {
            None => self.begin_namespace(effects),
            Some(object) => {
                self.recovery.step = Step::ReadCrossRename(object.clone(), names);
                self.store.begin(Waiting::Recovery, StoreOp::Get { object }, effects);
            }
        }
    }
}
