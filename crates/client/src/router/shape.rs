//! Moves, splits and joins of directories, while clients work in them (B-02, B-04).

use types::{Errno, Error, Ino, Moment, Rank, Result, Span};
use wire::{Answer, Fragments};

use super::asked::Asked;
use super::whole::{Request, Whole};
use super::{Context, Frame, Got, RETRY, Step, is_passing, unexpected};

/// How long fragments that came back may take to be served, once there is no other to wait for.
const ARRIVE_WITHIN: Span = Span::from_millis(15_000);
/// How long a server may take to learn from the cluster map that the other rank is active: the
/// client, or the monitor, may know before.
const MAP_WITHIN: Span = Span::from_millis(1_000);
/// Subtrees that are moved for one to move, at most.
const MOVES_MAX: u32 = 8192;

/// Asks for the fragments of a directory.
#[derive(Debug)]
pub(super) struct PartsOf {
    dir: Ino,
}

impl PartsOf {
    pub(super) fn frame(dir: Ino) -> Frame {
        Frame::PartsOf(Self { dir })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        if matches!(got, Got::Start) {
            return Whole::call(Asked::GetAttr(self.dir));
        }
        if let Got::Answer(Ok(Answer::Fragments(fragments))) = &got {
            cx.router.note_fragments(fragments);
        }
        Step::Return(got)
    }
}

/// Joins a directory that is to be removed, if it has no names.
#[derive(Debug)]
pub(super) struct JoinEmpty {
    dir: Ino,
    is_empty: bool,
}

impl JoinEmpty {
    pub(super) fn frame(dir: Ino) -> Frame {
        Frame::JoinEmpty(Self { dir, is_empty: false })
    }

    pub(super) fn step(&mut self, got: Got) -> Step {
        if matches!(got, Got::Start) {
            return Request::call(Asked::GetAttr(self.dir));
        }
        match got.answer() {
            result if self.is_empty => Step::answer(result),
            Ok(Answer::Attr(attr)) if attr.size != 0 => {
                Step::fail(Error::of(Errno::NotEmpty, "directory"))
            }
            Ok(Answer::Attr(_)) => {
                self.is_empty = true;
                Step::CallOwn(JoinParts::frame(self.dir))
            }
            Ok(answer) => Step::fail(unexpected(&answer)),
            Err(error) => Step::fail(error),
        }
    }
}

/// Joins the fragments of a directory. Fragments on other ranks return first.
#[derive(Debug)]
pub(super) struct JoinParts {
    dir: Ino,
    /// The number of fragments on other ranks, and the time for them to be served here.
    away: usize,
    until: Moment,
    state: JoinState,
}

#[derive(Debug)]
enum JoinState {
    Parts,
    Returning,
    Joining,
    Paused,
}

impl JoinParts {
    pub(super) fn frame(dir: Ino) -> Frame {
        let (away, until) = (usize::MAX, Moment(0));
        Frame::JoinParts(Self { dir, away, until, state: JoinState::Paused })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match self.state {
            JoinState::Paused => {
                self.state = JoinState::Parts;
                Step::Call(PartsOf::frame(self.dir))
            }
            JoinState::Parts => match got.answer() {
                Ok(answer) => self.bring_back(cx, &answer),
                Err(error) => Step::fail(error),
            },
            JoinState::Returning => match got.answer() {
                Ok(_) => self.join(),
                result => self.joined(cx, result),
            },
            JoinState::Joining => self.joined(cx, got.answer()),
        }
    }

    fn bring_back(&mut self, cx: &Context<'_>, answer: &Answer) -> Step {
        let parts = parts_in(answer);
        let home = cx.place(self.dir);
        let away = parts.iter().filter(|(_, rank)| *rank != home).count();
        if away != self.away {
            (self.away, self.until) = (away, cx.now + ARRIVE_WITHIN);
        }
        self.state = JoinState::Returning;
        Step::Call(BringBack::frame(home, parts))
    }

    fn join(&mut self) -> Step {
        self.state = JoinState::Joining;
        Request::call(Asked::Join(self.dir))
    }

    fn joined(&mut self, cx: &mut Context<'_>, result: Result<Answer>) -> Step {
        match result {
            // Fragments are on their way, or their places are out of date.
            Err(error) if is_passing(&error) && cx.now < self.until => {
                self.state = JoinState::Paused;
                Step::Wait(RETRY)
            }
            result => {
                cx.router.fragments.forget(self.dir);
                Step::answer(result)
            }
        }
    }
}

fn parts_in(answer: &Answer) -> Vec<(Ino, Rank)> {
    if let Answer::Fragments(fragments) = answer { fragments.parts.to_vec() } else { Vec::new() }
}

/// Moves the fragments of a directory to the rank of the directory, each in one piece.
#[derive(Debug)]
pub(super) struct BringBack {
    home: Rank,
    /// The fragments that are left, the next one last.
    left: Vec<(Ino, Rank)>,
    state: BringState,
}

#[derive(Debug)]
enum BringState {
    Next,
    /// Whether the fragment is split itself.
    Parts,
    Joined,
}

impl BringBack {
    fn frame(home: Rank, mut parts: Vec<(Ino, Rank)>) -> Frame {
        parts.reverse();
        Frame::BringBack(Self { home, left: parts, state: BringState::Next })
    }

    pub(super) fn step(&mut self, got: Got) -> Step {
        let answer = match got {
            Got::Answer(Err(error)) => return Step::fail(error),
            Got::Answer(Ok(answer)) => answer,
            Got::Start | Got::Ranks(_) | Got::Reclaimed(_) | Got::Done => Answer::Done,
        };
        let Some((part, rank)) = self.left.last().copied() else {
            return Step::answer(Ok(Answer::Done));
        };
        match self.state {
            BringState::Next => {
                self.state = BringState::Parts;
                Step::Call(PartsOf::frame(part))
            }
            BringState::Parts if matches!(answer, Answer::Fragments(_)) => {
                self.state = BringState::Joined;
                Step::Call(JoinParts::frame(part))
            }
            BringState::Parts | BringState::Joined => {
                self.left.pop();
                self.state = BringState::Next;
                if rank == self.home {
                    return self.step(Got::Start);
                }
                Step::Call(PinTree::frame(part, self.home))
            }
        }
    }
}

/// Moves a directory and the tree below it to a rank. Subtrees in it that another rank serves move
/// first to the rank of the directory.
#[derive(Debug)]
pub(super) struct PinTree {
    dir: Ino,
    todo: Vec<(Ino, Rank)>,
    moves: u32,
    /// When the patience with the present move ends, once a server said that the rank is not
    /// active.
    until: Option<Moment>,
}

impl PinTree {
    pub(super) fn frame(dir: Ino, rank: Rank) -> Frame {
        Frame::PinTree(Self { dir, todo: vec![(dir, rank)], moves: 0, until: None })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match (got, self.todo.last()) {
            (Got::Answer(Err(error)), _) => {
                let until = *self.until.get_or_insert(cx.now + MAP_WITHIN);
                let waits = error.errno == Errno::Again && cx.now < until;
                return if waits { Step::Wait(RETRY) } else { Step::fail(error) };
            }
            (Got::Answer(Ok(Answer::Redirect(inner))), Some((dir, _))) => {
                let home = cx.place(*dir);
                self.todo.push((inner.root, home));
                self.until = None;
            }
            (Got::Answer(Ok(_)), _) => {
                self.todo.pop();
                self.until = None;
            }
            (Got::Start | Got::Ranks(_) | Got::Reclaimed(_) | Got::Done, _) => {}
        }
        let Some((dir, rank)) = self.todo.last().copied() else {
            return Step::answer(Ok(Answer::Done));
        };
        if self.moves == MOVES_MAX {
            let cause = "subtrees in it move all the time";
            return Step::fail(Error::new(Errno::Busy, self.dir.to_string(), cause));
        }
        self.moves += 1;
        let waiting = self.todo.len();
        debug_assert!(waiting <= self.moves as usize, "{waiting} subtrees wait for one move each");
        Request::call(Asked::Export(dir, rank))
    }
}

/// Splits a directory, and moves its fragments to ranks in turn. A split directory keeps its
/// fragments and their fragments, which move to the ranks.
#[derive(Debug)]
pub(super) struct SplitDir {
    dir: Ino,
    ranks: Vec<Rank>,
    until: Moment,
    /// Fragments that may be split themselves, the next one last.
    todo: Vec<(Ino, Rank)>,
    /// Fragments in one piece, in the order of hashes; later the rest of them, the next one last.
    leaves: Vec<(Ino, Rank)>,
    moved: usize,
    state: SplitState,
}

#[derive(Debug)]
enum SplitState {
    Begin,
    Splitting,
    Paused,
    /// The fragments of the directory, or of the last one to do.
    Whole,
    Parts,
    Moving,
}

impl SplitDir {
    pub(super) fn frame(dir: Ino, ranks: Vec<Rank>) -> Frame {
        let (todo, leaves, state) = (Vec::new(), Vec::new(), SplitState::Begin);
        Frame::SplitDir(Self { dir, ranks, until: Moment(0), todo, leaves, moved: 0, state })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match self.state {
            SplitState::Begin => {
                self.until = cx.now + ARRIVE_WITHIN;
                self.split()
            }
            SplitState::Paused => self.split(),
            SplitState::Splitting => match got.answer() {
                Ok(_) => {
                    self.state = SplitState::Whole;
                    Step::Call(PartsOf::frame(self.dir))
                }
                // The server splits or moves another directory.
                Err(error) if error.errno == Errno::Again && cx.now < self.until => {
                    self.state = SplitState::Paused;
                    Step::Wait(RETRY)
                }
                Err(error) => Step::fail(error),
            },
            SplitState::Whole | SplitState::Parts => match got.answer() {
                Ok(answer) => self.take_parts(&answer),
                Err(error) => Step::fail(error),
            },
            SplitState::Moving => match got.answer() {
                Ok(_) => self.next_move(),
                Err(error) => Step::fail(error),
            },
        }
    }

    fn split(&mut self) -> Step {
        self.state = SplitState::Splitting;
        Request::call(Asked::Split(self.dir))
    }

    fn take_parts(&mut self, answer: &Answer) -> Step {
        if matches!(self.state, SplitState::Parts)
            && let Some(asked) = self.todo.pop()
            && !matches!(answer, Answer::Fragments(_))
        {
            self.leaves.push(asked);
        }
        if let Answer::Fragments(fragments) = answer {
            let Fragments { parts, .. } = **fragments;
            self.todo.extend(parts.into_iter().rev());
        }
        self.state = SplitState::Parts;
        match self.todo.last() {
            Some((part, _)) => Step::Call(PartsOf::frame(*part)),
            None => self.next_move(),
        }
    }

    fn next_move(&mut self) -> Step {
        debug_assert!(self.todo.is_empty(), "all fragments are known before the first moves");
        debug_assert!(self.moved <= self.leaves.len(), "each fragment moves once");
        self.state = SplitState::Moving;
        while let (Some((part, at)), false) = (self.leaves.get(self.moved), self.ranks.is_empty()) {
            let rank = self.ranks[self.moved % self.ranks.len()];
            self.moved += 1;
            if *at != rank {
                return Step::Call(PinTree::frame(*part, rank));
            }
        }
        Step::answer(Ok(Answer::Done))
    }
}
