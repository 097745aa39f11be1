//! Asynchronous operations: sends the server the changes that this client answered itself, in
//! directories that it has to itself.
//!
//! They are sent when enough have accumulated, with every request of this client, when another
//! client wants to look, and at the latest a few milliseconds after the first: a thread takes care
//! of that. The thread also reports closed files to the server if no request does.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use types::{Cred, Result};
use wire::{Op, SessionOp, WantsExclusive};

use super::{Link, State};

/// How long the server may not have heard of a change.
const DELAY: Duration = Duration::from_millis(2);
/// The same for a closed file: while the server takes it for open, no client can have its directory
/// to itself.
const CLOSED_DELAY: Duration = Duration::from_millis(200);
/// So many bytes are sent at once.
const BYTES: usize = 8 << 10;

/// The state of the changes that the server does not know yet.
#[derive(Debug, Default)]
pub(super) struct AsyncSender {
    /// There is a thread that tells it.
    present: bool,
    /// It sleeps until there is something to tell.
    asleep: bool,
    /// The time at which the oldest unsettled change was sent.
    sent: Option<Instant>,
}

impl State {
    /// Sends the changes that were answered here.
    fn send_collected(&mut self, now: Instant) {
        self.session.send_async(&mut self.effects);
        self.async_sender.sent.get_or_insert(now);
    }

    /// The server has settled all changes that were sent.
    pub(super) fn note_acknowledged_async(&mut self) {
        if std::mem::take(&mut self.effects.async_acknowledged) {
            self.last_reply = self.last_reply.max(self.async_sender.sent.take());
        }
    }
}

impl Link {
    /// Notes a message that is sent if no request takes it along.
    pub(super) fn wake_async_sender(&self, state: &mut State) {
        if std::mem::take(&mut state.async_sender.asleep) {
            self.async_wakeup.notify_one();
        }
    }

    /// A change was answered here.
    pub(super) fn answered_async(&self, state: &mut State, now: Instant) -> bool {
        let bytes = state.session.async_bytes();
        if bytes >= BYTES {
            state.send_collected(now);
            return true;
        }
        if bytes > 0 && std::mem::take(&mut state.async_sender.asleep) {
            self.async_wakeup.notify_one();
        }
        false
    }

    /// Starts to take directories. Returns whether a thread is needed for
    /// [`Link::send_async_regularly`].
    pub(crate) fn begin_async(&self, wants: WantsExclusive) -> bool {
        let mut state = self.lock();
        state.session.take_exclusive(wants);
        wants != WantsExclusive::Never && !std::mem::replace(&mut state.async_sender.present, true)
    }

    /// Sends changes that were answered here soon after, until the link is closed.
    pub(crate) fn send_async_regularly(&self) {
        let mut state = self.lock();
        while !self.closed.load(Ordering::Acquire) && !state.fenced {
            let has_async = state.session.async_bytes() > 0;
            if !has_async && state.effects.frames.is_empty() {
                state.async_sender.asleep = true;
                state = self.async_wakeup.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.async_sender.asleep = !has_async;
            let waited =
                self.async_wakeup.wait_timeout(state, if has_async { DELAY } else { CLOSED_DELAY });
            let (locked, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            state = locked;
            if !has_async && !waited.timed_out() {
                // There is something more urgent.
                continue;
            }
            state.send_collected(Instant::now());
            state = self.send(state);
        }
        state.async_sender.present = false;
    }

    /// Everything that was answered here is with the server.
    ///
    /// # Errors
    /// `EIO` if it is away.
    pub(crate) fn drain(&self) -> Result<()> {
        if self.lock().session.is_async() {
            self.request(&Cred::root(), Op::Session(SessionOp::AwaitAsync), &[])?;
        }
        Ok(())
    }

    /// Ends the thread that tells the server.
    pub(super) fn stop_async_sender(&self) {
        self.async_wakeup.notify_all();
    }

    /// Before the connection is closed: sends changes that were answered here, if there is a
    /// server.
    pub(crate) fn drain_at_end(&self) {
        let has_async = {
            let state = self.lock();
            state.session.is_async() && state.sender.is_some()
        };
        if has_async {
            // A caller that needs the result has called `sync`.
            let _ = self.drain();
        }
    }
}
