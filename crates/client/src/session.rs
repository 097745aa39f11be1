//! A session with a metadata server.
//!
//! A change is answered twice in effect: its reply means *applied*, and the `safe` position of a
//! later reply means that the journal holds it. In between the session keeps the request with its
//! reply (position, inode, time). If a restarted server has no such request in its journal, the
//! session sends it again with these values, and it has the same effect as the first time.
//!
//! The server knows the client's open files and locks in its memory only, while the connection
//! lasts. The client registers them again with every connection, before any other request.
//!
//! Invariant: a request is in exactly one of three places: unanswered (perhaps set aside), unsafe,
//! or done.

mod again;
mod async_ops;
mod begin;
mod lending;
mod lost;
mod mark;
mod notify;
mod validate;

use std::collections::{BTreeMap, VecDeque};

use types::{ClientId, Cred, Epoch, Ino, Map, Moment, Rank, Seq, Stripe, Tid};
use wire::{
    Answer, Failure, Hello, JobOp, Message, Op, Replay, Reply, Request, SessionOp, Welcome,
};

pub use async_ops::LocalAnswer;
pub use begin::{AsyncDue, RequestStep};

use crate::cache::Cache;
use crate::exclusive::ExclusiveDirs;
use crate::held::Held;
use crate::leases::Leases;
use crate::lent::Lent;
use again::{append_with_replay, grow_frame};
use lost::Lost;
use mark::{Mark, mark};
use notify::Report;

/// More unsafe requests than this are not held: the caller must wait for the journal first.
const UNSAFE_MAX: usize = 32_768;

/// An input of a session.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum SessionInput<'a> {
    /// A connection to the server is up.
    Connected,
    /// The connection is gone.
    Disconnected,
    /// A message arrived.
    Message(Message<'a>),
}

/// The effects that a session wants executed.
#[derive(Debug, Default)]
pub struct SessionEffects {
    /// Frames to send.
    pub frames: Vec<u8>,
    /// Requests that are answered.
    pub completed: Vec<(Tid, Result<Answer, Failure>)>,
    /// The server restarted since the last connection.
    pub restarted: bool,
    /// Files that the server recalls, and subtrees for whose merge another client waits.
    pub recalled: Vec<Ino>,
    /// The server has processed the asynchronous requests up to the last report: see
    /// [`Session::send_async`].
    pub async_acknowledged: bool,
    /// Open or locked files that another rank serves now: they go to the session with that rank
    /// ([`Session::take_out`]).
    pub moved: Vec<(Rank, Vec<Ino>)>,
    /// Files on which a lock is lost: another client took it while the connection was down.
    pub locks_lost: Vec<Ino>,
}

/// A request without an answer.
#[derive(Debug)]
struct Unanswered {
    tid: Tid,
    asked: Moment,
    frame: Vec<u8>,
}

/// A change that is applied but not known to be safe.
#[derive(Debug)]
struct Unsafe {
    tid: Tid,
    replay: Replay,
    frame: Vec<u8>,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Session {
    client: ClientId,
    epoch: Epoch,
    connected: bool,
    /// The client has announced that it sends something again over this connection, so the server
    /// waits for the end of it.
    announced: bool,
    next_tid: u64,
    /// Requests without an answer, in order.
    unanswered: VecDeque<Unanswered>,
    /// Older ones that are not sent before the caller has made requests of its own.
    aside: VecDeque<Unanswered>,
    /// The time of the newest request that was answered.
    heard: Option<Moment>,
    /// The time at which the oldest unsettled change was sent without a request.
    async_sent: Option<Moment>,
    /// The newest term of the server that ended without being stopped.
    crashed: Epoch,
    /// The server does not hear this client any more.
    fenced: bool,
    unsafe_requests: VecDeque<Unsafe>,
    /// Unsafe requests that were sent again and are not answered yet.
    resent: Map<Tid, Unsafe>,
    /// The client's open files and locks.
    held: Held,
    marks: Map<Tid, Mark>,
    /// Reports of open files and locks that are not confirmed.
    reports: BTreeMap<Tid, Report>,
    has_rejected: bool,
    /// The cache, if the caller processes revocations.
    cache: Option<Cache>,
    /// The same of directories under leases.
    leases: Leases,
    /// The part of the caches that a kernel may use, if the caller passes answers on to one.
    lent: Option<Box<Lent>>,
    /// Directories that it has alone, if it wants any.
    exclusive: Option<Box<ExclusiveDirs>>,
    /// Those it had when the connection broke.
    had_exclusive: Vec<Ino>,
    safe: Seq,
    lost: Lost,
}

impl Session {
    /// A session of a client that starts its request numbers at `first_tid`, which must be larger
    /// than any it used before.
    #[must_use]
    pub fn new(client: ClientId, first_tid: Tid) -> Self {
        Self {
            client,
            epoch: Epoch(0),
            connected: false,
            announced: false,
            next_tid: first_tid.0,
            unanswered: VecDeque::new(),
            aside: VecDeque::new(),
            heard: None,
            async_sent: None,
            crashed: Epoch(0),
            fenced: false,
            unsafe_requests: VecDeque::new(),
            resent: Map::default(),
            held: Held::default(),
            marks: Map::default(),
            reports: BTreeMap::new(),
            has_rejected: false,
            cache: None,
            leases: Leases::default(),
            lent: None,
            exclusive: None,
            had_exclusive: Vec::new(),
            safe: Seq(0),
            lost: Lost::default(),
        }
    }

    /// Who this is.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.client
    }

    /// The server's term; 0 before the first connection.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many changes are applied but not known to be safe.
    #[must_use]
    pub fn unsafe_count(&self) -> usize {
        let async_count = self.exclusive.as_ref().map_or(0, |exclusive| exclusive.groups.count());
        self.unsafe_requests.len() + self.resent.len() + async_count
    }

    /// How many changes were sent again after a restart and are not answered yet.
    #[must_use]
    pub fn resent_count(&self) -> usize {
        self.resent.len()
    }

    /// Whether the next change must wait until the journal caught up (`SessionOp::Sync`).
    #[must_use]
    pub fn must_sync(&self) -> bool {
        self.unsafe_count() >= UNSAFE_MAX
    }

    /// From now on the session caches replies that may be cached. The caller must process the
    /// server's messages even without a request of its own: other clients wait for that.
    pub fn remember(&mut self) {
        self.cache.get_or_insert_default();
    }

    /// The present time, by a clock that never goes back: leases count from the last call before
    /// their request. A caller that calls too rarely caches for too short a time, never for too
    /// long.
    pub fn at(&mut self, now: Moment) {
        self.leases.at(now);
    }

    /// Whether the caller should list a directory (`List`, from the start to the end): then the
    /// cache knows the names that do not exist.
    pub fn is_worth_listing(&mut self, dir: Ino) -> bool {
        self.cache.as_mut().is_some_and(|cache| cache.is_worth_listing(dir))
    }

    /// Makes a request. Its frame is sent now, or as soon as the session is connected.
    pub fn call(&mut self, cred: &Cred, op: Op<'_>, effects: &mut SessionEffects) -> Tid {
        self.send_async(effects);
        self.call_at_once(cred, op, effects)
    }

    fn call_at_once(&mut self, cred: &Cred, op: Op<'_>, effects: &mut SessionEffects) -> Tid {
        let tid = Tid(self.next_tid);
        debug_assert!(self.unanswered.back().is_none_or(|last| last.tid < tid), "in order");
        self.next_tid += 1;
        if let Some(mark) = mark(&op) {
            if let Mark::Open { ino, write } = mark {
                self.held.opened(ino, write, tid);
            }
            self.marks.insert(tid, mark);
        }
        if let Some(cache) = &mut self.cache {
            cache.ask(tid, &op);
            self.leases.ask(tid, &op);
        }
        if let (Some(exclusive), Op::Job(JobOp::Extend { subtree: Ino(0), count })) =
            (&mut self.exclusive, op)
        {
            exclusive.numbers.asks(tid, count);
        }
        let start = effects.frames.len();
        let (acked, remembers, wants_exclusive) =
            (self.acked(tid), self.cache.is_some(), self.wants_exclusive(&op));
        let request = Request::new(tid, acked, cred.clone(), op);
        let request = Request { remembers, wants_exclusive, ..request };
        Message::Request(request).append_frame(&mut effects.frames);
        let (asked, frame) = (self.leases.now(), effects.frames[start..].to_vec());
        self.unanswered.push_back(Unanswered { tid, asked, frame });
        if !self.connected {
            effects.frames.truncate(start);
        }
        tid
    }

    /// Every request up to this one has its answer, or no caller waits for it; `next` is not made
    /// yet.
    fn acked(&self, next: Tid) -> Tid {
        let waiting = [&self.unanswered, &self.aside];
        let oldest = waiting.iter().filter_map(|it| it.front()).map(|request| request.tid).min();
        Tid(oldest.unwrap_or(next).0 - 1)
    }

    /// Closes an open file. The server is notified of the last close of its kind; the caller need
    /// not wait for the answer. Returns whether another client waits for the notification.
    pub fn close(&mut self, ino: Ino, write: bool, effects: &mut SessionEffects) -> bool {
        let closed = self.held.closed(ino, write);
        if closed.last
            && !closed.awaited
            && self.queue_after_async(Op::Session(SessionOp::Close { ino, write }))
        {
            return false;
        }
        if closed.last {
            self.call(&Cred::root(), Op::Session(SessionOp::Close { ino, write }), effects);
        }
        closed.last && closed.awaited
    }

    /// Whether a file that is open is shared with other clients, as far as answers have arrived.
    #[must_use]
    pub fn is_shared(&self, ino: Ino) -> bool {
        self.held.is_shared(ino)
    }

    /// From now on a decoupled subtree is merged on demand, or is no longer.
    pub fn offer(&mut self, root: Ino, offered: bool) {
        self.held.offer(root, offered);
    }

    /// Whether another client waits for the merge of a subtree.
    #[must_use]
    pub fn has_merge_request(&self, root: Ino) -> bool {
        self.held.has_merge_request(root)
    }

    /// A subtree is about to be merged. Returns whether another client waits for it.
    pub fn take_merge_request(&mut self, root: Ino) -> bool {
        self.held.take_merge_request(root)
    }

    /// Whether a file that is open was recalled and has not been given up.
    #[must_use]
    pub fn is_recalled(&self, ino: Ino) -> bool {
        self.held.is_recalled(ino)
    }

    /// Whether the server has welcomed the client: requests are sent at once.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The one entry point for input.
    pub fn handle(&mut self, input: SessionInput<'_>, effects: &mut SessionEffects) {
        match input {
            SessionInput::Connected => {
                // A change that was answered may depend on a request that was not.
                let unsafe_requests = self.unsafe_count() as u64
                    + u64::from(!self.held.is_empty())
                    + self.unanswered.len() as u64;
                self.announced = unsafe_requests > 0;
                let hello = Hello { client: self.client, epoch: self.epoch, unsafe_requests };
                Message::Hello(hello).append_frame(&mut effects.frames);
            }
            SessionInput::Disconnected => {
                self.connected = false;
                self.leases.clear();
                self.cache.iter_mut().for_each(Cache::clear);
                self.lose_exclusive();
                self.disconnect_lent();
            }
            SessionInput::Message(Message::Welcome(welcome)) => self.welcome(&welcome, effects),
            SessionInput::Message(Message::Reply(reply)) => self.reply(reply, effects),
            SessionInput::Message(Message::Recall { ino }) => {
                if self.held.recall(ino, self.is_creating()) {
                    effects.recalled.push(ino);
                }
            }
            SessionInput::Message(Message::Revoke { dir }) => self.revoked(dir, effects),
            SessionInput::Message(Message::Moved { to, files }) => effects.moved.push((to, files)),
            SessionInput::Message(
                Message::Hello(_)
                | Message::Request(_)
                | Message::Batch(_)
                | Message::Peer(_)
                | Message::Heartbeat(_)
                | Message::Balanced(_)
                | Message::Chunk { .. }
                | Message::MonRequest { .. }
                | Message::MonReply { .. }
                | Message::Trace { .. }
                | Message::Traced(_)
                | Message::Beacon(_)
                | Message::Map(_)
                | Message::Stop,
            ) => {}
        }
    }

    /// Drops a directory's capability, and reports that behind all changes in the directory.
    fn revoked(&mut self, dir: Ino, effects: &mut SessionEffects) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.forget(dir);
        }
        self.cache.iter_mut().for_each(|cache| cache.forget(dir));
        self.give_back(dir, true, effects);
    }

    fn welcome(&mut self, welcome: &Welcome, effects: &mut SessionEffects) {
        self.crashed = welcome.crashed;
        self.fenced |= welcome.fenced;
        if welcome.fenced {
            return;
        }
        let before = std::mem::replace(&mut self.epoch, welcome.epoch);
        let restarted = before != Epoch(0) && before != welcome.epoch;
        effects.restarted |= restarted;
        self.connected = true;
        self.leases.clear();
        self.cache.iter_mut().for_each(Cache::clear);
        self.lose_exclusive();
        let next = welcome.epoch.0 == before.0 + 1;
        if restarted {
            self.safe = welcome.safe;
            // Changes in the recovered journal are safe now. Only the term that assigned the
            // positions has a journal in which they mean this.
            for request in std::mem::take(&mut self.unsafe_requests) {
                let Unsafe { tid, replay, .. } = request;
                if !(next && tid <= welcome.completed && replay.seq <= welcome.safe) {
                    let before = self.resent.insert(tid, request);
                    assert!(before.is_none(), "{tid} is resent once");
                }
            }
        } else {
            self.note_safe(welcome.safe);
        }
        // Also those that were sent again before, over a connection that broke.
        let mut again: Vec<_> = self.resent.values().collect();
        again.sort_by_key(|request| request.tid);
        for request in again {
            append_with_replay(request, &mut effects.frames);
        }
        let has_async = self.send_async_again(
            restarted,
            next.then_some((welcome.safe, welcome.completed)),
            effects,
        );
        let returns = self.announced && before != Epoch(0);
        if returns {
            self.notify_held(effects);
        }
        for request in &self.unanswered {
            effects.frames.extend_from_slice(&request.frame);
        }
        if returns {
            self.end_of_resent(effects);
        }
        self.end_of_async(has_async, restarted, effects);
    }

    fn reply(&mut self, mut reply: Reply, effects: &mut SessionEffects) {
        let elsewhere = mark::take_elsewhere(&mut reply);
        self.leases.note_reply(&reply);
        // A lease is no capability.
        reply.grants = reply.grants.filter(|grants| grants.lease.is_none());
        self.reply_about_exclusive(&mut reply, effects);
        if let Some(cache) = &mut self.cache {
            cache.note_reply(&reply);
            for dir in cache.shrink() {
                self.give_back(dir, false, effects);
            }
        }
        let Reply { tid, seq, time, safe, result, .. } = reply;
        if let Some(request) = self.resent.remove(&tid) {
            match result {
                Ok(_) => {
                    let replay = Replay { seq, ..request.replay };
                    self.hold(Unsafe { replay, ..request }, safe);
                }
                Err(failure) => self.lost.add(request.replay.ino, failure),
            }
            return self.note_safe(safe);
        }
        if let Some(report) = self.reports.remove(&tid) {
            self.report_answered(report, result.is_err(), effects);
            return self.note_safe(safe);
        }
        let Some(at) = self.unanswered.iter().position(|request| request.tid == tid) else {
            self.note_safe(safe);
            return self.reply_to_async(tid, result, effects);
        };
        let Some(Unanswered { asked, mut frame, .. }) = self.unanswered.remove(at) else { return };
        self.heard = self.heard.max(Some(asked));
        let mark = self.marks.remove(&tid);
        let changed = time.0 != 0;
        if changed && seq.0 != 0 && result.is_ok() {
            let mut stripe = Stripe::default();
            let ino = match (&result, mark) {
                (Ok(Answer::Attr(attr)), None | Some(Mark::Create)) => {
                    stripe = attr.stripe;
                    attr.ino
                }
                (Ok(Answer::Attr(attr)), Some(_)) => {
                    // The second append must not begin at an end of file that another client moved.
                    frame = grow_frame(&frame, attr.size).unwrap_or(frame);
                    Ino(0)
                }
                (Ok(_) | Err(_), _) => Ino(0),
            };
            self.hold(Unsafe { tid, replay: Replay { seq, ino, time, stripe }, frame }, safe);
        }
        self.note_safe(safe);
        if let Some(mark) = mark {
            self.take_mark(tid, mark, &result, effects);
        }
        effects.completed.push((tid, elsewhere.unwrap_or(result)));
    }

    fn note_safe(&mut self, safe: Seq) {
        self.safe = self.safe.max(safe);
        // Positions grow with request numbers, except for repeated requests: a request behind one
        // of those waits a little longer, which is harmless.
        while self.unsafe_requests.front().is_some_and(|request| request.replay.seq <= self.safe) {
            self.unsafe_requests.pop_front();
        }
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.groups.note_safe(self.safe);
        }
    }
}

#[cfg(test)]
mod tests;
