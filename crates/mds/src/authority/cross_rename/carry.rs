//! The rank that has a name asks the other one to take its offer, and repeats that until it has the
//! answer or withdraws the offer. The client sends one request, and gets one answer. The object of
//! the offer decides, whichever message is lost.

use types::{ClientId, Cred, Errno, Ino, Moment, Rank, Seq, Span, Tid, Timestamp};
use wire::{Answer, Failure, Op, PeerBody, RankOp, TransferStep};

use super::depart::DepartureStage;
use crate::peers::PeerLine;
use crate::session::{Fate, Remembered};
use crate::{Mds, MdsEffects};

/// How often a question is repeated.
const ASK_INTERVAL: Span = Span::from_millis(20);

impl Mds {
    /// Asks the other rank to take the name.
    pub(super) fn ask_for_name(&mut self, id: u64, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let Some(departure) = self.departure(id) else { return };
        if !is_due(&mut departure.repeated, now) {
            return;
        }
        let (to, dir) = (departure.cross_rename.to, departure.cross_rename.new_parent);
        let op = Op::Rank(RankOp::Arrive { dir, from: self.rank, cross_rename: id });
        self.ask_rank((to, id), Cred::root(), op, effects);
    }

    /// The other rank says that it has taken an offer, or why not. Returns whether this rank has
    /// the offer. The object tells for sure.
    pub(in crate::authority) fn name_answered(
        &mut self,
        id: u64,
        result: &Result<Answer, Failure>,
    ) -> bool {
        let now = self.clock.now;
        let Some(departure) = self.departure(id) else { return false };
        if matches!(departure.stage, DepartureStage::Offered(_)) {
            departure.refused = match result {
                Ok(Answer::Done) => None,
                Ok(_) => {
                    let text = "another metadata server serves the directory by now; try again";
                    Some(Failure { errno: Errno::Again, text: text.into() })
                }
                Err(failure) => Some(failure.clone()),
            };
            departure.stage = DepartureStage::Look(now);
            if departure.refused.as_ref().is_some_and(|it| it.errno == Errno::Again) {
                let dir = departure.cross_rename.new_parent;
                self.is_not_there(dir, result);
            }
        } else if let DepartureStage::Gone(seq, _) = departure.stage {
            // The other rank has journalled it, probably.
            departure.stage = DepartureStage::Gone(seq, now);
        }
        true
    }

    /// This rank has journalled a name that it took: the other one need not look for that later.
    pub(super) fn send_taken(&self, (giver, number): (Rank, u64), effects: &mut MdsEffects) {
        let step = TransferStep::Committed;
        let body = PeerBody::Transfer { giver, number, step };
        PeerLine::of(self).send(giver, body, effects);
    }

    /// The request of a client has moved a name to another rank: a repetition has no effect.
    pub(super) fn note_carried(&mut self, (client, tid): (ClientId, Tid), time: Timestamp) {
        if client == ClientId(0) {
            return;
        }
        let session = self.sessions.get_mut(client);
        if matches!(session.fate(tid), Fate::New) {
            // The object is durable: the client need not send the request again.
            session.finish(Remembered { tid, seq: Seq(0), ino: Ino(0), time });
        }
    }

    /// The request of a client was not executed: a repetition is tried again.
    pub(super) fn note_not_carried(&mut self, (client, tid): (ClientId, Tid)) {
        if client != ClientId(0) {
            self.sessions.get_mut(client).refuse(tid);
        }
    }
}

/// Whether it is time to repeat a question; then it counts as repeated.
pub(in crate::authority) fn is_due(repeated: &mut Option<Moment>, now: Moment) -> bool {
    let due = repeated.is_none_or(|at| now.since(at) >= ASK_INTERVAL);
    if due {
        *repeated = Some(now);
    }
    due
}
