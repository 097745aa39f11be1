//! Asynchronous operations: sends the server the changes that this client answered itself, in
//! directories that it has to itself.
//!
//! They are sent when enough have accumulated, with every request of this client, when another
//! client wants to look, and at the latest a few milliseconds after the first: a thread takes care
//! of that. The thread also reports closed files to the server if no request does, and returns
//! directories whose answers have lapsed in a kernel.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use client::AsyncDue;
use types::{Cred, Moment, Result, Span};
use wire::{Op, SessionOp, WantsExclusive};

use super::{Link, State};

/// The state of the changes that the server does not know yet.
#[derive(Debug, Default)]
pub(super) struct AsyncSender {
    /// There is a thread that tells it.
    present: bool,
    /// It sleeps until there is something to tell.
    asleep: bool,
}

impl Link {
    /// Notes a message that is sent if no request takes it along.
    pub(super) fn wake_async_sender(&self, state: &mut State) {
        if std::mem::take(&mut state.async_sender.asleep) {
            self.async_wakeup.notify_one();
        }
    }

    /// A change was answered here. Returns whether enough have accumulated to send them.
    pub(super) fn answered_async(&self, state: &mut State, now: Moment) -> bool {
        let due = state.session.async_due(&state.effects);
        match due {
            AsyncDue::Now => state.session.send_async_at(now, &mut state.effects),
            AsyncDue::Soon => self.wake_async_sender(state),
            AsyncDue::Never | AsyncDue::AtLeisure => {}
        }
        due == AsyncDue::Now
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
        while !self.closed.load(Ordering::Acquire) && !state.session.is_fenced() {
            if self.return_lapsed(&mut state) {
                state = self.send(state);
            }
            let due = state.session.async_due(&state.effects);
            state.async_sender.asleep = matches!(due, AsyncDue::Never | AsyncDue::AtLeisure);
            let lapse = state.session.lapse_due().map(|due| due.since(crate::moment()));
            let Some(Span(nanos)) = due.pause().into_iter().chain(lapse).min() else {
                state = self.async_wakeup.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.async_wakeup.wait_timeout(state, Duration::from_nanos(nanos));
            let (mut locked, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if due == AsyncDue::Never {
                state = locked;
                continue;
            }
            // A change is more urgent: its pause begins.
            if due != AsyncDue::AtLeisure || waited.timed_out() {
                let shared = &mut *locked;
                shared.session.send_async_after_pause(crate::moment(), &mut shared.effects);
                locked = self.send(locked);
            }
            state = locked;
        }
        state.async_sender.present = false;
    }

    /// From now on answers are passed on to a kernel. Returns whether a thread is needed for
    /// [`Link::send_async_regularly`].
    pub(crate) fn begin_lending(&self) -> bool {
        let mut state = self.lock();
        state.session.lend_to_kernel();
        !std::mem::replace(&mut state.async_sender.present, true)
    }

    /// Returns directories that no kernel uses any more. Returns whether there is something to
    /// send.
    fn return_lapsed(&self, state: &mut State) -> bool {
        let now = crate::moment();
        let is_due = state.session.lapse_due().is_some_and(|due| due <= now);
        if is_due {
            state.session.at(now);
            state.session.return_lapsed(now, &mut state.effects);
        }
        is_due
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
