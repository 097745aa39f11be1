//! The durable state of a rank, needed even where subtrees keep no journal: its term, the granted
//! inode numbers, and the subtrees that belong to a client.
//!
//! One small object, replaced by compare-and-swap. Replacing it with the term incremented also
//! fences an older server of the same rank: its next replacement fails.
//!
//! Inode numbers are durable *before* they are handed out (design section 4): after any crash, no
//! other client gets them. Numbers that a client reports as unused come back with its subtree, in
//! the same replacement of the object (`numbers`).

mod codec;
mod departures;
mod free;
mod holders;
mod lapsed;
mod leave;
mod numbers;
mod released;
mod stock;
mod storing;
mod summary;
mod validate;

use std::collections::{BTreeMap, BTreeSet};

use metastore::request::rank_name;
use namespace::Namespace;
use policy::{InterferePolicy, MergeTrigger, Policy};
use types::{ClientId, Cred, Epoch, Errno, Error, Ino, InoRange, Moment, Rank, Seq};
use wire::{Answer, DecoupledSubtree, Failure};

use departures::GoneList;
pub(crate) use departures::{GONE_MAX, Gone, LINKED_MAX};
use free::Free;
use holders::Holders;
pub(crate) use holders::NumberHolder;
use lapsed::Lapsed;
pub(crate) use leave::Moved;
pub(crate) use numbers::GivenBack;
use numbers::RESERVE;
use released::LastMerge;
pub(crate) use released::ReleasedBy;
use stock::Stock;
pub(crate) use storing::TablesCx;
pub use summary::{NextNumbers, RankTable};

use crate::ReplyTo;
use crate::session::SavedSession;

/// A subtree that belongs to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoupling {
    pub(crate) client: ClientId,
    /// Requests of other clients get `EBUSY`.
    pub(crate) block: bool,
    /// Requests of other clients wait until the client has merged. From the policy; not stored.
    pub(crate) on_demand: bool,
    /// Numbers the client may use, in the order in which they were given.
    pub(crate) ranges: Vec<InoRange>,
    pub(crate) epoch: Epoch,
    /// Canonical policy text; empty if the subtree was taken without another policy.
    pub(crate) policy: String,
    /// The subtree is released; its last merge is in memory only, so that its client may have to
    /// merge again after a crash (weak consistency with local durability).
    pub(crate) released: bool,
    /// The policy that will be in force when the subtree is released: canonical text, empty for
    /// none of its own (P-16).
    pub(crate) next: Option<String>,
    /// The user for whom the subtree was decoupled: a merge with `check: merge` that a crash
    /// interrupted continues without its client.
    pub(crate) cred: Cred,
    /// Not all numbers that were used with it are known here: it was another client's, or another
    /// rank's.
    pub(crate) taken_over: bool,
    /// It goes to another rank with the subtree of this root, when that has moved so often.
    pub(crate) leaving: Option<(Ino, u64)>,
}

/// An answer that waits until the tables are stored.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) at: ReplyTo,
    pub(crate) answer: Result<Answer, Failure>,
    /// Journal position that must be safe as well.
    pub(crate) seq: Seq,
    /// The decoupling that does not happen if the tables cannot be stored.
    pub(crate) begins: Option<Ino>,
}

/// Where the journal ended when a term stopped cleanly and left none: without it positions and
/// names of segments would be given a second time, and requests executed a second time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalEnd {
    /// Position of the last event.
    pub(crate) last: Seq,
    /// Index of the next segment.
    pub(crate) next_index: u64,
    /// The journal's state of sessions.
    pub(crate) sessions: Vec<SavedSession>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    rank: Rank,
    epoch: Epoch,
    version: Option<u64>,
    /// Numbers of the server, which it uses for requests of peers that speak for every user.
    own: Stock,
    /// Numbers for requests of the other peers.
    holders: Holders,
    /// The first number that was never granted, or came back with all behind it.
    next: u64,
    /// Other numbers that came back.
    free: Free,
    /// Numbers that left to other ranks with decoupled subtrees: no client gets them any more.
    departed: Free,
    /// Subtrees that went to other ranks, and that the journal still names.
    gone: GoneList,
    pub(crate) decoupled: BTreeMap<Ino, Decoupling>,
    /// Subtrees that were given back in this term: all their merges are known here.
    given_back: BTreeMap<Ino, LastMerge>,
    /// The merges that gave subtrees back, until their clients have the answers.
    released_by: BTreeMap<ReleasedBy, Ino>,
    /// Subtrees that are no client's here, although the store may still list them as a client's.
    unsure: BTreeSet<Ino>,
    /// Those of them of which the put under way will say it.
    unsure_in_flight: BTreeSet<Ino>,
    /// Clients whose work was taken over: their requests are rejected.
    pub(crate) fenced: BTreeSet<ClientId>,
    /// Where the journal ended at the last clean stop.
    end: JournalEnd,
    /// The term that this was the stop of: by its end everything was stored.
    stopped: Epoch,
    /// The newest term that ended otherwise.
    crashed: Epoch,
    /// Clients with caches, open files or locks: the next server makes no change before they are
    /// back, or their caches have expired.
    expected: BTreeSet<ClientId>,
    /// Those of them that the store knows, and that the put under way will make known.
    expected_stored: BTreeSet<ClientId>,
    expected_in_flight: BTreeSet<ClientId>,
    /// Clients with ended open files and locks: the next server believes no early report of them.
    pub(crate) lapsed: Lapsed,
    dirty: bool,
    in_flight: bool,
    held: Vec<Held>,
    /// Answers that the put under way will release.
    held_in_flight: Vec<Held>,
    failed: Option<Moment>,
    /// The store has another version than the one stored last, and is being read.
    looking: bool,
    /// They are stored only when the journal is durable up to here: a crash in between must not
    /// find a subtree given away, or back, without the policy that goes with it.
    after: Seq,
}

impl Tables {
    pub(crate) fn new(rank: Rank) -> Self {
        let space = Ino::space_of(rank);
        Self {
            rank,
            own: Stock::new(InoRange { start: space.start, end: space.start }),
            next: space.start,
            end: JournalEnd { last: Seq::before_first(rank), ..JournalEnd::default() },
            ..Self::default()
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The term with its rank.
    pub(crate) fn term(&self) -> Epoch {
        self.epoch.at(self.rank)
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.in_flight && !self.dirty
    }

    /// Begins a term on top of the store's version, and returns the bytes to store.
    pub(crate) fn take_over(&mut self, stored: Option<(&[u8], u64)>) -> Result<Vec<u8>, Error> {
        if let Some((bytes, version)) = stored {
            self.decode(bytes).map_err(|malformed| {
                Error::new(Errno::BadMessage, rank_name(self.rank), malformed.to_string()).remedy(
                    "the rank's table is damaged; restore this object from a copy of the store",
                )
            })?;
            self.version = Some(version);
        }
        if self.stopped == self.epoch {
            self.holders.forget(self.epoch);
        } else {
            self.crashed = self.epoch;
        }
        assert!(self.held.is_empty(), "a term begins before the first answer");
        self.epoch.0 += 1;
        let range = InoRange { start: self.next, end: self.next + RESERVE };
        (self.own, self.next) = (Stock::new(range), range.end);
        Ok(self.encode())
    }

    pub(crate) fn taken_over(&mut self, version: u64) {
        self.version = Some(version);
        self.expected_stored = self.expected.clone();
        self.lapsed.put_begins();
        self.lapsed.put_ended(true);
    }

    /// Where the journal ended at the last clean stop.
    pub(crate) fn journal_end(&self) -> &JournalEnd {
        &self.end
    }

    /// The newest term that ended without a clean stop; 0 for none.
    pub(crate) fn crashed(&self) -> Epoch {
        self.crashed
    }

    /// Whether the store knows that the term, and with it the journal, ends here; if not, the
    /// table is to be stored.
    pub(crate) fn end_journal(&mut self, end: JournalEnd) -> bool {
        if self.end == end && self.stopped == self.epoch {
            return self.is_idle();
        }
        assert!(end.last >= self.end.last, "the journal does not end before it began");
        (self.end, self.stopped, self.dirty) = (end, self.epoch, true);
        false
    }

    /// Notes that the next server must wait for a client, which gets capabilities, open files or
    /// locks. Returns whether the store knows it; if not, the table is to be stored first.
    pub(crate) fn expect_back(&mut self, client: ClientId) -> bool {
        self.dirty |= self.expected.insert(client);
        self.expected_stored.contains(&client)
    }

    /// A client has nothing any more of which the next server would have to hear.
    pub(crate) fn stop_expecting(&mut self, client: ClientId) {
        self.dirty |= self.expected.remove(&client);
        self.expected_stored.remove(&client);
    }

    /// Whether a client may get a new open file or lock: the next server believes its report of it,
    /// and of no client that is silent since the last restart.
    pub(crate) fn will_believe(&mut self, client: ClientId) -> bool {
        !self.is_marked(client) && !self.lapsed.is_any_silent()
    }

    /// Whether the store may have the mark that the state of a client ended, or will have it.
    pub(crate) fn is_marked(&mut self, client: ClientId) -> bool {
        let (is_marked, may_be_stored) =
            (self.lapsed.has(client), self.lapsed.may_be_stored(client));
        self.dirty |= may_be_stored && !is_marked;
        is_marked || may_be_stored
    }

    /// The state of a client ends: it has no connection, or reports late. `end` is the event that
    /// ends its session in the journal.
    pub(crate) fn lapse(&mut self, client: ClientId, end: Option<Seq>) {
        self.dirty |= self.lapsed.mark(client, end);
    }

    /// A client has not reported all its state.
    pub(crate) fn lapse_silent(&mut self, client: ClientId) {
        self.dirty |= self.lapsed.mark_silent(client);
    }

    /// A client knows which of its open files and locks the server has.
    pub(crate) fn settle(&mut self, client: ClientId) {
        self.dirty |= self.lapsed.clear(client);
    }

    /// Forgets which clients lapsed among those for which no next server waits. The next put has
    /// the rest.
    pub(crate) fn forget_lapsed(&mut self, is_awaited: impl Fn(ClientId, Option<Seq>) -> bool) {
        let Self { lapsed, expected, expected_stored, .. } = self;
        let is_expected = |client| expected.contains(&client) || expected_stored.contains(&client);
        lapsed.retain(|client, end| is_expected(client) || is_awaited(client, end));
    }

    /// The clients for which the next server waits.
    pub(crate) fn expected(&self) -> impl Iterator<Item = ClientId> {
        self.expected.iter().copied()
    }

    /// Whether the store did not take the last table.
    pub(crate) fn is_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The tables' present state depends on an event of the journal.
    pub(crate) fn store_after(&mut self, seq: Seq) {
        self.follow(seq);
        self.dirty = true;
    }

    /// The tables' next state depends on an event of the journal.
    pub(crate) fn follow(&mut self, seq: Seq) {
        self.after = self.after.max(seq);
    }

    /// Holds an answer back until its promise is stored.
    pub(crate) fn hold(&mut self, held: Held) {
        self.dirty = true;
        self.held.push(held);
    }

    fn take_held(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }

    /// Whether this is the root of a subtree that a client has decoupled.
    pub(crate) fn is_root_of(&self, client: ClientId, ino: Ino) -> bool {
        self.decoupled.get(&ino).is_some_and(|owner| owner.client == client)
    }

    /// The client that has a subtree now.
    pub(crate) fn owner(&self, subtree: Ino) -> Option<&Decoupling> {
        self.decoupled.get(&subtree).filter(|decoupling| !decoupling.released)
    }

    /// A subtree is no client's any more.
    pub(crate) fn remove(&mut self, subtree: Ino) {
        self.decoupled.remove(&subtree);
        self.unsure.insert(subtree);
    }

    /// Whether a crash could make a subtree a client's again, under the policy under which that
    /// client had it: answers that assume the contrary wait until the store has the release, too.
    pub(crate) fn is_unsure(&self, subtree: Ino) -> bool {
        self.unsure.contains(&subtree)
    }

    /// The client that merges the decoupled subtree with this root on a merge request.
    pub(crate) fn offered_by(&self, root: Ino) -> Option<ClientId> {
        let held = self.decoupled.get(&root).filter(|held| held.on_demand && !held.released);
        held.map(|held| held.client)
    }

    /// The client that has a subtree with this root, or got this number with a subtree that it
    /// still has. A subtree counts as released only when its last merge certainly need not be
    /// repeated.
    pub(crate) fn holder_of(&self, ino: Ino) -> Option<ClientId> {
        let is_given = |ranges: &[InoRange]| ranges.iter().any(|range| range.contains(ino));
        let held = self.decoupled.iter().find(|(root, it)| **root == ino || is_given(&it.ranges));
        held.map(|(_, held)| held.client)
    }

    /// How many subtrees belong to clients for now.
    pub(crate) fn decoupled_count(&self) -> usize {
        self.decoupled.values().filter(|decoupling| !decoupling.released).count()
    }

    /// The subtrees that belong to clients for now, for the status.
    pub(crate) fn decoupled_list(&self, namespace: &Namespace) -> Vec<DecoupledSubtree> {
        self.decoupled
            .iter()
            .filter(|(_, decoupling)| !decoupling.released)
            .map(|(ino, decoupling)| DecoupledSubtree {
                path: namespace.path_of(*ino).map(|path| path.to_bytes()).unwrap_or_default(),
                ino: *ino,
                client: decoupling.client,
                range: decoupling.ranges.first().copied().unwrap_or_default(),
                policy: decoupling.policy.clone(),
                next: decoupling.next.clone(),
            })
            .collect()
    }

    pub(crate) fn decoupling(
        client: ClientId,
        policy: &Policy,
        range: InoRange,
        epoch: Epoch,
        cred: &Cred,
    ) -> Decoupling {
        Decoupling {
            client,
            block: policy.interfere == InterferePolicy::Block,
            on_demand: policy.merge == MergeTrigger::OnDemand,
            ranges: vec![range],
            epoch,
            policy: policy.to_yaml(),
            released: false,
            next: None,
            cred: cred.clone(),
            taken_over: false,
            leaving: None,
        }
    }
}
