//! The effect of answers on the client's open files and locks.

use types::{Cred, Errno, Ino, Lock, LockMode, Seq, Tid};
use wire::{Answer, ChangeOp, Failure, Op, Opened, SessionOp};

use super::{Session, SessionEffects, Unsafe};

/// The effect of an answer on the client's state.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    Open {
        ino: Ino,
        write: bool,
    },
    /// A file is created open.
    Create,
    Yield {
        ino: Ino,
    },
    Lock {
        ino: Ino,
        lock: Lock,
    },
    /// It gives a file another length.
    Length,
}

/// The effect that the answer to a request will have.
pub(super) fn mark(op: &Op<'_>) -> Option<Mark> {
    if let Op::Session(SessionOp::Open { ino, write }) = *op {
        Some(Mark::Open { ino, write })
    } else if let Op::Session(SessionOp::Yield { ino }) = *op {
        Some(Mark::Yield { ino })
    } else if let Op::Session(SessionOp::Lock { ino, lock, .. }) = *op {
        Some(Mark::Lock { ino, lock })
    } else if let Op::Change(ChangeOp::Create { new, .. }) = op
        && new.open
    {
        Some(Mark::Create)
    } else if matches!(op, Op::Change(ChangeOp::Grow { .. } | ChangeOp::Append { .. })) {
        Some(Mark::Length)
    } else {
        None
    }
}

impl Session {
    /// Keeps a request that is applied until it is safe.
    pub(super) fn hold(&mut self, request: Unsafe, safe: Seq) {
        if request.replay.seq > safe {
            self.unsafe_requests.push_back(request);
        }
    }

    pub(super) fn take_mark(
        &mut self,
        tid: Tid,
        mark: Mark,
        result: &Result<Answer, Failure>,
        effects: &mut SessionEffects,
    ) {
        match (mark, result) {
            (Mark::Open { ino, write }, Err(_)) => {
                if self.held.refused(ino, write) {
                    self.call(&Cred::root(), Op::Session(SessionOp::Close { ino, write }), effects);
                }
            }
            (Mark::Open { ino, .. }, Ok(Answer::Opened(Opened { shared, .. }))) => {
                self.held.granted(ino, *shared);
            }
            (Mark::Yield { ino }, Ok(_)) => self.held.yielded(ino, tid),
            (Mark::Lock { ino, lock }, Ok(_)) => self.held.locked(ino, lock),
            // Another rank serves the file and is to end the lock, which did not follow the file.
            (Mark::Lock { ino, lock }, Err(failure))
                if failure.errno == Errno::Remote && lock.mode == LockMode::Unlock =>
            {
                self.held.locked(ino, lock);
            }
            (Mark::Create, Ok(Answer::Attr(attr))) => {
                if self.held.created(attr.ino, tid) {
                    effects.recalled.push(attr.ino);
                }
            }
            (Mark::Open { .. } | Mark::Create | Mark::Length, _)
            | (Mark::Yield { .. } | Mark::Lock { .. }, Err(_)) => {}
        }
        if matches!(mark, Mark::Create) {
            self.forget_early();
        }
    }

    /// Whether it is not known yet which files are open.
    pub(super) fn is_creating(&self) -> bool {
        self.marks.values().any(|mark| matches!(mark, Mark::Create))
    }

    pub(super) fn forget_early(&mut self) {
        if !self.is_creating() {
            self.held.forget_early();
        }
    }
}

/// The redirect in a reply. The caller gets the redirect; everything else treats the request as not
/// executed.
pub(super) fn take_elsewhere(reply: &mut wire::Reply) -> Option<Result<Answer, wire::Failure>> {
    let elsewhere = matches!(reply.result, Ok(Answer::Redirect(_) | Answer::Fragments(_)));
    elsewhere.then(|| std::mem::replace(&mut reply.result, Err(types::Errno::Remote.into())))
}
