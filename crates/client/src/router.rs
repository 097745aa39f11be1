//! Which metadata server a request is for, and the steps after each answer.
//!
//! A client has one session for each rank. Its first guess is that the rank that allocated an inode
//! number serves the inode, which is right for every inode that did not move. The redirects of
//! servers ([`wire::Elsewhere`], [`wire::Fragments`]) correct wrong guesses (B-02, B-04). A request
//! goes to another rank only after a rank has answered that it did not execute the request and will
//! not.
//!
//! [`Router`] has the state that all requests of a client share: the ranks of moved inodes, and the
//! fragments of split directories. [`Route`] is one request on its way, as a stack of procedures
//! ([`Frame`]). [`Route::handle`] takes the result of the last effect and returns the next effect;
//! the driver carries the effect out. Neither waits, locks or reads a clock.
//!
//! Invariants: the router has no entry for an inode on the rank that allocated it; a route asks for
//! one effect at a time; its stack has at most [`FRAMES_MAX`] frames.

mod asked;
mod colocate;
mod cross;
mod direct;
mod fragments;
mod ranked;
mod shape;
mod walks;
mod whole;

use std::collections::BTreeSet;

use types::{Errno, Error, Ino, Map, Moment, Rank, Result, Span};
use wire::{Answer, Fragments, Op};

use crate::FragmentMap;
use asked::Asked;
pub use asked::{named, second};
pub use direct::{is_direct, is_final};
pub use walks::{WALKS_MAX, WalkStep, Walks};

/// The pause before a server that may not know of a move yet is asked again.
const RETRY: Span = Span::from_millis(5);
/// The number of moved inodes whose rank is remembered.
const PLACES_MAX: usize = 1 << 20;
/// The greatest depth of procedures that call each other. A directory is split at most ten times,
/// and each level takes three frames.
const FRAMES_MAX: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Router {
    places: Map<Ino, Rank>,
    fragments: FragmentMap,
    undecided: cross::UndecidedRenames,
    /// The ranks besides rank 0 that this client has a session with.
    ranks: BTreeSet<Rank>,
    /// Whether anything was found on another rank than 0.
    several: bool,
    redirected: u64,
}

impl Router {
    /// The rank that serves an inode, as far as this client knows.
    #[must_use]
    pub fn place(&self, ino: Ino) -> Rank {
        self.places.get(&ino).copied().unwrap_or(ino.given_by())
    }

    /// Remembers the rank that serves an inode.
    pub fn set_place(&mut self, ino: Ino, rank: Rank) {
        if ino.given_by() == rank {
            self.places.remove(&ino);
            return;
        }
        if self.places.len() >= PLACES_MAX {
            self.places.clear();
        }
        self.places.insert(ino, rank);
    }

    /// Whether this client knows of another rank than 0, or of a split directory. Until then every
    /// request about an inode of rank 0 is direct ([`is_direct`]).
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.several || !self.fragments.is_empty()
    }

    /// Whether this client knows of another rank than 0.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.several
    }

    /// The number of requests that a server referred to another rank or to a fragment.
    #[must_use]
    pub fn redirected(&self) -> u64 {
        self.redirected
    }

    /// The known fragments of split directories.
    #[must_use]
    pub fn fragments(&self) -> &FragmentMap {
        &self.fragments
    }

    /// Notes that there is a session with a rank.
    pub fn link(&mut self, rank: Rank) {
        if rank != Rank(0) {
            self.ranks.insert(rank);
            self.several = true;
        }
    }

    fn is_linked(&self, rank: Rank) -> bool {
        rank == Rank(0) || self.ranks.contains(&rank)
    }

    /// Forgets the ranks that the cluster does not have any more, and returns them.
    fn forget_removed(&mut self, present: &[Rank]) -> Vec<Rank> {
        let gone = self.ranks.iter().copied().filter(|rank| !present.contains(rank)).collect();
        self.ranks.retain(|rank| present.contains(rank));
        self.places.retain(|_, rank| present.contains(rank));
        gone
    }

    fn note_fragments(&mut self, fragments: &Fragments) {
        self.fragments.note(fragments);
        for (part, rank) in fragments.parts {
            self.set_place(part, rank);
        }
    }

    /// Notes the rank of the inodes in an answer.
    fn learn(&mut self, rank: Rank, answer: &Answer) {
        if let Answer::Attr(attr) | Answer::Walked { attr: Some(attr), .. } = answer {
            self.set_place(attr.ino, rank);
        }
        // The rank with a name of a split directory may not have the directory.
        if let Answer::Walked { parent, .. } = answer
            && self.fragments.parts(*parent).is_none()
        {
            self.learn_one(rank, *parent);
        }
        if let Answer::Entries { entries, .. } = answer {
            entries.iter().for_each(|(_, attr)| self.learn_one(rank, attr.ino));
        }
    }

    fn learn_one(&mut self, rank: Rank, ino: Ino) {
        if ino.given_by() != rank {
            self.set_place(ino, rank);
        }
    }

    /// Checks the invariants of this module.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn validate(&self) {
        for (ino, rank) in &self.places {
            assert_ne!(ino.given_by(), *rank, "{ino} is noted at the rank that allocated it");
        }
        assert!(!self.ranks.contains(&Rank(0)), "the session with rank 0 is always there");
        assert!(self.several || self.ranks.is_empty(), "sessions, but no other rank is known");
    }
}

/// The result of the last effect.
#[derive(Debug)]
pub enum RouteInput {
    /// The beginning: there was no effect before.
    Start,
    /// The answer to [`RouteEffect::Send`], or the error of the session.
    Answer(Result<Answer>),
    /// The ranks of the cluster, as the monitor knows them.
    Ranks(Result<Vec<Rank>>),
    /// An effect without a result is carried out.
    Done,
}

/// The next wish of a route.
#[derive(Debug)]
pub enum RouteEffect<'a> {
    /// Send a request to a rank, over a new session if there is none.
    Send {
        /// The rank.
        rank: Rank,
        /// The request.
        op: Op<'a>,
        /// In the name of this client itself, not of the caller.
        own: bool,
        /// The journal of the caller follows in chunks.
        chunks: bool,
    },
    /// Ask the monitor for the ranks of the cluster.
    Ranks,
    /// Wait for so long.
    Wait(Span),
    /// Register the open state of a file that other sessions have, with the session of this rank.
    Reclaim {
        /// The rank that serves the file.
        rank: Rank,
        /// The file.
        ino: Ino,
    },
    /// End the sessions with these ranks, which the cluster does not have any more.
    Close(Vec<Rank>),
    /// The end.
    Done(Result<Answer>),
}

/// A request on its way, or a change of the subtree map that takes several requests.
#[derive(Debug)]
pub struct Route {
    state: RouteState,
    frames: Vec<Frame>,
    /// The frames from this depth on act for this client itself.
    own_from: usize,
}

#[derive(Debug)]
enum RouteState {
    /// A request that is not sent yet.
    New,
    /// The request is with its first rank. No frame exists yet.
    First(Rank),
    /// The stack of frames decides.
    Framed,
}

/// A procedure, and its state between two effects.
#[derive(Debug)]
enum Frame {
    Request(whole::Request),
    Whole(whole::Whole),
    Completed(whole::Completed),
    Ranked(ranked::Ranked),
    Follow(ranked::Follow),
    Exactly(ranked::Exactly),
    Fragment(fragments::Fragment),
    AddUp(fragments::AddUp),
    SetTimes(fragments::SetTimes),
    ListAll(fragments::ListAll),
    PartsOf(shape::PartsOf),
    JoinEmpty(shape::JoinEmpty),
    JoinParts(shape::JoinParts),
    BringBack(shape::BringBack),
    PinTree(shape::PinTree),
    SplitDir(shape::SplitDir),
    RenameAcross(cross::RenameAcross),
    Locate(cross::Locate),
    IsRenamed(cross::IsRenamed),
    Together(colocate::Together),
    BringTogether(colocate::BringTogether),
    BringForRename(colocate::BringForRename),
    CheckLink(colocate::CheckLink),
    AtHome(colocate::AtHome),
    Colocate(colocate::Colocate),
}

/// The step of a procedure.
#[derive(Debug)]
enum Step {
    /// Send the frame's request to this rank.
    Send(Rank),
    Ranks,
    Wait(Span),
    Reclaim(Rank, Ino),
    Close(Vec<Rank>),
    /// Run another procedure, which returns to this one.
    Call(Frame),
    /// The same in the name of this client itself.
    CallOwn(Frame),
    /// Run another procedure in the place of this one.
    Become(Frame),
    Return(Got),
}

impl Step {
    fn answer(result: Result<Answer>) -> Self {
        Self::Return(Got::Answer(result))
    }

    fn fail(error: Error) -> Self {
        Self::answer(Err(error))
    }
}

/// What a frame gets back.
#[derive(Debug)]
enum Got {
    Start,
    Answer(Result<Answer>),
    Ranks(Result<Vec<Rank>>),
    Done,
    /// Of [`colocate::Colocate`].
    Colocated(Result<Colocated>),
}

impl Got {
    fn answer(self) -> Result<Answer> {
        if let Self::Answer(result) = self { result } else { Err(out_of_order()) }
    }

    fn ranks(self) -> Result<Vec<Rank>> {
        if let Self::Ranks(result) = self { result } else { Err(out_of_order()) }
    }

    fn colocated(self) -> Result<Colocated> {
        match self {
            Self::Colocated(result) => result,
            Self::Answer(Err(error)) => Err(error),
            Self::Answer(Ok(_)) | Self::Start | Self::Ranks(_) | Self::Done => Err(out_of_order()),
        }
    }
}

#[track_caller]
fn out_of_order() -> Error {
    debug_assert!(false, "the driver gave the result of another effect");
    Error::new(Errno::Io, "router", "the result of another effect")
}

/// The end of an attempt to bring two inodes to one rank.
#[derive(Debug)]
enum Colocated {
    Together,
    /// The directory stays, for this reason.
    Kept(String),
    /// The directory was split since.
    Split(Box<Fragments>),
}

/// The surroundings of a step.
#[derive(Debug)]
struct Context<'a> {
    now: Moment,
    router: &'a mut Router,
    /// The caller's request.
    given: Op<'a>,
}

impl Context<'_> {
    fn place(&self, ino: Ino) -> Rank {
        self.router.place(ino)
    }
}

impl Frame {
    fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match self {
            Self::Request(frame) => frame.step(cx, got),
            Self::Whole(frame) => frame.step(cx, got),
            Self::Completed(frame) => frame.step(cx, got),
            Self::Ranked(frame) => frame.step(cx, got),
            Self::Follow(frame) => frame.step(cx, got),
            Self::Exactly(frame) => frame.step(got),
            Self::Fragment(frame) => frame.step(cx, got),
            Self::AddUp(frame) => frame.step(cx, got),
            Self::SetTimes(frame) => frame.step(got),
            Self::ListAll(frame) => frame.step(cx, got),
            Self::PartsOf(frame) => frame.step(cx, got),
            Self::JoinEmpty(frame) => frame.step(got),
            Self::JoinParts(frame) => frame.step(cx, got),
            Self::BringBack(frame) => frame.step(got),
            Self::PinTree(frame) => frame.step(cx, got),
            Self::SplitDir(frame) => frame.step(cx, got),
            Self::RenameAcross(frame) => frame.step(cx, got),
            Self::Locate(frame) => frame.step(got),
            Self::IsRenamed(frame) => frame.step(cx, got),
            Self::Together(frame) => frame.step(cx, got),
            Self::BringTogether(frame) => frame.step(got),
            Self::BringForRename(frame) => frame.step(cx, &got),
            Self::CheckLink(frame) => frame.step(got),
            Self::AtHome(frame) => frame.step(cx, got),
            Self::Colocate(frame) => frame.step(cx, got),
        }
    }

    /// The request that [`Step::Send`] means.
    fn asked(&self) -> &Asked {
        match self {
            Self::Ranked(frame) => frame.asked(),
            Self::Exactly(frame) => frame.asked(),
            Self::Request(_)
            | Self::Whole(_)
            | Self::Completed(_)
            | Self::Follow(_)
            | Self::Fragment(_)
            | Self::AddUp(_)
            | Self::SetTimes(_)
            | Self::ListAll(_)
            | Self::PartsOf(_)
            | Self::JoinEmpty(_)
            | Self::JoinParts(_)
            | Self::BringBack(_)
            | Self::PinTree(_)
            | Self::SplitDir(_)
            | Self::RenameAcross(_)
            | Self::Locate(_)
            | Self::IsRenamed(_)
            | Self::Together(_)
            | Self::BringTogether(_)
            | Self::BringForRename(_)
            | Self::CheckLink(_)
            | Self::AtHome(_)
            | Self::Colocate(_) => &Asked::AS_GIVEN,
        }
    }
}

impl Route {
    fn of(state: RouteState, frames: Vec<Frame>) -> Self {
        Self { state, frames, own_from: usize::MAX }
    }

    /// A request, for the rank that serves the directory that it names, split or not.
    #[must_use]
    pub fn request() -> Self {
        Self::of(RouteState::New, Vec::new())
    }

    /// The same request, which the driver has sent to a rank because it is direct ([`is_direct`]).
    /// The first input is the answer.
    #[must_use]
    pub fn sent(rank: Rank) -> Self {
        Self::of(RouteState::First(rank), Vec::new())
    }

    /// A request that is followed by a journal in chunks.
    #[must_use]
    pub fn with_chunks() -> Self {
        let ranked = ranked::Ranked::with_chunks(Asked::AS_GIVEN);
        Self::of(RouteState::Framed, vec![Frame::Ranked(ranked)])
    }

    /// Asks for the fragments of a directory: the answer is `Answer::Fragments` if it is split.
    #[must_use]
    pub fn fragments_of(dir: Ino) -> Self {
        Self::of(RouteState::Framed, vec![shape::PartsOf::frame(dir)])
    }

    /// Moves a directory, and the subtrees in it, to a rank.
    #[must_use]
    pub fn pin(dir: Ino, rank: Rank) -> Self {
        Self::of(RouteState::Framed, vec![shape::PinTree::frame(dir, rank)])
    }

    /// Splits a directory, and moves its fragments to these ranks in turn.
    #[must_use]
    pub fn split(dir: Ino, ranks: Vec<Rank>) -> Self {
        Self::of(RouteState::Framed, vec![shape::SplitDir::frame(dir, ranks)])
    }

    /// Joins the fragments of a directory; fragments on other ranks return first.
    #[must_use]
    pub fn join(dir: Ino) -> Self {
        Self::of(RouteState::Framed, vec![shape::JoinParts::frame(dir)])
    }

    /// The next effect, after the result of the last one. `given` is the caller's request, the same
    /// each time; routes of [`Route::pin`], [`Route::split`] and [`Route::join`] have none and do
    /// not look at it.
    pub fn handle<'a>(
        &'a mut self,
        router: &mut Router,
        now: Moment,
        given: &Op<'a>,
        input: RouteInput,
    ) -> RouteEffect<'a> {
        let mut got = match (&self.state, input) {
            (RouteState::New, _) => {
                if let Some(rank) = direct::first(router, given) {
                    self.state = RouteState::First(rank);
                    return RouteEffect::Send { rank, op: *given, own: false, chunks: false };
                }
                self.begin(Frame::Request(whole::Request::new(Asked::of(given))));
                Got::Start
            }
            (RouteState::First(rank), input) => {
                let rank = *rank;
                let result = Got::from(input).answer();
                if is_final(given, router.several, &result) {
                    if let Ok(answer) = &result {
                        router.note_place(given, rank);
                        router.learn(rank, answer);
                    }
                    return RouteEffect::Done(result);
                }
                self.begin_sent(router, now, given, rank);
                Got::Answer(result)
            }
            (RouteState::Framed, input) => Got::from(input),
        };
        loop {
            let depth = self.frames.len();
            let Some(frame) = self.frames.last_mut() else {
                return RouteEffect::Done(got.answer());
            };
            let own = depth > self.own_from;
            match frame.step(&mut Context { now, router: &mut *router, given: *given }, got) {
                Step::Send(rank) => return self.send(rank, given, own),
                Step::Ranks => return RouteEffect::Ranks,
                Step::Wait(span) => return RouteEffect::Wait(span),
                Step::Reclaim(rank, ino) => return RouteEffect::Reclaim { rank, ino },
                Step::Close(ranks) => return RouteEffect::Close(ranks),
                Step::Call(_) | Step::CallOwn(_) if depth >= FRAMES_MAX => {
                    got = Got::Answer(Err(Error::new(Errno::Io, "router", "redirects never end")));
                }
                Step::Call(callee) => got = self.begin(callee),
                Step::CallOwn(callee) => {
                    self.own_from = self.own_from.min(depth);
                    got = self.begin(callee);
                }
                Step::Become(next) => {
                    *frame = next;
                    got = Got::Start;
                }
                Step::Return(returned) => {
                    self.frames.pop();
                    if self.frames.len() <= self.own_from {
                        self.own_from = usize::MAX;
                    }
                    got = returned;
                }
            }
        }
    }

    fn begin(&mut self, frame: Frame) -> Got {
        self.state = RouteState::Framed;
        self.frames.push(frame);
        Got::Start
    }

    /// The frames of a request that is with its first rank.
    fn begin_sent(&mut self, router: &Router, now: Moment, given: &Op<'_>, rank: Rank) {
        let asked = Asked::of(given);
        self.begin(Frame::Request(whole::Request::sent(asked.clone())));
        self.begin(Frame::Whole(whole::Whole::sent(asked.clone())));
        let ranked = ranked::Ranked::sent(asked, rank, (now, router.several));
        self.begin(Frame::Ranked(ranked));
    }

    fn send<'a>(&'a self, rank: Rank, given: &Op<'a>, own: bool) -> RouteEffect<'a> {
        let frame = self.frames.last();
        let op = frame.map_or(*given, |frame| frame.asked().op(*given));
        let chunks = matches!(frame, Some(Frame::Ranked(ranked)) if ranked.has_chunks());
        RouteEffect::Send { rank, op, own, chunks }
    }
}

impl Router {
    /// Notes the rank of the subject of a request.
    fn note_place(&mut self, op: &Op<'_>, rank: Rank) {
        if let Some(ino) = named(op) {
            self.set_place(ino, rank);
        }
    }
}

impl From<RouteInput> for Got {
    fn from(input: RouteInput) -> Self {
        match input {
            RouteInput::Start => Self::Start,
            RouteInput::Answer(result) => Self::Answer(result),
            RouteInput::Ranks(result) => Self::Ranks(result),
            RouteInput::Done => Self::Done,
        }
    }
}

/// Whether a subtree may be between two servers: the same request may succeed in a moment.
fn is_passing(error: &Error) -> bool {
    matches!(error.errno, Errno::Again | Errno::Stale)
}

fn unexpected(answer: &Answer) -> Error {
    Error::new(Errno::Io, "metadata server", format!("unexpected answer: {answer:?}"))
}

#[cfg(test)]
mod tests;
