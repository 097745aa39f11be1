//! The right that an operation needs, said once for every daemon.

use types::Rights;

use super::{AdminOp, ChangeOp, JobOp, MergeFlags, Op, RankOp, SessionOp};

impl Op<'_> {
    /// The rights that a key must have where the operation is; `None` for operations on state
    /// of the client's own.
    #[must_use]
    pub fn rights(&self) -> Option<Rights> {
        match self {
            Op::Read(_) => Some(Rights::READ),
            Op::Change(ChangeOp::SetPolicy { .. }) => Some(Rights::POLICY),
            // A file was read then.
            Op::Change(ChangeOp::Accessed { .. }) => Some(Rights::READ),
            Op::Change(_) => Some(Rights::WRITE),
            Op::Session(op) => of_session(op),
            Op::Job(op) => of_job(op),
            Op::Rank(
                RankOp::Export { .. }
                | RankOp::Colocate { .. }
                | RankOp::Split { .. }
                | RankOp::Join { .. }
                | RankOp::Arrive { .. },
            ) => Some(Rights::BALANCE),
            Op::Admin(AdminOp::Snapshot { .. }) => Some(Rights::BRANCH),
            Op::Admin(AdminOp::WriteDown { .. }) => Some(Rights::READ),
            Op::Admin(AdminOp::Checkpoint) => None,
        }
    }
}

fn of_session(op: &SessionOp) -> Option<Rights> {
    let may_open = |writes: bool| Some(if writes { Rights::WRITE } else { Rights::READ });
    match op {
        SessionOp::Open { write, .. } => may_open(*write),
        SessionOp::Reopen { access, .. } => may_open(access.write),
        SessionOp::Lock { .. } | SessionOp::GetLock { .. } => Some(Rights::READ),
        SessionOp::Sync
        | SessionOp::Close { .. }
        | SessionOp::Yield { .. }
        | SessionOp::CancelLock { .. }
        | SessionOp::Return { .. }
        | SessionOp::AwaitAsync
        | SessionOp::Held { .. } => None,
    }
}

fn of_job(op: &JobOp<'_>) -> Option<Rights> {
    match op {
        // Numbers for directories that the client has alone.
        JobOp::Extend { subtree, .. } if subtree.0 == 0 => None,
        JobOp::Decouple { .. } | JobOp::Extend { .. } | JobOp::Release { .. } => {
            Some(Rights::DECOUPLE)
        }
        JobOp::Merge { flags, .. } => Some(of_merge(*flags)),
        JobOp::TakeOver { .. } => Some(Rights::RECOVER),
        JobOp::Adopt { .. } => Some(Rights::BRANCH),
    }
}

fn of_merge(flags: MergeFlags) -> Rights {
    if flags.strong_log {
        // The changes were answered before, and are repeated.
        return Rights::WRITE;
    }
    // Without the right to merge unchecked, the server checks the journal.
    let by_value = Rights::MERGE;
    if flags.by_reference { by_value.and(Rights::MERGE_BY_REFERENCE) } else { by_value }
}

#[cfg(test)]
mod tests {
    use types::{ClientId, Ino};

    use super::*;
    use crate::{ReadOp, UnusedNumbers};

    fn merge(flags: MergeFlags) -> Option<Rights> {
        let (subtree, bytes, object) = (Ino(9), 0, b"".as_slice());
        Op::Job(JobOp::Merge { subtree, bytes, object, flags, unused: UnusedNumbers::default() })
            .rights()
    }

    #[test]
    fn each_mechanism_has_a_right_of_its_own() {
        let ino = Ino(9);
        let none = MergeFlags::default();
        assert_eq!(merge(none), Some(Rights::MERGE));
        let by_reference = merge(MergeFlags { by_reference: true, ..none }).unwrap();
        assert!(by_reference.has(Rights::MERGE) && by_reference.has(Rights::MERGE_BY_REFERENCE));
        assert_eq!(merge(MergeFlags { strong_log: true, ..none }), Some(Rights::WRITE));
        let path = b"/a".as_slice();
        let decouple = JobOp::Decouple { path, client: ClientId(1), policy: b"" };
        assert_eq!(Op::Job(decouple).rights(), Some(Rights::DECOUPLE));
        assert_eq!(Op::Read(ReadOp::GetAttr { ino }).rights(), Some(Rights::READ));
        let take_over = Op::Job(JobOp::TakeOver { subtree: ino });
        assert_eq!(take_over.rights(), Some(Rights::RECOVER));
        let policy = ChangeOp::SetPolicy { path, policy: b"", client: ClientId(1) };
        assert_eq!(Op::Change(policy).rights(), Some(Rights::POLICY));
    }

    #[test]
    fn a_client_may_always_give_up_its_own_state() {
        for op in [SessionOp::Sync, SessionOp::AwaitAsync, SessionOp::Return { dir: Ino(9) }] {
            assert_eq!(Op::Session(op).rights(), None, "{op:?}");
        }
        let open = |write| Op::Session(SessionOp::Open { ino: Ino(9), write }).rights();
        assert_eq!((open(false), open(true)), (Some(Rights::READ), Some(Rights::WRITE)));
        assert_eq!(Op::Job(JobOp::Extend { subtree: Ino(0), count: 1 }).rights(), None);
    }
}
