//! Names that move from a directory of one rank to a directory of another (F-13): transfers
//! ([`crate::transfer`]) with a name and its inode as payload. The giver has the name (`depart`),
//! the taker the directory of the new name (`arrive`); `steps` runs the protocol on both.
//!
//! The replacement of the list of subtrees by one with the record of the name decides. Neither
//! directory is served before: no client sees the file twice, or not at all, and a recovery finds
//! both as they were. Of a directory only the name moves (`directory`); until the decision neither
//! it nor anything in it is served.
//!
//! Invariant: an inode is in at most one cross-rank rename of a rank. One that left does not come
//! back before the giver has marked the record: a recovery would remove its name again.

mod arrive;
mod depart;
mod directory;
mod offer;
mod steps;

use metastore::request::Condition;
use metastore::{MovedName, Subtrees};
use types::{Cred, Epoch, Ino, Moment, Rank, Seq, Span};
use wire::Failure;

use super::Authority;
use crate::transfer::{Record, TransferId, TransferMeeting, TransferState};
use crate::{MdsEffects, ReplyTo};
pub(super) use arrive::Arrival;
pub(crate) use steps::NamesCx;

/// How often a question is repeated.
const ASK_INTERVAL: Span = Span::from_millis(20);

/// The work of a rank for a transfer between two events of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameTask {
    Idle,
    /// Giver: clients lose their capabilities and leases of the directory, and of everything in it.
    /// Requests continue.
    Drain,
    /// The events of the file and its directory up to here are safe: no client resends them, to be
    /// executed again behind the move.
    Flush(Seq),
    /// Giver: the name is to go.
    Drop,
    /// Taker: the list is to name the authority of the directory, and that of its name.
    Enter,
    /// Taker: the name is to come.
    Take,
    /// The journal has the change up to here.
    Journal(Seq),
}

/// The need of a transfer for a replacement of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListWish {
    Nothing,
    Wanted,
    /// The replacement is under way.
    Proposed,
}

/// A name that moves to another rank, or from one.
#[derive(Debug)]
pub(super) struct NameTransfer {
    id: TransferId,
    record: MovedName,
    is_giver: bool,
    state: TransferState,
    task: NameTask,
    wish: ListWish,
    since: Moment,
    /// When the giver asked last.
    asked: Option<Moment>,
    /// Giver: the user.
    cred: Cred,
    /// Giver: the request, until it is answered.
    at: Option<ReplyTo>,
    /// Giver: why the taker refuses the name.
    refused: Option<Failure>,
    /// Giver: the directory was looked for, after a recovery.
    searched: bool,
}

impl NameTransfer {
    fn new(record: MovedName, is_giver: bool, (state, task): (TransferState, NameTask)) -> Self {
        let id = TransferId { number: record.number, from: record.from };
        let (wish, since, asked) = (ListWish::Nothing, Moment(0), None);
        let (cred, at, refused, searched) = (Cred::root(), None, None, false);
        Self { id, record, is_giver, state, task, wish, since, asked, cred, at, refused, searched }
    }

    /// One whose record the list has, while this rank knows nothing of it: after a crash.
    fn found(record: MovedName, is_giver: bool) -> Self {
        let (state, _) = TransferState::found(is_giver, Record::Committed);
        let task = if is_giver { NameTask::Drop } else { first_of_taking(&record) };
        Self::new(record, is_giver, (state, task))
    }

    /// Whether the name has yet to leave, or to come.
    fn is_open(&self) -> bool {
        !self.is_giver || self.state.is_undecided() || self.task == NameTask::Drop
    }

    /// Whether requests for the name, or for its place, wait.
    fn is_frozen(&self) -> bool {
        self.state.is_frozen() || matches!(self.task, NameTask::Flush(_) | NameTask::Drop)
    }

    /// The directory of this rank.
    fn dir(&self) -> Ino {
        if self.is_giver { self.record.parent } else { self.record.new_parent }
    }

    /// Whether this rank gives away the name of this directory.
    fn gives_dir(&self, dir: Ino) -> bool {
        self.is_giver && self.record.is_dir && self.record.ino == dir
    }

    /// Whether the transfer freezes an inode.
    fn freezes(&self, ino: Ino) -> bool {
        self.is_frozen() && (self.dir() == ino || (self.is_giver && self.record.ino == ino))
    }
}

/// The first task of a taker whose record is in the list.
fn first_of_taking(record: &MovedName) -> NameTask {
    if record.is_dir { NameTask::Enter } else { NameTask::Take }
}

/// A name that is frozen, and this rank's part in its transfer.
pub(super) struct FrozenName<'a> {
    pub(super) record: &'a MovedName,
    /// It leaves this rank.
    pub(super) leaves: bool,
    /// The directory of this rank that loses the name, or gets it.
    pub(super) dir: Ino,
}

/// All names that move from this rank, and to it.
#[derive(Debug, Default)]
pub(crate) struct CrossRenames {
    /// The last number that was given.
    last: u64,
    all: Vec<NameTransfer>,
    /// This rank has no fence yet, and needs one to reserve a place.
    wants_fence: bool,
    /// The store refused a replacement of the list: the next one is tried then.
    not_before: Option<Moment>,
    /// The list is to be read then.
    read_at: Option<Moment>,
}

impl CrossRenames {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A number for a cross-rank rename: those of different terms are different.
    pub(super) fn number(&mut self, term: Epoch) -> u64 {
        self.last += 1;
        assert!(self.last >> 32 == 0, "the number {} of a rename has 32 bits", self.last);
        term.0 << 32 | self.last
    }

    /// Whether this rank takes part in a transfer.
    pub(super) fn knows(&self, id: TransferId) -> bool {
        self.all.iter().any(|it| it.id == id)
    }

    /// The directory to which a name of this rank goes.
    pub(super) fn goes_to(&self, id: TransferId) -> Option<Ino> {
        self.all.iter().find(|it| it.id == id).map(|it| it.record.new_parent)
    }

    /// The directories that are to leave when no client caches anything of them.
    pub(super) fn draining(&self) -> Vec<(TransferId, Ino)> {
        let drains = |it: &&NameTransfer| it.task == NameTask::Drain;
        self.all.iter().filter(drains).map(|it| (it.id, it.record.ino)).collect()
    }

    fn get_mut(&mut self, id: TransferId) -> Option<&mut NameTransfer> {
        self.all.iter_mut().find(|it| it.id == id)
    }

    fn remove(&mut self, id: TransferId) -> Option<NameTransfer> {
        let at = self.all.iter().position(|it| it.id == id)?;
        Some(self.all.swap_remove(at))
    }

    /// The transfers whose names, and the places of these, wait.
    pub(super) fn frozen(&self) -> impl Iterator<Item = FrozenName<'_>> {
        let frozen = self.all.iter().filter(|it| it.is_frozen());
        frozen.map(|it| FrozenName { record: &it.record, leaves: it.is_giver, dir: it.dir() })
    }

    /// Whether a transfer freezes a directory.
    fn freezes(&self, dir: Ino) -> bool {
        self.all.iter().any(|it| it.freezes(dir))
    }

    /// Whether clients get no capabilities and leases of a directory.
    pub(super) fn is_about(&self, dir: Ino) -> bool {
        self.ends().any(|it| it == dir)
    }

    /// Whether a directory is leaving, or is about to: clients get no capabilities and leases of
    /// anything in it.
    pub(super) fn is_leaving(&self, dir: Ino) -> bool {
        self.leaving().any(|it| it == dir)
    }

    /// The directories that must stay in memory.
    pub(super) fn directories(&self) -> impl Iterator<Item = Ino> {
        self.ends().chain(self.leaving())
    }

    /// The directories from which names move, or to which.
    pub(super) fn ends(&self) -> impl Iterator<Item = Ino> {
        self.all.iter().filter(|it| it.is_open()).map(NameTransfer::dir)
    }

    /// The directories that are leaving.
    pub(super) fn leaving(&self) -> impl Iterator<Item = Ino> {
        let open = self.all.iter().filter(|it| it.is_open());
        open.filter(|it| it.gives_dir(it.record.ino)).map(|it| it.record.ino)
    }

    /// Whether the journal is to be written without delay.
    pub(super) fn wants_journal(&self) -> bool {
        let waits =
            |it: &NameTransfer| matches!(it.task, NameTask::Flush(_) | NameTask::Journal(_));
        self.all.iter().any(waits)
    }

    /// Whether each transfer is either undecided, with the name where it was, or at its end. A name
    /// that left must not come back with a subtree before.
    pub(super) fn are_ended(&self) -> bool {
        self.all.iter().all(|it| !it.state.is_committed())
    }

    /// The answer of this rank to a question about a directory that its own transfers may freeze.
    fn meeting(&self, id: TransferId, dir: Ino) -> TransferMeeting {
        let own = self.all.iter().filter(|it| it.is_giver && it.freezes(dir));
        TransferMeeting::of(id, own.map(|it| (it.id, it.state)))
    }

    /// Takes up the records in the list that name this rank, and that it does not know.
    fn find(&mut self, list: &Subtrees, rank: Rank) {
        for record in list.names() {
            let is_giver = record.from == rank;
            let open = if is_giver { !record.is_given } else { !record.is_taken };
            let id = TransferId { number: record.number, from: record.from };
            if open && (is_giver || record.to == rank) && !self.knows(id) {
                self.all.push(NameTransfer::found(record.clone(), is_giver));
            }
        }
    }

    pub(super) fn validate(&self) {
        for (at, it) in self.all.iter().enumerate() {
            let ino = it.record.ino;
            let frozen = self.all[..at].iter().filter(|other| other.is_frozen());
            let twice = frozen.filter(|_| it.is_frozen()).any(|other| other.record.ino == ino);
            assert!(!twice, "{ino}: a name moves once at a time");
            assert!(it.is_giver || it.is_frozen(), "{ino}: its place is frozen until the end");
        }
    }
}

impl Authority {
    /// Takes up the names that are on their way, by the list that was just read.
    pub(super) fn find_names(&mut self) {
        self.cross_renames.find(&self.list, self.rank);
    }

    /// The list, as this rank has just replaced it.
    pub(crate) fn list_is(&mut self, list: Subtrees, version: u64) {
        (self.list, self.version) = (list, Some(version));
    }

    /// The list in the store is the known one.
    pub(crate) fn condition(&self) -> Condition {
        self.version.map_or(Condition::Absent, Condition::Version)
    }

    /// The list without the reservations of this rank's earlier terms, unless there are none.
    pub(crate) fn list_of_term(&self) -> Option<Subtrees> {
        let mut list = self.list.clone();
        (list.fence(self.rank) != 0).then(|| {
            list.raise_fence(self.rank);
            list
        })
    }
}

/// The work of another part that transfers of names need.
#[derive(Debug)]
pub(crate) enum NameNeed {
    /// This directory must be in memory.
    Fetch(Ino),
    /// The place of this directory must be known.
    Find(Ino),
    /// The list of subtrees must be read.
    Read,
    /// A name came to this directory, and may have replaced one.
    Came(Ino),
    /// Requests that wait for this directory continue.
    Thaw(Ino),
}

impl NamesCx<'_> {
    /// Whether this rank may consider a name that another rank gives to one of its directories now,
    /// with needs. Of two transfers that meet one proceeds.
    pub(crate) fn considers(
        self,
        id: TransferId,
        dir: Ino,
        effects: &mut MdsEffects,
    ) -> Result<Option<Vec<NameNeed>>, Failure> {
        match self.authority.cross_renames.meeting(id, dir) {
            TransferMeeting::Reserve => Ok(Some(self.needs)),
            TransferMeeting::Yield(own) => Ok(Some(self.yields(&own, effects))),
            // The giver repeats its question.
            TransferMeeting::Wait => Ok(None),
            TransferMeeting::Refuse => {
                let text = "a name moves in the other direction; try again".into();
                Err(Failure { errno: types::Errno::Again, text })
            }
        }
    }
}

/// Whether it is time to repeat a question; then it counts as repeated.
pub(super) fn is_due(repeated: &mut Option<Moment>, now: Moment) -> bool {
    let due = repeated.is_none_or(|at| now.since(at) >= ASK_INTERVAL);
    if due {
        *repeated = Some(now);
    }
    due
}
