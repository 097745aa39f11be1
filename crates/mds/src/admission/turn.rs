//! The turn: the changes of one client are executed in the order of its requests. A sync is about
//! the changes before it, those that wait among them.

use types::ConnId;
use wire::{Message, Op, SessionOp};

use super::{Incoming, Verdict};
use crate::session::Sessions;
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, _: &mut MdsEffects) -> Verdict {
    verdict(&mut mds.sessions, from)
}

#[inline]
fn verdict(sessions: &mut Sessions, Incoming { conn, client, request }: Incoming<'_>) -> Verdict {
    if conn == ConnId::MONITOR || client.0 == 0 {
        return Verdict::Pass;
    }
    let session = sessions.get_mut(client);
    let is_change = request.op.is_mutation() || request.op == Op::Session(SessionOp::Sync);
    let queue = if conn != ConnId::NOBODY && !session.async_ops.waiting.is_empty() {
        // Behind an asynchronous operation that waits, all requests of the client wait.
        &mut session.async_ops.waiting
    } else if is_change && !request.is_async && !session.blocked.is_empty() {
        &mut session.blocked
    } else {
        return Verdict::Pass;
    };
    queue.push_back(Message::Request(request.clone()).to_frame());
    Verdict::Taken
}

#[cfg(test)]
mod tests {
    use types::{ClientId, Cred, Ino, Tid};
    use wire::{ChangeOp, ReadOp, Request};

    use super::*;

    const CLIENT: ClientId = ClientId(3);

    fn is_taken(sessions: &mut Sessions, op: Op<'_>) -> bool {
        let request = Request::new(Tid(9), Tid(0), Cred::root(), op);
        let from = Incoming { conn: ConnId(1), client: CLIENT, request: &request };
        matches!(verdict(sessions, from), Verdict::Taken)
    }

    fn change() -> Op<'static> {
        Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" })
    }

    fn question() -> Op<'static> {
        Op::Read(ReadOp::GetAttr { ino: Ino::ROOT })
    }

    #[test]
    fn a_request_passes_when_nothing_of_its_client_waits() {
        let mut sessions = Sessions::default();
        assert!(!is_taken(&mut sessions, change()) && !is_taken(&mut sessions, question()));
    }

    #[test]
    fn a_change_waits_behind_a_change_that_waits_and_a_question_does_not() {
        let mut sessions = Sessions::default();
        sessions.get_mut(CLIENT).blocked.push_back(vec![1]);
        assert!(!is_taken(&mut sessions, question()));
        assert!(
            is_taken(&mut sessions, change())
                && is_taken(&mut sessions, Op::Session(SessionOp::Sync))
        );
        assert_eq!(sessions.get_mut(CLIENT).blocked.len(), 3);
    }

    #[test]
    fn a_question_waits_behind_an_asynchronous_operation_that_waits() {
        let mut sessions = Sessions::default();
        sessions.get_mut(CLIENT).async_ops.waiting.push_back(vec![1]);
        assert!(is_taken(&mut sessions, question()) && is_taken(&mut sessions, change()));
        assert_eq!(sessions.get_mut(CLIENT).async_ops.waiting.len(), 3);
    }
}
