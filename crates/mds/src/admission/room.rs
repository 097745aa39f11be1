//! The room of the store: a store that is full takes removals only, and one that cannot be written
//! takes no change at all.

use types::Errno;
use wire::{ChangeOp, Failure, JobOp, Op};

use super::{Incoming, Verdict};
use crate::op::Refused;
use crate::{Mds, MdsEffects, Phase};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    // A resent request was acknowledged before a restart, so a full store must take it.
    let is_full =
        mds.health.room().is_full() && mds.phase == Phase::Active && !mds.resend.is_busy();
    let refusing = mds.log.failed();
    if !is_full && refusing.is_none() {
        return Verdict::Pass;
    }
    verdict(refusing, is_full, from.op())
}

#[cold]
fn verdict(refusing: Option<Errno>, is_full: bool, op: &Op<'_>) -> Verdict {
    let refusing = refusing.filter(|_| op.is_change());
    let (errno, text) = match refusing {
        Some(errno @ Errno::NoSpace) => (
            errno,
            "the object store is full; changes are refused until there is room, reading goes on",
        ),
        Some(errno @ Errno::ReadOnly) => {
            (errno, "the object store is read-only; changes are refused until it can be written")
        }
        Some(errno) => (errno, "the journal cannot be written; changes are refused until it can"),
        None if is_full && adds(op) => (
            Errno::NoSpace,
            "the object store is full; until there is room it takes removals only, and reading \
             goes on",
        ),
        None => return Verdict::Pass,
    };
    Verdict::Refuse(Refused::Failure(Failure { errno, text: text.into() }))
}

/// Whether an operation adds more to the store than its event in the journal.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "everything else removes, or adds next to nothing"
)]
fn adds(op: &Op<'_>) -> bool {
    match op {
        Op::Change(
            ChangeOp::Create { .. }
            | ChangeOp::Link { .. }
            | ChangeOp::SetXattr { .. }
            | ChangeOp::Append { .. },
        )
        | Op::Job(JobOp::Decouple { .. } | JobOp::Merge { .. } | JobOp::Adopt { .. }) => true,
        Op::Change(ChangeOp::SetData { data, .. }) => !data.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use types::{AttrChange, Ino};
    use wire::{ReadOp, SessionOp};

    use super::*;

    const QUESTION: Op<'_> = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
    const NAME: &[u8] = b"a";

    fn adding() -> [Op<'static>; 3] {
        let (ino, parent) = (Ino(300), Ino::ROOT);
        [
            Op::Change(ChangeOp::SetData { ino, data: b"x", size: 1 }),
            Op::Change(ChangeOp::Link { ino, parent, name: NAME }),
            Op::Change(ChangeOp::Append { ino, length: 1 }),
        ]
    }

    fn removing() -> [Op<'static>; 4] {
        let (ino, parent) = (Ino(300), Ino::ROOT);
        [
            Op::Change(ChangeOp::Unlink { parent, name: NAME }),
            Op::Change(ChangeOp::Rmdir { parent, name: NAME }),
            Op::Change(ChangeOp::SetAttr {
                ino,
                change: AttrChange { size: Some(0), ..AttrChange::default() },
            }),
            Op::Change(ChangeOp::SetData { ino, data: b"", size: 0 }),
        ]
    }

    fn errno_of(refusing: Option<Errno>, is_full: bool, op: &Op<'_>) -> Option<Errno> {
        match verdict(refusing, is_full, op) {
            Verdict::Refuse(Refused::Failure(failure)) => Some(failure.errno),
            Verdict::Refuse(Refused::Refusal(_))
            | Verdict::Pass
            | Verdict::Taken
            | Verdict::Wait(_) => None,
        }
    }

    #[test]
    fn a_full_store_takes_removals_and_nothing_that_adds() {
        for op in adding() {
            assert_eq!(errno_of(None, true, &op), Some(Errno::NoSpace), "{op:?}");
            assert_eq!(errno_of(None, false, &op), None, "{op:?}");
        }
        for op in removing().into_iter().chain([Op::Session(SessionOp::Sync), QUESTION]) {
            assert_eq!(errno_of(None, true, &op), None, "{op:?}");
        }
    }

    #[test]
    fn a_journal_that_cannot_be_written_refuses_removals_too() {
        for errno in [Errno::NoSpace, Errno::ReadOnly, Errno::Io] {
            for op in removing() {
                assert_eq!(errno_of(Some(errno), false, &op), Some(errno), "{op:?}");
            }
        }
    }

    #[test]
    fn a_question_passes_whatever_the_store_does() {
        assert_eq!(errno_of(Some(Errno::Io), true, &QUESTION), None);
    }
}
