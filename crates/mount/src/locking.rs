//! Locks on files.

use std::sync::Arc;

use cudele::{Errno, Ino, LockKind, LockMode, Result};
use vfs::{Locker, Range, Vfs};

use crate::asked::{F_RDLCK, F_UNLCK, F_WRLCK};
use crate::filesystem::{Filesystem, Given};
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
    Vfs::lock_range(mode, asked.start, asked.end, asked.pid)
}

impl Filesystem {
    pub(crate) fn get_lock(&self, ino: Ino, asked: &LockAsked, out: &mut Out) -> Result<Given> {
        let found = self.vfs.lock_in_the_way(ino, locker(asked), &range(asked)?)?;
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
        match (self.vfs.lock(ino, locker, &range, false), ticket) {
            (Err(error), Some(ticket)) if error.errno == Errno::Again => {
                let vfs = self.vfs.clone();
                ticket.waits(Arc::new(move || vfs.cancel_lock(ino, locker, &range)));
                self.vfs.lock(ino, locker, &range, true)?;
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
