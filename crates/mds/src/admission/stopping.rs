//! A server that stops: it leaves changes to the next server, also those that waited when it began
//! to stop.

use types::{ConnId, Errno};
use wire::{Failure, Op};

use super::{Incoming, Verdict};
use crate::op::Refused;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    if mds.is_stopping() { verdict(from) } else { Verdict::Pass }
}

#[cold]
fn verdict(from: Incoming<'_>) -> Verdict {
    if !from.op().is_change() && !matches!(from.op(), Op::Job(_)) {
        return Verdict::Pass;
    }
    let failure = leave_to_next(from.conn);
    failure.map_or(Verdict::Taken, |failure| Verdict::Refuse(Refused::Failure(failure)))
}

/// The answer to a request that is left to the next server. A client gets none: it sends the
/// request again to the next server, so that no request of a program fails when servers are
/// restarted one by one. Other requesters do not send theirs again.
pub(super) fn leave_to_next(conn: ConnId) -> Option<Failure> {
    if conn.is_of_client() {
        return None;
    }
    Some(Failure { errno: Errno::Again, text: "the metadata server is stopping".into() })
}

#[cfg(test)]
mod tests {
    use types::{ClientId, Cred, Ino, Tid};
    use wire::{ChangeOp, JobOp, ReadOp, Request};

    use super::*;

    const CHANGE: Op<'_> = Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" });

    fn verdict_on(conn: ConnId, op: Op<'_>) -> Verdict {
        let request = Request::new(Tid(1), Tid(0), Cred::root(), op);
        verdict(Incoming { conn, client: ClientId(3), request: &request })
    }

    #[test]
    fn changes_of_clients_are_left_to_the_next_server() {
        let job = Op::Job(JobOp::Decouple { path: b"/a", policy: b"batchfs", client: ClientId(3) });
        for op in [CHANGE, job] {
            assert!(matches!(verdict_on(ConnId(7), op), Verdict::Taken));
        }
        let question = Op::Read(ReadOp::GetAttr { ino: Ino::ROOT });
        assert!(matches!(verdict_on(ConnId(7), question), Verdict::Pass));
    }

    #[test]
    fn other_requesters_are_told_to_try_again() {
        for conn in [ConnId::MONITOR, ConnId::PEER, ConnId::BALANCER] {
            let Verdict::Refuse(Refused::Failure(failure)) = verdict_on(conn, CHANGE) else {
                panic!("{conn} waits for an answer");
            };
            assert_eq!(failure.errno, Errno::Again);
        }
    }
}
