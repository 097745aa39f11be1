//! The route of one request: a stack of procedures that ask for one effect after the other.

use types::{Errno, Error, Ino, Moment, Rank, Result, Span};
use wire::{Answer, Op};

use super::asked::Asked;
use super::direct::{first, is_final};
use super::{Router, fragments, ranked, shape, whole};

/// The greatest depth of procedures that call each other. A directory is split at most ten times,
/// and each level takes three frames.
pub(super) const FRAMES_MAX: usize = 64;

/// The result of the last effect.
#[derive(Debug)]
pub enum RouteInput {
    /// The beginning: there was no effect before.
    Start,
    /// The answer to [`RouteEffect::Send`], or the error of the session.
    Answer(Result<Answer>),
    /// The ranks of the cluster, as the monitor knows them.
    Ranks(Result<Vec<Rank>>),
    /// Whether other sessions had an open state of the file, which the rank has got.
    Reclaimed(bool),
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

/// The route of a request, or of a change of the subtree map that takes several requests.
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
pub(super) enum Frame {
    Request(whole::Request),
    Whole(whole::Whole),
    Completed(whole::Completed),
    Ranked(ranked::Ranked),
    Follow(ranked::Follow),
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
}

/// The step of a procedure.
#[derive(Debug)]
pub(super) enum Step {
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
    pub(super) fn answer(result: Result<Answer>) -> Self {
        Self::Return(Got::Answer(result))
    }

    pub(super) fn fail(error: Error) -> Self {
        Self::answer(Err(error))
    }
}

/// The value that a frame gets back from the frame or the driver that it waited for.
#[derive(Debug)]
pub(super) enum Got {
    Start,
    Answer(Result<Answer>),
    Ranks(Result<Vec<Rank>>),
    Reclaimed(bool),
    Done,
}

impl Got {
    pub(super) fn answer(self) -> Result<Answer> {
        if let Self::Answer(result) = self { result } else { Err(out_of_order()) }
    }

    pub(super) fn ranks(self) -> Result<Vec<Rank>> {
        if let Self::Ranks(result) = self { result } else { Err(out_of_order()) }
    }
}

#[track_caller]
fn out_of_order() -> Error {
    debug_assert!(false, "the driver gave the result of another effect");
    Error::new(Errno::Io, "router", "the result of another effect")
}

/// The surroundings of a step.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Moment,
    pub(super) router: &'a mut Router,
    /// The caller's request.
    pub(super) given: Op<'a>,
}

impl Context<'_> {
    pub(super) fn place(&self, ino: Ino) -> Rank {
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
        }
    }

    /// The request that [`Step::Send`] means.
    fn asked(&self) -> &Asked {
        match self {
            Self::Ranked(frame) => frame.asked(),
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
            | Self::SplitDir(_) => &Asked::AS_GIVEN,
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

    /// The same request, which the driver has sent to a rank because it is direct
    /// ([`super::is_direct`]). The first input is the answer.
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
        self.validate();
        let mut got = match (&self.state, input) {
            (RouteState::New, input) => {
                debug_assert!(matches!(input, RouteInput::Start), "no effect came before");
                if let Some(rank) = first(router, given) {
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

    /// Checks the invariants of a route between two effects.
    fn validate(&self) {
        let depth = self.frames.len();
        assert!(depth <= FRAMES_MAX, "{depth} procedures call each other");
        let is_framed = matches!(self.state, RouteState::Framed);
        assert!(is_framed || depth == 0, "a procedure runs, but the route has not begun");
        let own = self.own_from == usize::MAX || self.own_from < depth;
        assert!(own, "the client acts for itself from depth {} of {depth} on", self.own_from);
    }

    fn begin(&mut self, frame: Frame) -> Got {
        debug_assert!(self.frames.len() < FRAMES_MAX, "the depth of procedures is bounded");
        self.state = RouteState::Framed;
        self.frames.push(frame);
        Got::Start
    }

    /// The frames of a request that is with its first rank.
    fn begin_sent(&mut self, router: &Router, now: Moment, given: &Op<'_>, rank: Rank) {
        assert!(self.frames.is_empty(), "no procedure runs before the first answer");
        let asked = Asked::of(given);
        self.begin(Frame::Request(whole::Request::sent(asked.clone())));
        self.begin(Frame::Whole(whole::Whole::sent(asked.clone())));
        let ranked = ranked::Ranked::sent(asked, rank, now, router.several);
        self.begin(Frame::Ranked(ranked));
    }

    fn send<'a>(&'a self, rank: Rank, given: &Op<'a>, own: bool) -> RouteEffect<'a> {
        let frame = self.frames.last();
        let has_request = matches!(frame, Some(Frame::Ranked(_)));
        debug_assert!(has_request, "only a procedure with a request sends it");
        let op = frame.map_or(*given, |frame| frame.asked().op(*given));
        let chunks = matches!(frame, Some(Frame::Ranked(ranked)) if ranked.has_chunks());
        RouteEffect::Send { rank, op, own, chunks }
    }
}

impl From<RouteInput> for Got {
    fn from(input: RouteInput) -> Self {
        match input {
            RouteInput::Start => Self::Start,
            RouteInput::Answer(result) => Self::Answer(result),
            RouteInput::Ranks(result) => Self::Ranks(result),
            RouteInput::Reclaimed(any) => Self::Reclaimed(any),
            RouteInput::Done => Self::Done,
        }
    }
}

/// Whether a subtree may be between two servers: the same request may succeed in a moment.
pub(super) fn is_passing(error: &Error) -> bool {
    matches!(error.errno, Errno::Again | Errno::Stale)
}

pub(crate) fn unexpected(answer: &Answer) -> Error {
    Error::new(Errno::Io, "metadata server", format!("unexpected answer: {answer:?}"))
}
