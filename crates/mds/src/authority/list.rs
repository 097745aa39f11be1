//! The list of subtrees: reading it, and replacing it.

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use metastore::{SUBTREES_NAME, Subtrees};
use namespace::Namespace;
use types::{Ino, Moment};

use super::{Authority, LIST};
use crate::fetch::Fetches;
use crate::store::StoreOps;
use crate::{MdsEffects, Waiting};

/// The result of an operation on the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListNews {
    None,
    /// It was read.
    Read,
    /// It is as proposed.
    Replaced,
    /// It was read while a replacement was pending.
    Found,
    /// It is not known whether it was replaced.
    Unknown,
}

impl Authority {
    /// Reads the list, unless that is being done, or a replacement comes first: clients that make
    /// this rank read the list without end would keep subtrees from moving. Returns whether the
    /// read has begun.
    pub(super) fn read_list(&mut self, store: &mut StoreOps, effects: &mut MdsEffects) -> bool {
        let is_put_next = self.exports.iter().any(|export| export.is_held_back);
        let begins = !self.is_busy() && !is_put_next;
        if begins {
            self.reading = true;
            get_list(store, effects);
        }
        begins
    }

    /// Reads the list to find out whether it was replaced.
    pub(super) fn look_at_list(&mut self, store: &mut StoreOps, effects: &mut MdsEffects) {
        self.writing = true;
        get_list(store, effects);
    }

    pub(super) fn put_list(
        &mut self,
        list: Subtrees,
        store: &mut StoreOps,
        effects: &mut MdsEffects,
    ) {
        let condition = self.condition();
        assert!(!self.is_busy(), "one operation on the list at a time");
        self.writing = true;
        let (object, data) = (SUBTREES_NAME.to_owned(), list.encode());
        self.proposed = Some(list);
        store.begin(Waiting::Subtrees, StoreOp::Put { object, data, condition }, effects);
    }
}

fn get_list(store: &mut StoreOps, effects: &mut MdsEffects) {
    let object = SUBTREES_NAME.to_owned();
    store.begin(Waiting::Subtrees, StoreOp::Get { object }, effects);
}

/// The list of subtrees, with all that a new one may touch.
pub(crate) struct ListCx<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) fetches: &'a mut Fetches,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) now: Moment,
}

impl ListCx<'_> {
    /// An operation on the list ended.
    pub(crate) fn stored(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) -> ListNews {
        if std::mem::take(&mut self.authority.writing) {
            return self.written(result, effects);
        }
        assert!(self.authority.reading, "the list was being read");
        self.authority.reading = false;
        // After a failure the list is read later, and blocked requests are answered from the known
        // list.
        match result {
            Ok(read) => self.read(&read, ListNews::Read, effects),
            Err(_) => ListNews::None,
        }
    }

    /// The list was replaced, or not; or it was read to find that out.
    fn written(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) -> ListNews {
        match result {
            Ok(StoreResult::Stored(version)) => {
                self.authority.version = Some(version);
                if let Some(list) = self.authority.proposed.take() {
                    self.authority.list = list;
                    self.authority.note_fragments(self.namespace);
                }
                ListNews::Replaced
            }
            Ok(StoreResult::Conflict) => {
                // Another rank replaced it; or it was this one, and its answer was lost.
                self.authority.look_at_list(self.store, effects);
                ListNews::None
            }
            Ok(read @ (StoreResult::Bytes(..) | StoreResult::Missing)) => {
                self.read(&read, ListNews::Found, effects)
            }
            Ok(_) | Err(_) => ListNews::Unknown,
        }
    }

    fn read(&mut self, read: &StoreResult, news: ListNews, effects: &mut MdsEffects) -> ListNews {
        match self.take(read) {
            Ok(()) => news,
            Err(error) => {
                effects.fatal = Some(error);
                ListNews::None
            }
        }
    }

    /// Adopts the list that the store returned.
    pub(crate) fn take(&mut self, result: &StoreResult) -> Result<(), types::Error> {
        if let StoreResult::Bytes(bytes, version) = result {
            if self.authority.version.replace(*version) != Some(*version) {
                self.authority.held.forget_found();
            }
            self.authority.list = Subtrees::decode(bytes)?;
        }
        // A subtree that became this rank's is not served before it is taken in.
        let rank = self.authority.rank;
        let own = self.authority.list.iter().filter(|it| it.rank == rank);
        let new: Vec<Ino> = own.filter(|it| !it.inode.is_empty()).map(|it| it.root).collect();
        new.into_iter().for_each(|root| self.authority.begin_import(root));
        self.authority.find_names();
        self.authority.note_fragments(self.namespace);
        self.authority.note_plain();
        Ok(())
    }

    /// Requests that wait for the list go on, unless a replacement is under way again. The list is
    /// read again if another rank has committed since the last read began.
    pub(crate) fn end(&mut self, effects: &mut MdsEffects) {
        if self.authority.writing {
            return;
        }
        self.authority.read_at = Some(self.now);
        self.authority.reports_waiting.clear();
        self.fetches.wake_returned(LIST);
        if self.authority.reservations.is_list_old {
            let begins = self.authority.read_list(self.store, effects);
            self.authority.reservations.is_list_old = !begins;
        }
    }
}
