//! Volatile Apply, seen from the server: the journal of a decoupled client is transferred,
//! verified as a whole, and applied to the namespace in memory (M-04).
//!
//! Applying is blind: existence is not checked, the decoupled client wins name by name, and
//! nothing but events about hard links is journalled, so the cost per event does not depend on the
//! content of the namespace (J-12). With `check: merge` in the policy every event is judged instead
//! (module `check`). Always verified, in constant time per event, is that the journal is intact and
//! that it stays inside the subtree and the inode numbers that were granted to the client. Events
//! about inodes that other clients moved or removed are left out and reported.
//!
//! Merges are executed one after the other (J-10), in slices between requests.

mod apply;
mod attach;
mod check;
mod interrupted;
mod logged;
mod moving;
mod outdated;
mod receive;
mod rights;
mod step;
mod validate;
mod verify;

use std::collections::{BTreeMap, VecDeque};

use journal::{Create, Event, JournalError, Mark, segment};
use namespace::{CreateBatch, Namespace, TrialNamespace};
use types::{ClientId, Clock, Cred, Errno, Ino, InoRange, Map, Moment, Seq, Set};
use wire::{Failure, Identities, MergeFlags, MergeReport};

use crate::authority::Authority;
use crate::log::Log;
use crate::opens::Opens;
use crate::purge::Purges;
use crate::store::StoreOps;
use crate::tables::{GivenBack, NumberHolder, Tables};
use crate::watch::Watches;
use crate::{Counters, MdsEffects, ReplyTo, Settings};
use attach::Runs;
use check::Absent;
pub(crate) use interrupted::Unfinished;
use rights::Rights;
pub(crate) use step::{MergeEnd, MergeNeed, MergeThen, Merged};

/// Conflicts listed in a report.
const SAMPLES_MAX: usize = 100;
/// Creates in a row in one directory that are worth announcing to the namespace.
const RUN_MIN: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MergeStage {
    Receiving,
    Verifying,
    /// The runs in front of the journal are being made directories.
    Attaching,
    Applying,
    /// Applied; the reply waits for the journal.
    Finishing,
}

/// Tells a journal from other ones of the same subtree: a checksum of its first block, which holds
/// inode numbers and times. Positions alone do not, because every journal begins at 1; and its
/// header changes when another client takes it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalId(pub(crate) u32);

impl JournalId {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let first = journal::Block::read(bytes, segment::HEADER_BYTES);
        let end = first.map_or(bytes.len(), |(_, next)| next);
        Self(journal::checksum(bytes.get(segment::HEADER_BYTES..end).unwrap_or_default()))
    }
}

#[derive(Debug)]
struct Merge {
    id: u64,
    at: ReplyTo,
    client: ClientId,
    /// The user for whom events are judged.
    cred: Cred,
    subtree: Ino,
    flags: MergeFlags,
    object: Vec<u8>,
    expected: u64,
    bytes: Vec<u8>,
    stage: MergeStage,
    /// An earlier applied part of its journal is being stored, or is.
    is_flushing: bool,
    /// There was room in memory for it, or it has waited for that.
    is_admitted: bool,
    /// No client caches anything of the subtree.
    is_forgotten: bool,
    /// Where the next block starts, and how many of its events are done.
    offset: usize,
    skip: usize,
    /// The same place in the block, if it need not be searched for.
    mark: Option<Mark>,
    /// How many events are applied, and how many of them the journal knows of.
    applied: u64,
    recorded: u64,
    /// The first record of it in the journal of the rank, if there is one.
    begun: Option<Seq>,
    /// Position of the event applied last, in its own journal.
    newest: Seq,
    journal: JournalId,
    /// Directories that the journal itself created; in a log of requests, all inodes.
    new_dirs: Set<Ino>,
    /// Whether an event took a name from a file with several names, or gave such a name.
    takes_links: bool,
    /// Whether the whole subtree was searched for an inode in vain: all its directories are in
    /// memory.
    searched: bool,
    /// Inodes whose creates are left out.
    absent: Map<Ino, Absent>,
    /// A copy of the directories that the journal touches, in a dry run with checks.
    trial: Option<Box<TrialNamespace>>,
    /// Positions of events about something that is not in the subtree, in order.
    left_out: VecDeque<Seq>,
    /// The directory verified last: events come in runs.
    last_dir: Ino,
    /// Names that the journal creates in this directory, and their bytes, since it came to it.
    run: (usize, usize),
    /// The same for directories that get many.
    announced: Map<Ino, (usize, usize)>,
    ranges: Vec<InoRange>,
    /// The limits of a user other than root, where events are not judged one by one.
    rights: Option<Rights>,
    /// The holder of the numbers that a log of requests may have; `None` for all numbers.
    holder: Option<NumberHolder>,
    /// Numbers that come back when the subtree is released.
    unused: Vec<GivenBack>,
    seq: Seq,
    started: Moment,
    report: MergeReport,
    /// The runs that came in front of the journal, and how many of them are attached.
    runs: Option<Box<Runs>>,
}

impl Merge {
    /// Whether recovery could read the journal and repeat the merge.
    fn is_recorded(&self) -> bool {
        !self.object.is_empty() && !self.flags.dry_run
    }

    fn refuse(&self, error: &JournalError, effects: &mut MdsEffects) {
        let error = error.in_journal("client journal");
        effects.reply_error(self.at, Failure { errno: error.errno, text: error.to_string() });
    }

    /// Notes a directory that the journal itself created.
    fn note_new(&mut self, event: &Event<'_>) {
        if let Event::Create(create) = event {
            self.note_created(create);
        }
    }

    #[inline]
    fn note_created(&mut self, create: &Create<'_>) {
        // The numbers of a log are of no range that says they are its own.
        let is_new = create.file_type() == types::FileType::Directory && !self.is_run(create.ino);
        if self.flags.strong_log || is_new {
            self.new_dirs.insert(create.ino);
        }
    }

    /// The journal continues in another directory.
    fn end_run(&mut self) {
        let (names, bytes) = std::mem::take(&mut self.run);
        if names >= RUN_MIN {
            let all = self.announced.entry(self.last_dir).or_default();
            *all = (all.0 + names, all.1 + bytes);
        }
    }

    /// An event is about something that is not in the subtree.
    fn leave_out(&mut self, seq: Seq, event: &Event<'_>) {
        self.left_out.push_back(seq);
        self.note_absent(event, Errno::NotFound);
    }

    /// Whether the applied part of the journal is noted, so that it is applied once.
    fn is_noted(&self) -> bool {
        !self.flags.strong_log && !self.flags.dry_run
    }
}

/// How far a journal is applied.
#[derive(Clone, Copy, Debug)]
struct Done {
    journal: JournalId,
    seq: Seq,
    /// A part of it is in no record, and may be in memory only.
    in_memory: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Merges {
    receiving: Vec<Merge>,
    /// Merges that are here while their subtree moves to another rank.
    held: Vec<Merge>,
    queue: VecDeque<Merge>,
    /// Which journal of a decoupled subtree was applied last, and up to which position. A client
    /// that missed the answer merges it again; another journal may have the same positions.
    done: Map<Ino, Done>,
    /// Creates that go into the namespace; empty between slices.
    batch: CreateBatch,
    next_id: u64,
    waiting: bool,
    /// Since when a directory cannot be read that the merge at the head of the queue waits for.
    unread: Option<Moment>,
    /// Merges that were interrupted, by the object of the client's journal.
    unfinished: BTreeMap<String, Unfinished>,
}

/// Merges, with all that merging may touch.
pub(crate) struct MergeCx<'a> {
    pub(crate) merges: &'a mut Merges,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) log: &'a mut Log,
    pub(crate) tables: &'a mut Tables,
    pub(crate) purges: &'a mut Purges,
    pub(crate) opens: &'a mut Opens,
    pub(crate) watches: &'a mut Watches,
    pub(crate) authority: &'a mut Authority,
    pub(crate) store: &'a mut StoreOps,
    pub(crate) counters: &'a mut Counters,
    pub(crate) identities: &'a Identities,
    pub(crate) settings: &'a Settings,
    pub(crate) clock: Clock,
}

impl Merges {
    /// Whether something is merged, or will be.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// How many merges are being received, or wait, or are applied.
    pub(crate) fn under_way(&self) -> usize {
        self.receiving.len() + self.held.len() + self.queue.len()
    }

    /// Whether one is under way of which the journal will not have the changes.
    pub(crate) fn is_any_unrecorded(&self) -> bool {
        let all = self.receiving.iter().chain(&self.held).chain(&self.queue);
        let mut changing = all.filter(|merge| !merge.flags.dry_run);
        changing.any(|merge| !merge.is_recorded())
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.waiting
            && self.queue.front().is_some_and(|merge| merge.stage != MergeStage::Finishing)
    }

    /// The journal of a subtree is applied up to this position; with records or without.
    pub(crate) fn note_done(&mut self, subtree: Ino, journal: JournalId, seq: Seq, recorded: bool) {
        let new = Done { journal, seq: Seq(0), in_memory: false };
        let done = self.done.entry(subtree).or_insert(new);
        if done.journal != journal {
            *done = new;
        }
        done.in_memory |= !recorded && seq > done.seq;
        done.seq = done.seq.max(seq);
    }

    /// Up to where the journal of a merge is applied.
    fn done_of(&self, merge: &Merge) -> Seq {
        self.known_of(merge).map_or(Seq(0), |done| done.seq)
    }

    fn known_of(&self, merge: &Merge) -> Option<Done> {
        let done = self.done.get(&merge.subtree).filter(|_| merge.is_noted());
        done.filter(|done| done.journal == merge.journal).copied()
    }

    /// Whether a merge that promises to survive a crash would skip events that a crash would undo:
    /// an earlier merge of the same journal had no object.
    fn lacks_record(&self, merge: &Merge) -> bool {
        merge.is_recorded() && self.known_of(merge).is_some_and(|done| done.in_memory)
    }

    /// The metadata store has the merged events of a subtree: the merge that waited for that
    /// continues.
    pub(crate) fn stored(&mut self, subtree: Ino) {
        if let Some(done) = self.done.get_mut(&subtree) {
            done.in_memory = false;
        }
        self.resume();
    }

    /// A subtree is decoupled, or released: its journals begin from the start.
    pub(crate) fn forget(&mut self, subtree: Ino) {
        self.done.remove(&subtree);
    }

    /// Whether a merge would begin that nothing was looked at for yet.
    pub(crate) fn is_next_new(&self) -> bool {
        !self.waiting && self.queue.front().is_some_and(|merge| !merge.is_admitted)
    }

    /// Whether a merge is under way: the directories against which it was verified must stay in
    /// memory.
    pub(crate) fn has_begun(&self) -> bool {
        let begun = |merge: &Merge| match merge.stage {
            MergeStage::Receiving | MergeStage::Finishing => false,
            MergeStage::Attaching => true,
            MergeStage::Verifying => {
                merge.searched || merge.last_dir.0 != 0 || merge.offset > segment::HEADER_BYTES
            }
            MergeStage::Applying => true,
        };
        self.waiting || self.queue.front().is_some_and(begun)
    }

    pub(crate) fn resume(&mut self) {
        (self.waiting, self.unread) = (false, None);
    }

    /// A merge's reply waits for the journal: it is written without delay.
    pub(crate) fn wants_journal(&self) -> bool {
        self.queue.front().is_some_and(|merge| merge.stage == MergeStage::Finishing)
    }

    /// No client caches anything of the subtree of the merge at the head of the queue.
    pub(crate) fn forgotten(&mut self) {
        self.queue.front_mut().into_iter().for_each(|merge| merge.is_forgotten = true);
    }

    /// A client still caches something of that subtree.
    pub(crate) fn waits_for_clients(&mut self) {
        self.waiting = true;
    }
}
