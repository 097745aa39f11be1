//! Requests that wait for the answers of other ranks, and the questions that those are asked.

use std::collections::VecDeque;

use types::{ClientId, Errno, Ino, Map, Moment, Rank, Tid};
use wire::{Answer, ChangeOp, Failure, Message, Op, RankOp, ReadOp};

use super::{both, second_of};
use crate::admission::Incoming;
use crate::authority::NamesCx;
use crate::authority::cross_rename::is_due;
use crate::fetch::decode;
use crate::op::{Performed, Performing};
use crate::transfer::TransferId;
use crate::{Mds, MdsEffects, ReplyTo};

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

impl Mds {
    /// Holds a request, and asks the first question.
    pub(super) fn hold(
        &mut self,
        from: Incoming<'_>,
        mut rest: VecDeque<Question>,
        refused: Option<Failure>,
        effects: &mut MdsEffects,
    ) -> Performing {
        let (at, client) = (from.at(), from.client);
        let held = &mut self.authority.held;
        if let Some(known) =
            held.all.iter_mut().find(|it| (it.client, it.at.tid) == (client, at.tid))
        {
            // The client sent it again, over a new connection.
            known.at = at;
            return Ok(Performed::Later);
        }
        if held.all.len() >= HELD_MAX || held.has_moved_for((client, at.tid)) {
            return Err(Errno::Again.into());
        }
        let Some(question) = rest.pop_front() else { return Err(Errno::Again.into()) };
        self.postpone(from);
        let frame = Message::Request(from.request.clone()).to_frame();
        let (number, repeated, reasons) = (0, None, Vec::new());
        self.ask(
            HeldRequest { number, question, rest, at, client, frame, repeated, reasons, refused },
            effects,
        );
        Ok(Performed::Later)
    }

    /// Asks the present question of a request.
    fn ask(&mut self, mut held: HeldRequest, effects: &mut MdsEffects) {
        let number = self.cross_rename_number();
        (held.number, held.repeated) = (number, None);
        self.authority.held.all.push(held);
        self.ask_again(number, effects);
    }

    fn ask_again(&mut self, number: u64, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let all = &mut self.authority.held.all;
        let Some(held) = all.iter_mut().find(|it| it.number == number) else { return };
        if !is_due(&mut held.repeated, now) {
            return;
        }
        let (question, frame) = (held.question, held.frame.clone());
        let Some(Message::Request(request)) = decode(&frame) else { return };
        let op = match (question, &request.op) {
            (Question::Find(_), op) => {
                Op::Read(ReadOp::GetAttr { ino: second_of(op).unwrap_or_default() })
            }
            (Question::Look(_), Op::Change(ChangeOp::Rename { new_parent, new_name, .. })) => {
                Op::Read(ReadOp::Lookup { parent: *new_parent, name: new_name })
            }
            (Question::Look(_), _) => return,
            (Question::Give { ino, to, .. }, _) => Op::Rank(RankOp::Colocate { ino, rank: to }),
        };
        self.ask_rank((question.rank(), number), request.cred.clone(), op, effects);
    }

    /// Repeats the questions without an answer.
    pub(in crate::authority) fn held_tick(&mut self, effects: &mut MdsEffects) {
        let numbers: Vec<u64> = self.authority.held.all.iter().map(|it| it.number).collect();
        for number in numbers {
            self.ask_again(number, effects);
        }
    }

    /// A rank has answered a question of this one.
    pub(crate) fn rank_answered(
        &mut self,
        number: u64,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        if !self.name_answered(number, &result, effects) {
            let all = &mut self.authority.held.all;
            let Some(at) = all.iter().position(|it| it.number == number) else { return };
            let held = all.swap_remove(at);
            match held.question {
                Question::Find(rank) => self.second_answered(held, rank, result, effects),
                Question::Look(_) => match result {
                    Ok(Answer::Attr(_) | Answer::Redirect(_)) => self.ask_next(held, effects),
                    result => self.answer_held(&held, result, effects),
                },
                Question::Give { to, .. } => self.given(held, to, result, effects),
            }
        }
        self.authority_step(effects);
    }

    /// A rank that was asked to take a name has answered. Returns whether the question was that.
    fn name_answered(
        &mut self,
        number: u64,
        result: &Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) -> bool {
        let id = TransferId { number, from: self.rank };
        let Some(dir) = self.authority.cross_renames.goes_to(id) else { return false };
        let failure = match result {
            // The reservation is a message of its own.
            Ok(Answer::Done) => return true,
            Ok(_) => {
                let text = "another metadata server serves the directory by now; try again";
                Failure { errno: Errno::Again, text: text.into() }
            }
            Err(failure) => failure.clone(),
        };
        if failure.errno == Errno::Again {
            self.is_not_there(dir, result);
        }
        let needs = NamesCx::of(self).refused(id, failure, effects);
        self.meet_names(needs, effects);
        true
    }

    /// A rank that may serve the second inode of a request has answered.
    fn second_answered(
        &mut self,
        mut held: HeldRequest,
        rank: Rank,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
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
            Ok(Answer::Redirect(other)) if other.rank == self.rank => {
                return self.ask_next(held, effects);
            }
            Err(failure) if failure.errno == Errno::Stale => return self.ask_next(held, effects),
            // Another client has the subtree; the rank that serves it says why it stays.
            Err(failure) if failure.errno == Errno::Busy => {}
            result => return self.answer_held(&held, result, effects),
        }
        let frame = held.frame.clone();
        let Some(Message::Request(request)) = decode(&frame) else { return };
        let Some((first, second)) = both(&request.op) else { return };
        if !matches!(request.op, Op::Change(ChangeOp::Link { .. })) {
            self.authority.held.note_found(second, rank);
            self.request(held.at.conn, &request, effects);
        } else if is_dir {
            self.answer_held(&held, Err(Errno::NotPermitted.into()), effects);
        } else {
            let [comes, goes] = self.either_way(second, first, rank);
            held.rest = [goes, comes].into();
            self.ask_next(held, effects);
        }
    }

    fn ask_next(&mut self, mut held: HeldRequest, effects: &mut MdsEffects) {
        match held.rest.pop_front() {
            Some(question) => self.ask(HeldRequest { question, ..held }, effects),
            None if matches!(held.question, Question::Find(_)) => {
                self.answer_held(&held, Err(Errno::Stale.into()), effects);
            }
            None => self.stays_apart(&held, effects),
        }
    }

    /// A directory has moved to a rank, or stays.
    fn given(
        &mut self,
        mut held: HeldRequest,
        to: Rank,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        let is_there = match &result {
            Ok(Answer::Done) => true,
            Ok(Answer::Redirect(other)) => other.rank == to,
            Ok(_) | Err(_) => false,
        };
        if is_there {
            self.counters.colocated += u64::from(held.refused.is_none());
            self.authority.held.note_moved_for((held.client, held.at.tid));
            // The list was replaced since it was read.
            self.authority.read_at = None;
            let frame = std::mem::take(&mut held.frame);
            if let Some(Message::Request(request)) = decode(&frame) {
                self.request(held.at.conn, &request, effects);
            }
            return;
        }
        match result {
            Err(failure) if is_refusal(failure.errno) => {
                let empty = failure.text.is_empty();
                held.reasons.push(if empty { failure.errno.text().into() } else { failure.text });
                self.ask_next(held, effects);
            }
            Ok(_) => self.answer_held(&held, Err(Errno::Again.into()), effects),
            result => self.answer_held(&held, result, effects),
        }
    }

    /// No directory moves: the request cannot be executed.
    fn stays_apart(&mut self, held: &HeldRequest, effects: &mut MdsEffects) {
        let reasons = held.reasons.join("; nor does the other one: ");
        let failure = match &held.refused {
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
        self.answer_held(held, Err(failure), effects);
    }

    fn answer_held(
        &mut self,
        held: &HeldRequest,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        let result = match result {
            // The directory is split: the request is for its fragments.
            Ok(answer @ Answer::Fragments(_)) => Ok(answer),
            Ok(_) => Err(Errno::Again.into()),
            Err(failure) => Err(failure),
        };
        self.answer_cross_rename(held.at, result, effects);
    }
}

/// Whether a rank rejected a move, and would again.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::Busy | Errno::Access | Errno::NotPermitted | Errno::NoSpace | Errno::CrossDevice
    )
}
