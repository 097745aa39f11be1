//! Files that are open in the session: given up, closed, and carried to the session with another rank.

use client::Carried;
use types::{Cred, Ino, Result};
use wire::Op;

use super::{Link, UNTOLD_BYTES_MAX};

impl Link {
    /// Gives a file up if the server wants that. Nothing can be opened or closed between the
    /// question and the answer: what is open when the server hears it is what it wanted. Says
    /// whether it was wanted.
    pub(crate) fn yield_recalled(&self, cred: &Cred, ino: Ino) -> Result<bool> {
        let state = self.lock();
        if !state.session.is_recalled(ino) {
            return Ok(false);
        }
        self.request_now(state, cred, Op::Yield { ino }, &[]).map(|_| true)
    }

    /// Closes what was opened, and waits for nothing. The server is told now or, if that can wait,
    /// with the next request; at once if somebody is known to wait for it.
    pub(crate) fn close_file(&self, ino: Ino, write: bool, can_wait: bool) {
        let mut state = self.lock();
        let shared = &mut *state;
        let first = shared.effects.frames.is_empty();
        let awaited = shared.session.close(ino, write, &mut shared.effects);
        if awaited || !can_wait || shared.effects.frames.len() >= UNTOLD_BYTES_MAX {
            drop(self.send(state));
        } else if first {
            self.tell_later(&mut state);
        }
    }

    /// Gives what is open of a file to the session with another rank.
    pub(crate) fn take_out(&self, ino: Ino) -> Carried {
        let mut state = self.lock();
        let shared = &mut *state;
        let carried = shared.session.take_out(ino, &mut shared.effects);
        drop(self.send(state));
        carried
    }

    /// Takes over what was open in the session with another rank.
    pub(crate) fn put_in(&self, ino: Ino, carried: Option<Carried>) {
        let mut state = self.lock();
        let shared = &mut *state;
        shared.session.put_in(ino, carried, &mut shared.effects);
    }
}
