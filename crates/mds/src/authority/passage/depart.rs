//! The rank that has a name offers it, and lets it go when it is taken.

use journal::JournalBuffer;
use metastore::request::{Condition, StoreFailure, StoreOp, StoreResult};
use metastore::{Passage, PassageState, passage_name};
use namespace::{Mode, Refusal};
use policy::Mechanism;
use types::{ConnId, Cred, Errno, Ino, Moment, Origin, Seq, Span, Tid};
use wire::{Answer, Failure, Op, Request};

use super::super::RETRY;
use super::super::place::{Place, busy};
use super::super::preload::Goal;
use super::ENDED_MAX;
use crate::op::{Performed, Performing, Refused};
use crate::{Effects, Mds, Phase, Waiting};

/// How long an offer stands that nobody asks about.
const STANDS: Span = Span::from_millis(2000);
/// How often it is looked whether the other rank has written down what it took.
const LOOK_AGAIN: Span = Span::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What is known of the file and its directory is safe up to here: nothing of it will be sent again.
    Flush(Seq),
    /// The offer is being written.
    Offer,
    /// It stands since then.
    Offered(Moment),
    /// It is being looked at, not before that time.
    Look(Moment),
    Looking,
    /// It is being withdrawn.
    Withdrawing,
    /// It was taken, and the name is to go.
    Go,
    /// The name is gone, as the journal says up to here. The other rank has yet to write it down, and is
    /// looked after at that time.
    Gone(Seq, Moment),
    /// That is being looked at.
    Checking(Seq),
    /// Both have it.
    Ends(Seq),
}

/// A name on its way to another rank.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) id: u64,
    pub(super) passage: Passage,
    /// Who asked, until the offer is answered.
    at: Option<(ConnId, Tid)>,
    /// Who wants to know what became of it.
    waiting: Vec<(ConnId, Tid)>,
    stage: Stage,
    /// The directory was looked for, after a recovery.
    searched: bool,
}

impl Departure {
    /// Whether it is not decided, or not carried out, who has the name.
    pub(super) fn is_frozen(&self) -> bool {
        !matches!(self.stage, Stage::Gone(..) | Stage::Checking(_) | Stage::Ends(_))
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
        Self { id, passage, at: None, waiting: Vec::new(), stage, searched: false }
    }

    fn object(&self) -> String {
        passage_name(self.passage.from, self.id)
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
        self.may_pass(parent)?;
        self.check_target(to)?;
        if to == self.rank {
            return Err(Errno::Again.into());
        }
        let (ino, planned) = self.namespace.plan_departure(cred, (parent, name), time)?;
        if self.opens.files().any(|open| open == ino) {
            return Err(cross(
                "clients have the file open, and the two directories are served by different metadata servers",
            ));
        }
        let mut buffer = JournalBuffer::new(Seq(1), true);
        buffer.append(Origin::default(), &planned.event());
        buffer.close_block();
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
            inode: buffer.take_blocks().concat(),
            cred: cred.clone(),
        };
        let id = self.passage_number();
        let stage = Stage::Flush(self.log.last());
        let (at, waiting, searched) = (Some(at), Vec::new(), false);
        let departure = Departure { id, passage, at, waiting, stage, searched };
        self.authority.passages.departures.push(departure);
        self.authority.note_plain();
        self.passages_step(effects);
        Ok(Performed::Later)
    }

    /// Whether names may leave or enter a directory now.
    pub(super) fn may_pass(&mut self, dir: Ino) -> Result<(), Refused> {
        if self.phase != Phase::Active {
            return Err(Errno::Again.into());
        }
        if !self.namespace.knows(dir) {
            return Err(Errno::Stale.into());
        }
        let policy = self.namespace.effective_policy(dir).1;
        if policy.policy.contains(Mechanism::LocalPersist) {
            return Err(cross(
                "its policy keeps logs with clients, which one metadata server replays",
            ));
        }
        let mut decoupled = self.tables.decoupled.iter();
        if decoupled.any(|(root, known)| !known.released && self.namespace.is_within(dir, *root)) {
            return Err(cross("a client has decoupled a directory above it"));
        }
        if self.is_in_change(dir) {
            return Err(busy("a policy is being changed"));
        }
        match self.place(dir) {
            Place::Here => Ok(()),
            Place::Moving(_) | Place::Other(_) | Place::Unknown => Err(Errno::Again.into()),
        }
    }

    /// Answers when it is decided who has a name.
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

    /// Whether all names that were offered have left, or stay. Offers that stand are looked at.
    pub(in crate::authority) fn are_departures_decided(&mut self) -> bool {
        let now = self.clock.now;
        for departure in &mut self.authority.passages.departures {
            if let Stage::Offered(_) = departure.stage {
                departure.stage = Stage::Look(now);
            }
        }
        !self.authority.passages.departures.iter().any(Departure::is_frozen)
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

    fn departure(&mut self, id: u64) -> Option<&mut Departure> {
        self.authority.passages.departures.iter_mut().find(|it| it.id == id)
    }

    fn departure_next(&mut self, id: u64, stage: Stage, effects: &mut Effects) -> Option<Stage> {
        let now = self.clock.now;
        match stage {
            Stage::Flush(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                let departure = self.departure(id)?;
                let (object, data) = (departure.object(), departure.passage.encode());
                let condition = Condition::Absent;
                self.store(Waiting::Passage(id), StoreOp::Put { object, data, condition }, effects);
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
            Stage::Go => self.give_name(id, effects),
            Stage::Gone(seq, at) => {
                let done = self.departure(id)?.passage.state == PassageState::Done;
                if done {
                    return Some(Stage::Ends(seq));
                }
                if now < at {
                    return None;
                }
                let object = self.departure(id)?.object();
                self.get_passage(id, object, effects);
                Some(Stage::Checking(seq))
            }
            Stage::Ends(seq) => {
                if self.log.safe() < seq {
                    return None;
                }
                let objects = vec![self.departure(id)?.object()];
                self.forget(StoreOp::Delete { objects }, effects);
                self.authority.passages.departures.retain(|it| it.id != id);
                self.authority.note_plain();
                None
            }
            Stage::Offer | Stage::Looking | Stage::Withdrawing | Stage::Checking(_) => None,
        }
    }

    /// The store has answered. Says whether it was about a name that leaves.
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
                let done = Passage::decode(&departure.object(), bytes)
                    .is_ok_and(|passage| passage.state == PassageState::Done);
                if done { Stage::Ends(seq) } else { Stage::Gone(seq, now + LOOK_AGAIN) }
            }
            (Stage::Checking(seq), Ok(StoreResult::Missing)) => Stage::Ends(seq),
            (Stage::Checking(seq), _) => Stage::Gone(seq, now + RETRY),
            // Somebody was faster, or it is not known whether it was carried out.
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

    /// Whether the directory is there; `None` while it is looked for. It may have been removed when the name
    /// had left, and then its server died.
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
        let Passage { parent, name, ino, time, .. } = self.departure(id)?.passage.clone();
        let there = self.is_found(id, parent)?;
        let mut seq = Seq(0);
        let planned = match self.namespace.peek(parent, &name) {
            _ if !there => Ok(None),
            Ok(Some(here)) if here == ino => {
                self.namespace.plan_departure(&Cred::root(), (parent, &name), time).map(Some)
            }
            // A recovery, or what was journalled of one before, did it.
            Ok(_) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        match planned {
            Ok(Some((_, planned))) => {
                let event = planned.event();
                seq = self.log.append(self.clock.now, Origin::default(), &event);
                self.namespace.apply(seq, Mode::Live, &event);
            }
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

/// Why a name does not go to another rank: who asked may copy what it is the name of.
pub(super) fn cross(text: &str) -> Refused {
    Refused::Failure(Failure { errno: Errno::CrossDevice, text: text.into() })
}
