//! Locks on files.

use cudele::{Errno, Ino, LockMode, Result};
use fuser::{ReplyEmpty, ReplyLock};
use vfs::Range;

use crate::answer;
use crate::asked::{F_RDLCK, F_UNLCK, F_WRLCK, done};
use crate::filesystem::Filesystem;

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
        owner: u64,
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
        let _ = waiter.spawn(move || done(vfs.lock(ino, owner, &range, true), reply));
    }
}
