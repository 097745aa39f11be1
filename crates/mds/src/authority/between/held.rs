//! Requests that wait for the answers of other ranks, and the questions that those are asked.

use std::collections::VecDeque;

use types::{ClientId, Errno, Ino, Map, Moment, Rank, Tid};
use wire::{Answer, ChangeOp, Failure, Message, Op, PeerBody, RankOp, ReadOp};

use super::{BetweenCx, BetweenNeed, Holding, both, second_of};
use crate::admission::Incoming;
use crate::authority::cross_rename::is_due;
use crate::fetch::decode;
use crate::{MdsEffects, ReplyTo};

/// Requests that wait for other ranks at once.
const HELD_MAX: usize = 4096;
/// Requests whose directory has moved, for the case that it moves away again before the request
/// is executed: then the client tries again.
const MOVED_FOR_MAX: usize = 256;

/// A question of this rank to another one, or to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Does this rank serve the second inode?
    Find(Rank),
    /// Does the second name of an exchange exist? This rank serves its directory.
    Look(Rank),
    /// To move a directory, or that of a file's only name.
    Give { ino: Ino, from: Rank, to: Rank },
}

impl Question {
    fn rank(self) -> Rank {
        match self {
            Self::Find(rank) | Self::Look(rank) | Self::Give { from: rank, .. } => rank,
        }
    }
}

/// A request that waits for the answers of other ranks.
#[derive(Debug)]
struct HeldRequest {
    /// The number of the present question.
    number: u64,
    question: Question,
    rest: VecDeque<Question>,
    at: ReplyTo,
    client: ClientId,
    frame: Vec<u8>,
    repeated: Option<Moment>,
    /// Why directories stay where they are.
    reasons: Vec<String>,
    /// The error if a directory does not come home for its removal.
    refused: Option<Failure>,
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::authority) struct HeldRequests {
    all: Vec<HeldRequest>,
    /// Requests for which a directory has moved.
    moved_for: VecDeque<(ClientId, Tid)>,
    /// The ranks of inodes that other ranks were asked for, by the present list of subtrees.
    pub(super) found: Map<Ino, Rank>,
}

impl HeldRequests {
    /// Whether a directory has moved for a request before; then that is forgotten.
    fn has_moved_for(&mut self, request: (ClientId, Tid)) -> bool {
        let at = self.moved_for.iter().position(|known| *known == request);
        at.is_some_and(|at| self.moved_for.remove(at).is_some())
    }

    /// Forgets the ranks of inodes: the list was replaced.
    pub(in crate::authority) fn forget_found(&mut self) {
        self.found.clear();
    }

    pub(super) fn note_found(&mut self, ino: Ino, rank: Rank) {
        if self.found.len() >= HELD_MAX {
            self.found.clear();
        }
        self.found.insert(ino, rank);
    }

    fn note_moved_for(&mut self, request: (ClientId, Tid)) {
        if self.moved_for.len() == MOVED_FOR_MAX {
            self.moved_for.pop_front();
        }
        self.moved_for.push_back(request);
    }
}

impl BetweenCx<'_> {
    /// Holds a request, and asks the first question.
    pub(super) fn hold(
        &mut self,
        from: Incoming<'_>,
        mut rest: VecDeque<Question>,
        refused: Option<Failure>,
        effects: &mut MdsEffects,
    ) -> Holding {
        let (at, client) = (from.at(), from.client);
        let held = &mut self.base.authority.held;
        if let Some(known) =
            held.all.iter_mut().find(|it| (it.client, it.at.tid) == (client, at.tid))
        {
            // The client sent it again, over a new connection.
            known.at = at;
            return Ok(None);
        }
        if held.all.len() >= HELD_MAX || held.has_moved_for((client, at.tid)) {
            return Err(Errno::Again.into());
        }
        let Some(question) = rest.pop_front() else { return Err(Errno::Again.into()) };
        self.postpone(from);
        let frame = Message::Request(from.request.clone()).to_frame();
        let (number, repeated, reasons) = (0, None, Vec::new());
        let held =
            HeldRequest { number, question, rest, at, client, frame, repeated, reasons, refused };
        Ok(self.ask(held, effects))
    }

    /// Asks the present question of a request.
    fn ask(&mut self, mut held: HeldRequest, effects: &mut MdsEffects) -> Option<BetweenNeed> {
        let number = self.base.authority.cross_renames.number(self.line.term);
        (held.number, held.repeated) = (number, None);
        self.base.authority.held.all.push(held);
        self.ask_again(number, effects)
    }

    fn ask_again(&mut self, number: u64, effects: &mut MdsEffects) -> Option<BetweenNeed> {
        let now = self.base.now;
        let all = &mut self.base.authority.held.all;
        let held = all.iter_mut().find(|it| it.number == number)?;
        if !is_due(&mut held.repeated, now) {
            return None;
        }
        let question = held.question;
        let Some(Message::Request(request)) = decode(&held.frame) else { return None };
        let cred = request.cred.clone();
        let op = match (question, &request.op) {
            (Question::Find(_), op) => {
                Op::Read(ReadOp::GetAttr { ino: second_of(op).unwrap_or_default() })
            }
            (Question::Look(_), Op::Change(ChangeOp::Rename { new_parent, new_name, .. })) => {
                Op::Read(ReadOp::Lookup { parent: *new_parent, name: new_name })
            }
            (Question::Look(_), _) => return None,
            (Question::Give { ino, from, to }, _) => {
                let op = RankOp::Colocate { ino, rank: to };
                if from == self.line.from {
                    return Some(BetweenNeed::Ask { number, cred, op });
                }
                Op::Rank(op)
            }
        };
        self.line.send(question.rank(), PeerBody::Ask { number, cred, op }, effects);
        None
    }

    /// Repeats the questions without an answer.
    pub(in crate::authority) fn tick(&mut self, effects: &mut MdsEffects) -> Vec<BetweenNeed> {
        let numbers: Vec<u64> = self.base.authority.held.all.iter().map(|it| it.number).collect();
        numbers.into_iter().filter_map(|number| self.ask_again(number, effects)).collect()
    }

    /// A rank has answered a question of this one.
    pub(in crate::authority) fn answered(
        &mut self,
        number: u64,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) -> Option<BetweenNeed> {
        let all = &mut self.base.authority.held.all;
        let at = all.iter().position(|it| it.number == number)?;
        let held = all.swap_remove(at);
        match held.question {
            Question::Find(rank) => self.second_answered(held, rank, result, effects),
            Question::Look(_) => match result {
                Ok(Answer::Attr(_) | Answer::Redirect(_)) => self.ask_next(held, effects),
                result => held.answer(result, effects),
            },
            Question::Give { to, .. } => self.given(held, to, result, effects),
        }
    }

    /// A rank that may serve the second inode of a request has answered.
    fn second_answered(
        &mut self,
        mut held: HeldRequest,
        rank: Rank,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) -> Option<BetweenNeed> {
        let mut is_dir = false;
        match result {
            Ok(Answer::Attr(attr)) => is_dir = attr.is_dir(),
            // A rank that was asked before does not know of a move yet: the client tries again.
            Ok(Answer::Redirect(other)) if held.rest.contains(&Question::Find(other.rank)) => {
                held.rest.retain(|it| *it != Question::Find(other.rank));
                held.rest.push_front(Question::Find(other.rank));
                return self.ask_next(held, effects);
            }
            // Only a walk loads an inode of this rank, but a third rank may have it: the other one
            // need not know of a move.
            Ok(Answer::Redirect(other)) if other.rank == self.line.from => {
                return self.ask_next(held, effects);
            }
            Err(failure) if failure.errno == Errno::Stale => return self.ask_next(held, effects),
            // Another client has the subtree; the rank that serves it says why it stays.
            Err(failure) if failure.errno == Errno::Busy => {}
            result => return held.answer(result, effects),
        }
        let Some(Message::Request(request)) = decode(&held.frame) else { return None };
        let (first, second) = both(&request.op)?;
        if !matches!(request.op, Op::Change(ChangeOp::Link { .. })) {
            self.base.authority.held.note_found(second, rank);
            Some(held.execute())
        } else if is_dir {
            held.answer(Err(Errno::NotPermitted.into()), effects)
        } else {
            let [comes, goes] = self.either_way(second, first, rank);
            held.rest = [goes, comes].into();
            self.ask_next(held, effects)
        }
    }

    fn ask_next(&mut self, mut held: HeldRequest, effects: &mut MdsEffects) -> Option<BetweenNeed> {
        match held.rest.pop_front() {
            Some(question) => self.ask(HeldRequest { question, ..held }, effects),
            None if matches!(held.question, Question::Find(_)) => {
                held.answer(Err(Errno::Stale.into()), effects)
            }
            None => held.stays_apart(effects),
        }
    }

    /// A directory has moved to a rank, or stays.
    fn given(
        &mut self,
        mut held: HeldRequest,
        to: Rank,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) -> Option<BetweenNeed> {
        let is_there = match &result {
            Ok(Answer::Done) => true,
            Ok(Answer::Redirect(other)) => other.rank == to,
            Ok(_) | Err(_) => false,
        };
        if is_there {
            self.base.counters.colocated += u64::from(held.refused.is_none());
            self.base.authority.held.note_moved_for((held.client, held.at.tid));
            // The list was replaced since it was read.
            self.base.authority.read_at = None;
            return Some(held.execute());
        }
        match result {
            Err(failure) if is_refusal(failure.errno) => {
                let empty = failure.text.is_empty();
                held.reasons.push(if empty { failure.errno.text().into() } else { failure.text });
                self.ask_next(held, effects)
            }
            Ok(_) => held.answer(Err(Errno::Again.into()), effects),
            result => held.answer(result, effects),
        }
    }
}

impl HeldRequest {
    fn execute(self) -> BetweenNeed {
        BetweenNeed::Execute { conn: self.at.conn, frame: self.frame }
    }

    /// No directory moves: the request cannot be executed.
    fn stays_apart(&self, effects: &mut MdsEffects) -> Option<BetweenNeed> {
        let reasons = self.reasons.join("; nor does the other one: ");
        let failure = match &self.refused {
            Some(Failure { errno, text }) => {
                let text = format!("{text}; it does not come by itself: {reasons}");
                Failure { errno: *errno, text }
            }
            None => {
                let text = format!(
                    "two metadata servers serve the file and the directory of its new name, and one \
                     directory does not go to the other's: {reasons}; `cudele mds pin` brings both \
                     to one server, or copy the file"
                );
                Failure { errno: Errno::CrossDevice, text }
            }
        };
        self.answer(Err(failure), effects)
    }

    /// Answers the request, which needs nothing more.
    fn answer(
        &self,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) -> Option<BetweenNeed> {
        let result = match result {
            // The directory is split: the request is for its fragments.
            Ok(answer @ Answer::Fragments(_)) => Ok(answer),
            Ok(_) => Err(Errno::Again.into()),
            Err(failure) => Err(failure),
        };
        effects.answer(self.at, result);
        None
    }
}

/// Whether a rank rejected a move, and would again.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::Busy | Errno::Access | Errno::NotPermitted | Errno::NoSpace | Errno::CrossDevice
    )
}
