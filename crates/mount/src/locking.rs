//! Locks on files.

use std::sync::Arc;

use posix::{Locker, Range};
use types::{Errno, Ino, LockKind, LockMode, Result};

use crate::adapter::{Adapter, Given};
use crate::arguments::{F_RDLCK, F_UNLCK, F_WRLCK};
use crate::fuse::{LockAsked, Out, Ticket};

fn locker(asked: &LockAsked) -> Locker {
    let kind = if asked.is_flock { LockKind::Flock } else { LockKind::Posix };
    Locker { kind, owner: asked.owner, handle: asked.handle }
}

fn range(asked: &LockAsked) -> Result<Range> {
    let mode = match asked.mode {
        F_RDLCK => LockMode::Read,
        F_WRLCK => LockMode::Write,
        _ => LockMode::Unlock,
    };
    Range::new(mode, asked.start, asked.end, asked.pid)
}

impl Adapter {
    pub(crate) fn get_lock(&self, ino: Ino, asked: &LockAsked, out: &mut Out) -> Result<Given> {
        let found = self.fs.lock_in_the_way(ino, locker(asked), &range(asked)?)?;
        let (start, end, mode, pid) = match found {
            Some(Range { mode, start, end, pid }) => {
                let mode = if mode == LockMode::Read { F_RDLCK } else { F_WRLCK };
                (start, end.min(i64::MAX.unsigned_abs()), mode, pid)
            }
            None => (0, 0, F_UNLCK, 0),
        };
        out.u64(start);
        out.u64(end);
        out.u32(mode.cast_unsigned());
        out.u32(pid);
        Ok(Given::Nothing)
    }

    /// Sets or releases a lock. With a ticket, a conflicting lock is waited for.
    pub(crate) fn set_lock(
        &self,
        ino: Ino,
        asked: &LockAsked,
        ticket: Option<Ticket<'_>>,
    ) -> Result<Given> {
        let (locker, range) = (locker(asked), range(asked)?);
        match (self.fs.lock(ino, locker, &range, false), ticket) {
            (Err(error), Some(ticket)) if error.errno == Errno::Again => {
                let fs = self.fs.clone();
                ticket.waits(Arc::new(move || fs.cancel_lock(ino, locker, &range)))?;
                self.fs.lock(ino, locker, &range, true)?;
            }
            (result, _) => result?,
        }
        Ok(if range.mode == LockMode::Unlock {
            Given::Nothing
        } else {
            Given::Lock(ino, locker, range)
        })
    }
}
