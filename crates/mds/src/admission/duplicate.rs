//! Duplicates: a change that was executed before is answered as it was.

use super::{Entry, Incoming, Verdict};
use crate::fetch::FetchCx;
use crate::op::{Again, ChangeCx};
use crate::session::{Fate, Remembered, Sessions};
use crate::{Mds, MdsEffects};

#[inline]
pub(super) fn check(mds: &mut Mds, from: Incoming<'_>, effects: &mut MdsEffects) -> Verdict {
    match fate(&mut mds.sessions, from) {
        Fate::New => Verdict::Pass,
        Fate::Done(known) => {
            answer(mds, from, known, effects);
            Verdict::Taken
        }
    }
}

/// A request that was executed before gets the same answer.
pub(super) fn answer(
    mds: &mut Mds,
    from: Incoming<'_>,
    known: Option<Remembered>,
    effects: &mut MdsEffects,
) {
    let is_active = mds.is_active();
    match ChangeCx::of(mds).answer_again(from, known, is_active, effects) {
        Again::Answered => {}
        Again::Park(dir) => FetchCx::of(mds).park(from, dir, effects),
        Again::Execute => mds.execute::<{ Entry::NEW }>(from, effects),
    }
}

/// Questions are answered anew, and the monitor sends nothing twice.
#[inline]
fn fate(sessions: &mut Sessions, from: Incoming<'_>) -> Fate {
    if !from.op().is_mutation() || from.client.0 == 0 {
        return Fate::New;
    }
    sessions.get_mut(from.client).fate(from.tid())
}

#[cfg(test)]
mod tests {
    use types::{ClientId, ConnId, Cred, Ino, Seq, Tid, Timestamp};
    use wire::{ChangeOp, Op, ReadOp, Request};

    use super::*;

    fn fate_of(client: ClientId, tid: u64, op: Op<'_>) -> Fate {
        let mut sessions = Sessions::default();
        let (ino, time) = (Ino(0), Timestamp(0));
        sessions.get_mut(client).finish(Remembered { tid: Tid(5), seq: Seq(8), ino, time });
        let request = Request::new(Tid(tid), Tid(0), Cred::root(), op);
        fate(&mut sessions, Incoming { conn: ConnId(1), client, request: &request })
    }

    fn change() -> Op<'static> {
        Op::Change(ChangeOp::Unlink { parent: Ino::ROOT, name: b"a" })
    }

    #[test]
    fn a_change_that_was_executed_is_a_duplicate_with_its_position() {
        let found = fate_of(ClientId(2), 5, change());
        assert!(matches!(found, Fate::Done(Some(known)) if known.seq == Seq(8)));
    }

    #[test]
    fn a_later_change_is_new() {
        assert!(matches!(fate_of(ClientId(2), 6, change()), Fate::New));
    }

    #[test]
    fn a_question_is_never_a_duplicate() {
        assert!(matches!(
            fate_of(ClientId(2), 5, Op::Read(ReadOp::GetAttr { ino: Ino::ROOT })),
            Fate::New
        ));
    }

    #[test]
    fn a_request_of_the_monitor_is_never_a_duplicate() {
        assert!(matches!(fate_of(ClientId(0), 5, change()), Fate::New));
    }
}
