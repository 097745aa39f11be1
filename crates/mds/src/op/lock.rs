//! Requests about locks. `locks` decides which ones are granted.

use types::{ClientId, ConnId, Errno, Ino, Lock, Seq, Tid};
use wire::Answer;

use super::{Performed, Performing};
use crate::locks::Outcome;
use crate::{Effects, Mds};

impl Mds {
    /// Sets, changes or releases a lock, at once or when no other lock excludes it.
    pub(crate) fn lock(
        &mut self,
        at: (ConnId, Tid),
        whose: (Ino, ClientId),
        (lock, wait): (Lock, bool),
        effects: &mut Effects,
    ) -> Performing {
        if lock.start > lock.end {
            return Err(Errno::Invalid.into());
        }
        let mut served = Vec::new();
        let outcome = self.locks.set(whose, lock, wait.then_some(at), &mut served);
        self.serve_locks(served, effects);
        match outcome {
            Outcome::Set => Ok(Performed::Answer(Answer::Done)),
            Outcome::Taken => Err(Errno::Again.into()),
            Outcome::Deadlock => Err(Errno::Deadlock.into()),
            Outcome::Waits => Ok(Performed::Later),
        }
    }

    /// Ends the wait for a lock with `EINTR`, if a request waits for it.
    pub(crate) fn cancel_lock(
        &mut self,
        whose: (Ino, ClientId),
        lock: &Lock,
        effects: &mut Effects,
    ) -> Performing {
        let mut served = Vec::new();
        if let Some((conn, tid)) = self.locks.cancel(whose, lock, &mut served) {
            self.reply_error(conn, tid, Errno::Interrupted.into(), effects);
        }
        self.serve_locks(served, effects);
        Ok(Performed::Answer(Answer::Done))
    }

    /// A session ends, and with it its locks.
    pub(crate) fn unlock_all(&mut self, client: ClientId, effects: &mut Effects) {
        let mut served = Vec::new();
        self.locks.leave(client, &mut served);
        self.serve_locks(served, effects);
    }

    fn serve_locks(&mut self, served: Vec<(ConnId, Tid)>, effects: &mut Effects) {
        for at in served {
            self.reply_with(at, Seq(0), Answer::Done, effects);
        }
    }
}
