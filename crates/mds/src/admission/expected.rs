//! Open files and locks are in memory only. Before a client gets its first, the store must know
//! that the next server waits until this client has reported them (decision 43): otherwise that
//! server could give the lock to another client. Nor may the store have the mark
//! that earlier state of the client ended; and the store must have the mark of each client with
//! unknown state since a restart ([`crate::tables`]). A client that creates a file open is in the
//! journal until the next put of the table, and need not wait for that put.

use wire::{Op, SessionOp};

use super::{Incoming, Verdict};
use crate::fetch::TABLE_PUT;
use crate::tables::TablesCx;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    if is_state_in_memory(from.op()) { expected(mds, from, effects) } else { Verdict::Pass }
}

/// Whether a request leaves state that only memory has. The end of the wait for a lock must not
/// overtake its beginning.
#[inline]
fn is_state_in_memory(op: &Op<'_>) -> bool {
    match op {
        Op::Session(op) => matches!(
            op,
            SessionOp::Open { .. }
                | SessionOp::Reopen { .. }
                | SessionOp::Lock { .. }
                | SessionOp::CancelLock { .. }
        ),
        Op::Read(_) | Op::Change(_) | Op::Job(_) | Op::Rank(_) | Op::Admin(_) => false,
    }
}

#[cold]
fn expected(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    // A read-only server, or one of a branch, leaves nothing to a next one.
    let is_last = mds.settings.read_only || mds.settings.private.is_some();
    if is_last || from.client.0 == 0 {
        return Verdict::Pass;
    }
    let is_report = from.request.replay.is_some();
    let is_expected = mds.tables.expect_back(from.client);
    if is_expected && (is_report || mds.tables.will_believe(from.client)) {
        return Verdict::Pass;
    }
    TablesCx::of(mds).tick(effects);
    // A client that reports its state has it already. And while the store takes no table, no next
    // server can take the rank over.
    if is_report || mds.tables.is_failed() {
        return Verdict::Pass;
    }
    Verdict::Wait(TABLE_PUT)
}

#[cfg(test)]
mod tests {
    use types::{Ino, Lock, LockKind, LockMode};
    use wire::ReadOp;

    use super::*;

    #[test]
    fn an_open_and_a_lock_leave_state_in_memory() {
        let (kind, mode) = (LockKind::Posix, LockMode::Write);
        let lock = Lock { kind, mode, owner: 1, pid: 1, start: 0, end: 1 };
        let ino = Ino(300);
        assert!(is_state_in_memory(&Op::Session(SessionOp::Open { ino, write: false })));
        assert!(is_state_in_memory(&Op::Session(SessionOp::Lock { ino, lock, wait: false })));
    }

    #[test]
    fn a_question_leaves_none() {
        assert!(!is_state_in_memory(&Op::Read(ReadOp::GetAttr { ino: Ino::ROOT })));
    }
}
