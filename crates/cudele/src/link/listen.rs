//! Hearing the server when nothing was asked.
//!
//! A thread that waits for an answer also receives notices of the server. When no thread has asked
//! for a moment, the listener reads. It blocks there, so an idle client costs nothing; when a
//! thread asks again, the listener leaves the reading to it, so a busy client is not slowed down.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::{Cred, Errno, Error, Ino, Rank};
use wire::{Op, SessionOp};

use super::{Link, State};
use crate::ServerNotice;

/// The time without a request after which the listener reads.
const IDLE: Duration = Duration::from_millis(1);
/// How long a client that ends waits for the server.
const LEAVING: Duration = Duration::from_secs(5);
/// How long to wait before the server is looked for again that was away for long.
const AWAY: Duration = Duration::from_secs(1);

/// A notice of the server.
#[derive(Debug)]
pub(crate) enum LinkNotice {
    Notice(ServerNotice),
    /// Files that are open here are served by another rank.
    Moved(Rank, Vec<Ino>),
}

/// The state that the listener shares with asking threads.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// Notices that the listener has not passed on.
    pub(super) notices: std::collections::VecDeque<LinkNotice>,
    /// There is a listener.
    pub(super) present: bool,
    /// The listener sleeps until there is a notice, or no thread reads.
    pub(super) asleep: bool,
}

impl Link {
    /// Passes notices to `handle`, until the link is closed or the client fenced.
    pub(crate) fn listen(&self, mut handle: impl FnMut(LinkNotice)) {
        let mut state = self.lock();
        let mut asked = state.requests;
        while !self.closed.load(Ordering::Acquire) && !state.session.is_fenced() {
            if let Some(notice) = state.listening.notices.pop_front() {
                drop(state);
                handle(notice);
                state = self.lock();
            } else if std::mem::replace(&mut asked, state.requests) != state.requests {
                state = wait(&self.listener, state, IDLE);
            } else if state.reading {
                // A thread waits for long: it reads, and wakes the listener when it stops.
                state.listening.asleep = true;
                state = self.listener.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                state = self.read(state);
                state.hand_reading_on();
                if state.sender.is_none() {
                    state = wait(&self.listener, state, AWAY);
                }
            }
        }
        state.listening.present = false;
    }

    /// Whether this is the first listener.
    pub(crate) fn begin_listening(&self) -> bool {
        let mut state = self.lock();
        // A client that receives recalls may cache answers.
        state.session.remember();
        !std::mem::replace(&mut state.listening.present, true)
    }

    /// Something for the listener, if it sleeps.
    pub(super) fn wake_listener(&self, state: &mut State) {
        if std::mem::take(&mut state.listening.asleep) {
            self.listener.notify_one();
        }
    }

    /// Ends the connection and the listener, unless that was done.
    pub(crate) fn close(&self) {
        if self.check_open().is_err() {
            return;
        }
        self.drain_at_end();
        self.closed.store(true, Ordering::Release);
        let mut state = self.lock();
        // Otherwise the next change of an entry in the cache here would wait for this client.
        let leaving = &mut *state;
        let has_returned = leaving.session.leave(&mut leaving.effects);
        state = self.send(state);
        if has_returned {
            state = self.await_reading(state);
        }
        if let Some(sender) = &state.sender {
            sender.shut_down();
        }
        state.listening.asleep = false;
        self.listener.notify_all();
        self.stop_async_sender();
    }

    /// Waits until the server has read what was sent. It reads nothing more of a connection over
    /// which it cannot answer: directories whose return it has not read would stay this client's
    /// until the client counts as dead. A server that does not answer is left alone.
    fn await_reading<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(sender) = state.sender.clone() else { return state };
        // For a read that this thread begins.
        sender.limit_receiving(LEAVING);
        let last = Op::Session(SessionOp::AwaitAsync);
        let (state, tid) = self.ask(state, &Cred::root(), last, false);
        let _ = self.wait_for(state, tid, Some(Instant::now() + LEAVING));
        self.lock()
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        let closed = self.closed.load(Ordering::Acquire);
        if closed { Err(Error::of(Errno::Io, "closed client")) } else { Ok(()) }
    }
}

fn wait<'a>(
    condition: &Condvar,
    state: MutexGuard<'a, State>,
    time: Duration,
) -> MutexGuard<'a, State> {
    condition.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
}
