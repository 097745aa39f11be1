//! The servers carry an offer themselves: the client sends one request, and gets one answer.
//!
//! The rank that has the name asks the other one to take the offer, and repeats that until it
//! has the answer or withdraws the offer. The question enters the other rank's admission like a
//! request for the directory, so it waits for the clients that cache the directory, and for
//! everything else that a change there waits for. The object of the offer decides, whichever
//! message is lost.

use std::collections::BTreeMap;

use types::{ClientId, ConnId, Cred, Errno, Ino, Moment, Rank, Seq, Span, Tid, Timestamp};
use wire::{Answer, Failure, Op, PeerBody, Request, TransferStep};

use super::depart::DepartureStage;
use crate::session::{Fate, Remembered};
use crate::{Mds, MdsEffects, Phase};

/// How often a question is repeated.
const ASK_INTERVAL: Span = Span::from_millis(20);
/// After this time a question that has no answer is asked again on the other rank.
const ASKED_FOR: Span = Span::from_millis(2000);

/// Questions of other ranks that are being answered, each under the number that it has as a
/// request here.
#[derive(Debug, Default)]
pub(super) struct Questions {
    last: u64,
    all: BTreeMap<Tid, (Rank, u64, Moment)>,
}

impl Questions {
    fn begin(&mut self, (from, number): (Rank, u64), now: Moment) -> Option<Tid> {
        self.all.retain(|_, (.., since)| now.since(*since) < ASKED_FOR);
        if self.all.values().any(|(of, known, _)| (*of, *known) == (from, number)) {
            return None;
        }
        self.last += 1;
        let tid = Tid(self.last);
        self.all.insert(tid, (from, number, now));
        Some(tid)
    }
}

impl Mds {
    /// Asks the other rank to take the name, unless a client carries the offer.
    pub(super) fn ask_for_name(&mut self, id: u64, effects: &mut MdsEffects) {
        let now = self.clock.now;
        let Some(departure) = self.departure(id) else { return };
        let due = departure.repeated.is_none_or(|at| now.since(at) >= ASK_INTERVAL);
        if !departure.is_carried_here() || !due {
            return;
        }
        departure.repeated = Some(now);
        let (to, dir) = (departure.cross_rename.to, departure.cross_rename.new_parent);
        let (giver, number) = (departure.cross_rename.from, departure.id);
        let body = PeerBody::Transfer { giver, number, step: TransferStep::AskName { dir } };
        self.send_to_peer(to, body, effects);
    }

    /// The other rank has taken an offer of this rank, or refuses it. The object tells for sure.
    pub(in crate::authority) fn name_answered(&mut self, id: u64, refused: Option<Failure>) {
        let now = self.clock.now;
        let Some(departure) = self.departure(id) else { return };
        if matches!(departure.stage, DepartureStage::Offered(_)) && departure.is_carried_here() {
            departure.refused = refused;
            departure.stage = DepartureStage::Look(now);
        } else if let DepartureStage::Gone(seq, _) = departure.stage {
            // The other rank has journalled it, probably.
            departure.stage = DepartureStage::Gone(seq, now);
        }
    }

    /// Another rank offers a name for a directory of this rank.
    pub(in crate::authority) fn name_asked(
        &mut self,
        from: (Rank, u64),
        dir: Ino,
        effects: &mut MdsEffects,
    ) {
        let now = self.clock.now;
        let cross_renames = &mut self.authority.cross_renames;
        let arrives = cross_renames.arrivals.iter().any(|it| it.is_from(from));
        if self.phase != Phase::Active || arrives {
            return;
        }
        let Some(tid) = cross_renames.questions.begin(from, now) else { return };
        let op = Op::Arrive { dir, from: from.0, cross_rename: from.1 };
        let request = Request::new(tid, Tid(0), Cred::root(), op);
        self.request(ConnId::PEER, &request, effects);
    }

    /// This rank has journalled a name that it took: the other one need not look for that later.
    pub(super) fn send_taken(&self, (giver, number): (Rank, u64), effects: &mut MdsEffects) {
        let step = TransferStep::Committed;
        let body = PeerBody::Transfer { giver, number, step };
        self.send_to_peer(giver, body, effects);
    }

    /// The question of another rank has its answer.
    pub(crate) fn answer_peer(
        &mut self,
        tid: Tid,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        let known = self.authority.cross_renames.questions.all.remove(&tid);
        let Some((giver, number, _)) = known else { return };
        let step = match result {
            Ok(Answer::Done) => TransferStep::Committed,
            Ok(_) => {
                let why = "another rank serves the directory".to_owned();
                TransferStep::Refused { errno: Errno::Again, why }
            }
            Err(Failure { errno, text }) => TransferStep::Refused { errno, why: text },
        };
        let body = PeerBody::Transfer { giver, number, step };
        self.send_to_peer(giver, body, effects);
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
