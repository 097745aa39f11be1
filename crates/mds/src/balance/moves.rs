//! Executes decisions: several exports side by side, and the result of each.

use std::collections::{BTreeMap, VecDeque};

use balancer::{BalancerAnswer, Export as Decided, MoveRecord, RecordedEvent};
use namespace::Refusal;
use types::{ConnId, DirFragId, Ino, Moment, Rank, Tid};
use wire::Failure;

use super::BalanceCx;
use super::REFUSED_TICKS;
use super::load::{number, whole};
use super::view::seconds;
use crate::op::{Performed, Performing, Refused};
use crate::{MdsEffects, ReplyTo};

/// Moves of one decision at most: a policy that wants more moves the rest at the next tick.
const MOVES_MAX: usize = 64;
/// Moves that are under way at once. A move mostly waits for the store and for clients.
pub(super) const SIDE_BY_SIDE: usize = 8;
/// Directories that are fetched for one move at most: directories outside of memory have no load.
const FETCHES_MAX: u32 = 256;

/// Something that is to move.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    root: Ino,
    to: Rank,
    tick: u64,
    pinned: bool,
    fetches: u32,
    path: Vec<u8>,
    above: Vec<DirFragId>,
    /// How many were under way at once, with this one.
    pub(super) beside: usize,
    since: Moment,
}

/// A move whose export is to begin.
#[derive(Debug)]
pub(crate) struct NextMove {
    pub(crate) at: ReplyTo,
    planned: Move,
}

impl NextMove {
    /// The subtree, and its new rank.
    pub(crate) fn root_and_rank(&self) -> (Ino, Rank) {
        (self.planned.root, self.planned.to)
    }

    /// The subtree is pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        self.planned.pinned
    }
}

/// The planned moves, in this order.
#[derive(Debug, Default)]
pub(super) struct Moves {
    waiting: VecDeque<Move>,
    /// Each under the number that it has as a request.
    pub(super) under_way: Vec<(Tid, Move)>,
    /// Moves that wait for a directory.
    fetching: Vec<Move>,
    pub(super) last: u64,
    pub(super) executed: u64,
    pub(super) refused: u64,
    /// Recent mean duration of a move, each as a share of the time of those side by side.
    mean_seconds: Option<f64>,
}

impl Moves {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty() && self.fetching.is_empty()
    }

    pub(super) fn mean_seconds(&self) -> Option<f64> {
        self.mean_seconds
    }
}

impl Moves {
    /// A directory for which a move waited arrived, or failed to: the move is tried again.
    pub(crate) fn retry_fetched(&mut self) {
        for mut waits in std::mem::take(&mut self.fetching) {
            waits.fetches += 1;
            self.waiting.push_front(waits);
        }
    }
}

/// The same, with one for each rank in turn: the sooner each rank has work, the sooner the load
/// here falls.
fn in_turn<T>(all: Vec<T>, to: impl Fn(&T) -> Rank) -> Vec<T> {
    let mut before: BTreeMap<Rank, usize> = BTreeMap::new();
    let mut numbered: Vec<(usize, T)> = Vec::with_capacity(all.len());
    for it in all {
        let count = before.entry(to(&it)).or_default();
        numbered.push((*count, it));
        *count += 1;
    }
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, it)| it).collect()
}

impl BalanceCx<'_> {
    /// The move of a decision.
    pub(super) fn planned(&self, export: &Decided, answer: &BalancerAnswer) -> Move {
        let pinned = answer.question.view.units.get(export.unit).is_some_and(|it| it.pin.is_some());
        Move {
            root: export.id.ino,
            to: export.to,
            tick: self.balance.ticks,
            pinned,
            fetches: 0,
            path: Vec::new(),
            above: Vec::new(),
            beside: 1,
            since: self.clock.now,
        }
    }

    pub(super) fn plan_moves(&mut self, moves: Vec<Move>) {
        self.balance.moves.waiting.extend(in_turn(moves, |it| it.to).into_iter().take(MOVES_MAX));
        let ticks = self.balance.ticks;
        self.balance.refused.retain(|_, until| *until > ticks);
    }

    /// The next move, unless other subtrees are moving; the server begins its export.
    pub(crate) fn next_move(&mut self) -> Option<NextMove> {
        let moves = &self.balance.moves;
        let busy = moves.under_way.len() >= SIDE_BY_SIDE || !moves.fetching.is_empty();
        // A subtree moves that no policy has chosen.
        let is_moving_otherwise = self.authority.is_moving() && moves.under_way.is_empty();
        if busy || is_moving_otherwise {
            return None;
        }
        let mut next = self.balance.moves.waiting.pop_front()?;
        let root = next.root;
        next.path = self.namespace.path_of(root).map_or_else(Vec::new, |path| path.to_bytes());
        next.above = self.namespace.ancestors(root).skip(1).map(whole).collect();
        next.since = self.clock.now;
        self.balance.moves.last += 1;
        let at = ReplyTo { conn: ConnId::BALANCER, tid: Tid(self.balance.moves.last) };
        Some(NextMove { at, planned: next })
    }

    /// The export of a move began, or did not. Returns the directory that it waits for.
    pub(crate) fn begun(
        &mut self,
        NextMove { at, planned: next }: NextMove,
        performed: Performing,
        effects: &mut MdsEffects,
    ) -> Option<Ino> {
        let failure = match performed {
            Ok(Performed::Later) => {
                let under_way = &mut self.balance.moves.under_way;
                assert!(under_way.len() < SIDE_BY_SIDE, "the number of moves is bounded");
                under_way.push((at.tid, next));
                let count = under_way.len();
                under_way.iter_mut().for_each(|(_, it)| it.beside = it.beside.max(count));
                return None;
            }
            Ok(Performed::Answer(_) | Performed::Changed(_)) => {
                self.move_ended(next, Ok(()), effects);
                return None;
            }
            Err(Refused::Refusal(Refusal::Cold(dir))) if next.fetches < FETCHES_MAX => {
                self.balance.moves.fetching.push(next);
                return Some(dir);
            }
            Err(Refused::Refusal(Refusal::Cold(_))) => {
                let text = "too much of it is not in memory".to_owned();
                Failure { errno: types::Errno::Busy, text }
            }
            Err(Refused::Refusal(Refusal::Errno(errno))) => errno.into(),
            Err(Refused::Failure(failure)) => failure,
        };
        self.move_ended(next, Err(failure), effects);
        None
    }

    /// The export of a move ended.
    pub(crate) fn moved(
        &mut self,
        tid: Tid,
        result: Result<(), Failure>,
        effects: &mut MdsEffects,
    ) {
        let moves = &mut self.balance.moves.under_way;
        let Some(at) = moves.iter().position(|(known, _)| *known == tid) else { return };
        let (_, done) = moves.remove(at);
        self.move_ended(done, result, effects);
    }

    fn move_ended(&mut self, done: Move, result: Result<(), Failure>, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let Move { root, to, tick, path, above, beside, since, .. } = done;
        let failure = match result {
            Ok(()) => {
                self.balance.moves.executed += 1;
                self.balance.table.left(whole(root), &above, now);
                let took = seconds(now.since(since)) / number(beside as u64);
                let mean = &mut self.balance.moves.mean_seconds;
                *mean = Some(mean.map_or(took, |mean| mean * 0.75 + took * 0.25));
                String::new()
            }
            Err(Failure { errno, text }) => {
                self.balance.moves.refused += 1;
                let until = self.balance.ticks + REFUSED_TICKS;
                self.balance.refused.insert(root, until);
                if text.is_empty() { errno.text().to_owned() } else { text }
            }
        };
        let moved = failure.is_empty();
        let record = MoveRecord {
            tick,
            path,
            root,
            to,
            failure,
            frozen_micros: if moved { self.counters.export_freeze_micros } else { 0 },
            flushed: if moved { self.counters.export_flushed } else { 0 },
        };
        self.notify_balanced(RecordedEvent::Move(record), effects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_get_something_in_turn_and_what_is_wanted_most_first() {
        let all = vec![(1, "a"), (1, "b"), (1, "c"), (2, "d"), (3, "e"), (3, "f")];
        let order: String = in_turn(all, |it| Rank(it.0)).into_iter().map(|it| it.1).collect();
        assert_eq!(order, "adebfc");
    }
}
