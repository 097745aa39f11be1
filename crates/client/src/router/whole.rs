//! A request of the caller: to the rank or the fragments of its directory, and in the ways that a
//! request takes that one server alone cannot execute.

use types::{Errno, Error, Result};
use wire::{Answer, Op};

use super::asked::Asked;
use super::colocate::{AtHome, Together};
use super::cross::RenameAcross;
use super::direct::{is_complete, is_whole};
use super::fragments::Fragment;
use super::ranked::Ranked;
use super::{Context, Frame, Got, Step, unexpected};

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
    /// Its directory returns to the rank of its name, because the server rejected the request with
    /// `EBUSY`.
    returns: bool,
}

impl Whole {
    /// A request that is with its first rank.
    pub(super) fn sent(asked: Asked) -> Self {
        Self { asked, returns: false }
    }

    pub(super) fn call(asked: Asked) -> Step {
        Step::Call(Frame::Whole(Self::sent(asked)))
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        if matches!(got, Got::Start) {
            debug_assert!(!self.returns, "a request begins once");
            return Ranked::call(self.asked.clone());
        }
        match got.answer() {
            Ok(answer) => Step::answer(Ok(answer)),
            Err(error) => self.across(cx, error),
        }
    }

    /// Executes a request that one server rejected with `refused`, because another server has a
    /// part of it.
    fn across(&mut self, cx: &Context<'_>, refused: Error) -> Step {
        let op = self.asked.op(cx.given);
        match (op, refused.errno) {
            (Op::Link { ino, parent, .. }, Errno::CrossDevice) if !self.returns => {
                Step::Become(Together::for_link(&self.asked, parent, ino, cx.now))
            }
            (Op::Rename { parent, new_parent, flags, .. }, Errno::CrossDevice) => {
                Step::Become(if flags.exchange {
                    Together::for_exchange(&self.asked, parent, new_parent, cx.now)
                } else {
                    let dirs = (parent, new_parent);
                    RenameAcross::frame(self.asked.clone(), dirs, cx.now, refused)
                })
            }
            (Op::Rmdir { parent, .. } | Op::Rename { parent, .. }, Errno::Busy)
                if !self.returns =>
            {
                self.returns = true;
                Step::Call(AtHome::frame(self.asked.clone(), parent, refused))
            }
            _ => Step::fail(refused),
        }
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
