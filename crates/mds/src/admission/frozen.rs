//! Snapshots: while one is being taken, requests that may change the namespace wait.

use wire::{JobOp, Op};

use super::{Incoming, Verdict};
use crate::snapshot::FROZEN;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    verdict(mds.snapshots.is_frozen(), from.op())
}

#[inline]
fn verdict(is_frozen: bool, op: &Op<'_>) -> Verdict {
    if is_frozen && may_change(op) { Verdict::Wait(FROZEN) } else { Verdict::Pass }
}

fn may_change(op: &Op<'_>) -> bool {
    let others = matches!(
        op,
        Op::Job(
            JobOp::Decouple { .. }
                | JobOp::Release { .. }
                | JobOp::TakeOver { .. }
                | JobOp::Adopt { .. }
        )
    );
    op.is_change() || others
}

#[cfg(test)]
mod tests {
    use types::Ino;
    use wire::{ChangeOp, ReadOp};

    use super::*;

    fn waits(is_frozen: bool, op: &Op<'_>) -> bool {
        matches!(verdict(is_frozen, op), Verdict::Wait(FROZEN))
    }

    #[test]
    fn a_change_waits_for_the_snapshot() {
        let op = Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" });
        assert!(waits(true, &op) && !waits(false, &op));
    }

    #[test]
    fn a_question_does_not_wait_for_the_snapshot() {
        assert!(!waits(true, &Op::Read(ReadOp::GetAttr { ino: Ino::ROOT })));
    }

    #[test]
    fn a_take_over_waits_for_the_snapshot_although_it_changes_no_name() {
        assert!(waits(true, &Op::Job(JobOp::TakeOver { subtree: Ino(300) })));
    }
}
