//! Asks one rank after the other, until one executes the request.

use types::{Errno, Error, Ino, Moment, Rank, Result, Span};
use wire::{Answer, Op, RankOp, ReadOp, Redirect};

use super::asked::{Asked, named};
use super::direct::is_of_open_state;
use super::{Context, Frame, Got, RETRY, Step};

/// How long a rank that is to serve a subtree may take to notice that.
const NOTICE_WITHIN: Span = Span::from_millis(300);
/// A request asks at least so many ranks before it fails: its subtree may move in that time.
const HOPS_MAX: u32 = 64;
/// The time within which the ranks of a move agree on the server of a subtree.
const AGREE_WITHIN: Span = Span::from_millis(10_000);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Ranked {
    asked: Asked,
    chunks: bool,
    rank: Rank,
    start: Moment,
    hops: u32,
    /// The client knew of no other rank than 0 when the request began.
    single: bool,
    /// The ranks that did not know the inode.
    tried: Vec<Rank>,
    /// The ranks that were asked.
    visited: Vec<Rank>,
    /// A rank referred to the present one, which has not answered yet that it serves the inode.
    is_referred: bool,
    /// Since when the present rank answers that it does not know the inode.
    unknown_since: Option<Moment>,
    /// The ranks that another rank referred to, and that never heard of the inode.
    ignorant: Vec<Rank>,
    state: RankedState,
    /// The reports of moved files before the request was sent; fewer for a first request.
    reports: u64,
}

#[derive(Debug, Default)]
enum RankedState {
    #[default]
    Begin,
    /// The request is with one of the other ranks; these follow.
    Others(Vec<Rank>),
    /// One of them has lost the request, with this error: perhaps the rank was removed.
    OtherLost(Vec<Rank>, Error),
    OthersClosed(Vec<Rank>),
    /// The monitor says whether the rank exists.
    Exists,
    Sent,
    Paused,
    /// A redirect leads back to a rank that may not know of the move yet.
    Returning,
    /// The rank gets the open state of the file first.
    Reclaiming,
    /// The same after an answer. The request is repeated if the rank got a state and the request
    /// is about that: a lock would outlive the request that ended it.
    Found(Answer, bool),
    /// The monitor says which ranks are left.
    Next(Error),
}

impl Ranked {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            asked,
            chunks: false,
            rank: Rank(0),
            start: Moment(0),
            hops: 0,
            single: false,
            tried: Vec::new(),
            visited: Vec::new(),
            is_referred: false,
            unknown_since: None,
            ignorant: Vec::new(),
            state: RankedState::Begin,
            reports: 0,
        }
    }

    pub(super) fn with_chunks(asked: Asked) -> Self {
        Self { chunks: true, ..Self::new(asked) }
    }

    /// A request that is with its first rank.
    pub(super) fn sent(asked: Asked, rank: Rank, start: Moment, several: bool) -> Self {
        let (state, visited) = (RankedState::Sent, vec![rank]);
        Self { rank, start, single: !several, hops: 1, visited, state, ..Self::new(asked) }
    }

    pub(super) fn call(asked: Asked) -> Step {
        Step::Call(Frame::Ranked(Self::new(asked)))
    }

    pub(super) fn asked(&self) -> &Asked {
        &self.asked
    }

    pub(super) fn has_chunks(&self) -> bool {
        self.chunks
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match std::mem::take(&mut self.state) {
            RankedState::Begin => {
                let others = self.asked.op(cx.given).is_for_all_ranks();
                let rest = cx.router.ranks.iter().rev().copied().filter(|_| others).collect();
                self.next_other(cx, rest)
            }
            RankedState::Others(rest) => match got.answer() {
                Ok(_) => self.next_other(cx, rest),
                Err(error) if error.errno == Errno::Stale => {
                    self.state = RankedState::OtherLost(rest, error);
                    Step::Ranks
                }
                Err(error) => Step::fail(error),
            },
            RankedState::OtherLost(rest, error) => match got.ranks() {
                Ok(ranks) => {
                    let gone = cx.router.forget_removed(&ranks);
                    if gone.is_empty() {
                        return Step::fail(error);
                    }
                    // The server of a removed rank has stored everything.
                    self.state = RankedState::OthersClosed(rest);
                    Step::Close(gone)
                }
                Err(error) => Step::fail(error),
            },
            RankedState::OthersClosed(rest) => self.next_other(cx, rest),
            RankedState::Exists => match got.ranks() {
                Ok(ranks) if ranks.contains(&self.rank) => {
                    cx.router.link(self.rank);
                    self.send()
                }
                Ok(_) => {
                    let (subject, cause) = (self.rank.to_string(), "there is no such rank");
                    self.answered(cx, Err(Error::new(Errno::Stale, subject, cause)))
                }
                Err(error) => self.answered(cx, Err(error)),
            },
            RankedState::Sent => self.answered(cx, got.answer()),
            RankedState::Paused | RankedState::Reclaiming => self.ask(cx),
            RankedState::Returning => self.arrive(cx),
            RankedState::Found(answer, repeats) => match got {
                Got::Reclaimed(true) if repeats => self.ask(cx),
                Got::Start | Got::Answer(_) | Got::Ranks(_) | Got::Reclaimed(_) | Got::Done => {
                    self.found(cx, answer)
                }
            },
            RankedState::Next(error) => match got.ranks() {
                Ok(ranks) => match ranks.into_iter().find(|rank| !self.tried.contains(rank)) {
                    Some(next) => {
                        (self.is_referred, self.unknown_since) = (false, None);
                        self.rank = next;
                        self.ask(cx)
                    }
                    None => Step::fail(error),
                },
                Err(error) => Step::fail(error),
            },
        }
    }

    /// Requests about everything go to the other ranks first.
    fn next_other(&mut self, cx: &mut Context<'_>, mut rest: Vec<Rank>) -> Step {
        while let Some(rank) = rest.pop() {
            if cx.router.is_linked(rank) {
                self.state = RankedState::Others(rest);
                return Step::Send(rank);
            }
        }
        self.rank = named(&self.asked.op(cx.given)).map_or(Rank(0), |ino| cx.place(ino));
        self.start = cx.now;
        self.visited.push(self.rank);
        self.ask(cx)
    }

    fn ask(&mut self, cx: &Context<'_>) -> Step {
        if self.hops >= HOPS_MAX && cx.now.since(self.start) >= AGREE_WITHIN {
            let cause = "every metadata server says that another one serves it";
            let error = Error::new(Errno::Io, self.asked.op(cx.given).name(), cause);
            return Step::fail(error.remedy("`cudele mds ls` shows who serves what"));
        }
        self.hops += 1;
        self.reports = cx.router.reports;
        if cx.router.is_linked(self.rank) {
            return self.send();
        }
        self.state = RankedState::Exists;
        Step::Ranks
    }

    fn send(&mut self) -> Step {
        debug_assert!(self.hops > 0, "a request to a rank is counted");
        self.state = RankedState::Sent;
        Step::Send(self.rank)
    }

    fn answered(&mut self, cx: &mut Context<'_>, result: Result<Answer>) -> Step {
        let op = self.asked.op(cx.given);
        let subject = named(&op);
        match result {
            Ok(Answer::Redirect(elsewhere)) => self.redirected(cx, *elsewhere),
            Ok(answer) => {
                cx.router.note_place(&op, self.rank);
                let is_of_state = cx.router.several && is_of_open_state(&op);
                if let Some(ino) = subject.filter(|_| is_of_state || !self.tried.is_empty()) {
                    self.state = RankedState::Found(answer, is_of_state);
                    return Step::Reclaim(self.rank, ino);
                }
                self.found(cx, answer)
            }
            Err(error) if error.errno == Errno::Stale && subject.is_some() => {
                if self.single && !op.is_of_subtree() {
                    return Step::fail(error);
                }
                // A rank referred to this one a moment ago, which may not know yet.
                let since = *self.unknown_since.get_or_insert(cx.now);
                if self.is_referred && cx.now.since(since) < NOTICE_WITHIN {
                    self.state = RankedState::Paused;
                    return Step::Wait(RETRY);
                }
                if self.is_referred {
                    self.ignorant.push(self.rank);
                }
                self.try_next(error)
            }
            Err(error) => Step::fail(error),
        }
    }

    fn found(&self, cx: &mut Context<'_>, answer: Answer) -> Step {
        cx.router.learn(self.rank, &answer);
        Step::answer(Ok(answer))
    }

    /// Finds a rank that was not asked. An inode number names the rank that allocated it, which may
    /// have been removed.
    fn try_next(&mut self, error: Error) -> Step {
        debug_assert!(!self.tried.contains(&self.rank), "{} is tried once", self.rank);
        self.tried.push(self.rank);
        self.state = RankedState::Next(error);
        Step::Ranks
    }

    fn redirected(&mut self, cx: &mut Context<'_>, elsewhere: Redirect) -> Step {
        cx.router.redirected += 1;
        let op = self.asked.op(cx.given);
        if elsewhere.root != Ino(0) && matches!(op, Op::Rank(RankOp::Export { .. })) {
            // This rank serves the directory: the nested subtree moves there first.
            cx.router.note_place(&op, self.rank);
            cx.router.set_place(elsewhere.root, elsewhere.rank);
            return Step::answer(Ok(Answer::Redirect(Box::new(elsewhere))));
        }
        if elsewhere.root != Ino(0) {
            return Follow::begin(cx, &op, elsewhere);
        }
        self.single = false;
        let has_returned = |ino| cx.router.place(ino) == self.rank;
        if self.reports != cx.router.reports && named(&op).is_some_and(has_returned) {
            // The file came to this rank after the answer, and its open state is here: elsewhere
            // it would leave its locks to other clients.
            return self.ask(cx);
        }
        self.rank = elsewhere.rank;
        if self.ignorant.contains(&self.rank) {
            // The rank serves the subtree, but has not loaded the inode: only a walk helps.
            return Step::fail(Error::of(Errno::Stale, ""));
        }
        if self.visited.contains(&self.rank) {
            // The inode moved on: the receiving rank may not know yet.
            self.state = RankedState::Returning;
            return Step::Wait(RETRY);
        }
        self.visited.push(self.rank);
        self.arrive(cx)
    }

    /// The rank gets the open state of a file before a request changes the file.
    fn arrive(&mut self, cx: &mut Context<'_>) -> Step {
        debug_assert!(self.visited.contains(&self.rank), "{} is noted as asked", self.rank);
        let op = self.asked.op(cx.given);
        cx.router.note_place(&op, self.rank);
        (self.is_referred, self.unknown_since) = (true, None);
        self.tried.clear();
        // For other requests the answer tells whether the rank has the file.
        let needs_state = !is_of_open_state(&op) && !matches!(op, Op::Read(_));
        match named(&op).filter(|_| needs_state) {
            Some(ino) => {
                self.state = RankedState::Reclaiming;
                Step::Reclaim(self.rank, ino)
            }
            None => self.ask(cx),
        }
    }
}

/// Continues a walk below the root of a subtree of another rank.
#[derive(Debug)]
pub(super) struct Follow {
    asked: Asked,
    /// For a walk: the directory in which the root has its name.
    parent: Option<Ino>,
}

impl Follow {
    fn begin(cx: &mut Context<'_>, op: &Op<'_>, elsewhere: Redirect) -> Step {
        let Redirect { rank, root, parent, rest } = elsewhere;
        cx.router.set_place(root, rank);
        cx.router.several = true;
        let walks = matches!(op, Op::Read(ReadOp::Walk { .. }));
        if walks && !rest.is_empty() {
            return Step::Become(Frame::Ranked(Ranked::new(Asked::Walk(root, rest))));
        }
        let asked = Asked::GetAttr(root);
        Step::Become(Frame::Follow(Self { asked, parent: walks.then_some(parent) }))
    }

    pub(super) fn step(&mut self, _: &mut Context<'_>, got: Got) -> Step {
        match (got, self.parent) {
            (Got::Start, _) => Ranked::call(self.asked.clone()),
            (Got::Answer(Ok(Answer::Attr(attr))), Some(parent)) => {
                Step::answer(Ok(Answer::Walked { parent, attr: Some(attr) }))
            }
            (got, _) => Step::Return(got),
        }
    }
}
