//! Open files of the session: yields them, closes them, and moves them to the session with another
//! rank.

use client::FileState;
use types::{Cred, Ino, Lock, LockKind, LockMode, Result, Span};
use wire::{Op, SessionOp};

use super::{Link, UNTOLD_BYTES_MAX};

impl Link {
    /// Yields a file if the server recalled it. No open or close comes between the question and the
    /// answer: the server gets the state that it recalled. Returns whether it had recalled the
    /// file.
    pub(crate) fn yield_recalled(&self, cred: &Cred, ino: Ino) -> Result<bool> {
        let state = self.lock();
        if !state.session.is_recalled(ino) {
            return Ok(false);
        }
        self.request_now(state, cred, Op::Session(SessionOp::Yield { ino }), &[]).map(|_| true)
    }

    /// Closes a file without waiting. The server gets the message now or, if `can_wait`, with the
    /// next request; at once if another client is known to wait.
    pub(crate) fn close_file(&self, ino: Ino, write: bool, can_wait: bool) {
        let mut state = self.lock();
        let shared = &mut *state;
        let first = shared.effects.frames.is_empty();
        let awaited = shared.session.close(ino, write, &mut shared.effects);
        if awaited || !can_wait || shared.effects.frames.len() >= UNTOLD_BYTES_MAX {
            // The close may be behind changes that were answered here.
            if shared.session.async_bytes() > 0 {
                shared.session.send_async_at(crate::moment(), &mut shared.effects);
            }
            drop(self.send(state));
        } else if first {
            self.wake_async_sender(&mut state);
        }
    }

    /// Waits until the server has answered the reports about a file, or the connection is gone.
    pub(crate) fn await_reports(&self, ino: Ino) {
        // The server answers requests about a file's locks in order, unless it refuses one early.
        let (kind, mode) = (LockKind::Posix, LockMode::Read);
        let lock = Lock { kind, mode, owner: 0, pid: 0, start: 0, end: u64::MAX };
        let mut state = self.lock();
        while state.session.awaits_report(ino) {
            let last = Op::Session(SessionOp::GetLock { ino, lock });
            let (asked, tid) = self.ask(state, &Cred::root(), last, false);
            let refused = self.wait_for(asked, tid, None).is_err();
            if refused {
                crate::pause(Span::from_millis(1));
            }
            state = self.lock();
        }
    }

    /// Takes the open state of a file out, for the session with another rank.
    pub(crate) fn take_out(&self, ino: Ino) -> FileState {
        let mut state = self.lock();
        let shared = &mut *state;
        let file_state = shared.session.take_out(ino, &mut shared.effects);
        drop(self.send(state));
        file_state
    }

    /// Adds the open state from the session with another rank.
    pub(crate) fn put_in(&self, ino: Ino, file_state: Option<FileState>) {
        let mut state = self.lock();
        let shared = &mut *state;
        shared.session.put_in(ino, file_state, &mut shared.effects);
    }
}
