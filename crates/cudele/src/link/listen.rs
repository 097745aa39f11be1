//! Hearing the server when nothing was asked.
//!
//! A thread that waits for an answer also receives notices of the server. When no thread has asked
//! for a moment, the listener reads. It blocks there, so an idle client costs nothing; when a
//! thread asks again, the listener leaves the reading to it, so a busy client is not slowed down.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use types::{Errno, Error, Ino, Rank};

use super::{Link, State};
use crate::ServerNotice;

/// The time without a request after which the listener reads.
const IDLE: Duration = Duration::from_millis(1);
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

    /// Ends the connection and the listener.
    pub(crate) fn close(&self) {
        self.drain_at_end();
        self.closed.store(true, Ordering::Release);
        let mut state = self.lock();
        // Otherwise the next change of an entry in the cache here would wait for this client.
        let leaving = &mut *state;
        leaving.session.leave(&mut leaving.effects);
        drop(self.send(state));
        // The server reads nothing more of a connection over which it cannot answer: directories
        // whose return it has not read would stay this client's until it counts as dead.
        self.drain_at_end();
        state = self.lock();
        if let Some(sender) = &state.sender {
            sender.shut_down();
        }
        state.listening.asleep = false;
        self.listener.notify_all();
        self.stop_async_sender();
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
