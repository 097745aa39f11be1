//! Names that move from a directory of one rank to a directory of another (F-13):
//! `metastore::CrossRename` describes how the owner of a name is decided. `depart` is the part of
//! the rank that has the name, `arrive` the part of the other one.
//!
//! Neither directory is served before the decision: no client sees the file twice, or not at all,
//! and a recovery finds both as they were. The rank that has the name brings the offer to the other
//! one (`carry`); an offer that does not arrive is withdrawn after a while.
//!
//! Of a directory only the name moves (`directory`); until the decision neither it nor anything in
//! it is served.
//!
//! Invariant: an inode is in at most one cross-rank rename of a rank. One that left does not come
//! back before its object is deleted: a recovery would remove its name again.

mod arrive;
mod carry;
mod depart;
mod directory;
mod end;
mod offer;
mod recall;

use std::collections::VecDeque;

use metastore::request::{StoreFailure, StoreOp, StoreResult};
use namespace::Namespace;
use types::{Epoch, Ino, Moment, Rank, Seq};
use wire::{Answer, Failure};

use crate::fetch::FetchCx;
use crate::merge::MergeCx;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

use arrive::Arrival;
pub(super) use carry::is_due;
use depart::Departure;

/// How many names that came are remembered, for repeated questions about them.
const ENDED_MAX: usize = 4096;

/// Names that move from this rank, and to it.
#[derive(Debug, Default)]
pub(crate) struct CrossRenames {
    /// The last number that was given.
    last: u64,
    departures: Vec<Departure>,
    arrivals: Vec<Arrival>,
    /// Offers of other ranks that this rank took.
    taken: VecDeque<(Rank, u64)>,
}

impl CrossRenames {
    /// A number for a cross-rank rename: those of different terms are different.
    pub(super) fn number(&mut self, term: Epoch) -> u64 {
        self.last += 1;
        assert!(self.last >> 32 == 0, "the number {} of a rename has 32 bits", self.last);
        term.0 << 32 | self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.departures.is_empty() && self.arrivals.is_empty()
    }

    /// Whether a server that stops has to wait for one of them.
    pub(super) fn keeps(&self, now: Moment) -> bool {
        !self.is_idle() || self.departures.iter().any(|it| it.is_ending(now))
    }

    /// Whether nothing is undecided.
    pub(super) fn is_idle(&self) -> bool {
        self.arrivals.is_empty() && self.departures.iter().all(|it| !it.is_frozen())
    }

    /// Whether a request that is about an inode waits.
    pub(super) fn holds(&self, ino: Ino) -> Option<Ino> {
        let leaves = |it: &&Departure| it.is_frozen() && it.is_about(ino);
        let comes = |it: &&Arrival| it.is_frozen() && it.dir == ino;
        let leaving = self.departures.iter().find(leaves).map(|it| it.cross_rename.parent);
        leaving.or_else(|| self.arrivals.iter().find(comes).map(|it| it.dir))
    }

    /// The directory for which a request about a child of `dir` must wait: `dir` itself is leaving,
    /// or an arriving directory replaces `child`.
    pub(super) fn holds_below(
        &self,
        namespace: &Namespace,
        dir: Ino,
        child: Option<Ino>,
    ) -> Option<Ino> {
        let leaves = |it: &&Departure| it.is_frozen() && it.is_of(dir);
        if let Some(departure) = self.departures.iter().find(leaves) {
            return Some(departure.cross_rename.parent);
        }
        let child = child?;
        let replaces = |it: &&Arrival| {
            let is_it = it.is_frozen() && it.dir == dir && it.cross_rename.is_dir;
            is_it
                && namespace
                    .name_of(child)
                    .is_some_and(|(_, name)| name == it.cross_rename.new_name)
        };
        self.arrivals.iter().find(replaces).map(|it| it.dir)
    }

    /// Whether clients get no capabilities and leases of a directory.
    pub(super) fn is_about(&self, dir: Ino) -> bool {
        let leaves = |it: &Departure| it.is_open() && it.cross_rename.parent == dir;
        self.departures.iter().any(leaves) || self.arrivals.iter().any(|it| it.dir == dir)
    }

    /// Whether a directory is leaving, or is about to: clients get no capabilities and leases of
    /// anything in it.
    pub(super) fn is_leaving(&self, dir: Ino) -> bool {
        self.departures.iter().any(|it| it.is_open() && it.is_of(dir))
    }

    /// The directories that must stay in memory.
    pub(super) fn directories(&self) -> impl Iterator<Item = Ino> {
        self.ends().chain(self.leaving())
    }

    /// The directories from which names move, or to which.
    pub(super) fn ends(&self) -> impl Iterator<Item = Ino> {
        let from =
            self.departures.iter().filter(|it| it.is_open()).map(|it| it.cross_rename.parent);
        from.chain(self.arrivals.iter().map(|it| it.dir))
    }

    /// The directories that are leaving.
    pub(super) fn leaving(&self) -> impl Iterator<Item = Ino> {
        let of_dirs = self.departures.iter().filter(|it| it.is_open() && it.cross_rename.is_dir);
        of_dirs.map(|it| it.cross_rename.ino)
    }

    /// Whether the journal is to be written without delay.
    pub(super) fn wants_journal(&self) -> bool {
        !self.is_idle()
    }
}

impl Mds {
    /// Continues the cross-rank renames, as far as possible.
    pub(super) fn cross_renames_step(&mut self, effects: &mut MdsEffects) {
        // A change now would be in only half of a snapshot.
        let waits = matches!(self.phase, Phase::Recovering | Phase::Reconnecting { .. });
        if waits || self.snapshots.is_frozen() {
            return;
        }
        self.departures_step(effects);
        self.arrivals_step(effects);
    }

    /// The store has answered.
    pub(crate) fn cross_rename_stored(
        &mut self,
        id: u64,
        result: &Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        if !self.departure_stored(id, result, effects) {
            self.arrival_stored(id, result, effects);
        }
        self.cross_renames_step(effects);
    }

    pub(super) fn cross_rename_number(&mut self) -> u64 {
        self.authority.cross_renames.number(self.tables.epoch())
    }

    fn get_cross_rename(&mut self, id: u64, object: String, effects: &mut MdsEffects) {
        self.store.begin(crate::Waiting::CrossRename(id), StoreOp::Get { object }, effects);
    }

    /// After a crash the place of a directory is unknown until a search finds it. Returns whether
    /// it is known, and begins the search if not.
    fn finds(&mut self, dir: Ino) -> bool {
        if self.namespace.is_anchored(dir) {
            return true;
        }
        self.authority.preload(super::preload::Goal::Find(dir));
        false
    }

    /// Continues the requests that wait for a directory.
    fn thaw(&mut self, dir: Ino, effects: &mut MdsEffects) {
        self.authority.note_plain();
        self.fetches.wake_returned(dir);
        MergeCx::of(self).go_on_with_held(effects);
    }

    /// A directory is fetched, unless that is being done.
    fn cross_rename_waits_for(&mut self, dir: Ino, effects: &mut MdsEffects) {
        if !self.fetches.is_waited_for(dir) {
            FetchCx::of(self).preload(dir, effects);
        }
    }

    pub(super) fn answer_cross_rename(
        &mut self,
        at: ReplyTo,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        match result {
            Ok(answer) => effects.reply_with(at, Seq(0), answer),
            Err(failure) => effects.reply_error(at, failure),
        }
    }
}
