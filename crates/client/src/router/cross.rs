//! Renames between directories of different ranks (F-13): the client takes the offer of the one
//! rank to the other.

use std::collections::VecDeque;

use types::{Errno, Error, Ino, Moment, Rank, Result, Seq, Span, name_hash};
use wire::{Answer, Op};

use super::asked::Asked;
use super::colocate::BringForRename;
use super::ranked::{Exactly, Ranked};
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
    /// The inode of an undecided offer.
    undecided: Option<Ino>,
    /// How often one rank had both directories, and rejected the rename all the same.
    together: u32,
    state: CrossState,
}

/// An offer of a rank.
#[derive(Clone, Copy, Debug)]
struct Offer {
    from: Rank,
    cross_rename: u64,
    ino: Ino,
}

#[derive(Debug)]
enum CrossState {
    /// The loop begins: the places of both directories are known.
    Begin,
    /// The request is with the rank that has both.
    Together,
    LocatedTogether,
    Departing,
    Arriving(Offer),
    /// The rank that made the offer decides.
    Deciding(Offer, Result<()>),
    /// Both servers have lost the result: the name shows it.
    Checking(Offer, Error),
    /// The same before the next attempt.
    Rechecking(Ino),
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
            undecided: None,
            together: 0,
            state: CrossState::Begin,
        })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match std::mem::replace(&mut self.state, CrossState::Begin) {
            CrossState::Begin => match got {
                Got::Answer(Err(error)) => self.fail(cx, error),
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
                Err(error) => self.fail(cx, error),
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
            CrossState::Departing => self.departed(cx, got.answer()),
            CrossState::Arriving(offer) => {
                let arrived = match got.answer() {
                    Ok(Answer::Done) => Ok(()),
                    // The directory was split: no rank has taken the offer.
                    Ok(_) => Err(Error::of(Errno::Again, "rename")),
                    Err(error) => Err(error),
                };
                self.state = CrossState::Deciding(offer, arrived);
                // Only the rank that made the offer: another rank may have an offer with the same
                // number.
                let Offer { from, cross_rename, .. } = offer;
                Exactly::call(Asked::Passed { dir: self.dir, cross_rename }, from)
            }
            CrossState::Deciding(offer, arrived) => self.decided(offer, arrived, got.answer()),
            CrossState::Checking(offer, error) => match got.answer() {
                Ok(Answer::Attr(attr)) if attr.ino == offer.ino => Step::answer(Ok(Answer::Done)),
                answer => {
                    self.undecided = answer
                        .is_err_and(|error| error.errno != Errno::NotFound)
                        .then_some(offer.ino);
                    self.wait_or(cx, error)
                }
            },
            CrossState::Rechecking(ino) => match got.answer() {
                Ok(Answer::Attr(attr)) if attr.ino == ino => Step::answer(Ok(Answer::Done)),
                Err(error) if is_passing(&error) => self.wait_or(cx, error),
                _ => {
                    self.undecided = None;
                    self.begin(cx)
                }
            },
            CrossState::Gathering => match got.colocated() {
                Err(error) => Step::fail(error),
                Ok(Colocated::Split(split)) => Step::answer(Ok(Answer::Fragments(split))),
                Ok(Colocated::Together | Colocated::Kept(_)) => self.locate(CrossState::Begin),
            },
            CrossState::Paused => self.locate(CrossState::Begin),
        }
    }

    fn begin(&mut self, cx: &Context<'_>) -> Step {
        if let Some(ino) = self.undecided {
            self.state = CrossState::Rechecking(ino);
            return Ranked::call(Asked::Lookup { dir: self.new_dir, second: true });
        }
        let (from, to) = (cx.place(self.dir), cx.place(self.new_dir));
        if from == to {
            // One rank has both by now.
            self.state = CrossState::Together;
            return Ranked::call(self.asked.clone());
        }
        self.state = CrossState::Departing;
        Ranked::call(Asked::Depart { dir: self.dir, new_dir: self.new_dir, to })
    }

    fn departed(&mut self, cx: &mut Context<'_>, result: Result<Answer>) -> Step {
        match result {
            Ok(Answer::CrossRename(cross_rename, ino)) => {
                // Another rank may have made the offer, if the directory has moved.
                let from = cx.place(self.dir);
                self.state = CrossState::Arriving(Offer { from, cross_rename, ino });
                Ranked::call(Asked::Arrive { dir: self.new_dir, from, cross_rename })
            }
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

    fn decided(&mut self, offer: Offer, arrived: Result<()>, decided: Result<Answer>) -> Step {
        match (arrived, decided) {
            (Ok(()), _) | (_, Ok(_)) => Step::answer(Ok(Answer::Done)),
            (Err(error), _) if !is_passing(&error) => Step::fail(error),
            (Err(error), Err(_)) => {
                self.state = CrossState::Checking(offer, error);
                Ranked::call(Asked::Lookup { dir: self.new_dir, second: true })
            }
        }
    }

    /// Ends with an error. After a walk the caller repeats the rename, which may be executed.
    fn fail(&self, cx: &mut Context<'_>, error: Error) -> Step {
        if let Some(ino) = self.undecided {
            cx.router.undecided.note(&self.asked.op(cx.given), ino, cx.now);
        }
        Step::fail(error)
    }

    fn wait_or(&mut self, cx: &mut Context<'_>, error: Error) -> Step {
        if cx.now.since(self.start) >= WITHIN {
            return self.fail(cx, error);
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

/// The most renames without a known end. Older ones are forgotten.
const UNDECIDED_MAX: usize = 64;

/// Renames between ranks with an unknown end: servers restarted and have not loaded a directory.
/// The caller walks to the directory and repeats the rename.
#[derive(Debug, Default)]
pub(super) struct UndecidedRenames(VecDeque<Undecided>);

#[derive(Debug)]
struct Undecided {
    dirs: (Ino, Ino),
    names: (u32, u32),
    ino: Ino,
    at: Moment,
}

impl UndecidedRenames {
    fn note(&mut self, op: &Op<'_>, ino: Ino, at: Moment) {
        let Some((dirs, names)) = identity(op) else { return };
        if self.0.len() == UNDECIDED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Undecided { dirs, names, ino, at });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that the renames are few, and in the order of time.
    pub(super) fn validate(&self) {
        assert!(self.0.len() <= UNDECIDED_MAX, "the number of undecided renames is bounded");
        assert!(self.0.iter().is_sorted_by_key(|it| it.at), "undecided renames in order");
    }

    /// The inode of an earlier attempt at the same rename.
    pub(super) fn take(&mut self, op: &Op<'_>, now: Moment) -> Option<Ino> {
        if self.0.is_empty() {
            return None;
        }
        self.0.retain(|it| now.since(it.at) < WITHIN);
        let (dirs, names) = identity(op)?;
        let at = self.0.iter().position(|it| (it.dirs, it.names) == (dirs, names))?;
        self.0.remove(at).map(|it| it.ino)
    }
}

fn identity(op: &Op<'_>) -> Option<((Ino, Ino), (u32, u32))> {
    let Op::Rename { parent, name, new_parent, new_name, .. } = *op else { return None };
    Some(((parent, new_parent), (name_hash(name), name_hash(new_name))))
}

/// Whether an earlier attempt executed a rename: the old name is gone, and the new one leads to the
/// inode. The answer is `Answer::Done` then, and `Answer::Safe` if the rename is to be sent.
#[derive(Debug)]
pub(super) struct IsRenamed {
    asked: Asked,
    dirs: (Ino, Ino),
    ino: Ino,
    looks: u32,
}

impl IsRenamed {
    pub(super) fn frame(asked: Asked, dirs: (Ino, Ino), ino: Ino) -> Frame {
        Frame::IsRenamed(Self { asked, dirs, ino, looks: 0 })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        debug_assert!(self.looks <= 2, "the old and the new name are looked at once");
        let send = Ok(Answer::Safe(Seq(0)));
        if self.looks == 0 {
            self.looks = 1;
            return Ranked::call(Asked::Lookup { dir: self.dirs.1, second: true });
        }
        match (got.answer(), self.looks) {
            (Ok(Answer::Attr(attr)), 1) if attr.ino == self.ino => {
                self.looks = 2;
                Ranked::call(Asked::Lookup { dir: self.dirs.0, second: false })
            }
            (Err(error), 2) if error.errno == Errno::NotFound => Step::answer(Ok(Answer::Done)),
            (Err(error), _) if is_passing(&error) => {
                cx.router.undecided.note(&self.asked.op(cx.given), self.ino, cx.now);
                Step::fail(error)
            }
            _ => Step::answer(send),
        }
    }
}
