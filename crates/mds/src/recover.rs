//! Recovery: taking over a rank. Fence the predecessor, replay its journal over the metadata store,
//! wait a moment for clients to resend changes that were applied but not safe, then serve.

mod authority;
mod damaged_dirs;
mod departed;
mod end;
mod remerge;

use std::collections::BTreeMap;

use journal::{BlockReader, Create, Event, Record, segment};
use metastore::request::{
    Condition, LoadedDir, StoreFailure, StoreOp, StoreResult, Token, journal_prefix, rank_name,
};
use metastore::{Rows, SUBTREES_NAME};
use namespace::{CreateBatch, Mode};
use types::{ClientId, Cred, Errno, Error, FileType, Ino, Rank, Seq};

use crate::chain::{Chain, Next, VerifiedSegment};
use crate::fetch::Waiter;
use crate::merge::Unfinished;
use crate::session::Remembered;
use crate::{Mds, MdsEffects, Waiting};

use departed::DepartedSubtrees;
use remerge::Merged;

/// Changes of one client that are noted together.
const RUN_MAX: usize = 1024;

#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    ReadTable,
    TakeOver,
    /// The list of subtrees is read.
    ReadList,
    /// Names that move between ranks are looked for.
    ListCrossRenames,
    /// One of them is read; these follow.
    ReadCrossRename(String, Vec<String>),
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

impl Mds {
    pub(crate) fn start_recovery(&mut self, effects: &mut MdsEffects) {
        self.recovery.step = Step::ReadTable;
        let object = rank_name(self.rank);
        self.store.begin(Waiting::Recovery, StoreOp::Get { object }, effects);
    }

    pub(crate) fn recovery_stored(
        &mut self,
        _token: Token,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let result = match result {
            Ok(result) => result,
            Err(failure) => {
                if !self.recover_without_stored(&failure, effects) {
                    effects.fatal = Some(failure.error);
                }
                return;
            }
        };
        if let Err(error) = self.recovery_advance(result, effects) {
            effects.fatal = Some(error);
        }
    }

    fn recovery_advance(
        &mut self,
        result: StoreResult,
        effects: &mut MdsEffects,
    ) -> Result<(), Error> {
        match (&self.recovery.step, result) {
            (Step::ReadTable, StoreResult::Missing) => self.take_over(None, effects),
            (Step::ReadTable, StoreResult::Bytes(bytes, version)) => {
                self.take_over(Some((&bytes, version)), effects)
            }
            (Step::TakeOver, StoreResult::Stored(version)) => {
                self.tables.taken_over(version);
                self.sessions.restore(&self.tables.journal_end().sessions);
                self.recovery.step = Step::ReadList;
                let object = SUBTREES_NAME.to_owned();
                self.store.begin(Waiting::Recovery, StoreOp::Get { object }, effects);
                Ok(())
            }
            (Step::ReadList | Step::ListCrossRenames | Step::ReadCrossRename(..), result) => {
                self.recover_authority(result, effects)
            }
            (Step::TakeOver, _) => Err(Error::new(
                Errno::Busy,
                self.rank.to_string(),
                "another server is starting as this rank",
            )
            .remedy("stop one of the two")),
            (Step::StoreRoot, StoreResult::Written { .. }) => {
                self.namespace.end_capture(Ino::ANCHOR);
                self.list_segments(effects);
                Ok(())
            }
            (Step::ListSegments, StoreResult::Names(names)) => {
                let end = self.tables.journal_end();
                let from = (end.next_index, end.last);
                self.recovery.applied = end.last;
                self.recovery.chain = Chain::new(names, self.settings.dispatch, from);
                self.next_segment(effects)
            }
            (Step::ReadSegment(name), StoreResult::Bytes(bytes, _)) => {
                self.recovery.chain.found(name.clone(), bytes)?;
                self.next_segment(effects)
            }
            (Step::ReadSegment(_), StoreResult::Missing) => self.next_segment(effects),
            (Step::ReadMerged(object), StoreResult::Bytes(bytes, _)) => {
                self.recovery.merged = Some(Merged::new(object.clone(), bytes));
                self.replay_on(effects);
                Ok(())
            }
            (Step::ReadMerged(object), StoreResult::Missing) => {
                // It was removed by its owner, after a checkpoint made it redundant.
                self.recovery.merged = Some(Merged::new(object.clone(), Vec::new()));
                self.replay_on(effects);
                Ok(())
            }
            (Step::ReadStored, StoreResult::Dir(loaded)) => {
                self.recovery.stored = Some(Some(loaded));
                self.replay_on(effects);
                Ok(())
            }
            (Step::ReadStored, StoreResult::Missing) => {
                self.recovery.stored = Some(None);
                self.replay_on(effects);
                Ok(())
            }
            (step, result) => {
                let cause = format!("recovery expected something else: {step:?}, {result:?}");
                Err(Error::new(Errno::Io, self.rank.to_string(), cause))
            }
        }
    }

    /// Rank 0 begins with the root, other ranks with the subtrees that they serve.
    fn begin_namespace(&mut self, effects: &mut MdsEffects) {
        self.set_above_stubs();
        if self.rank == Rank(0) {
            self.recovery.step = Step::FetchRoot;
            self.fetching().wait_for_whole(Ino::ANCHOR, Waiter::Recovery, effects);
        } else {
            self.fetch_hidden(effects);
        }
    }

    fn replay_on(&mut self, effects: &mut MdsEffects) {
        self.recovery.step = Step::Replay;
        self.recovery_continue(effects);
    }

    fn take_over(
        &mut self,
        stored: Option<(&[u8], u64)>,
        effects: &mut MdsEffects,
    ) -> Result<(), Error> {
        let condition =
            stored.map_or(Condition::Absent, |(_, version)| Condition::Version(version));
        let data = self.tables.take_over(stored)?;
        self.recovery.step = Step::TakeOver;
        let object = rank_name(self.rank);
        self.store.begin(Waiting::Recovery, StoreOp::Put { object, data, condition }, effects);
        Ok(())
    }

    /// The directory that holds the root's inode is in memory.
    fn find_root(&mut self, effects: &mut MdsEffects) {
        if self.namespace.knows(Ino::ROOT) {
            return self.fetch_hidden(effects);
        }
        let (uid, gid) = self.settings.root_owner;
        let owner = Cred { uid, gid, groups: Vec::new() };
        self.namespace.make_root(&owner, self.clock.time);
        let Some(mut capture) = self.namespace.begin_capture(Ino::ANCHOR) else { return };
        let mut rows = Rows::new();
        while !self.namespace.capture(&mut capture, &mut rows, usize::MAX / 2) {}
        let counts = self.namespace.counts(Ino::ANCHOR);
        self.recovery.step = Step::StoreRoot;
        let (position, touched) = (Seq(0), Default::default());
        let (ino, attach) = (Ino::ANCHOR, None);
        let op = StoreOp::CommitDir { ino, rows, counts, position, touched, attach };
        self.store.begin(Waiting::Recovery, op, effects);
    }

    fn list_segments(&mut self, effects: &mut MdsEffects) {
        self.recovery.step = Step::ListSegments;
        let prefix = journal_prefix(self.rank);
        self.store.begin(Waiting::Recovery, StoreOp::List { prefix }, effects);
    }

    fn next_segment(&mut self, effects: &mut MdsEffects) -> Result<(), Error> {
        match self.recovery.chain.next()? {
            Next::Read(name) => {
                self.recovery.step = Step::ReadSegment(name.clone());
                self.store.begin(Waiting::Recovery, StoreOp::Get { object: name }, effects);
            }
            Next::Apply(found) => {
                self.recovery.segment = Some(found);
                self.recovery.offset = segment::HEADER_BYTES;
                self.recovery.skip = 0;
                self.recovery.step = Step::Replay;
                self.recovery_continue(effects);
            }
            Next::End => self.replayed(effects),
        }
        Ok(())
    }

    /// Applies events until the segment ends or one needs something from the store.
    pub(crate) fn recovery_continue(&mut self, effects: &mut MdsEffects) {
        match self.recovery.step {
            Step::Replay => {}
            Step::FetchRoot => return self.find_root(effects),
            Step::FetchHidden => return self.fetch_hidden(effects),
            Step::FetchAbove(root) => {
                if !self.is_in_hidden(root) {
                    let cause = "the store has not got its root, which this rank serves";
                    let error = Error::new(Errno::BadMessage, root.to_string(), cause);
                    effects.fatal = Some(error.remedy("run `cudele fsck`"));
                    return;
                }
                return self.replayed(effects);
            }
            Step::Idle
            | Step::ReadTable
            | Step::TakeOver
            | Step::ReadList
            | Step::ListCrossRenames
            | Step::ReadCrossRename(..)
            | Step::StoreRoot
            | Step::ListSegments
            | Step::ReadSegment(_)
            | Step::ReadMerged(_)
            | Step::ReadStored => return,
        }
        let Some(segment) = self.recovery.segment.take() else { return };
        let result = match self.replay_segment(&segment.bytes[..segment.intact], effects) {
            Ok(true) => self.next_segment(effects),
            Ok(false) => {
                self.recovery.segment = Some(segment);
                Ok(())
            }
            Err(error) => Err(error.in_journal(&segment.name)),
        };
        if let Err(error) = result {
            effects.fatal = Some(error);
        }
    }

    /// Returns whether the segment is done; if not, something is being fetched.
    fn replay_segment(
        &mut self,
        bytes: &[u8],
        effects: &mut MdsEffects,
    ) -> Result<bool, journal::JournalError> {
        self.namespace.replay_begins();
        while self.recovery.offset < bytes.len() {
            let (block, next) = journal::Block::read(bytes, self.recovery.offset)?;
            let mut events = block.events();
            for _ in 0..self.recovery.skip {
                events.next_event()?;
            }
            if !self.replay_block(&mut events, effects)? {
                return Ok(false);
            }
            self.recovery.offset = next;
            self.recovery.skip = 0;
        }
        Ok(true)
    }

    fn replay_block(
        &mut self,
        events: &mut BlockReader<'_>,
        effects: &mut MdsEffects,
    ) -> Result<bool, journal::JournalError> {
        // Runs of requests are one client's: sessions are looked up once for each.
        let mut client = ClientId(0);
        let mut changes = Vec::new();
        // Creates of files need nothing from the store. Most events are that.
        let mut batch = std::mem::take(&mut self.recovery.batch);
        loop {
            let record = if let Some((seq, origin, create)) = events.next_create()? {
                let is_file = create.file_type() != FileType::Directory;
                if is_file && seq > self.recovery.applied {
                    if self.recovery.departed.is_due(seq) {
                        self.replay_creates(&mut batch);
                        self.forget_departed(seq);
                    }
                    if !self.recovery.departed.covers(create.parent) {
                        batch.push(seq, &create);
                    }
                    if batch.is_full() {
                        self.replay_creates(&mut batch);
                    }
                    if origin.client != client || changes.len() >= RUN_MAX {
                        self.sessions.recovered_changes(client, &mut changes);
                        client = origin.client;
                    }
                    let Create { ino, time, .. } = create;
                    changes.push(Remembered { tid: origin.tid, seq, ino, time });
                    self.recovery.applied = seq;
                    self.recovery.skip += 1;
                    continue;
                }
                Record { seq, origin, event: Event::Create(create) }
            } else if let Some(record) = events.next_event()? {
                record
            } else {
                break;
            };
            self.replay_creates(&mut batch);
            // The end of a session comes behind its changes, which would begin it again.
            if matches!(record.event, Event::Session { .. }) {
                self.sessions.recovered_changes(client, &mut changes);
            }
            let again = record.seq <= self.recovery.applied;
            if !again && !self.replay_record(&record, effects) {
                self.sessions.recovered_changes(client, &mut changes);
                self.recovery.batch = batch;
                return Ok(false);
            }
            if record.origin.client != client || changes.len() >= RUN_MAX {
                self.sessions.recovered_changes(client, &mut changes);
                client = record.origin.client;
            }
            changes.extend(remembered(&record));
            self.recovery.applied = self.recovery.applied.max(record.seq);
            self.recovery.skip += 1;
        }
        self.replay_creates(&mut batch);
        self.recovery.batch = batch;
        self.sessions.recovered_changes(client, &mut changes);
        Ok(true)
    }

    fn replay_creates(&mut self, batch: &mut CreateBatch) {
        self.counters.recovered_events += batch.len() as u64;
        self.namespace.apply_batch(Mode::Replay, batch, |_, _| ());
    }

    /// Returns whether the event was applied; if not, something is being fetched.
    fn replay_record(&mut self, record: &Record<'_>, effects: &mut MdsEffects) -> bool {
        self.forget_departed(record.seq);
        if self.recovery.departed.passes_over(&record.event) {
            return true;
        }
        while let Some(dir) = self.namespace.needs_again(record.seq, &record.event) {
            if !self.recovery.departed.covers(dir) {
                self.fetching().wait_for_whole(dir, Waiter::Recovery, effects);
                return false;
            }
            self.namespace.take_as_empty(dir);
        }
        self.purges.replayed(record.seq, &record.event);
        match record.event {
            Event::Session { client, tid } => self.sessions.recovered(client, tid),
            Event::Merged { subtree, client, object, first, events, losses, last } => {
                let name = String::from_utf8_lossy(object);
                let known = self.recovery.merged.take().filter(|merged| merged.object == name);
                let Some(mut merged) = known else {
                    let object = name.into_owned();
                    self.recovery.step = Step::ReadMerged(object.clone());
                    self.store.begin(Waiting::Recovery, StoreOp::Get { object }, effects);
                    return false;
                };
                let part = first..first.saturating_add(events);
                let at = (record.seq, subtree);
                let wanted = self.merge_again(at, (part, losses), &mut merged);
                self.recovery.merged = Some(merged);
                if let Some(dir) = wanted {
                    self.fetching().wait_for_whole(dir, Waiter::Recovery, effects);
                    return false;
                }
                if !self.lose_again(record.seq, losses, effects) {
                    return false;
                }
                let name = String::from_utf8_lossy(object).into_owned();
                if last {
                    self.checkpointing().note_merge(record.seq, subtree, object);
                    self.recovery.merged = None;
                    self.recovery.unfinished.remove(&name);
                } else {
                    let known = self.recovery.unfinished.get(&name).map(|known| known.begun);
                    let (begun, after) = (known.unwrap_or(record.seq), self.clock.now);
                    let unfinished = Unfinished { subtree, client, begun, after };
                    self.recovery.unfinished.insert(name, unfinished);
                }
            }
            Event::Stored { dir } => {
                if self.replace_if_stored(dir, record.seq, effects).is_none() {
                    return false;
                }
            }
            Event::Create(_)
            | Event::Link { .. }
            | Event::Unlink { .. }
            | Event::Rmdir { .. }
            | Event::Rename { .. }
            | Event::SetAttr { .. }
            | Event::SetXattr { .. }
            | Event::SetData { .. }
            | Event::SetPolicy { .. } => {
                self.namespace.apply(record.seq, Mode::Replay, &record.event);
            }
        }
        self.counters.recovered_events += 1;
        true
    }
}

/// The answer to a change, as far as its event has it.
fn remembered(record: &Record<'_>) -> Option<Remembered> {
    let (ino, time) = match record.event {
        Event::Create(ref create) => (create.ino, create.time),
        Event::SetAttr { ref change, time, .. } => (Ino(change.size.unwrap_or_default()), time),
        Event::Link { time, .. }
        | Event::Unlink { time, .. }
        | Event::Rmdir { time, .. }
        | Event::Rename { time, .. }
        | Event::SetXattr { time, .. }
        | Event::SetData { time, .. }
        | Event::SetPolicy { time, .. } => (Ino(0), time),
        Event::Session { .. } | Event::Merged { .. } | Event::Stored { .. } => return None,
    };
    Some(Remembered { tid: record.origin.tid, seq: record.seq, ino, time })
}
