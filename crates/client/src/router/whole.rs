//! A request of the caller: to the rank or the fragments of its directory, again while the ranks
//! that must execute it together are busy, and with the attributes of split directories completed.

use types::{Errno, Error, Moment, Result, Span};
use wire::Answer;

use super::asked::{Asked, second};
use super::direct::{is_complete, is_whole, may_need_two};
use super::fragments::Fragment;
use super::ranked::Ranked;
use super::{Context, Frame, Got, RETRY, Step, unexpected};

/// The time for attempts while subtrees move or servers start.
const WITHIN: Span = Span::from_millis(20_000);

/// A request, for a directory that may be split.
#[derive(Debug)]
pub(super) struct Request {
    asked: Asked,
}

impl Request {
    pub(super) fn new(asked: Asked) -> Self {
        Self { asked }
    }

    /// A request that is with its first rank.
    pub(super) fn sent(asked: Asked) -> Self {
        Self { asked }
    }

    pub(super) fn call(asked: Asked) -> Step {
        Step::Call(Frame::Request(Self::new(asked)))
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        if matches!(got, Got::Start) {
            if !cx.router.fragments.is_empty() {
                return Step::Become(Fragment::frame(self.asked.clone(), None));
            }
            return Whole::call(self.asked.clone());
        }
        match got.answer() {
            Ok(Answer::Fragments(fragments)) => {
                Step::Become(Fragment::frame(self.asked.clone(), Some(fragments)))
            }
            Ok(answer) => Completed::of(cx, &self.asked, answer),
            Err(error) => Step::fail(error),
        }
    }
}

/// A request, for a directory in one piece or one fragment.
#[derive(Debug)]
pub(super) struct Whole {
    asked: Asked,
    /// Since when the ranks that must execute it together are busy.
    busy_since: Option<Moment>,
    state: WholeState,
}

#[derive(Debug)]
enum WholeState {
    Sent,
    Paused,
    /// The second directory or file is looked for: it may be split since.
    Looked,
}

impl Whole {
    /// A request that is with its first rank.
    pub(super) fn sent(asked: Asked) -> Self {
        Self { asked, busy_since: None, state: WholeState::Sent }
    }

    pub(super) fn call(asked: Asked) -> Step {
        Step::Call(Frame::Whole(Self::sent(asked)))
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match (std::mem::replace(&mut self.state, WholeState::Sent), got) {
            (WholeState::Sent, Got::Start) | (WholeState::Paused, _) => {
                Ranked::call(self.asked.clone())
            }
            (WholeState::Sent, got) => match got.answer() {
                Err(error) if self.is_passing(cx, &error) => {
                    match second(&self.asked.op(cx.given)) {
                        Some(ino) => {
                            self.state = WholeState::Looked;
                            Ranked::call(Asked::GetAttr(ino))
                        }
                        None => self.pause(),
                    }
                }
                result => Step::answer(result),
            },
            (WholeState::Looked, got) => match got.answer() {
                Ok(split @ Answer::Fragments(_)) => Step::answer(Ok(split)),
                Ok(_) => self.pause(),
                // Only a walk loads it.
                Err(unknown) => Step::fail(unknown),
            },
        }
    }

    /// Whether the servers may execute the request together in a moment: a subtree is moving.
    fn is_passing(&mut self, cx: &Context<'_>, error: &Error) -> bool {
        let since = *self.busy_since.get_or_insert(cx.now);
        error.errno == Errno::Again
            && may_need_two(&self.asked.op(cx.given))
            && cx.now.since(since) < WITHIN
    }

    fn pause(&mut self) -> Step {
        self.state = WholeState::Paused;
        Step::Wait(RETRY)
    }
}

/// Replaces the attributes of directories that are split by those of their fragments together.
#[derive(Debug)]
pub(super) struct Completed {
    answer: Answer,
    at: usize,
}

impl Completed {
    /// Ends a request with an answer, completed.
    pub(super) fn of(cx: &Context<'_>, asked: &Asked, answer: Answer) -> Step {
        if !is_complete(&asked.op(cx.given)) {
            return Step::answer(Ok(answer));
        }
        Step::Become(Frame::Completed(Self { answer, at: 0 }))
    }

    pub(super) fn step(&mut self, _: &mut Context<'_>, got: Got) -> Step {
        if let Got::Answer(result) = got
            && let Err(error) = self.complete(result)
        {
            return Step::fail(error);
        }
        while let Some(attr) = self.attr() {
            if !is_whole(attr) {
                let ino = attr.ino;
                return Request::call(Asked::GetAttr(ino));
            }
            self.at += 1;
        }
        Step::answer(Ok(std::mem::replace(&mut self.answer, Answer::Done)))
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "other answers have no attributes")]
    fn attr(&mut self) -> Option<&mut types::Attr> {
        match &mut self.answer {
            Answer::Attr(attr) | Answer::Walked { attr: Some(attr), .. } => {
                (self.at == 0).then_some(attr)
            }
            Answer::Entries { entries, .. } => entries.get_mut(self.at).map(|(_, attr)| attr),
            _ => None,
        }
    }

    fn complete(&mut self, result: Result<Answer>) -> Result<()> {
        debug_assert!(self.attr().is_some(), "attributes in the answer were asked for");
        match result {
            Ok(Answer::Attr(whole)) => {
                if let Some(attr) = self.attr() {
                    *attr = whole;
                }
            }
            // The directory was removed since.
            Err(error) if matches!(error.errno, Errno::Stale | Errno::NotFound) => {}
            Ok(answer) => return Err(unexpected(&answer)),
            Err(error) => return Err(error),
        }
        self.at += 1;
        Ok(())
    }
}
