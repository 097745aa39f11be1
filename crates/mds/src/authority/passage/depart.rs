//! The rank that has a name offers it, and lets it go when it is taken.

use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{Passage, PassageState, passage_name};
use namespace::{Mode, Refusal};
use types::{ClientId, ConnId, Cred, Errno, Ino, Moment, Origin, Seq, Span, Tid};
use wire::{Answer, Failure, Op, Request};

use super::super::RETRY;
use super::super::preload::Goal;
use super::ENDED_MAX;
use crate::op::{Performed, Performing};
use crate::{Effects, Mds, Phase, Waiting};

/// How long an offer stands without a question about it.
const STANDS: Span = Span::from_millis(2000);
/// How often this rank checks whether the other one has journalled the name that it took.
const LOOK_AGAIN: Span = Span::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
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
    pub(super) passage: Passage,
    /// The request, until the offer is answered.
    pub(super) at: Option<(ConnId, Tid)>,
    /// Requests for the outcome of the offer.
    waiting: Vec<(ConnId, Tid)>,
    stage: Stage,
    /// The directory was looked for, after a recovery.
    searched: bool,
    /// When this rank last checked whether the other one has journalled the name, and when such a
    /// check last found that it had not.
    asked: Moment,
    undone: Option<Moment>,
}

impl Departure {
    /// Whether the name is still here.
    pub(super) fn is_open(&self) -> bool {
        use Stage::{Checking, Deleting, Ends, Gone};
        !matches!(self.stage, Gone(..) | Checking(_) | Ends(_) | Deleting)
    }

    /// Whether it is undecided which rank has the name, or the decision is not executed yet.
    pub(super) fn is_frozen(&self) -> bool {
        self.is_open() && self.stage != Stage::Drain
    }

    /// Whether it is about the name of this directory.
    pub(super) fn is_of(&self, dir: Ino) -> bool {
        self.passage.is_dir && self.passage.ino == dir
    }

    pub(super) fn is_about(&self, ino: Ino) -> bool {
        self.passage.parent == ino || self.passage.ino == ino
    }

    /// One that a recovery found.
    pub(super) fn found(id: u64, passage: Passage, now: Moment) -> Self {
        let stage = match passage.state {
            PassageState::Offered | PassageState::Withdrawn => Stage::Look(now),
            PassageState::Taken | PassageState::Done => Stage::Go,
        };
        Self::new(id, passage, None, stage)
    }

    fn new(id: u64, passage: Passage, at: Option<(ConnId, Tid)>, stage: Stage) -> Self {
        let (waiting, searched, asked, undone) = (Vec::new(), false, Moment(0), None);
        Self { id, passage, at, waiting, stage, searched, asked, undone }
    }

    fn object(&self) -> String {
        passage_name(self.passage.from, self.id)
    }

    /// The next stage when the journal removed the name at `seq`, and the object has these bytes.
    fn checked(&mut self, seq: Seq, bytes: &[u8], now: Moment) -> Stage {
        let passage = Passage::decode(&self.object(), bytes);
        if passage.is_ok_and(|passage| passage.state == PassageState::Done) {
            return Stage::Ends(seq);
        }
        self.undone = Some(self.asked);
        Stage::Gone(seq, now + LOOK_AGAIN)
    }
}

impl Mds {
    /// Offers a name to another rank.
    pub(crate) fn depart(
        &mut self,
        at: (ConnId, Tid),
        request: &Request<'_>,
        effects: &mut Effects,
    ) -> Performing {
        let Op::Depart { parent, name, new_parent, new_name, no_replace, to } = request.op else {
            return Err(Errno::Invalid.into());
        };
        let (cred, time) = (&request.cred, self.clock.time);
        types::check_name(new_name)?;
        self.may_begin()?;
        self.may_pass(parent)?;
        self.check_target(to)?;
        if to == self.rank {
            return Err(Errno::Again.into());
        }
        let (ino, inode) = self.plan_offer(cred, (parent, name), time)?;
        let is_dir = self.namespace.is_dir(ino);
        let passage = Passage {
            state: PassageState::Offered,
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
        };
        let id = self.passage_number();
        let stage = if is_dir { Stage::Drain } else { Stage::Flush(self.log.last()) };
        let departure = Departure::new(id, passage, Some(at), stage);
        self.authority.passages.departures.push(departure);
        self.authority.note_plain();
        self.passages_step(effects);
        Ok(Performed::Later)
    }

    /// Answers when the owner of a name is decided.
    pub(crate) fn passed(
        &mut self,
        at: (ConnId, Tid),
        id: u64,
        effects: &mut Effects,
    ) -> Performing {
        let passages = &mut self.authority.passages;
        let Some(departure) = passages.departures.iter_mut().find(|it| it.id == id) else {
            let known = passages.ended.iter().find(|(known, _)| *known == id);
            return match known {
                Some((_, true)) => Ok(Performed::Answer(Answer::Done)),
                Some((_, false)) => Err(Errno::Again.into()),
                None => Err(Errno::Stale.into()),
            };
        };
        if !departure.is_frozen() {
            return Ok(Performed::Answer(Answer::Done));
        }
        departure.waiting.push(at);
        if let Stage::Offered(_) = departure.stage {
            departure.stage = Stage::Look(self.clock.now);
        }
        self.passages_step(effects);
        Ok(Performed::Later)
    }

    /// Whether all offered names have left, or stay. Checks the offers that stand. None of the
    /// names that left comes back with a subtree that came after `since` before its object is
    /// deleted: the rank that took a name exports nothing before it has journalled that name.
    pub(in crate::authority) fn are_departures_decided(&mut self, since: Moment) -> bool {
        let now = self.clock.now;
        let mut decided = true;
        for departure in &mut self.authority.passages.departures {
            let is_known = !departure.is_frozen() && departure.undone.is_some_and(|at| at >= since);
            decided &= is_known;
            if let Stage::Offered(_) = departure.stage {
                departure.stage = Stage::Look(now);
            } else if let Stage::Gone(seq, at) = departure.stage
                && !is_known
            {
                departure.stage = Stage::Gone(seq, at.min(now));
            }
        }
        decided
    }

    pub(super) fn departures_step(&mut self, effects: &mut Effects) {
        let ids: Vec<u64> = self.authority.passages.departures.iter().map(|it| it.id).collect();
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
        self.authority.passages.departures.iter_mut().find(|it| it.id == id)
    }

    fn store_offer(&mut self, id: u64, effects: &mut Effects) -> Option<()> {
        let departure = self.departure(id)?;
        let (object, data) = (departure.object(), departure.passage.encode());
        let condition = Condition::Absent;
        self.store(Waiting::Passage(id), StoreOp::Put { object, data, condition }, effects);
        Some(())
    }

    fn departure_next(&mut self, id: u64, stage: Stage, effects: &mut Effects) -> Option<Stage> {
        let now = self.clock.now;
        match stage {
            Stage::Drain => {
                let ino = self.departure(id)?.passage.ino;
                let held = self.revoke_below(ClientId(0), ino, effects).is_some();
                if self.phase == Phase::Active && (held || !self.is_merged_below(ino)) {
                    return None;
                }
                self.drained(id, effects)
            }
            Stage::Flush(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                self.store_offer(id, effects)?;
                Some(Stage::Offer)
            }
            Stage::Offered(since) => {
                let stays = now.since(since) < STANDS && self.phase == Phase::Active;
                (!stays).then_some(Stage::Look(now))
            }
            Stage::Look(at) => {
                if now < at {
                    return None;
                }
                let object = self.departure(id)?.object();
                self.get_passage(id, object, effects);
                Some(Stage::Looking)
            }
            Stage::Go => {
                let (ino, is_dir) = {
                    let passage = &self.departure(id)?.passage;
                    (passage.ino, passage.is_dir)
                };
                if is_dir && !self.is_listed_as_own(ino, effects) {
                    return None;
                }
                self.give_name(id, effects)
            }
            Stage::Gone(seq, at) => {
                let done = self.departure(id)?.passage.state == PassageState::Done;
                if done {
                    return Some(Stage::Ends(seq));
                }
                if now < at {
                    return None;
                }
                let departure = self.departure(id)?;
                departure.asked = now;
                let object = departure.object();
                self.get_passage(id, object, effects);
                Some(Stage::Checking(seq))
            }
            Stage::Ends(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                let objects = vec![self.departure(id)?.object()];
                self.store(Waiting::Passage(id), StoreOp::Delete { objects }, effects);
                Some(Stage::Deleting)
            }
            Stage::Offer
            | Stage::Looking
            | Stage::Withdrawing
            | Stage::Checking(_)
            | Stage::Deleting => None,
        }
    }

    /// The store has answered. Returns whether the answer was for a leaving name.
    pub(super) fn departure_stored(
        &mut self,
        id: u64,
        result: &Result<StoreResult, Box<StoreFailure>>,
        effects: &mut Effects,
    ) -> bool {
        let now = self.clock.now;
        let Some(departure) = self.departure(id) else { return false };
        let again = Stage::Look(now + RETRY);
        let next = match (departure.stage, result) {
            (Stage::Offer, Ok(StoreResult::Stored(_))) => {
                if let Some(at) = departure.at.take() {
                    let answer = Answer::Passage(id, departure.passage.ino);
                    self.answer_passage(at, Ok(answer), effects);
                }
                Stage::Offered(now)
            }
            (Stage::Looking, Ok(StoreResult::Missing)) if departure.at.is_some() => {
                // It was not written after all.
                Stage::Flush(Seq(0))
            }
            (Stage::Looking | Stage::Withdrawing, Ok(StoreResult::Missing)) => {
                self.withdrawn(id, effects);
                return true;
            }
            (Stage::Looking, Ok(StoreResult::Bytes(bytes, version))) => {
                match Passage::decode(&departure.object(), bytes) {
                    Ok(Passage { state: PassageState::Offered, .. }) => {
                        let object = departure.object();
                        let state = PassageState::Withdrawn;
                        let data = Passage { state, ..departure.passage.clone() }.encode();
                        let condition = Condition::Version(*version);
                        let op = StoreOp::Put { object, data, condition };
                        departure.stage = Stage::Withdrawing;
                        self.store(Waiting::Passage(id), op, effects);
                        return true;
                    }
                    Ok(Passage { state: PassageState::Withdrawn, .. }) => {
                        self.withdrawn(id, effects);
                        return true;
                    }
                    Ok(Passage { state, .. }) => {
                        departure.passage.state = state;
                        Stage::Go
                    }
                    Err(error) => {
                        effects.fatal = Some(error.into());
                        return true;
                    }
                }
            }
            (Stage::Withdrawing, Ok(StoreResult::Stored(_))) => {
                self.withdrawn(id, effects);
                return true;
            }
            (Stage::Checking(seq), Ok(StoreResult::Bytes(bytes, _))) => {
                departure.checked(seq, bytes, now)
            }
            (Stage::Checking(seq), Ok(StoreResult::Missing)) => Stage::Ends(seq),
            (Stage::Checking(seq), _) => Stage::Gone(seq, now + RETRY),
            (Stage::Deleting, Ok(_)) => {
                self.authority.passages.departures.retain(|it| it.id != id);
                self.authority.note_plain();
                return true;
            }
            // As long as the object exists, it grants the name to both ranks.
            (Stage::Deleting, Err(_)) => Stage::Gone(Seq(0), now + RETRY),
            // Another rank was faster, or the outcome of the write is unknown.
            (_, Ok(StoreResult::Conflict)) => Stage::Look(now),
            _ => again,
        };
        if let Some(departure) = self.departure(id) {
            departure.stage = next;
        }
        true
    }

    /// The name stays.
    fn withdrawn(&mut self, id: u64, effects: &mut Effects) {
        let passages = &mut self.authority.passages;
        let Some(place) = passages.departures.iter().position(|it| it.id == id) else { return };
        let departure = passages.departures.swap_remove(place);
        note_ended(&mut passages.ended, (id, false));
        let objects = vec![departure.object()];
        self.forget(StoreOp::Delete { objects }, effects);
        for at in departure.at.into_iter().chain(departure.waiting) {
            let text = "the other metadata server did not take the name; try again".into();
            let failure = Failure { errno: Errno::Again, text };
            self.answer_passage(at, Err(failure), effects);
        }
        self.thaw(departure.passage.parent, effects);
    }

    /// Whether the directory exists; `None` during the search for it. It may have been removed
    /// after the name had left, and its server crashed then.
    fn is_found(&mut self, id: u64, parent: Ino) -> Option<bool> {
        let goal = Goal::Find(parent);
        if self.namespace.is_anchored(parent) {
            return Some(true);
        }
        if self.authority.preloads.iter().any(|preload| preload.goal == goal) {
            return None;
        }
        if std::mem::replace(&mut self.departure(id)?.searched, true) {
            return Some(false);
        }
        self.preload(goal);
        None
    }

    /// The name is the other rank's: it goes.
    fn give_name(&mut self, id: u64, effects: &mut Effects) -> Option<Stage> {
        let passage = self.departure(id)?.passage.clone();
        let Passage { parent, name, ino, time, is_dir, .. } = passage;
        let there = self.is_found(id, parent)?;
        let mut seq = Seq(0);
        let planned = match self.namespace.peek(parent, &name) {
            _ if !there => Ok(None),
            Ok(Some(here)) if here == ino => {
                self.namespace.plan_departure(&Cred::root(), (parent, &name), time).map(Some)
            }
            // A recovery, or the journal of an earlier one, removed the name.
            Ok(_) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        match planned {
            Ok(Some((_, planned))) => {
                let event = planned.event();
                seq = self.log.append(self.clock.now, Origin::default(), &event);
                self.namespace.apply(seq, Mode::Live, &event);
            }
            Ok(None) if is_dir && !self.is_root_here(ino, effects) => return None,
            Ok(None) => {}
            Err(Refusal::Cold(dir)) => {
                self.passage_waits_for(dir, effects);
                return None;
            }
            Err(Refusal::Errno(errno)) => {
                let cause = format!("{errno} when the name of {ino} was to go to another rank");
                effects.fatal = Some(types::Error::new(Errno::Io, parent.to_string(), cause));
                return None;
            }
        }
        let at = self.clock.now + LOOK_AGAIN;
        let departure = self.departure(id)?;
        departure.stage = Stage::Gone(seq, at);
        let waiting = std::mem::take(&mut departure.waiting);
        note_ended(&mut self.authority.passages.ended, (id, true));
        for at in waiting {
            self.answer_passage(at, Ok(Answer::Done), effects);
        }
        self.thaw(parent, effects);
        None
    }
}

fn note_ended<T>(ended: &mut std::collections::VecDeque<T>, one: T) {
    if ended.len() >= ENDED_MAX {
        ended.pop_front();
    }
    ended.push_back(one);
}
