//! Hearing the server when nothing was asked.
//!
//! Whoever waits for an answer also takes in what the server says unasked. When nobody has asked
//! for a moment, the listener reads. It blocks there, so an idle client costs nothing; and as soon
//! as somebody asks again it leaves reading to them, so a busy one is not slowed down.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::Duration;

use types::{Errno, Error, Ino, Rank};

use super::{Link, State};
use crate::Notice;

/// How long nobody must have asked before the listener reads.
const IDLE: Duration = Duration::from_millis(1);
/// How long to wait before the server is looked for again that was away for long.
const AWAY: Duration = Duration::from_secs(1);

/// What the server said unasked.
#[derive(Debug)]
pub(crate) enum Heard {
    Notice(Notice),
    /// Files that are open here are served by another rank.
    Moved(Rank, Vec<Ino>),
}

/// What the listener shares with those who ask.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    /// What the server said unasked and the listener has not handed out.
    pub(super) heard: std::collections::VecDeque<Heard>,
    /// There is a listener.
    pub(super) present: bool,
    /// It sleeps until there is something to hand out, or nobody reads any more.
    pub(super) asleep: bool,
}

impl Link {
    /// Hands out what the server says unasked, until the link is closed or the client fenced.
    pub(crate) fn listen(&self, mut handle: impl FnMut(Heard)) {
        let mut state = self.lock();
        let mut asked = state.requests;
        while !self.closed.load(Ordering::Acquire) && !state.fenced {
            if let Some(heard) = state.listening.heard.pop_front() {
                drop(state);
                handle(heard);
                state = self.lock();
            } else if std::mem::replace(&mut asked, state.requests) != state.requests {
                state = wait(&self.listener, state, IDLE);
            } else if state.reading {
                // Somebody waits for long: they read, and say when they stop.
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

    /// Whether this is the first who wants to listen.
    pub(crate) fn begin_listening(&self) -> bool {
        let mut state = self.lock();
        // Who hears when to forget may remember.
        state.session.remember();
        !std::mem::replace(&mut state.listening.present, true)
    }

    /// Something for the listener, if it sleeps.
    pub(super) fn wake_listener(&self, state: &mut State) {
        if std::mem::take(&mut state.listening.asleep) {
            self.listener.notify_one();
        }
    }

    /// Ends the connection, and whoever listens.
    pub(crate) fn close(&self) {
        self.settle_at_end();
        self.closed.store(true, Ordering::Release);
        let mut state = self.lock();
        // Else the next to change what was remembered here would wait for this client in vain.
        let leaving = &mut *state;
        leaving.session.leave(&mut leaving.effects);
        state = self.send(state);
        if let Some(sender) = &state.sender {
            sender.shut_down();
        }
        state.listening.asleep = false;
        self.listener.notify_all();
        self.stop_telling();
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
