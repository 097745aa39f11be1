//! Requests about locks.

use types::{ClientId, Errno, Ino, Lock, Seq};
use wire::Answer;

use super::FilesCx;
use crate::admission::Incoming;
use crate::locks::LockOutcome;
use crate::op::{Performed, Performing};
use crate::{MdsEffects, ReplyTo};

impl FilesCx<'_> {
    /// Sets, changes or releases a lock, at once or when no other lock excludes it.
    pub(crate) fn lock(
        &mut self,
        from: Incoming<'_>,
        ino: Ino,
        lock: Lock,
        wait: bool,
        effects: &mut MdsEffects,
    ) -> Performing {
        if lock.start > lock.end {
            return Err(Errno::Invalid.into());
        }
        let mut served = Vec::new();
        let outcome =
            self.locks.set(ino, from.client, lock, wait.then_some(from.at()), &mut served);
        self.serve_locks(served, effects);
        match outcome {
            LockOutcome::Set => Ok(Performed::Answer(Answer::Done)),
            LockOutcome::Taken => Err(Errno::Again.into()),
            LockOutcome::Deadlock => Err(Errno::Deadlock.into()),
            LockOutcome::Waits => Ok(Performed::Later),
        }
    }

    /// Ends the wait for a lock with `EINTR`, if a request waits for it.
    pub(crate) fn cancel_lock(
        &mut self,
        ino: Ino,
        client: ClientId,
        lock: &Lock,
        effects: &mut MdsEffects,
    ) -> Performing {
        let mut served = Vec::new();
        if let Some(at) = self.locks.cancel(ino, client, lock, &mut served) {
            effects.reply_error(at, Errno::Interrupted.into());
        }
        self.serve_locks(served, effects);
        Ok(Performed::Answer(Answer::Done))
    }

    /// Grants the locks that clients wait for on files that did not move after all.
    pub(crate) fn serve_deferred(&mut self, effects: &mut MdsEffects) {
        let deferred = self.locks.deferred();
        let ended = deferred.filter(|ino| self.authority.is_served_here(self.namespace, *ino));
        let mut served = Vec::new();
        for ino in ended.collect::<Vec<_>>() {
            self.locks.serve(ino, &mut served);
        }
        self.serve_locks(served, effects);
    }

    pub(super) fn serve_locks(&mut self, served: Vec<ReplyTo>, effects: &mut MdsEffects) {
        for at in served {
            effects.reply_with(at, Seq(0), Answer::Done);
        }
    }
}
