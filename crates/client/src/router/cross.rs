//! Renames between directories of different ranks (F-13): the client names the rank of the new
//! directory, and the two servers do the rest.

use types::{Errno, Error, Ino, Moment, Result, Span};
use wire::Answer;

use super::asked::Asked;
use super::colocate::BringForRename;
use super::ranked::Ranked;
use super::{Colocated, Context, Frame, Got, RETRY, Step, is_passing, unexpected};

/// The time for attempts while subtrees move or servers start.
pub(super) const WITHIN: Span = Span::from_millis(20_000);
/// How often the rank that has both directories may reject a rename before its answer counts.
const TOGETHER_MAX: u32 = 3;

/// Executes a rename that one server rejected, because another server has the other directory.
#[derive(Debug)]
pub(super) struct RenameAcross {
    asked: Asked,
    dir: Ino,
    new_dir: Ino,
    start: Moment,
    /// The error of the first server.
    refused: Error,
    /// One of the two directories moved to the other.
    is_gathered: bool,
    /// How often one rank had both directories, and rejected the rename all the same.
    together: u32,
    state: CrossState,
}

#[derive(Debug)]
enum CrossState {
    /// The loop begins: the places of both directories are known.
    Begin,
    /// The request is with the rank that has both.
    Together,
    LocatedTogether,
    /// The rank of the old directory renames, with the other rank.
    Across,
    Gathering,
    Paused,
}

impl RenameAcross {
    pub(super) fn frame(
        asked: Asked,
        (dir, new_dir): (Ino, Ino),
        start: Moment,
        refused: Error,
    ) -> Frame {
        Frame::RenameAcross(Self {
            asked,
            dir,
            new_dir,
            start,
            refused,
            is_gathered: false,
            together: 0,
            state: CrossState::Begin,
        })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match std::mem::replace(&mut self.state, CrossState::Begin) {
            CrossState::Begin => match got {
                Got::Answer(Err(error)) => Step::fail(error),
                // A directory was split since: the request is for its fragments.
                Got::Answer(Ok(split @ Answer::Fragments(_))) => Step::answer(Ok(split)),
                Got::Answer(Ok(_)) | Got::Start | Got::Ranks(_) | Got::Done | Got::Colocated(_) => {
                    self.begin(cx)
                }
            },
            CrossState::Together => match got.answer() {
                Err(error)
                    if error.errno == Errno::CrossDevice && cx.now.since(self.start) < WITHIN =>
                {
                    self.locate(CrossState::LocatedTogether)
                }
                answer => Step::answer(answer),
            },
            CrossState::LocatedTogether => match got.answer() {
                Err(error) => Step::fail(error),
                Ok(split @ Answer::Fragments(_)) => Step::answer(Ok(split)),
                Ok(_) if cx.place(self.dir) != cx.place(self.new_dir) => self.begin(cx),
                Ok(_) if self.together == TOGETHER_MAX => Step::fail(self.refused.clone()),
                // One directory may have come to the rank of the other one since.
                Ok(_) => {
                    debug_assert!(self.together < TOGETHER_MAX, "the attempts are bounded");
                    self.together += 1;
                    self.state = CrossState::Paused;
                    Step::Wait(RETRY)
                }
            },
            CrossState::Across => self.renamed(cx, got.answer()),
            CrossState::Gathering => match got.colocated() {
                Err(error) => Step::fail(error),
                Ok(Colocated::Split(split)) => Step::answer(Ok(Answer::Fragments(split))),
                Ok(Colocated::Together | Colocated::Kept(_)) => self.locate(CrossState::Begin),
            },
            CrossState::Paused => self.locate(CrossState::Begin),
        }
    }

    fn begin(&mut self, cx: &Context<'_>) -> Step {
        let (from, to) = (cx.place(self.dir), cx.place(self.new_dir));
        if from == to {
            // One rank has both by now.
            self.state = CrossState::Together;
            return Ranked::call(self.asked.clone());
        }
        self.state = CrossState::Across;
        Ranked::call(Asked::RenameTo { dir: self.dir, new_dir: self.new_dir, to })
    }

    fn renamed(&mut self, cx: &Context<'_>, result: Result<Answer>) -> Step {
        match result {
            Ok(Answer::Done) => Step::answer(Ok(Answer::Done)),
            Ok(split @ Answer::Fragments(_)) => Step::answer(Ok(split)),
            Ok(answer) => Step::fail(unexpected(&answer)),
            Err(error) if is_passing(&error) => self.wait_or(cx, error),
            Err(error) if error.errno == Errno::CrossDevice && !self.is_gathered => {
                self.is_gathered = true;
                self.state = CrossState::Gathering;
                let dirs = (self.dir, self.new_dir);
                Step::Call(BringForRename::frame(dirs, self.start, error))
            }
            Err(error) => Step::fail(error),
        }
    }

    fn wait_or(&mut self, cx: &Context<'_>, error: Error) -> Step {
        if cx.now.since(self.start) >= WITHIN {
            return Step::fail(error);
        }
        self.state = CrossState::Paused;
        Step::Wait(RETRY)
    }

    fn locate(&mut self, then: CrossState) -> Step {
        self.state = then;
        Step::Call(Locate::frame([self.dir, self.new_dir]))
    }
}

/// Finds the ranks that serve two directories. The answer is `Answer::Fragments` if one is split.
#[derive(Debug)]
pub(super) struct Locate {
    dirs: [Ino; 2],
    at: usize,
}

impl Locate {
    pub(super) fn frame(dirs: [Ino; 2]) -> Frame {
        Frame::Locate(Self { dirs, at: 0 })
    }

    pub(super) fn step(&mut self, got: Got) -> Step {
        if matches!(got, Got::Answer(Err(_) | Ok(Answer::Fragments(_)))) {
            return Step::Return(got);
        }
        let Some(dir) = self.dirs.get(self.at) else { return Step::answer(Ok(Answer::Done)) };
        self.at += 1;
        Ranked::call(Asked::GetAttr(*dir))
    }
}
