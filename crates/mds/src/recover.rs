//! Recovery: taking over a rank. Fence the predecessor, replay its journal over the metadata store,
//! wait a moment for clients to resend changes that were applied but not safe, then serve.

mod authority;
mod damaged_dirs;
mod departed;
mod end;
mod remerge;
mod replay;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use metastore::request::{
    Condition, LoadedDir, StoreFailure, StoreOp, StoreResult, journal_prefix, rank_name,
};
use metastore::{Rows, SUBTREES_NAME, Subtrees};
use namespace::{CreateBatch, FreedInode, Namespace};
use types::{Clock, Cred, Errno, Error, Ino, Rank, Result, Seq};

use crate::authority::{Authority, ListCx, is_in_hidden};
use crate::caps::CapsCx;
use crate::chain::{Chain, VerifiedSegment};
use crate::checkpoint::Checkpoint;
use crate::damage::Damage;
use crate::fetch::{FetchCx, Waiter};
use crate::log::Log;
use crate::merge::{Merges, Unfinished};
use crate::purge::{PurgeCx, Purges};
use crate::resend::ResendCx;
use crate::session::Sessions;
use crate::store::StoreOps;
use crate::tables::Tables;
use crate::{Counters, Mds, MdsEffects, Settings, Waiting};

use departed::DepartedSubtrees;
use remerge::Merged;

#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    ReadTable,
    TakeOver,
    /// The list of subtrees is read.
    ReadList,
    /// The fence of the rank is raised in the list: no reservation of an earlier term holds.
    RaiseFence(Subtrees),
    /// Names that servers of an earlier version moved between ranks are looked for.
    ListCrossRenames,
    /// The inodes of subtrees whose names are another rank's are fetched, before the journal is
    /// replayed.
    FetchHidden,
    /// One of them is fetched that is not here when it was.
    FetchAbove(Ino),
    /// The directory that holds the root's inode is fetched.
    FetchRoot,
    /// A new cluster: the root is made, and stored before anything else happens.
    StoreRoot,
    ListSegments,
    /// A segment of this name is read.
    ReadSegment(String),
    Replay,
    /// A client's journal of this name is read.
    ReadMerged(String),
    /// A directory is read, to see whether the store has an event that the journal marks as perhaps
    /// stored.
    ReadStored,
}

/// The state of a recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    step: Step,
    /// The journal, of which `segment` is being applied.
    chain: Chain,
    segment: Option<VerifiedSegment>,
    /// Where the next block starts, and how many of its events are applied.
    offset: usize,
    skip: u64,
    /// The last event that was applied: later ones may be found twice.
    applied: Seq,
    /// The client's journal of which parts were merged last.
    merged: Option<Merged>,
    /// The directory that was read, for the event that asked for it.
    stored: Option<Option<Box<LoadedDir>>>,
    /// Creates that go into the namespace; empty between blocks.
    batch: CreateBatch,
    /// How many of the losses of an event are repeated.
    losses: usize,
    /// The directories that other ranks have by now.
    departed: DepartedSubtrees,
    /// Merges whose last part is not in the journal, by the object of the client's journal.
    unfinished: BTreeMap<String, Unfinished>,
}

impl Recovery {
    /// Checks the invariants of a recovery, between two inputs.
    ///
    /// # Panics
    /// If one of them does not hold.
    pub(crate) fn validate(&self) {
        self.chain.validate();
        assert!(self.batch.is_empty(), "creates of the journal are applied at the end of a block");
        if let Some(segment) = &self.segment {
            let length = segment.bytes.len();
            assert!(self.offset <= length, "the next block is in the segment of {length} bytes");
        }
    }
}

/// The recovery, with all that it may touch.
pub(crate) struct RecoveryCx<'a> {
    pub(crate) recovery: &'a mut Recovery,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) tables: &'a mut Tables,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) log: &'a mut Log,
    pub(crate) merges: &'a mut Merges,
    pub(crate) purges: &'a mut Purges,
    pub(crate) checkpoint: &'a mut Checkpoint,
    pub(crate) damage: &'a mut Damage,
    pub(crate) authority: &'a mut Authority,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) settings: &'a Settings,
    pub(crate) rank: Rank,
    pub(crate) clock: Clock,
}

/// An input of the recovery.
#[derive(Debug)]
pub(crate) enum RecoveryInput {
    /// The server starts.
    Start,
    /// The store operation that the recovery began ended.
    Stored(std::result::Result<StoreResult, Box<StoreFailure>>),
    /// A directory that it waits for is in memory.
    Fetched,
    /// A directory that it waits for cannot be read.
    Unreadable(Ino, Error),
    /// Another part met the need for the list of subtrees.
    Met,
}

/// A need of the recovery that another part meets before the recovery continues.
#[derive(Debug)]
pub(crate) enum RecoveryNeed {
    /// This directory must be in memory.
    Directory(Ino),
    /// The authority adopts the list of subtrees that the store returned.
    List(StoreResult),
    /// The whole journal is applied, up to `last`: the server waits for its clients, and deletes
    /// the inodes that have no name any more.
    Clients { freed: Vec<FreedInode>, last: Seq },
}

impl RecoveryCx<'_> {
    /// Continues until the recovery waits for the store, or needs another part.
    ///
    /// # Errors
    /// The reason why the server cannot serve this rank.
    pub(crate) fn handle(
        &mut self,
        input: RecoveryInput,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        match input {
            RecoveryInput::Start => {
                self.recovery.step = Step::ReadTable;
                self.get(rank_name(self.rank), effects);
                Ok(None)
            }
            RecoveryInput::Stored(Ok(result)) => self.advance(result, effects),
            RecoveryInput::Stored(Err(failure)) => self.continue_without_stored(*failure, effects),
            RecoveryInput::Fetched => self.fetched(effects),
            RecoveryInput::Unreadable(dir, error) => self.continue_without(dir, error, effects),
            RecoveryInput::Met => {
                self.list_adopted(effects);
                Ok(None)
            }
        }
    }

    fn get(&mut self, object: String, effects: &mut MdsEffects) {
        self.store.begin(Waiting::Recovery, StoreOp::Get { object }, effects);
    }

    /// The store executed the operation of this step.
    fn advance(
        &mut self,
        result: StoreResult,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        match (&self.recovery.step, result) {
            (Step::ReadTable, StoreResult::Missing) => self.take_over(None, effects),
            (Step::ReadTable, StoreResult::Bytes(bytes, version)) => {
                self.take_over(Some((&bytes, version)), effects)
            }
            (Step::TakeOver, StoreResult::Stored(version)) => {
                self.tables.taken_over(version);
                self.sessions.restore(&self.tables.journal_end().sessions);
                self.recovery.step = Step::ReadList;
                self.get(SUBTREES_NAME.to_owned(), effects);
                Ok(None)
            }
            (Step::ReadList | Step::RaiseFence(_) | Step::ListCrossRenames, result) => {
                self.recover_authority(result, effects)
            }
            (Step::TakeOver, _) => Err(Error::new(
                Errno::Busy,
                self.rank.to_string(),
                "another server is starting as this rank",
            )
            .remedy("stop one of the two")),
            (Step::StoreRoot, StoreResult::Written { .. }) => {
                self.namespace.store().end_capture(Ino::ANCHOR);
                self.list_segments(effects);
                Ok(None)
            }
            (Step::ListSegments, StoreResult::Names(names)) => {
                let end = self.tables.journal_end();
                self.recovery.applied = end.last;
                self.recovery.chain =
                    Chain::new(names, self.settings.dispatch, end.next_index, end.last);
                self.replay_on(effects)
            }
            (Step::ReadSegment(name), StoreResult::Bytes(bytes, _)) => {
                self.recovery.chain.found(name.clone(), bytes)?;
                self.replay_on(effects)
            }
            (Step::ReadSegment(_), StoreResult::Missing) => self.replay_on(effects),
            (Step::ReadMerged(object), StoreResult::Bytes(bytes, _)) => {
                self.recovery.merged = Some(Merged::new(object.clone(), bytes));
                self.replay_on(effects)
            }
            (Step::ReadMerged(object), StoreResult::Missing) => {
                // It was removed by its owner, after a checkpoint made it redundant.
                self.recovery.merged = Some(Merged::new(object.clone(), Vec::new()));
                self.replay_on(effects)
            }
            (Step::ReadStored, StoreResult::Dir(loaded)) => {
                self.recovery.stored = Some(Some(loaded));
                self.replay_on(effects)
            }
            (Step::ReadStored, StoreResult::Missing) => {
                self.recovery.stored = Some(None);
                self.replay_on(effects)
            }
            (_, result) => Err(self.unexpected(&result)),
        }
    }

    /// The error for a result that the store does not give to the operation of this step.
    fn unexpected(&self, result: &StoreResult) -> Error {
        let step = &self.recovery.step;
        let cause = format!("recovery expected something else: {step:?}, {result:?}");
        Error::new(Errno::Io, self.rank.to_string(), cause)
    }

    /// Rank 0 begins with the root, other ranks with the subtrees that they serve.
    fn begin_namespace(&mut self, effects: &mut MdsEffects) -> Option<RecoveryNeed> {
        self.authority.set_above_stubs(self.namespace);
        if self.rank == Rank(0) {
            self.recovery.step = Step::FetchRoot;
            Some(RecoveryNeed::Directory(Ino::ANCHOR))
        } else {
            self.fetch_hidden(effects)
        }
    }

    fn take_over(
        &mut self,
        stored: Option<(&[u8], u64)>,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryNeed>> {
        let condition =
            stored.map_or(Condition::Absent, |(_, version)| Condition::Version(version));
        let data = self.tables.take_over(stored)?;
        self.recovery.step = Step::TakeOver;
        let object = rank_name(self.rank);
        self.store.begin(Waiting::Recovery, StoreOp::Put { object, data, condition }, effects);
        Ok(None)
    }

    /// The directory that holds the root's inode is in memory.
    fn find_root(&mut self, effects: &mut MdsEffects) -> Option<RecoveryNeed> {
        if self.namespace.knows(Ino::ROOT) {
            return self.fetch_hidden(effects);
        }
        let (uid, gid) = self.settings.root_owner;
        let owner = Cred { uid, gid, groups: Vec::new() };
        self.namespace.make_root(&owner, self.clock.time);
        let mut capture = self.namespace.store().begin_capture(Ino::ANCHOR)?;
        let mut rows = Rows::new();
        while !self.namespace.store().capture(&mut capture, &mut rows, usize::MAX / 2) {}
        let counts = self.namespace.dirs().counts(Ino::ANCHOR);
        self.recovery.step = Step::StoreRoot;
        let (position, touched) = (Seq(0), Default::default());
        let (ino, attach) = (Ino::ANCHOR, None);
        let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach };
        self.store.begin(Waiting::Recovery, op, effects);
        None
    }

    fn list_segments(&mut self, effects: &mut MdsEffects) {
        self.recovery.step = Step::ListSegments;
        let prefix = journal_prefix(self.rank);
        self.store.begin(Waiting::Recovery, StoreOp::List { prefix }, effects);
    }

    /// The directory of this step is in memory.
    fn fetched(&mut self, effects: &mut MdsEffects) -> Result<Option<RecoveryNeed>> {
        match self.recovery.step {
            Step::Replay => self.replay_on(effects),
            Step::FetchRoot => Ok(self.find_root(effects)),
            Step::FetchHidden => Ok(self.fetch_hidden(effects)),
            Step::FetchAbove(root) => {
                if !is_in_hidden(self.namespace, root) {
                    let cause = "the store has not got its root, which this rank serves";
                    let error = Error::new(Errno::BadMessage, root.to_string(), cause);
                    return Err(error.remedy("run `cudele fsck`"));
                }
                Ok(Some(self.replayed(effects)))
            }
            Step::Idle
            | Step::ReadTable
            | Step::TakeOver
            | Step::ReadList
            | Step::RaiseFence(_)
            | Step::ListCrossRenames
            | Step::StoreRoot
            | Step::ListSegments
            | Step::ReadSegment(_)
            | Step::ReadMerged(_)
            | Step::ReadStored => Ok(None),
        }
    }
}

impl Mds {
    /// Continues the recovery, and has other parts do what it needs.
    pub(crate) fn recover(&mut self, input: RecoveryInput, effects: &mut MdsEffects) {
        let mut input = Some(input);
        while let Some(next) = input.take() {
            let need = RecoveryCx::of(self).handle(next, effects);
            match need.and_then(|need| self.meet_recovery(need, effects)) {
                Ok(next) => input = next,
                Err(error) => effects.fatal = Some(error),
            }
        }
    }

    /// Has another part do what the recovery needs. Returns the next input, if that is done.
    fn meet_recovery(
        &mut self,
        need: Option<RecoveryNeed>,
        effects: &mut MdsEffects,
    ) -> Result<Option<RecoveryInput>> {
        match need {
            None => Ok(None),
            Some(RecoveryNeed::Directory(dir)) => {
                FetchCx::of(self).wait_for_whole(dir, Waiter::Recovery, effects);
                Ok(None)
            }
            Some(RecoveryNeed::List(read)) => {
                ListCx::of(self).take(&read)?;
                self.authority.drop_left(&mut self.tables, &mut self.merges);
                Ok(Some(RecoveryInput::Met))
            }
            Some(RecoveryNeed::Clients { freed, last }) => {
                PurgeCx::of(self).recover_removed(freed, last);
                self.authority.list_changed(&self.namespace, self.phase);
                let leased = CapsCx::of(self).leases_recovered();
                ResendCx::of(self).wait_for_clients(leased);
                let sessions = &self.sessions;
                self.tables.forget_lapsed(|client, _| sessions.is_awaited(client));
                let early = self.early.take();
                self.take_frames(early, effects);
                self.stop_waiting_if_complete(effects);
                Ok(None)
            }
        }
    }
}
