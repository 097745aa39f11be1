//! A watch of a subtree over all ranks: one position, one order.
//!
//! Each rank numbers its changes. The watch asks every rank for the changes behind its part of the
//! position, and returns them one by one: within a rank in their order, between ranks by their
//! times. A subtree that moved from one rank to another is the exception that times cannot decide,
//! because clocks differ: the changes of the new rank behind the arrival wait until all changes of
//! the former rank were returned.
//!
//! Invariant: the position covers the returned changes, and no other ones that the user may see.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;

use types::{Epoch, Errno, Error, Ino, Rank, Span};
use wire::{ChangeKind, WatchPage, WatchPoint, WatchedChange};

/// The longest that a server keeps a request, if there is only one; and if there are several, of
/// which each waits for the one before.
const HOLD_ALONE: Span = Span::from_millis(2000);
const HOLD_MIN: Span = Span::from_millis(5);
const HOLD_MAX: Span = Span::from_millis(80);

/// A position: for each rank the point behind the last change. As text it is
/// `RANK.TERM.NUMBER`, joined by `+`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchPosition(BTreeMap<Rank, WatchPoint>);

impl fmt::Display for WatchPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (rank, WatchPoint { term, next })) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "+" };
            write!(f, "{separator}{}.{}.{next}", rank.0, term.0)?;
        }
        Ok(())
    }
}

impl FromStr for WatchPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let invalid = || {
            Error::new(Errno::Invalid, text, "no position of a watch")
                .remedy("use the value of \"position\" in a line of `cudele watch --json`")
        };
        let mut points = BTreeMap::new();
        for part in text.split('+') {
            let mut fields = part.split('.').map(number);
            let fields = [fields.next(), fields.next(), fields.next(), fields.next()];
            let [Some(Some(rank)), Some(Some(term)), Some(Some(next)), None] = fields else {
                return Err(invalid());
            };
            let rank = Rank(u16::try_from(rank).map_err(|_| invalid())?);
            let point = WatchPoint { term: Epoch(term), next };
            if points.last_key_value().is_some_and(|(last, _)| *last >= rank) {
                return Err(invalid());
            }
            points.insert(rank, point);
        }
        Ok(Self(points))
    }
}

/// A number in its only form: without a sign or leading zeros.
fn number(text: &str) -> Option<u64> {
    let value: u64 = text.parse().ok()?;
    (value.to_string() == text).then_some(value)
}

impl WatchPosition {
    /// The ranks that it covers.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.0.keys().copied()
    }
}

/// Why a watch cannot go on from its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchLoss {
    /// The server of this rank does not have all changes any more, or was restarted.
    Forgotten(Rank),
    /// A rank that joined the cluster since has a part of the subtree.
    Joined(Rank),
    /// A rank of the position is not in the cluster any more.
    Left(Rank),
}

impl fmt::Display for WatchLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forgotten(rank) => write!(
                f,
                "{rank} was restarted, or does not keep the changes behind this position any more"
            ),
            Self::Joined(rank) => {
                write!(f, "{rank} joined the cluster since, and serves a part of the subtree")
            }
            Self::Left(rank) => write!(f, "{rank} is not in the cluster any more"),
        }
    }
}

/// The changes of one rank that are not returned yet.
#[derive(Debug, Default)]
struct RankChanges {
    changes: VecDeque<(u64, WatchedChange)>,
    /// The point behind them.
    next: WatchPoint,
    /// The server has further ones.
    more: bool,
    /// The round in which the server had no further changes than these.
    whole_in: u64,
    /// The round in which the first of them was found to be an arrival.
    arrival_seen_in: Option<u64>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct WatchMerge {
    position: WatchPosition,
    ranks: BTreeMap<Rank, RankChanges>,
    /// Subtrees whose departure was read: the root, and how often it has moved.
    departed: BTreeSet<(Ino, u64)>,
    round: u64,
    /// Whether this round had a change, and how many rounds before had none: for the back-off.
    has_news: bool,
    quiet: u32,
}

impl WatchMerge {
    /// A watch from a position.
    #[must_use]
    pub fn from(position: WatchPosition) -> Self {
        let ranks = position.0.iter();
        let changes = |next: &WatchPoint| RankChanges { next: *next, ..RankChanges::default() };
        let ranks = ranks.map(|(rank, next)| (*rank, changes(next))).collect();
        Self { position, ranks, ..Self::default() }
    }

    /// The position behind the last returned change.
    #[must_use]
    pub fn position(&self) -> &WatchPosition {
        &self.position
    }

    /// Adds a rank from its present point on. `at_start` says that no position of the caller is
    /// older than this.
    ///
    /// # Errors
    /// If the rank may have had changes of the subtree before.
    pub fn join(&mut self, rank: Rank, page: &WatchPage, at_start: bool) -> Result<(), WatchLoss> {
        if page.serves && !at_start {
            return Err(WatchLoss::Joined(rank));
        }
        self.position.0.insert(rank, page.next);
        self.ranks.insert(rank, RankChanges { next: page.next, ..RankChanges::default() });
        Ok(())
    }

    /// Begins a round of requests: the ranks to ask, each with the point behind which changes are
    /// wanted. A rank whose changes are not all returned yet is not asked.
    pub fn begin_round(&mut self) -> Vec<(Rank, WatchPoint)> {
        self.round += 1;
        self.quiet =
            if std::mem::take(&mut self.has_news) { 0 } else { self.quiet.saturating_add(1) };
        let empty = self.ranks.iter().filter(|(_, known)| known.changes.is_empty());
        empty.map(|(rank, known)| (*rank, known.next)).collect()
    }

    /// Whether there are changes that only wait for another answer.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.ranks.values().any(|known| known.more || !known.changes.is_empty())
    }

    /// How long a server may keep a request of this round that it cannot answer with a change: a
    /// back-off, because with several ranks each waits for the one before.
    #[must_use]
    pub fn hold(&self, most: Span) -> Span {
        let hold = match self.ranks.len() {
            _ if self.has_more() => Span(0),
            0 | 1 => HOLD_ALONE,
            _ => Span(HOLD_MIN.0 << self.quiet.saturating_sub(1).min(8)).min(HOLD_MAX),
        };
        hold.min(most)
    }

    /// Takes the answer of a rank in this round.
    ///
    /// # Errors
    /// If changes are lost.
    pub fn take(&mut self, rank: Rank, page: WatchPage) -> Result<(), WatchLoss> {
        if page.lost {
            return Err(WatchLoss::Forgotten(rank));
        }
        let (round, is_quiet) = (self.round, page.changes.is_empty());
        let Some(known) = self.ranks.get_mut(&rank) else { return Ok(()) };
        known.next = page.next;
        known.changes = page.changes.into();
        known.more = page.more;
        known.whole_in = if page.more { 0 } else { round };
        self.has_news |= !is_quiet;
        if is_quiet {
            self.position.0.insert(rank, page.next);
        }
        Ok(())
    }

    /// The next change, with the position behind it. `None` if the ranks must be asked first.
    pub fn next_change(&mut self) -> Option<WatchedChange> {
        loop {
            let rank = self.first()?;
            let known = self.ranks.get_mut(&rank)?;
            let (number, change) = known.changes.pop_front()?;
            known.arrival_seen_in = None;
            let next = WatchPoint { next: number.saturating_add(1), ..known.next };
            let point = if known.changes.is_empty() { known.next } else { next };
            self.position.0.insert(rank, point);
            let moved = (change.ino, change.number);
            if change.kind == ChangeKind::Departed {
                self.departed.insert(moved);
            } else if change.kind == ChangeKind::Arrived {
                self.departed.remove(&moved);
            } else {
                return Some(change);
            }
        }
    }

    /// The rank whose first change is the next one.
    fn first(&mut self) -> Option<Rank> {
        let round = self.round;
        for known in self.ranks.values_mut() {
            let arrives = |(_, change): &(u64, WatchedChange)| change.kind == ChangeKind::Arrived;
            if known.changes.front().is_some_and(arrives) {
                known.arrival_seen_in.get_or_insert(round);
            }
        }
        let heads = || {
            let heads = self.ranks.iter();
            heads.filter_map(|(rank, known)| Some((*rank, known, &known.changes.front()?.1)))
        };
        let by_time = |head: &(Rank, &RankChanges, &WatchedChange)| (head.2.time, head.0);
        let free = heads().filter(|(rank, known, change)| self.is_free(*rank, known, change));
        if let Some((rank, ..)) = free.min_by_key(by_time) {
            return Some(rank);
        }
        // Each rank waits for another one: a departure is late. The times decide.
        let all_wait = self.ranks.values().all(|known| {
            known.arrival_seen_in.is_some_and(|seen| seen < round) || known.changes.is_empty()
        });
        heads().filter(|_| all_wait).min_by_key(by_time).map(|(rank, ..)| rank)
    }

    /// Whether a change may be returned: an arrival waits for all changes of the former rank.
    fn is_free(&self, rank: Rank, known: &RankChanges, change: &WatchedChange) -> bool {
        let Some(seen) = known.arrival_seen_in else { return true };
        let is_read =
            |(_, other): (&Rank, &RankChanges)| other.changes.is_empty() && other.whole_in > seen;
        let departed = self.departed.contains(&(change.ino, change.number));
        departed || self.ranks.iter().filter(|(other, _)| **other != rank).all(is_read)
    }
}

#[cfg(test)]
mod tests;
