//! Changes that are on their way to the server, in groups that are sent together.
//!
//! A group is first collected, then sent, then settled (the server's reply has its journal
//! position), and then safe. Until it is safe it is kept, to be sent again: over a new connection
//! if it was not settled, and to a new server in any case.
//!
//! The client registers its open files separately (`held`), so opens and closes are not sent again.

use std::collections::VecDeque;

use types::{Cred, Ino, Seq, Tid};
use wire::{Batch, BatchWriter, ChangeOp, Message, Op, Replay, Request, SessionOp};

/// The length of a held request, about: it is more than nothing.
const HELD_BYTES: usize = 64;

/// Some changes.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Their requests.
    requests: BatchWriter,
    count: usize,
    /// The numbers of the first and the last.
    first: Tid,
    last: Tid,
    /// Where the journal of the server was after the last, if that is known.
    seq: Option<Seq>,
}

impl Group {
    /// The remaining requests of the group.
    fn without(&self, refused: Tid) -> Self {
        let mut others = Self { seq: self.seq, ..Self::default() };
        others.copy(self, |tid| tid != refused);
        others
    }

    /// Adds requests of another group.
    fn copy(&mut self, other: &Self, is_wanted: impl Fn(Tid) -> bool) {
        each(other.requests.batch(), |request| {
            let Request { tid, acked, cred, replay, op, .. } = request;
            if is_wanted(*tid) {
                self.add(*tid, *acked, cred, replay.unwrap_or_default(), op);
            }
        });
    }

    /// One more request.
    fn add(&mut self, tid: Tid, acked: Tid, cred: &Cred, replay: Replay, op: &Op<'_>) {
        if self.count == 0 {
            self.first = tid;
        }
        debug_assert!(self.last <= tid, "{tid} is behind the earlier requests of the group");
        self.last = tid;
        self.count += 1;
        self.requests.push(tid, acked, cred, replay, op);
    }
}

/// A request whose operation is not decided.
#[derive(Debug)]
struct Held {
    tid: Tid,
    acked: Tid,
    cred: Cred,
    replay: Replay,
}

/// All groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    collected: Group,
    /// The next request, and those behind it.
    held: Option<Held>,
    behind: Group,
    /// Sent, with the request that asks how far the server has come.
    sent: VecDeque<(Tid, Group)>,
    /// Settled, and not known to be safe.
    unsafe_groups: VecDeque<Group>,
    /// The sum of their counts.
    count: usize,
}

impl Groups {
    /// Adds a request to those that are collected.
    pub(crate) fn add(&mut self, tid: Tid, acked: Tid, cred: &Cred, replay: Replay, op: &Op<'_>) {
        debug_assert!(op.may_be_async(), "{}: the server would refuse it", op.name());
        let group = if self.is_holding() { &mut self.behind } else { &mut self.collected };
        group.add(tid, acked, cred, replay, op);
        self.count += 1;
    }

    /// Adds a request whose operation is decided later: no group is taken before
    /// [`Groups::release`].
    pub(crate) fn hold(&mut self, tid: Tid, acked: Tid, cred: &Cred, replay: Replay) {
        assert!(!self.is_holding(), "{tid} is held, and no other request");
        self.held = Some(Held { tid, acked, cred: cred.clone(), replay });
        self.count += 1;
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// The operation of the held request.
    pub(crate) fn release(&mut self, op: &Op<'_>) {
        let Some(Held { tid, acked, cred, replay }) = self.held.take() else { return };
        self.collected.add(tid, acked, &cred, replay, op);
        let behind = std::mem::take(&mut self.behind);
        self.collected.copy(&behind, |_| true);
    }

    /// How many bytes are collected.
    pub(crate) fn bytes(&self) -> usize {
        let held = if self.is_holding() { HELD_BYTES } else { 0 };
        self.collected.requests.bytes() + held + self.behind.requests.bytes()
    }

    /// Whether a request is collected, or sent and not settled.
    pub(crate) fn is_any_unacknowledged(&self) -> bool {
        self.collected.count > 0 || self.is_holding() || !self.sent.is_empty()
    }

    /// Changes that are not known to be safe.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes the collected requests out, for sending.
    pub(super) fn take(&mut self, frames: &mut Vec<u8>) -> Option<Group> {
        debug_assert!(!self.is_holding(), "the held request is released before");
        if self.collected.count == 0 {
            return None;
        }
        let group = std::mem::take(&mut self.collected);
        Message::Batch(group.requests.batch()).append_frame(frames);
        Some(group)
    }

    /// It is sent, and this request asks how far the server has come.
    pub(crate) fn sent(&mut self, barrier: Tid, group: Group) {
        self.sent.push_back((barrier, group));
    }

    /// The answer to such a request. Says whether it was one.
    pub(crate) fn acknowledge(&mut self, tid: Tid, done: bool, seq: Seq, safe: Seq) -> bool {
        if !self.sent.iter().any(|(barrier, _)| *barrier == tid) {
            return false;
        }
        if !done {
            // The server is about to stop: all of it is sent to the next one.
            return true;
        }
        while let Some((barrier, group)) = self.sent.pop_front_if(|(barrier, _)| *barrier <= tid) {
            debug_assert!(barrier <= tid, "in order");
            let seq = group.seq.map_or(seq, |before| before.max(seq));
            if seq > safe && group.count > 0 {
                self.unsafe_groups.push_back(Group { seq: Some(seq), ..group });
            } else {
                assert!(self.count >= group.count, "the changes of a group are counted");
                self.count -= group.count;
            }
        }
        true
    }

    /// Everything up to this position is durable.
    pub(crate) fn note_safe(&mut self, safe: Seq) {
        let is_safe = |group: &mut Group| group.seq.is_some_and(|seq| seq <= safe);
        while let Some(group) = self.unsafe_groups.pop_front_if(is_safe) {
            assert!(self.count >= group.count, "the changes of a group are counted");
            self.count -= group.count;
        }
    }

    /// Whether a request is one of those that are on their way.
    pub(crate) fn contains(&self, tid: Tid) -> bool {
        let sent = self.sent.iter().map(|(_, group)| group);
        sent.chain(&self.unsafe_groups).any(|group| (group.first..=group.last).contains(&tid))
    }

    /// The server rejected a request, and its client gets the error: no server may execute the
    /// request later, after other clients have seen the state without it. Returns the inode that
    /// the request is about; 0 for none.
    pub(crate) fn refused(&mut self, tid: Tid) -> Ino {
        let mut about = Ino(0);
        let sent = self.sent.iter_mut().map(|(_, group)| group);
        for group in sent.chain(&mut self.unsafe_groups) {
            if (group.first..=group.last).contains(&tid) {
                self.count -= group.count;
                each(group.requests.batch(), |request| {
                    if request.tid == tid {
                        about = inode(request);
                    }
                });
                *group = group.without(tid);
                self.count += group.count;
            }
        }
        self.unsafe_groups.retain(|group| group.count > 0);
        about
    }

    /// A new connection: appends the requests that must be sent again. With `anew` the server has
    /// restarted; its journal has everything up to `recovered`, its own events included, if that is
    /// known, and all requests of this client up to the one that comes with it. Returns whether
    /// there is any such request; then the caller asks the server for its position again.
    pub(crate) fn again(
        &mut self,
        anew: bool,
        recovered: Option<(Seq, Tid)>,
        frames: &mut Vec<u8>,
    ) -> bool {
        debug_assert!(!self.is_holding(), "the held request is released before");
        let mut groups: Vec<Group> = Vec::new();
        if anew {
            groups.extend(self.unsafe_groups.drain(..));
        }
        groups.extend(self.sent.drain(..).map(|(_, group)| group));
        if self.collected.count > 0 {
            groups.push(std::mem::take(&mut self.collected));
        }
        for group in groups.into_iter().filter(|group| group.count > 0) {
            if let (Some(seq), Some((recovered, completed))) = (group.seq, recovered)
                && seq <= recovered
                && group.last <= completed
            {
                self.count -= group.count;
                continue;
            }
            // Behind all known positions: no client can have seen it yet.
            let seq = group.seq.unwrap_or(Seq(u64::MAX));
            append_again(group.requests.batch(), anew.then_some(seq), frames);
            self.sent.push_back((Tid(0), group));
        }
        !self.sent.is_empty()
    }

    /// This request asks how far the server has come with all that was sent again.
    pub(crate) fn sent_again(&mut self, tid: Tid) {
        self.sent.iter_mut().for_each(|(barrier, _)| *barrier = tid);
    }
}

/// The inode that a request makes or changes; 0 for none.
#[allow(clippy::wildcard_enum_match_arm, reason = "all others are about names")]
fn inode(request: &Request<'_>) -> Ino {
    match request.op {
        Op::Change(
            ChangeOp::SetAttr { ino, .. }
            | ChangeOp::SetData { ino, .. }
            | ChangeOp::SetXattr { ino, .. },
        ) => ino,
        _ => request.replay.unwrap_or_default().ino,
    }
}

/// Shows the requests of a batch that was written here.
fn each(batch: Batch<'_>, mut show: impl FnMut(&Request<'_>)) {
    let mut requests = batch.requests();
    while let Ok(Some(request)) = requests.read() {
        show(request);
    }
}

/// Appends requests as they are sent again.
#[allow(clippy::wildcard_enum_match_arm, reason = "all others are sent as they were")]
fn append_again(batch: Batch<'_>, seq: Option<Seq>, frames: &mut Vec<u8>) {
    let mut again = BatchWriter::default();
    each(batch, |request| {
        let op = match request.op {
            Op::Session(SessionOp::Open { .. } | SessionOp::Close { .. }) => return,
            Op::Change(ChangeOp::Create { parent, name, new }) => Op::Change(ChangeOp::Create {
                parent,
                name,
                new: wire::NewInode { open: false, ..new },
            }),
            op => op,
        };
        let replay = request.replay.unwrap_or_default();
        let replay = Replay { seq: seq.unwrap_or(replay.seq), ..replay };
        again.push(request.tid, request.acked, &request.cred, replay, &op);
    });
    if again.bytes() > 0 {
        Message::Batch(again.batch()).append_frame(frames);
    }
}

mod validate;
