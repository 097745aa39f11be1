//! Locks on files.
//!
//! A program that waits for a lock may be sent a signal, and a kernel would say so with a request that
//! the library for FUSE does not hand on. So whoever waits is looked at now and then.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use cudele::{Errno, Error, Ino, LockMode, Result};
use fuser::{ReplyEmpty, ReplyLock};
use vfs::{Range, Vfs};

use crate::answer;
use crate::asked::{F_RDLCK, F_UNLCK, F_WRLCK, done};
use crate::filesystem::Filesystem;

/// How often a thread that waits is looked at.
const LOOK: Duration = Duration::from_millis(50);

impl Filesystem {
    pub(crate) fn get_lock(&self, ino: Ino, owner: u64, range: Result<Range>, reply: ReplyLock) {
        let found = range.and_then(|range| self.vfs.lock_in_the_way(ino, owner, &range));
        match found {
            Ok(Some(Range { mode, start, end, pid })) => {
                let end = end.min(i64::MAX.unsigned_abs());
                reply.locked(
                    start,
                    end,
                    if mode == LockMode::Read { F_RDLCK } else { F_WRLCK },
                    pid,
                );
            }
            Ok(None) => reply.locked(0, 0, F_UNLCK, 0),
            Err(error) => reply.error(answer::errno(&error)),
        }
    }

    pub(crate) fn set_lock(
        &self,
        ino: Ino,
        (owner, thread): (u64, u32),
        (range, sleep): (Result<Range>, bool),
        reply: ReplyEmpty,
    ) {
        let range = match range {
            Ok(range) => range,
            Err(error) => return reply.error(answer::errno(&error)),
        };
        match self.vfs.lock(ino, owner, &range, false) {
            Err(error) if sleep && error.errno == Errno::Again => {}
            result => return done(result, reply),
        }
        // Who waits must not keep others from being answered.
        let vfs = self.vfs.clone();
        let waiter = std::thread::Builder::new().name("lock".to_owned());
        // Should there be no thread, the reply says so when it is dropped.
        let _ = waiter.spawn(move || done(wait(&vfs, ino, owner, (&range, thread)), reply));
    }
}

/// Waits for a lock until it is set, or until the thread that wants it has a signal to handle.
fn wait(vfs: &Vfs, ino: Ino, owner: u64, (range, thread): (&Range, u32)) -> Result<()> {
    let (ended, ends) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        let looker = std::thread::Builder::new().name("lock-look".to_owned());
        let looking = looker.spawn_scoped(scope, || {
            let mut is_over = ended.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_over {
                let waited = ends.wait_timeout(is_over, LOOK);
                is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
                if !*is_over && has_signal(thread) {
                    drop(is_over);
                    // Once more if it comes before what it is to cancel.
                    vfs.cancel_lock(ino, owner, range);
                    is_over = ended.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        });
        if let Err(error) = looking {
            // A wait that no signal could end is not begun.
            let cause = format!("nobody can look after a wait for it: {error}");
            return Err(Error::new(Errno::NoLocks, format!("lock on {ino}"), cause)
                .remedy("allow this process more threads, or ask without waiting"));
        }
        let result = vfs.lock(ino, owner, range, true);
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        ends.notify_all();
        result
    })
}

/// Whether a signal that it neither blocks nor ignores waits for a thread, or the thread has ended.
fn has_signal(thread: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{thread}/status")) else { return true };
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    };
    let waiting = set("SigPnd:") | set("ShdPnd:");
    waiting & !set("SigBlk:") & !set("SigIgn:") != 0
}
