//! Directories that are split by the hashes of their names (B-04): finds the fragment for a
//! request, and joins the answers of all fragments.
//!
//! Callers name the directory only. The client learns its fragments from the answers of servers
//! ([`crate::FragmentMap`]).

use types::{Attr, AttrChange, Errno, Error, Frag, Ino, Result};
use wire::{Answer, ChangeOp, Fragments, Op, ReadOp};

use super::asked::{Asked, dirs};
use super::shape::JoinEmpty;
use super::whole::{Completed, Request, Whole};
use super::{Context, Frame, Got, Step, unexpected};

/// How often one request may find out that its directory was split or joined since.
const TRIES_MAX: u32 = 64;

/// A request for the fragment that has its names.
#[derive(Debug)]
pub(super) struct Fragment {
    asked: Asked,
    /// The same for the fragment.
    aimed: Asked,
    tries: u32,
    told: Option<Box<Fragments>>,
    state: FragmentState,
}

#[derive(Debug, Default)]
enum FragmentState {
    #[default]
    Begin,
    /// An empty directory that the request removes is joined.
    Joining,
    Listing,
    Sent,
    /// The times of all fragments are set.
    Timed(Answer),
}

impl Fragment {
    pub(super) fn frame(asked: Asked, told: Option<Box<Fragments>>) -> Frame {
        let (aimed, state) = (asked.clone(), FragmentState::Begin);
        Frame::Fragment(Self { asked, aimed, tries: 0, told, state })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match (std::mem::take(&mut self.state), got) {
            (FragmentState::Begin, _) => self.turn(cx),
            (FragmentState::Joining, Got::Answer(Ok(_))) => self.turn(cx),
            (FragmentState::Listing, Got::Answer(Ok(answer))) => {
                Completed::of(cx, &self.asked, answer)
            }
            (FragmentState::Sent, Got::Answer(Ok(Answer::Fragments(fragments)))) => {
                debug_assert!(self.told.is_none(), "each redirect is followed");
                self.told = Some(fragments);
                self.turn(cx)
            }
            (FragmentState::Sent, Got::Answer(Ok(answer))) => {
                match SetTimes::for_request(cx, &self.asked) {
                    Some(times) => {
                        self.state = FragmentState::Timed(answer);
                        Step::Call(times)
                    }
                    None => Completed::of(cx, &self.asked, answer),
                }
            }
            (FragmentState::Sent, Got::Answer(Err(error))) => {
                let (dir, new_dir) = dirs(&self.aimed.op(cx.given));
                let parts = dir.into_iter().chain(new_dir);
                // The directory was joined.
                if error.errno == Errno::Stale && forget_parts(cx, parts) {
                    return self.turn(cx);
                }
                Step::fail(error)
            }
            (FragmentState::Timed(answer), Got::Answer(Ok(_))) => {
                Completed::of(cx, &self.asked, answer)
            }
            (_, got) => Step::answer(got.answer()),
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Step {
        while self.tries < TRIES_MAX {
            self.tries += 1;
            self.aimed = self.asked.aimed(&cx.router.fragments, cx.given);
            let op = self.asked.op(cx.given);
            if let Some(fragments) = self.told.take() {
                match self.redirected(cx, fragments) {
                    Some(step) => return step,
                    None => continue,
                }
            }
            if let Op::Read(ReadOp::List { dir, after, limit, attrs }) = op {
                let list = ListAll::frame(dir, after.map(<[u8]>::to_vec), limit, attrs);
                self.state = FragmentState::Listing;
                return Step::Call(list);
            }
            self.state = FragmentState::Sent;
            return Whole::call(self.aimed.clone());
        }
        let cause = "a directory is split and joined all the time";
        Step::fail(Error::new(Errno::Io, self.asked.op(cx.given).name(), cause))
    }

    /// A server said that a directory is split. The next step, unless the request is sent again.
    fn redirected(&mut self, cx: &mut Context<'_>, fragments: Box<Fragments>) -> Option<Step> {
        cx.router.redirected += 1;
        cx.router.note_fragments(&fragments);
        let (dir, op) = (fragments.attr.ino, self.asked.op(cx.given));
        if op == (Op::Read(ReadOp::GetAttr { ino: dir })) {
            return Some(Step::Become(AddUp::frame(&fragments)));
        }
        if matches!(op, Op::Read(ReadOp::Walk { .. })) {
            let below = Asked::Walk(dir, fragments.rest);
            return Some(Step::Become(Self::frame(below, None)));
        }
        let removes = matches!(op, Op::Change(ChangeOp::Rmdir { .. } | ChangeOp::Rename { .. }));
        let (at, new_at) = dirs(&self.aimed.op(cx.given));
        if removes && at != Some(dir) && new_at != Some(dir) {
            self.state = FragmentState::Joining;
            return Some(Step::Call(JoinEmpty::frame(dir)));
        }
        None
    }
}

/// Forgets the fragments of each directory with one of these. Returns whether there were any.
fn forget_parts(cx: &mut Context<'_>, parts: impl IntoIterator<Item = Ino>) -> bool {
    let map = &mut cx.router.fragments;
    let mut any = false;
    for part in parts {
        any |= map.whole_of(part).is_some() && map.forget(part);
    }
    any
}

/// The attributes of a split directory, from its fragments.
#[derive(Debug)]
pub(super) struct AddUp {
    whole: Attr,
    parts: [Ino; Frag::SPLIT_WAYS],
    at: usize,
}

impl AddUp {
    fn frame(fragments: &Fragments) -> Frame {
        let whole = Attr { size: 0, nlink: 2, ..fragments.attr };
        Frame::AddUp(Self { whole, parts: fragments.parts.map(|(part, _)| part), at: 0 })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        match got {
            Got::Answer(Ok(Answer::Attr(attr))) => {
                debug_assert!(self.at < self.parts.len(), "each fragment is asked once");
                self.whole.size += attr.size;
                self.whole.nlink += attr.nlink.saturating_sub(2);
                self.whole.mtime = self.whole.mtime.max(attr.mtime);
                self.whole.ctime = self.whole.ctime.max(attr.ctime);
                self.whole.atime = self.whole.atime.max(attr.atime);
                self.at += 1;
            }
            Got::Answer(Ok(answer)) => return Step::fail(unexpected(&answer)),
            // The directory was joined, or split again, during the request.
            Got::Answer(Err(error)) if error.errno == Errno::Stale => {
                cx.router.fragments.forget(self.whole.ino);
                let whole = Asked::GetAttr(self.whole.ino);
                return Step::Become(Frame::Request(Request::new(whole)));
            }
            Got::Answer(Err(error)) => return Step::fail(error),
            Got::Start | Got::Ranks(_) | Got::Reclaimed(_) | Got::Done => {}
        }
        match self.parts.get(self.at) {
            Some(part) => Request::call(Asked::GetAttr(*part)),
            None => Step::answer(Ok(Answer::Attr(self.whole))),
        }
    }
}

/// Sets the times of all fragments, because the answer is the latest time of any.
#[derive(Debug)]
pub(super) struct SetTimes {
    change: AttrChange,
    parts: [Ino; Frag::SPLIT_WAYS],
    at: usize,
}

impl SetTimes {
    fn for_request(cx: &Context<'_>, asked: &Asked) -> Option<Frame> {
        let Op::Change(ChangeOp::SetAttr { ino, change }) = asked.op(cx.given) else { return None };
        let parts = cx.router.fragments.parts(ino)?;
        if change.mtime.is_none() && change.atime.is_none() {
            return None;
        }
        let (mtime, atime) = (change.mtime, change.atime);
        let change = AttrChange { mtime, atime, ..AttrChange::default() };
        Some(Frame::SetTimes(Self { change, parts, at: 0 }))
    }

    pub(super) fn step(&mut self, got: Got) -> Step {
        if let Got::Answer(Err(error)) = got {
            return Step::fail(error);
        }
        let Some(part) = self.parts.get(self.at) else { return Step::answer(Ok(Answer::Done)) };
        self.at += 1;
        Request::call(Asked::SetAttr(*part, self.change))
    }
}

/// Lists a directory through its fragments, which together are in the order of one directory.
#[derive(Debug)]
pub(super) struct ListAll {
    dir: Ino,
    after: Option<Vec<u8>>,
    limit: u32,
    attrs: bool,
    all: Vec<(Vec<u8>, Attr)>,
    /// The fragment that is to be listed from its start.
    next: Option<Ino>,
    /// The fragment that is listed.
    leaf: Ino,
}

impl ListAll {
    fn frame(dir: Ino, after: Option<Vec<u8>>, limit: u32, attrs: bool) -> Frame {
        let (all, next, leaf) = (Vec::new(), None, dir);
        Frame::ListAll(Self { dir, after, limit, attrs, all, next, leaf })
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_>, got: Got) -> Step {
        let result = match got {
            Got::Answer(result) => result,
            Got::Start | Got::Ranks(_) | Got::Reclaimed(_) | Got::Done => return self.ask(cx),
        };
        match self.take(cx, result) {
            Ok(Some(answer)) => Step::answer(Ok(answer)),
            Ok(None) => self.ask(cx),
            Err(error) => Step::fail(error),
        }
    }

    fn ask(&mut self, cx: &Context<'_>) -> Step {
        let count = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let after = self.after.clone().filter(|_| self.next.is_none());
        let (limit, attrs) = (self.limit.saturating_sub(count), self.attrs);
        let asked = match self.next {
            Some(dir) => Asked::List { dir, after, limit, attrs },
            None => {
                let whole = Asked::List { dir: self.dir, after, limit, attrs };
                whole.aimed(&cx.router.fragments, cx.given)
            }
        };
        if let Asked::List { dir, .. } = asked {
            self.leaf = dir;
        }
        Whole::call(asked)
    }

    /// Takes the answer of a fragment. Returns the whole answer, unless more fragments follow.
    fn take(&mut self, cx: &mut Context<'_>, result: Result<Answer>) -> Result<Option<Answer>> {
        match result {
            Ok(Answer::Entries { entries, more }) => {
                if let Some((last, _)) = entries.last() {
                    self.after = Some(last.clone());
                }
                self.all.extend(entries);
                let following = || cx.router.fragments.leaf_after(self.dir, self.leaf);
                self.next = if more { None } else { following() };
                let done = !more && self.next.is_none();
                if done || self.all.len() >= self.limit as usize {
                    let entries = std::mem::take(&mut self.all);
                    return Ok(Some(Answer::Entries { entries, more: !done }));
                }
            }
            Ok(Answer::Fragments(fragments)) => {
                cx.router.redirected += 1;
                cx.router.note_fragments(&fragments);
                let first = |leaf| cx.router.fragments.leaves(leaf).first().copied();
                self.next = self.next.and_then(first);
            }
            Err(error) if error.errno == Errno::Stale && forget_parts(cx, [self.leaf]) => {
                self.next = None;
            }
            Ok(answer) => return Err(unexpected(&answer)),
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}
