//! Read-only servers, whose store forgets all writes when the process ends: changes are rejected.

use types::Errno;
use wire::{ChangeOp, Failure, Op, SessionOp};

use super::{Incoming, Verdict};
use crate::op::Refused;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.settings.read_only { verdict(true, from.op()) } else { Verdict::Pass }
}

#[cold]
fn verdict(read_only: bool, op: &Op<'_>) -> Verdict {
    if !read_only || is_reading(op) {
        return Verdict::Pass;
    }
    let text =
        "the cluster was started with --read-only; `cudele down` and `cudele up` allow changes";
    Verdict::Refuse(Refused::Failure(Failure { errno: Errno::ReadOnly, text: text.into() }))
}

/// Whether a request makes no lasting change.
fn is_reading(op: &Op<'_>) -> bool {
    match op {
        Op::Read(_) => true,
        Op::Session(op) => !matches!(op, SessionOp::Open { write: true, .. }),
        // The read must not fail. The new time goes with a read-only server's process.
        Op::Change(op) => matches!(op, ChangeOp::Accessed { .. }),
        Op::Job(_) | Op::Rank(_) | Op::Admin(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use types::{Ino, Timestamp};

    use super::*;

    fn is_refused(read_only: bool, op: &Op<'_>) -> bool {
        match verdict(read_only, op) {
            Verdict::Refuse(Refused::Failure(failure)) => failure.errno == Errno::ReadOnly,
            Verdict::Refuse(Refused::Refusal(_))
            | Verdict::Pass
            | Verdict::Taken
            | Verdict::Wait(_) => false,
        }
    }

    #[test]
    fn a_read_only_server_refuses_changes_and_another_one_does_not() {
        let op = Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" });
        assert!(is_refused(true, &op) && !is_refused(false, &op));
    }

    #[test]
    fn a_read_only_server_opens_files_for_reading() {
        assert!(!is_refused(true, &Op::Session(SessionOp::Open { ino: Ino(300), write: false })));
        assert!(is_refused(true, &Op::Session(SessionOp::Open { ino: Ino(300), write: true })));
    }

    #[test]
    fn a_read_only_server_lets_a_reader_note_the_time_of_its_access() {
        let op = Op::Change(ChangeOp::Accessed { ino: Ino(300), at: Timestamp(5) });
        assert!(!is_refused(true, &op));
    }
}
