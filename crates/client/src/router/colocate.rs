//! Requests for which one rank must serve two directories: a file gets a name in a directory of
//! another rank, two names are exchanged, or a file is renamed that cannot move alone. All names of
//! a file are on one rank, so one directory moves to the rank of the other (B-02, F-13).

use types::{Errno, Error, Ino, Moment, Rank, Span};
use wire::Answer;

use super::asked::Asked;
use super::cross::{Locate, WITHIN};
use super::ranked::Ranked;
use super::{Colocated, Context, Frame, Got, RETRY, Step, is_passing, unexpected};

/// The time for servers to agree on the rank of an inode.
const AGREE_WITHIN: Span = Span::from_millis(1_000);

/// The reason why a directory that is split stays on its rank.
const SPLIT: &str = "it is split";

/// Brings a directory and a file, or another directory, to one rank, and sends the request there.
#[derive(Debug)]
pub(super) struct Together {
    asked: Asked,
    dir: Ino,
    ino: Ino,
    operation: &'static str,
    start: Moment,
    /// The requests that return the errors that no move mends: none of them is made twice.
    check: Option<LinkCheck>,
    state: TogetherState,
}

#[derive(Clone, Copy, Debug)]
enum LinkCheck {
    Link { ino: Ino, dir: Ino },
    Exchange { dir: Ino, new_dir: Ino },
}

#[derive(Debug)]
enum TogetherState {
    Begin,
    Located,
    Checked,
    Brought,
    Sent { was_together: bool },
    Paused,
}

impl Together {
    /// For a link that one server rejected, because another server has the file.
    pub(super) fn for_link(asked: &Asked, dir: Ino, ino: Ino, start: Moment) -> Frame {
        let check = Some(LinkCheck::Link { ino, dir });
        let (asked, operation, state) = (asked.clone(), "link", TogetherState::Begin);
        Frame::Together(Self { asked, dir, ino, operation, start, check, state })
    }

    /// For an exchange of two names that different ranks have.
    pub(super) fn for_exchange(asked: &Asked, dir: Ino, new_dir: Ino, start: Moment) -> Frame {
        let check = Some(LinkCheck::Exchange { dir, new_dir });
        let (asked, operation, state) = (asked.clone(), "rename", TogetherState::Begin);
        Frame::Together(Self { asked, dir: new_dir, ino: dir, operation, start, check, state })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match std::mem::replace(&mut self.state, TogetherState::Begin) {
            TogetherState::Begin | TogetherState::Paused => {
                self.state = TogetherState::Located;
                Step::Call(Locate::frame([self.dir, self.ino]))
            }
            TogetherState::Located => match got.answer() {
                Err(error) => Step::fail(error),
                // A directory was split since: the request is for its fragments.
                Ok(split @ Answer::Fragments(_)) => Step::answer(Ok(split)),
                Ok(_) => self.located(cx),
            },
            TogetherState::Checked => match got.answer() {
                Err(error) => Step::fail(error),
                Ok(_) => self.bring(cx),
            },
            TogetherState::Brought => match got.colocated() {
                Err(error) => Step::fail(error),
                Ok(Colocated::Split(split)) => Step::answer(Ok(Answer::Fragments(split))),
                Ok(Colocated::Together | Colocated::Kept(_)) => self.send(false),
            },
            TogetherState::Sent { was_together } => match got.answer() {
                // The two may have parted again.
                Err(error)
                    if error.errno == Errno::CrossDevice && cx.now.since(self.start) < WITHIN =>
                {
                    self.state = TogetherState::Paused;
                    let again = was_together && cx.place(self.dir) == cx.place(self.ino);
                    if again { Step::Wait(RETRY) } else { self.step(cx, Got::Done) }
                }
                answer => Step::answer(answer),
            },
        }
    }

    fn located(&mut self, cx: &Context<'_>) -> Step {
        if cx.place(self.dir) == cx.place(self.ino) {
            return self.send(true);
        }
        match self.check.take() {
            Some(check) => {
                self.state = TogetherState::Checked;
                Step::Call(CheckLink::frame(check))
            }
            None => self.bring(cx),
        }
    }

    fn bring(&mut self, cx: &Context<'_>) -> Step {
        self.state = TogetherState::Brought;
        let (dir, other) = ((self.dir, cx.place(self.dir)), (self.ino, cx.place(self.ino)));
        Step::Call(BringTogether::frame(self.operation, dir, other, self.start))
    }

    fn send(&mut self, was_together: bool) -> Step {
        self.state = TogetherState::Sent { was_together };
        Ranked::call(self.asked.clone())
    }
}

/// Checks before a directory moves: nothing moves for a name that cannot be.
#[derive(Debug)]
pub(super) struct CheckLink {
    check: LinkCheck,
    asked: u8,
}

impl CheckLink {
    fn frame(check: LinkCheck) -> Frame {
        Frame::CheckLink(Self { check, asked: 0 })
    }

    pub(super) fn step(&mut self, got: Got) -> Step {
        let before = self.asked;
        debug_assert!(before <= 2, "a check makes two requests");
        self.asked += 1;
        match (self.check, before) {
            (LinkCheck::Link { ino, .. }, 0) => Ranked::call(Asked::GetAttr(ino)),
            (LinkCheck::Link { dir, .. }, 1) => match got.answer() {
                Ok(Answer::Attr(attr)) if attr.is_dir() => {
                    Step::fail(Error::of(Errno::NotPermitted, "link"))
                }
                Ok(_) => Ranked::call(Asked::Lookup { dir, second: false }),
                Err(error) => Step::fail(error),
            },
            (LinkCheck::Link { .. }, _) => match got.answer() {
                Ok(Answer::Attr(_) | Answer::Redirect(_)) => {
                    Step::fail(Error::of(Errno::Exists, "link"))
                }
                Err(error) if error.errno != Errno::NotFound => Step::fail(error),
                // The name is free, or the directory was split: the request returns that.
                Ok(_) | Err(_) => Step::answer(Ok(Answer::Done)),
            },
            (LinkCheck::Exchange { dir, .. }, 0) => {
                Ranked::call(Asked::Lookup { dir, second: false })
            }
            (LinkCheck::Exchange { new_dir: dir, .. }, 1) => match got.answer() {
                Ok(_) => Ranked::call(Asked::Lookup { dir, second: true }),
                Err(error) => Step::fail(error),
            },
            (LinkCheck::Exchange { .. }, _) => Step::answer(got.answer()),
        }
    }
}

/// Brings a directory and a file, or another directory, to one rank: the first moves to the second,
/// or else the second to the first.
#[derive(Debug)]
pub(super) struct BringTogether {
    operation: &'static str,
    first: (Ino, Rank),
    second: (Ino, Rank),
    start: Moment,
    /// The reason why the first one stays.
    why: Option<String>,
    is_asked: bool,
}

impl BringTogether {
    fn frame(
        operation: &'static str,
        first: (Ino, Rank),
        second: (Ino, Rank),
        start: Moment,
    ) -> Frame {
        let (why, is_asked) = (None, false);
        Frame::BringTogether(Self { operation, first, second, start, why, is_asked })
    }

    pub(super) fn step(&mut self, got: Got) -> Step {
        let (first, at) = self.first;
        let (second, other_at) = self.second;
        if !std::mem::replace(&mut self.is_asked, true) {
            return Step::Call(Colocate::frame(first, other_at, Some(self.start)));
        }
        match (got.colocated(), self.why.take()) {
            (Err(error), _) => Step::fail(error),
            (Ok(done @ (Colocated::Together | Colocated::Split(_))), _) => {
                Step::Return(Got::Colocated(Ok(done)))
            }
            (Ok(Colocated::Kept(why)), None) => {
                self.why = Some(why);
                Step::Call(Colocate::frame(second, at, Some(self.start)))
            }
            (Ok(Colocated::Kept(other)), Some(why)) => {
                let cause = format!(
                    "{other_at} serves the file, {at} the directory of the new name; that one does not go there: {why}; \
                     nor does the directory of the file: {other}"
                );
                let error = Error::new(Errno::CrossDevice, self.operation, cause);
                let remedy = "`cudele mds pin` brings both to one server, or copy the file";
                Step::fail(error.remedy(remedy))
            }
        }
    }
}

/// Brings the directory of a file and the directory of its new name to one rank, because the file
/// cannot move alone: it has, or had, several names, or a client has it open.
#[derive(Debug)]
pub(super) struct BringForRename {
    dir: Ino,
    new_dir: Ino,
    start: Moment,
    refused: Error,
}

impl BringForRename {
    pub(super) fn frame((dir, new_dir): (Ino, Ino), start: Moment, refused: Error) -> Frame {
        Frame::BringForRename(Self { dir, new_dir, start, refused })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: &Got) -> Step {
        match got {
            Got::Answer(Ok(Answer::Attr(file))) if !file.is_dir() => {
                let (at, file_at) = (cx.place(self.new_dir), cx.place(self.dir));
                let (to, file) = ((self.new_dir, at), (self.dir, file_at));
                Step::Become(BringTogether::frame("rename", to, file, self.start))
            }
            Got::Answer(Ok(Answer::Fragments(split))) => {
                Step::Return(Got::Colocated(Ok(Colocated::Split(split.clone()))))
            }
            Got::Answer(_) => Step::fail(self.refused.clone()),
            Got::Start | Got::Ranks(_) | Got::Done | Got::Colocated(_) => {
                Ranked::call(Asked::Lookup { dir: self.dir, second: false })
            }
        }
    }
}

/// Removes or renames a directory that another rank serves than the rank of its name. No user has
/// pinned it there, so it returns: a client that linked a file into it must not leave a directory
/// that stays for ever.
#[derive(Debug)]
pub(super) struct AtHome {
    asked: Asked,
    parent: Ino,
    refused: Error,
    /// Another rank served the directory than the rank of its name.
    was_away: bool,
    state: HomeState,
}

#[derive(Debug)]
enum HomeState {
    Begin,
    Looked,
    Moved,
    /// Since when the request is repeated.
    Sent(Moment),
    Paused(Moment),
}

impl AtHome {
    pub(super) fn frame(asked: Asked, parent: Ino, refused: Error) -> Frame {
        debug_assert!(refused.errno == Errno::Busy, "another rank serves the directory");
        let (was_away, state) = (false, HomeState::Begin);
        Frame::AtHome(Self { asked, parent, refused, was_away, state })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match self.state {
            HomeState::Begin => {
                self.state = HomeState::Looked;
                Ranked::call(Asked::Lookup { dir: self.parent, second: false })
            }
            HomeState::Looked => match got.answer() {
                Ok(Answer::Attr(dir)) if dir.is_dir() => {
                    self.state = HomeState::Moved;
                    self.was_away = cx.place(dir.ino) != cx.place(self.parent);
                    // The known rank may be that of its name: then the answer comes at once.
                    Step::Call(Colocate::frame(dir.ino, cx.place(self.parent), None))
                }
                _ => Step::fail(self.refused.clone()),
            },
            HomeState::Moved => match got.colocated() {
                Err(error) => Step::fail(error),
                Ok(Colocated::Together) => self.send(cx.now),
                Ok(stays) => {
                    let why = if let Colocated::Kept(why) = stays { why } else { SPLIT.into() };
                    let refused = self.refused.clone();
                    let cause = format!("{}; it does not come by itself: {why}", refused.cause);
                    Step::fail(Error { cause, ..refused })
                }
            },
            HomeState::Sent(start) => match got.answer() {
                // The rank of the name may not know yet that the directory has arrived.
                Err(error)
                    if error.errno == Errno::Busy
                        && self.was_away
                        && cx.now.since(start) < AGREE_WITHIN =>
                {
                    self.state = HomeState::Paused(start);
                    Step::Wait(RETRY)
                }
                result => Step::answer(result),
            },
            HomeState::Paused(start) => self.send(start),
        }
    }

    fn send(&mut self, start: Moment) -> Step {
        self.state = HomeState::Sent(start);
        Ranked::call(self.asked.clone())
    }
}

/// Moves a directory, or the directory of a file's name, to another rank. Returns the reason if
/// that is rejected.
#[derive(Debug)]
pub(super) struct Colocate {
    ino: Ino,
    rank: Rank,
    start: Option<Moment>,
    is_sent: bool,
}

impl Colocate {
    /// Attempts count from `start`, or from the first one.
    fn frame(ino: Ino, rank: Rank, start: Option<Moment>) -> Frame {
        Frame::Colocate(Self { ino, rank, start, is_sent: false })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        let start = *self.start.get_or_insert(cx.now);
        if !std::mem::replace(&mut self.is_sent, true) {
            return Ranked::call(Asked::Gather(self.ino, self.rank));
        }
        let ended = |how| Step::Return(Got::Colocated(Ok(how)));
        match got.answer() {
            Ok(Answer::Done) => {
                cx.router.set_place(self.ino, self.rank);
                ended(Colocated::Together)
            }
            Ok(Answer::Fragments(fragments)) => ended(Colocated::Split(fragments)),
            Ok(answer) => Step::Return(Got::Colocated(Err(unexpected(&answer)))),
            Err(error) if is_passing(&error) && cx.now.since(start) < within(&error) => {
                self.is_sent = false;
                Step::Wait(RETRY)
            }
            Err(error) if is_refusal(&error) || error.errno == Errno::Again => {
                ended(Colocated::Kept(error.cause))
            }
            Err(error) => Step::Return(Got::Colocated(Err(error))),
        }
    }
}

/// The time for further attempts. An inode that no server knows is gone, unless it is between two
/// servers.
fn within(error: &Error) -> Span {
    if error.errno == Errno::Stale { AGREE_WITHIN } else { WITHIN }
}

/// Whether a server rejected a move, and would again.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.errno,
        Errno::Busy | Errno::Access | Errno::NotPermitted | Errno::NoSpace | Errno::CrossDevice
    )
}
