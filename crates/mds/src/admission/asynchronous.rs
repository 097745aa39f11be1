//! Asynchronous operations: changes that a client has answered itself, in directories that it has
//! alone. They come with the inode numbers and times that the client has assigned, and are executed
//! in the order of their arrival. The server reports only a failure: then the client's view is
//! wrong, and it returns its directories.

use namespace::Refusal;
use types::{Errno, Seq};
use wire::{ChangeOp, Failure, Message, Op};

use super::{Entry, Incoming, Verdict};
use crate::caps::CapsCx;
use crate::fetch::FetchCx;
use crate::op::{Changed, Performed, Refused};
use crate::session::{Fate, Remembered};
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if !from.request.is_async {
        return Verdict::Pass;
    }
    execute(mds, from, effects);
    Verdict::Taken
}

/// Executes asynchronous operations.
fn execute(
    mds: &mut Mds,
    from @ Incoming { client, request, .. }: Incoming<'_>,
    effects: &mut MdsEffects,
) {
    if request.op.is_mutation() {
        let session = mds.sessions.get_mut(client);
        if let Fate::Done(known) = session.fate(request.tid) {
            let seq = known.map_or(Seq(0), |known| known.seq);
            session.async_ops.seq = session.async_ops.seq.max(seq);
            return;
        }
    }
    let removed = if let Op::Change(ChangeOp::Rmdir { parent, name }) = request.op {
        mds.namespace.peek(parent, name).ok().flatten()
    } else {
        None
    };
    let may = if !request.op.may_be_async() {
        Err(Errno::Stale)
    } else if mds.resend.is_busy() {
        Ok(())
    } else {
        CapsCx::of(mds).check_exclusive(client, request)
    };
    let performed = may.map_err(Refused::from);
    let performed =
        performed.and_then(|()| match mds.admit::<{ Entry::EXECUTED }>(from, effects) {
            None => Ok(Performed::Later),
            Some(admitted) => admitted.and_then(|admitted| mds.perform(admitted, effects)),
        });
    match performed {
        Ok(Performed::Changed(Changed { seq, ino, time, .. })) => {
            mds.counters.async_ops += 1;
            let remembered =
                Remembered { tid: request.tid, seq: seq.unwrap_or_default(), ino, time };
            let session = mds.sessions.get_mut(client);
            session.finish(remembered);
            if let Some(seq) = seq {
                session.known_since(seq);
                session.async_ops.seq = session.async_ops.seq.max(seq);
            }
            if mds.settings.observe {
                effects.observe(client, remembered);
            }
            CapsCx::of(mds).follow_exclusive(client, request, removed, effects);
        }
        Ok(Performed::Answer(_) | Performed::Later) => {}
        // No client has a split directory alone, and fetching it would bring no name.
        Err(Refused::Refusal(Refusal::Cold(dir))) if mds.namespace.is_split(dir) => {
            refuse(mds, from, Errno::Stale.into(), effects);
        }
        Err(Refused::Refusal(Refusal::Cold(dir))) => {
            let frame = Message::Request(request.clone()).to_frame();
            mds.sessions.get_mut(client).async_ops.waiting.push_front(frame);
            FetchCx::of(mds).park_async(client, dir, effects);
        }
        Err(Refused::Refusal(Refusal::Errno(errno))) => {
            refuse(mds, from, errno.into(), effects);
        }
        Err(Refused::Failure(failure)) => {
            refuse(mds, from, failure, effects);
        }
    }
}

fn refuse(
    mds: &mut Mds,
    from @ Incoming { client, .. }: Incoming<'_>,
    failure: Failure,
    effects: &mut MdsEffects,
) {
    mds.counters.async_refused += 1;
    mds.refuse(from, failure, effects);
    // The client's view is wrong: no later operation that depends on it is executed.
    CapsCx::of(mds).all_returned(client);
}
