//! The rank that has a name offers it, and lets it go when it is taken.

use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{CrossRename, CrossRenameState, cross_rename_name};
use types::{ClientId, EntryName, Errno, Ino, Moment, Rank, Seq, Span};
use wire::{ChangeOp, Failure, Op};

use super::super::RETRY;
use super::super::decoupled::is_merged_below;
use super::CrossRenames;
use crate::admission::Incoming;
use crate::authority::Places;
use crate::caps::CapsCx;
use crate::op::{Performed, Performing};
use crate::{Mds, MdsEffects, Phase, ReplyTo, Waiting};

/// How long an offer stands without a question about it.
const STANDS: Span = Span::from_millis(2000);
/// How often this rank checks whether the other one has journalled the name that it took.
pub(super) const LOOK_AGAIN: Span = Span::from_millis(100);
/// How long a server that stops waits for the other rank to journal a name that left: the object of
/// the offer is deleted then, and else in the next term.
const ENDS_WITHIN: Span = Span::from_millis(1000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DepartureStage {
    /// Clients lose their capabilities and leases of the directory, and of everything in it.
    /// Requests continue.
    Drain,
    /// The events of the file and its directory up to here are safe: no client resends them.
    Flush(Seq),
    /// The offer is being written.
    Offer,
    /// The offer stands since then.
    Offered(Moment),
    /// It is being looked at, not before that time.
    Look(Moment),
    Looking,
    /// It is being withdrawn.
    Withdrawing,
    /// It was taken, and the name is to go.
    Go,
    /// The journal removes the name up to here. The other rank has yet to journal it; at that time
    /// this rank checks whether it has.
    Gone(Seq, Moment),
    /// That is being looked at.
    Checking(Seq),
    /// Both have it.
    Ends(Seq),
    /// The object is being deleted.
    Deleting,
}

/// A name that moves to another rank.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) id: u64,
    pub(super) cross_rename: CrossRename,
    /// The request, until it is answered.
    pub(super) at: Option<ReplyTo>,
    pub(super) stage: DepartureStage,
    /// When this rank asked the other one last to take the name.
    pub(super) repeated: Option<Moment>,
    /// When the name left.
    pub(super) left: Option<Moment>,
    /// Why the other rank does not take it.
    pub(super) refused: Option<Failure>,
    /// The directory was looked for, after a recovery.
    pub(super) searched: bool,
    /// When this rank last checked whether the other one has journalled the name, and when such a
    /// check last found that it had not.
    asked: Moment,
    undone: Option<Moment>,
}

impl Departure {
    /// Whether the name is still here.
    pub(super) fn is_open(&self) -> bool {
        use DepartureStage::{Checking, Deleting, Ends, Gone};
        !matches!(self.stage, Gone(..) | Checking(_) | Ends(_) | Deleting)
    }

    /// Whether it is undecided which rank has the name, or the decision is not executed yet.
    pub(super) fn is_frozen(&self) -> bool {
        self.is_open() && self.stage != DepartureStage::Drain
    }

    /// Whether it is about the name of this directory.
    pub(super) fn is_of(&self, dir: Ino) -> bool {
        self.cross_rename.is_dir && self.cross_rename.ino == dir
    }

    pub(super) fn is_about(&self, ino: Ino) -> bool {
        self.cross_rename.parent == ino || self.cross_rename.ino == ino
    }

    /// One that a recovery found.
    pub(super) fn found(id: u64, cross_rename: CrossRename, now: Moment) -> Self {
        let stage = match cross_rename.state {
            CrossRenameState::Offered | CrossRenameState::Withdrawn => DepartureStage::Look(now),
            CrossRenameState::Taken | CrossRenameState::Done => DepartureStage::Go,
        };
        Self::new(id, cross_rename, None, stage)
    }

    fn new(id: u64, cross_rename: CrossRename, at: Option<ReplyTo>, stage: DepartureStage) -> Self {
        let (searched, asked, undone) = (false, Moment(0), None);
        let (repeated, left, refused) = (None, None, None);
        Self { id, cross_rename, at, stage, repeated, left, refused, searched, asked, undone }
    }

    /// Whether the object of the offer is deleted in a moment: the other rank takes the name.
    pub(super) fn is_ending(&self, now: Moment) -> bool {
        self.left.is_some_and(|at| now.since(at) < ENDS_WITHIN)
    }

    pub(super) fn object(&self) -> String {
        cross_rename_name(self.cross_rename.from, self.id)
    }

    /// The next stage when the journal removed the name at `seq`, and the object has these bytes.
    fn checked(&mut self, seq: Seq, bytes: &[u8], now: Moment) -> DepartureStage {
        let cross_rename = CrossRename::decode(&self.object(), bytes);
        if cross_rename.is_ok_and(|cross_rename| cross_rename.state == CrossRenameState::Done) {
            return DepartureStage::Ends(seq);
        }
        self.undone = Some(self.asked);
        DepartureStage::Gone(seq, now + LOOK_AGAIN)
    }
}

impl CrossRenames {
    /// Whether all offered names have left, or stay. Checks the offers that stand. None of the
    /// names that left comes back with a subtree that came after `since` before its object is
    /// deleted: the rank that took a name exports nothing before it has journalled that name.
    pub(in crate::authority) fn are_departures_decided(
        &mut self,
        since: Moment,
        now: Moment,
    ) -> bool {
        let mut decided = true;
        for departure in &mut self.departures {
            let is_known = !departure.is_frozen() && departure.undone.is_some_and(|at| at >= since);
            decided &= is_known;
            if let DepartureStage::Offered(_) = departure.stage {
                departure.stage = DepartureStage::Look(now);
            } else if let DepartureStage::Gone(seq, at) = departure.stage
                && !is_known
            {
                departure.stage = DepartureStage::Gone(seq, at.min(now));
            }
        }
        decided
    }
}

impl Mds {
    /// Offers a name to another rank, for a rename.
    pub(in crate::authority) fn depart(
        &mut self,
        from: Incoming<'_>,
        to: Rank,
        effects: &mut MdsEffects,
    ) -> Performing {
        let Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) = *from.op()
        else {
            return Err(Errno::Invalid.into());
        };
        let (no_replace, request) = (flags.no_replace, (from.client, from.tid()));
        let (cred, time) = (&from.request.cred, self.clock.time);
        types::check_name(new_name)?;
        self.may_begin()?;
        self.may_pass(parent)?;
        Places::of(self).check_target(to)?;
        if to == self.rank {
            return Err(Errno::Again.into());
        }
        let (ino, inode) = self.plan_offer(cred, EntryName::new(parent, name), time)?;
        let is_dir = self.namespace.is_dir(ino);
        let cross_rename = CrossRename {
            state: CrossRenameState::Offered,
            from: self.rank,
            to,
            ino,
            parent,
            name: name.to_vec(),
            new_parent,
            new_name: new_name.to_vec(),
            no_replace,
            time,
            inode,
            cred: cred.clone(),
            is_dir,
            request,
        };
        let id = self.cross_rename_number();
        let stage =
            if is_dir { DepartureStage::Drain } else { DepartureStage::Flush(self.log.last()) };
        assert!(self.departure(id).is_none(), "{id}: a number is of one rename");
        let departure = Departure::new(id, cross_rename, Some(from.at()), stage);
        self.authority.cross_renames.departures.push(departure);
        self.authority.note_plain();
        self.cross_renames_step(effects);
        Ok(Performed::Later)
    }

    pub(super) fn departures_step(&mut self, effects: &mut MdsEffects) {
        let ids: Vec<u64> =
            self.authority.cross_renames.departures.iter().map(|it| it.id).collect();
        for id in ids {
            while let Some(stage) = self.departure(id).map(|it| it.stage)
                && let Some(next) = self.departure_next(id, stage, effects)
            {
                if let Some(departure) = self.departure(id) {
                    departure.stage = next;
                }
            }
        }
    }

    pub(super) fn departure(&mut self, id: u64) -> Option<&mut Departure> {
        self.authority.cross_renames.departures.iter_mut().find(|it| it.id == id)
    }

    fn store_offer(&mut self, id: u64, effects: &mut MdsEffects) -> Option<()> {
        let departure = self.departure(id)?;
        let undecided = departure.cross_rename.state == CrossRenameState::Offered;
        assert!(undecided, "{}: an offer is stored before it is decided", departure.object());
        let (object, data) = (departure.object(), departure.cross_rename.encode());
        let condition = Condition::Absent;
        self.store.begin(
            Waiting::CrossRename(id),
            StoreOp::Put { object, data, condition },
            effects,
        );
        Some(())
    }

    /// Whether no client caches anything of a directory, and no merge in it goes on.
    fn is_at_rest(&mut self, dir: Ino, effects: &mut MdsEffects) -> bool {
        let held = CapsCx::of(self).revoke_below(ClientId(0), dir, effects).is_some();
        !held && is_merged_below(&self.merges, &self.checkpoint, &self.namespace, dir)
    }

    fn departure_next(
        &mut self,
        id: u64,
        stage: DepartureStage,
        effects: &mut MdsEffects,
    ) -> Option<DepartureStage> {
        let now = self.clock.now;
        match stage {
            DepartureStage::Drain => {
                let ino = self.departure(id)?.cross_rename.ino;
                let at_rest = self.is_at_rest(ino, effects) || self.phase != Phase::Active;
                if at_rest { self.drained(id, effects) } else { None }
            }
            DepartureStage::Flush(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                self.store_offer(id, effects)?;
                Some(DepartureStage::Offer)
            }
            DepartureStage::Offered(since) => {
                self.ask_for_name(id, effects);
                let stays = now.since(since) < STANDS && self.phase == Phase::Active;
                (!stays).then_some(DepartureStage::Look(now))
            }
            DepartureStage::Look(at) => {
                if now < at {
                    return None;
                }
                let object = self.departure(id)?.object();
                self.get_cross_rename(id, object, effects);
                Some(DepartureStage::Looking)
            }
            DepartureStage::Go => {
                let (ino, is_dir) = {
                    let cross_rename = &self.departure(id)?.cross_rename;
                    (cross_rename.ino, cross_rename.is_dir)
                };
                if is_dir && !self.is_listed_as_own(ino, effects) {
                    return None;
                }
                self.give_name(id, effects)
            }
            DepartureStage::Gone(seq, at) => {
                let done = self.departure(id)?.cross_rename.state == CrossRenameState::Done;
                if done {
                    return Some(DepartureStage::Ends(seq));
                }
                if now < at {
                    return None;
                }
                let departure = self.departure(id)?;
                departure.asked = now;
                let object = departure.object();
                self.get_cross_rename(id, object, effects);
                Some(DepartureStage::Checking(seq))
            }
            DepartureStage::Ends(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                let objects = vec![self.departure(id)?.object()];
                self.store.begin(Waiting::CrossRename(id), StoreOp::Delete { objects }, effects);
                Some(DepartureStage::Deleting)
            }
            DepartureStage::Offer
            | DepartureStage::Looking
            | DepartureStage::Withdrawing
            | DepartureStage::Checking(_)
            | DepartureStage::Deleting => None,
        }
    }

    /// The store has answered. Returns whether the answer was for a leaving name.
    pub(super) fn departure_stored(
        &mut self,
        id: u64,
        result: &Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) -> bool {
        let now = self.clock.now;
        let Some(departure) = self.departure(id) else { return false };
        let again = DepartureStage::Look(now + RETRY);
        let next = match (departure.stage, result) {
            (DepartureStage::Offer, Ok(StoreResult::Stored(_))) => DepartureStage::Offered(now),
            (DepartureStage::Looking, Ok(StoreResult::Missing)) if departure.at.is_some() => {
                // It was not written after all.
                DepartureStage::Flush(Seq(0))
            }
            (DepartureStage::Looking | DepartureStage::Withdrawing, Ok(StoreResult::Missing)) => {
                self.withdrawn(id, effects);
                return true;
            }
            (DepartureStage::Looking, Ok(StoreResult::Bytes(bytes, version))) => {
                match CrossRename::decode(&departure.object(), bytes) {
                    Ok(CrossRename { state: CrossRenameState::Offered, .. }) => {
                        let object = departure.object();
                        let state = CrossRenameState::Withdrawn;
                        let data = CrossRename { state, ..departure.cross_rename.clone() }.encode();
                        let condition = Condition::Version(*version);
                        let op = StoreOp::Put { object, data, condition };
                        departure.stage = DepartureStage::Withdrawing;
                        self.store.begin(Waiting::CrossRename(id), op, effects);
                        return true;
                    }
                    Ok(CrossRename { state: CrossRenameState::Withdrawn, .. }) => {
                        self.withdrawn(id, effects);
                        return true;
                    }
                    Ok(CrossRename { state, .. }) => {
                        departure.cross_rename.state = state;
                        DepartureStage::Go
                    }
                    Err(error) => {
                        effects.fatal = Some(error.into());
                        return true;
                    }
                }
            }
            (DepartureStage::Withdrawing, Ok(StoreResult::Stored(_))) => {
                self.withdrawn(id, effects);
                return true;
            }
            (DepartureStage::Checking(seq), Ok(StoreResult::Bytes(bytes, _))) => {
                departure.checked(seq, bytes, now)
            }
            (DepartureStage::Checking(seq), Ok(StoreResult::Missing)) => DepartureStage::Ends(seq),
            (DepartureStage::Checking(seq), _) => DepartureStage::Gone(seq, now + RETRY),
            (DepartureStage::Deleting, Ok(_)) => {
                self.authority.cross_renames.departures.retain(|it| it.id != id);
                self.authority.note_plain();
                return true;
            }
            // As long as the object exists, it grants the name to both ranks.
            (DepartureStage::Deleting, Err(_)) => DepartureStage::Gone(Seq(0), now + RETRY),
            // Another rank was faster, or the outcome of the write is unknown.
            (_, Ok(StoreResult::Conflict)) => DepartureStage::Look(now),
            _ => again,
        };
        if let Some(departure) = self.departure(id) {
            departure.stage = next;
        }
        true
    }
}
