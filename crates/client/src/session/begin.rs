//! The steps before a request is sent: a local answer, or other requests that come first; and the
//! time at which the changes that were answered locally leave.

use types::{Clock, Cred, Epoch, Ino, Moment, Span};
use wire::{Answer, Failure, JobOp, Op, SessionOp};

use super::{LocalAnswer, Session, SessionEffects};
use crate::lent::FRESH;

/// How long the server may not have heard of a change.
const DELAY: Span = Span::from_millis(2);
/// The same for a closed file: while the server takes it for open, no client can have its directory
/// to itself.
const CLOSED_DELAY: Span = Span::from_millis(200);
/// So many bytes are sent at once.
const BYTES: usize = 8 << 10;

/// The next step of a request.
#[derive(Debug)]
pub enum RequestStep {
    /// The answer, which this client knows.
    Answered(Result<Answer, Failure>),
    /// The answer, from a directory that this client has alone: see [`Session::async_due`].
    AnsweredAhead(Result<Answer, Failure>),
    /// Make this request in the name of the client, and begin again.
    First(Op<'static>),
    /// Send the request.
    Send,
}

/// When the changes that were answered locally, and other messages without an answer, leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncDue {
    /// There are none.
    Never,
    /// At once.
    Now,
    /// After a pause, unless a request takes them along.
    Soon,
    /// The same, and earlier if a change is answered during the pause.
    AtLeisure,
}

impl AsyncDue {
    /// The pause of a sender that has waited for nothing else.
    #[must_use]
    pub fn pause(self) -> Option<Span> {
        match self {
            Self::Never => None,
            // Without a connection, nothing leaves.
            Self::Now | Self::Soon => Some(DELAY),
            Self::AtLeisure => Some(CLOSED_DELAY),
        }
    }
}

impl Session {
    /// The newest term of the server that ended without being stopped; 0 for none.
    #[must_use]
    pub fn crashed(&self) -> Epoch {
        self.crashed
    }

    /// Whether the server does not hear this client any more, because another client took its work
    /// over.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The next step of a request that began at a moment. A driver calls this until the step is an
    /// answer or [`RequestStep::Send`]. Only changes need the civil time.
    pub fn begin(
        &mut self,
        cred: &Cred,
        op: &Op<'_>,
        begun: Moment,
        clock: Clock,
        effects: &mut SessionEffects,
    ) -> RequestStep {
        if op.is_mutation() && self.must_sync() {
            return RequestStep::First(Op::Session(SessionOp::Sync));
        }
        let fresh = self.is_fresh(begun);
        if !fresh && self.exclusive_count() > 0 {
            // Its directories are this client's as long as it hears the server.
            return RequestStep::First(Op::Session(SessionOp::AwaitAsync));
        }
        let known = match fresh {
            true => self.known(cred, op, clock.time, effects),
            false => LocalAnswer::Nothing,
        };
        match known {
            LocalAnswer::Remembered(answer) => RequestStep::Answered(answer),
            LocalAnswer::Local(answer) | LocalAnswer::Async(_, answer) => {
                RequestStep::AnsweredAhead(answer)
            }
            LocalAnswer::Soon => RequestStep::First(Op::Session(SessionOp::AwaitAsync)),
            LocalAnswer::WantsNumbers(count) => {
                RequestStep::First(Op::Job(JobOp::Extend { subtree: Ino(0), count }))
            }
            // Not at `begun`: that may be long ago, and a lease is over when it is over.
            LocalAnswer::Nothing => match self.leased(cred, op, clock.now, fresh) {
                Some(answer) => RequestStep::Answered(answer),
                None => RequestStep::Send,
            },
        }
    }

    /// Whether answers from the cache may be used at this time. A kernel uses them a while longer.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        let fresh_for = if self.lent.is_some() { FRESH } else { crate::VALID };
        self.heard.is_some_and(|heard| now.since(heard) < fresh_for)
    }

    /// When to call [`Session::send_async_at`].
    #[must_use]
    pub fn async_due(&self, effects: &SessionEffects) -> AsyncDue {
        match (self.async_bytes(), effects.frames.is_empty()) {
            (0, true) => AsyncDue::Never,
            (0, false) => AsyncDue::AtLeisure,
            (BYTES.., _) => AsyncDue::Now,
            _ => AsyncDue::Soon,
        }
    }

    /// The same after a pause. One pause is given to a new link, which may become a rename.
    pub fn send_async_after_pause(&mut self, now: Moment, effects: &mut SessionEffects) {
        let waits = self.exclusive.as_mut().is_some_and(|exclusive| exclusive.is_newly_linking());
        if !waits {
            self.send_async_at(now, effects);
        }
    }

    /// [`Session::send_async`] without a request, at this time.
    pub fn send_async_at(&mut self, now: Moment, effects: &mut SessionEffects) {
        self.at(now);
        self.send_async(effects);
        self.async_sent.get_or_insert(now);
    }
}
