//! Servers of a branch ([`crate::Private`]): they work for one job on the snapshot of a branch, and
//! change nothing outside of it, nor content that the branch shares with the namespace.

use namespace::Namespace;
use types::{Errno, FileType};
use wire::{AdminOp, ChangeOp, Failure, JobOp, Op, RankOp, ReadOp, SessionOp};

use super::{Incoming, Verdict};
use crate::op::{Refused, touched};
use crate::{Mds, MdsEffects, Private};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.settings.private.is_none() { Verdict::Pass } else { verdict(mds, from) }
}

#[cold]
fn verdict(mds: &Mds, from: Incoming<'_>) -> Verdict {
    let private = mds.settings.private.as_ref();
    let refused = private.map_or(Ok(()), |private| refusal(private, &mds.namespace, from.op()));
    refused.map_or_else(Verdict::Refuse, |()| Verdict::Pass)
}

/// Refuses operations that a private server cannot do.
fn refusal(private: &Private, namespace: &Namespace, op: &Op<'_>) -> Result<(), Refused> {
    let whole = matches!(
        op,
        Op::Change(
            ChangeOp::SetPolicy { .. }
                | ChangeOp::Discard { .. }
                | ChangeOp::Restore { .. }
                | ChangeOp::EmptyTrash { .. }
        ) | Op::Read(ReadOp::ListTrash { .. } | ReadOp::Watch { .. })
            | Op::Job(
                JobOp::Decouple { .. }
                    | JobOp::TakeOver { .. }
                    | JobOp::Merge { .. }
                    | JobOp::Adopt { .. }
            )
            | Op::Rank(RankOp::Export { .. } | RankOp::Colocate { .. })
            | Op::Admin(AdminOp::Snapshot { .. } | AdminOp::WriteDown { .. })
    );
    if whole {
        let text = "not in a branch, which is apart from everybody already: do it in the \
                    namespace, when the branch is merged";
        return refuse(Errno::NotSupported, text);
    }
    let mut about = touched(op).inodes();
    if op.is_mutation() && about.any(|ino| private.above.contains(&ino)) {
        return refuse(Errno::NotPermitted, "it is outside of the branch's directory");
    }
    let written = if let Op::Session(SessionOp::Open { ino, write: true })
    | Op::Change(
        ChangeOp::Grow { ino, .. }
        | ChangeOp::Append { ino, .. }
        | ChangeOp::SetData { ino, data: b"", size: 1.. },
    ) = *op
    {
        ino
    } else if let Op::Change(ChangeOp::SetAttr { ino, ref change }) = *op
        && change.size.is_some()
    {
        ino
    } else {
        return Ok(());
    };
    if private.numbers.contains(written) {
        return Ok(());
    }
    if namespace.getattr(written)?.file_type() != FileType::Regular {
        return Ok(());
    }
    refuse(Errno::ReadOnly, "what a branch has committed, or its snapshot, is not written over")
}

fn refuse(errno: Errno, text: &str) -> Result<(), Refused> {
    Err(Refused::Failure(Failure { errno, text: text.into() }))
}

#[cfg(test)]
mod tests {
    use types::{Ino, InoRange};
    use wire::ReadOp;

    use super::*;

    const ABOVE: Ino = Ino(700);
    const OWN: Ino = Ino(0x1000);

    fn errno_of(op: &Op<'_>) -> Option<Errno> {
        let numbers = InoRange { start: OWN.0, end: OWN.0 + 10 };
        let private = Private { numbers, above: vec![ABOVE] };
        match refusal(&private, &Namespace::new(), op) {
            Ok(()) => None,
            Err(Refused::Failure(failure)) => Some(failure.errno),
            Err(Refused::Refusal(refusal)) => panic!("{refusal:?}"),
        }
    }

    #[test]
    fn a_branch_has_no_policies_of_its_own() {
        let op =
            Op::Change(ChangeOp::SetPolicy { path: b"/", policy: b"", client: types::ClientId(1) });
        assert_eq!(errno_of(&op), Some(Errno::NotSupported));
    }

    #[test]
    fn a_directory_above_the_branch_is_shown_and_not_changed() {
        let op = Op::Change(ChangeOp::Unlink { parent: ABOVE, name: b"a" });
        assert_eq!(errno_of(&op), Some(Errno::NotPermitted));
        assert_eq!(errno_of(&Op::Read(ReadOp::Lookup { parent: ABOVE, name: b"a" })), None);
    }

    #[test]
    fn a_file_of_the_job_is_written() {
        assert_eq!(errno_of(&Op::Session(SessionOp::Open { ino: OWN, write: true })), None);
    }
}
