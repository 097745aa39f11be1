//! The connection to the metadata server: shared by threads, and kept up over restarts of the
//! server.
//!
//! Of the threads that wait for answers, one reads. It passes the answers of other threads on, and
//! when it has its own answer it passes the reading on. So a single thread asks and reads without
//! waking another one. Sending works in the same way: one of the threads with something to send
//! sends for all of them, in the order of request numbers.
//!
//! Invariants: at most one thread reads and at most one sends, and neither holds the lock during
//! that; the thread that finds the connection broken makes a new one ([`connect`]), and the others
//! wait for that.

mod async_ops;
mod awaited;
mod connect;
mod held;
mod listen;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use client::{Attempts, RequestStep, Session, SessionEffects, SessionInput};
use net::{Address, Connection, Sender};
use policy::Mechanism;
use types::{ClientId, Clock, Cred, Errno, Error, Moment, Rank, Result, Span, Tid, Timestamp};
use wire::{Answer, Message, Op};

use crate::observe::Observed;
use crate::strong_log::StrongLogs;
use crate::waiting::Noted;
use crate::{Cluster, ServerNotice, Stage};

use async_ops::AsyncSender;
pub(crate) use listen::LinkNotice;
use listen::Listening;

/// Bytes of news that wait for the next request.
const UNTOLD_BYTES_MAX: usize = 4096;
/// Bytes of a journal in one message.
const CHUNK_BYTES: usize = 1 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Link {
    state: Mutex<State>,
    /// Signals that no thread sends, or that there is a new connection.
    may_send: Condvar,
    /// No thread makes a connection.
    connected: Condvar,
    /// There is something for the listener to do.
    listener: Condvar,
    /// There is something to tell the server.
    async_wakeup: Condvar,
    /// The last user has closed the link.
    closed: AtomicBool,
    /// The rank of the server.
    rank: Rank,
    cluster: Arc<Cluster>,
    logs: Arc<StrongLogs>,
    observed: Observed,
    /// The wait for a connection, readable without the lock.
    away: Noted,
}

/// The state that the threads share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) session: Session,
    /// The effects that the session asks for; its frames are still to be sent.
    effects: SessionEffects,
    /// The threads that wait for an answer, in the order of their requests.
    waiting: BTreeMap<Tid, Waiting>,
    /// The receiving side, unless a thread reads or there is no connection.
    receiver: Option<Box<Connection>>,
    /// The sending side; `None` if there is no connection.
    sender: Option<Sender>,
    /// Counts connections: a thread that finds another number than before drops its work on the old
    /// one.
    generation: u64,
    reading: bool,
    sending: bool,
    /// A thread makes a connection.
    connecting: bool,
    /// Room for frames, kept from one request to the next.
    spare: Vec<u8>,
    address: Option<Address>,
    /// How long a request waits for a server that is away; for ever if that is not said.
    patience: Option<Span>,
    /// Requests made so far.
    pub(crate) requests: u64,
    /// Questions that were answered without one.
    pub(crate) known: u64,
    /// The error of a log that could not be replayed, for the next request.
    refused_log: Option<Error>,
    listening: Listening,
    async_sender: AsyncSender,
}

/// A thread that waits for the answer to its request.
#[derive(Debug)]
struct Waiting {
    thread: Thread,
    /// The time and the name of the request.
    asked: (Moment, &'static str),
    /// A journal follows the request: it is not sent again over another connection.
    chunked: bool,
    answer: Option<Result<Answer>>,
}

impl State {
    fn answer(&mut self, tid: Tid, answer: Result<Answer>) {
        // No thread waits for the end of repeated requests, nor for abandoned ones.
        if let Some(waiting) = self.waiting.get_mut(&tid) {
            waiting.answer = Some(answer);
            waiting.thread.unpark();
        }
    }

    /// Passes a message to the session, and answers to the waiting threads.
    fn take_message(&mut self, message: Message<'_>) {
        self.session.handle(SessionInput::Message(message), &mut self.effects);
        let mut completed = std::mem::take(&mut self.effects.completed);
        for (tid, result) in completed.drain(..) {
            self.answer(tid, result.map_err(Error::from));
        }
        self.effects.completed = completed;
        let recalled = self.effects.recalled.drain(..);
        let notices = &mut self.listening.notices;
        notices.extend(recalled.map(|ino| LinkNotice::Notice(ServerNotice::Recall { ino })));
        let lost = self.effects.locks_lost.drain(..);
        notices.extend(lost.map(|ino| LinkNotice::Notice(ServerNotice::LockLost { ino })));
        let moved = self.effects.moved.drain(..);
        notices.extend(moved.map(|(to, files)| LinkNotice::Moved(to, files)));
    }

    fn has_unanswered(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.answer.is_none())
    }

    /// Wakes a waiting thread to read, if none reads. Returns whether one waits.
    fn hand_reading_on(&self) -> bool {
        if self.reading {
            return false;
        }
        let next = self.waiting.values().find(|waiting| waiting.answer.is_none());
        if let Some(next) = next {
            next.thread.unpark();
        }
        next.is_some()
    }
}

impl Link {
    pub(crate) fn new(
        client: ClientId,
        rank: Rank,
        cluster: Arc<Cluster>,
        observed: Observed,
        logs: Arc<StrongLogs>,
    ) -> Self {
        // Request numbers grow over the processes that act as one client.
        let first_tid = Tid(crate::now().0.unsigned_abs() / 1000);
        let state = State {
            session: Session::new(client, first_tid),
            effects: SessionEffects::default(),
            waiting: BTreeMap::new(),
            receiver: None,
            sender: None,
            generation: 0,
            reading: false,
            sending: false,
            connecting: false,
            spare: Vec::new(),
            address: None,
            patience: Some(Attempts::PATIENCE),
            requests: 0,
            known: 0,
            refused_log: None,
            listening: Listening::default(),
            async_sender: AsyncSender::default(),
        };
        Self {
            state: Mutex::new(state),
            may_send: Condvar::new(),
            connected: Condvar::new(),
            listener: Condvar::new(),
            async_wakeup: Condvar::new(),
            closed: AtomicBool::new(false),
            rank,
            cluster,
            logs,
            observed,
            away: Noted::default(),
        }
    }

    /// A link of the same client to another rank. Logs of strong consistency with local durability
    /// belong to rank 0.
    pub(crate) fn to_rank(&self, rank: Rank) -> Self {
        let state = self.lock();
        let (client, patience) = (state.session.client(), state.patience);
        drop(state);
        let logs = Arc::new(StrongLogs::default());
        let link = Self::new(client, rank, self.cluster.clone(), self.observed.clone(), logs);
        link.lock().patience = patience;
        link
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held cannot have left a half-made request: the session
        // changes before anything is sent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request, followed by a journal in chunks if there are any, and waits for the answer.
    pub(crate) fn request(&self, cred: &Cred, op: Op<'_>, chunks: &[&[u8]]) -> Result<Answer> {
        let mut state = self.lock();
        let begun = crate::moment();
        // Only changes have a time, and asking for it takes as long as a lookup.
        let time = if op.is_mutation() { crate::now() } else { Timestamp::default() };
        let mut clock = Clock { now: begun, time };
        loop {
            let shared = &mut *state;
            match shared.session.begin(cred, &op, begun, clock, &mut shared.effects) {
                RequestStep::Send => return self.request_now(state, cred, op, chunks),
                RequestStep::First(first) => {
                    self.request_now(state, &Cred::root(), first, &[])?;
                    state = self.lock();
                    clock.now = crate::moment();
                }
                RequestStep::Answered(answer) => {
                    shared.known += 1;
                    return answer.map_err(Error::from);
                }
                RequestStep::AnsweredAhead(answer) => {
                    shared.known += 1;
                    if self.answered_async(shared, begun) {
                        drop(self.send(state));
                    }
                    return answer.map_err(Error::from);
                }
            }
        }
    }

    fn request_now<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        cred: &Cred,
        op: Op<'_>,
        chunks: &[&[u8]],
    ) -> Result<Answer> {
        state.requests += 1;
        if state.sender.is_none() {
            let (locked, connected) = self.connect(state, crate::moment());
            connected.map_err(client::unreached)?;
            state = locked;
        }
        let chunked = !chunks.is_empty();
        let (mut state, tid) = self.ask(state, cred, op, chunked);
        if chunked {
            state = self.send_chunks(state, tid, chunks);
        }
        self.wait_for(state, tid, None)
    }

    /// Sends a request over the present connection, whose answer this thread waits for.
    fn ask<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        cred: &Cred,
        op: Op<'_>,
        chunked: bool,
    ) -> (MutexGuard<'a, State>, Tid) {
        let asked = (crate::moment(), op.name());
        let shared = &mut *state;
        shared.session.at(asked.0);
        let tid = shared.session.call(cred, op, &mut shared.effects);
        let waiting = Waiting { thread: std::thread::current(), asked, chunked, answer: None };
        shared.waiting.insert(tid, waiting);
        (self.send(state), tid)
    }

    /// The rank of the server.
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Sends the pending messages to the server.
    pub(crate) fn send_pending(&self) {
        drop(self.send(self.lock()));
    }

    /// Waits for the answer to a request, or until this time.
    fn wait_for<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        until: Option<Instant>,
    ) -> Result<Answer> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                state.session.forget(tid);
                state.waiting.remove(&tid);
                return Err(Error::of(Errno::TimedOut, "the server"));
            }
            let known = state.waiting.get(&tid);
            if known.is_none_or(|known| known.answer.is_some()) {
                let known = state.waiting.remove(&tid);
                if !state.hand_reading_on() && !state.reading {
                    self.wake_listener(&mut state);
                }
                let refused = match &known {
                    Some(known) if !known.chunked => state.refused_log.take(),
                    Some(_) | None => None,
                };
                let answer = known.and_then(|known| known.answer);
                let answer = answer.unwrap_or_else(|| Err(Error::of(Errno::Io, "connection")));
                return refused.map_or(answer, Err);
            }
            if state.reading {
                drop(state);
                match left {
                    Some(left) => std::thread::park_timeout(left),
                    None => std::thread::park(),
                }
                state = self.lock();
            } else {
                state = self.read(state);
            }
        }
    }

    /// Waits for one message, and executes its effects.
    fn read<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(mut receiver) = state.receiver.take() else {
            return self.restore(state, &Error::of(Errno::Io, "connection"));
        };
        state.reading = true;
        drop(state);
        let payload = receiver.receive();
        state = self.lock();
        state.reading = false;
        let message = payload.and_then(|payload| Message::decode(payload).map_err(Error::from));
        match message {
            Ok(message) => {
                state.take_message(message);
                state.receiver = Some(receiver);
                if state.session.lapse_due().is_some() {
                    self.wake_async_sender(&mut state);
                }
                if !state.listening.notices.is_empty() {
                    self.wake_listener(&mut state);
                }
                self.send(state)
            }
            Err(error) => self.restore(state, &error),
        }
    }

    /// Sends all pending frames, unless another thread is sending: that one takes them along.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.sending || state.effects.frames.is_empty() {
            return state;
        }
        let generation = state.generation;
        state.sending = true;
        state = self.send_with(state, &[]).0;
        self.stop_sending(&mut state, generation);
        state
    }

    /// Lets another thread send over this connection, if it is still in use.
    fn stop_sending(&self, state: &mut State, generation: u64) {
        if state.generation == generation {
            state.sending = false;
            self.may_send.notify_one();
        }
    }

    /// Sends all pending frames and then `frame`, as the sending thread. Returns whether it still
    /// is: after an error there is a new connection, or will be.
    fn send_with<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        frame: &[u8],
    ) -> (MutexGuard<'a, State>, bool) {
        let generation = state.generation;
        let mut rest = frame;
        while !(state.effects.frames.is_empty() && rest.is_empty()) {
            let Some(sender) = state.sender.clone() else { return (state, false) };
            let spare = std::mem::take(&mut state.spare);
            let mut frames = std::mem::replace(&mut state.effects.frames, spare);
            drop(state);
            let sent = sender.send(&frames).and_then(|()| sender.send(rest));
            rest = &[];
            frames.clear();
            state = self.lock();
            if state.generation != generation {
                return (state, false);
            }
            state.spare = frames;
            if sent.is_err() {
                // The reading thread gets the error, and makes a new connection.
                sender.shut_down();
                state.effects.frames.clear();
                return (state, false);
            }
        }
        (state, true)
    }

    /// Sends a journal after its request. The frames of other threads go in between.
    fn send_chunks<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        tid: Tid,
        chunks: &[&[u8]],
    ) -> MutexGuard<'a, State> {
        let generation = state.generation;
        while state.sending && state.generation == generation {
            state = self.may_send.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.generation != generation {
            return state;
        }
        state.sending = true;
        let mut frame = Vec::new();
        for (at, bytes) in chunks.iter().flat_map(|chunk| chunk.chunks(CHUNK_BYTES)).enumerate() {
            frame.clear();
            Message::Chunk { tid, bytes }.append_frame(&mut frame);
            if at == 1 {
                drop(state);
                self.observed.note(Mechanism::VolatileApply, Stage::Sending);
                state = self.lock();
            }
            if state.generation != generation {
                return state;
            }
            let (locked, goes_on) = self.send_with(state, &frame);
            state = locked;
            if !goes_on {
                self.stop_sending(&mut state, generation);
                return state;
            }
        }
        self.stop_sending(&mut state, generation);
        drop(state);
        self.observed.note(Mechanism::VolatileApply, Stage::Sent);
        self.lock()
    }
}
