//! The server has other parts meet the needs of moves.

use metastore::MovedName;
use metastore::request::{StoreFailure, StoreResult};
use namespace::Refusal;
use types::{ClientId, ConnId, Cred, Errno, Ino, Rank, Tid};
use wire::{Answer, Failure, Message, Op, PeerBody, PeerMessage, RankOp, Request, TransferStep};

use super::between::{Between, BetweenCx, BetweenNeed, SecondRank};
use super::cross_rename::{Arrival, NameNeed};
use super::decoupled::is_merged_below;
use super::fragments::{ITSELF, Resize};
use super::preload::Goal;
use super::{ListNews, READ_INTERVAL, RETRY};
use crate::admission::Incoming;
use crate::authority::{
    ExportCx, ImportCx, ListCx, NamesCx, Places, PreloadCx, ReserveCx, ReshapeCx,
};
use crate::caps::CapsCx;
use crate::fetch::{FetchCx, decode};
use crate::merge::MergeCx;
use crate::merge_request::MergeRequestCx;
use crate::op::{ChangeCx, Performed, Performing, Refused};
use crate::peers::{PeerLine, is_for_ranks};
use crate::transfer::{Fence, TransferId, TransferMessage};
use crate::watch::WatchCx;
use crate::{Mds, MdsEffects, Phase, ReplyTo};

impl Mds {
    /// Reads the list regularly, and begins the operations that wait for a time.
    pub(crate) fn authority_tick(&mut self, effects: &mut MdsEffects) {
        if !self.is_active() && self.phase != crate::Phase::Stopping {
            return;
        }
        let now = self.clock.now;
        let due = self.authority.read_at.is_none_or(|at| now.since(at) >= READ_INTERVAL);
        if due && self.is_active() && self.authority.has_ranks(self.map.as_ref()) {
            self.authority.read_list(&mut self.store, effects);
        }
        if self.is_active() {
            for (part, access) in ReshapeCx::of(self).fragments_tick(effects) {
                if CapsCx::of(self).revoke(ClientId(0), part, effects).is_none() {
                    ReshapeCx::of(self).set_access(part, access);
                }
            }
        }
        // Split directories that have become large, and join those that have become small.
        for resize in ReshapeCx::of(self).wrong_sizes() {
            let performed = match resize {
                Resize::Split(dir) => ReshapeCx::of(self).split(ITSELF, &Cred::root(), dir),
                Resize::Join(dir) => ReshapeCx::of(self).join(ITSELF, &Cred::root(), dir, effects),
                Resize::Home { dir, .. } => ExportCx::of(self).send_home(dir),
            };
            match performed {
                Ok(Performed::Later) => break,
                Ok(Performed::Answer(_) | Performed::Changed(_)) => {}
                Err(refused) => {
                    ReshapeCx::of(self).keeps_size(resize);
                    if let Refused::Refusal(Refusal::Cold(cold)) = refused
                        && cold != crate::fetch::TABLE_PUT
                    {
                        FetchCx::of(self).preload(cold, effects);
                    }
                }
            }
        }
        self.follow_names(effects);
        ReserveCx::of(self).tick(effects);
        for need in BetweenCx::of(self).tick(effects) {
            self.meet_between(need, effects);
        }
        self.authority_step(effects);
    }

    /// A name was given in a directory.
    #[inline]
    pub(crate) fn note_size(&mut self, dir: Ino) {
        let most = self.settings.split_entries;
        if most != 0 && self.authority.has_ranks(self.map.as_ref()) {
            self.authority.note_size(&self.namespace, dir, most, self.clock.now);
        }
    }

    /// Whether a subtree is moving from this rank, or to it.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.authority.is_moving()
    }

    /// Whether this rank is the authority of the subtree with this root, and serves it.
    #[must_use]
    pub fn serves(&self, root: Ino) -> bool {
        self.is_active() && Places::of(self).serves(root)
    }

    /// Continues everything that moves, as far as possible. Called after every input.
    pub(crate) fn authority_step(&mut self, effects: &mut MdsEffects) {
        if self.authority.is_exporting() {
            for root in ExportCx::of(self).draining(effects) {
                let before = self.counters.revokes;
                let held = CapsCx::of(self).revoke_below(ClientId(0), root, effects).is_some();
                let flushed = self.counters.revokes - before;
                ExportCx::of(self).drained(root, held, flushed, effects);
            }
            ExportCx::of(self).step(effects);
        }
        PreloadCx::of(self).step(effects);
        if self.authority.reshape.is_some() {
            let mut is_held = false;
            for dir in ReshapeCx::of(self).draining() {
                is_held |= CapsCx::of(self).revoke(ClientId(0), dir, effects).is_some();
            }
            if let Some(dir) = ReshapeCx::of(self).step(is_held, effects) {
                FetchCx::of(self).preload(dir, effects);
            }
        }
        if !self.authority.cross_renames.is_empty() {
            self.cross_renames_step(effects);
        }
        if !self.authority.imports.is_empty() && self.is_active() {
            ImportCx::of(self).step(effects);
            // Imports may have to wait for them.
            if !self.authority.cross_renames.is_empty() {
                self.cross_renames_step(effects);
            }
        }
        PreloadCx::of(self).step(effects);
        WatchCx::of(self).note_moves();
        self.tell_ended(effects);
    }

    /// Tells the parts that wait for the end of a move.
    pub(crate) fn tell_ended(&mut self, effects: &mut MdsEffects) {
        let Some(gone) = self.authority.ended.take() else { return };
        // Requests that wait for a merge of these continue to wait at the other rank.
        gone.into_iter().for_each(|root| MergeRequestCx::of(self).end_elsewhere(root));
        MergeCx::of(self).go_on_with_held(effects);
        self.last_beacon = None;
    }

    /// The list was read, or replaced.
    pub(crate) fn list_stored(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let now = self.clock.now;
        let news = ListCx::of(self).stored(result, effects);
        if !self.authority.cross_renames.is_empty() {
            let needs = NamesCx::of(self).listed(&news, effects);
            self.meet_names(needs, effects);
        }
        match news {
            ListNews::None => {}
            ListNews::Read => self.authority.list_changed(&self.namespace, self.phase),
            ListNews::Unknown => {
                ExportCx::of(self).list_unknown(now + RETRY, effects);
                ImportCx::of(self).list_again(false);
                self.authority.reshape_listed(true, now);
            }
            ListNews::Replaced => {
                self.authority.reshape_listed(false, now);
                if !ImportCx::of(self).list_replaced() {
                    ExportCx::of(self).list_replaced(effects);
                }
            }
            ListNews::Found => {
                ImportCx::of(self).list_again(true);
                self.authority.reshape_listed(false, now);
                ExportCx::of(self).list_found(effects);
            }
        }
        self.tell_ended(effects);
        // Reports of the named clients may wait for the list.
        ImportCx::of(self).drop_unnamed();
        ListCx::of(self).end(effects);
    }

    /// Continues the cross-rank renames, as far as possible.
    fn cross_renames_step(&mut self, effects: &mut MdsEffects) {
        // A change now would be in only half of a snapshot.
        let waits = matches!(self.phase, Phase::Recovering | Phase::Reconnecting { .. });
        if waits || self.snapshots.is_frozen() {
            return;
        }
        for (id, dir) in self.authority.cross_renames.draining() {
            let held = CapsCx::of(self).revoke_below(ClientId(0), dir, effects).is_some();
            let merged = is_merged_below(&self.merges, &self.checkpoint, &self.namespace, dir);
            if self.phase != Phase::Active || (!held && merged) {
                let needs = NamesCx::of(self).drained(id, effects);
                self.meet_names(needs, effects);
            }
        }
        let needs = NamesCx::of(self).step(effects);
        self.meet_names(needs, effects);
        if let Some(list) = NamesCx::of(self).proposal() {
            self.authority.put_list(list, &mut self.store, effects);
        }
    }

    /// Has other parts do what transfers of names need.
    pub(crate) fn meet_names(&mut self, needs: Vec<NameNeed>, effects: &mut MdsEffects) {
        for need in needs {
            match need {
                NameNeed::Fetch(dir) if self.fetches.is_waited_for(dir) => {}
                NameNeed::Fetch(dir) => FetchCx::of(self).preload(dir, effects),
                NameNeed::Find(dir) => self.authority.preload(Goal::Find(dir)),
                NameNeed::Read => {
                    self.authority.read_list(&mut self.store, effects);
                }
                NameNeed::Came(dir) => {
                    ChangeCx::of(self).apply.note_freed(true);
                    self.note_size(dir);
                }
                NameNeed::Thaw(dir) => {
                    self.fetches.wake_returned(dir);
                    MergeCx::of(self).go_on_with_held(effects);
                }
            }
        }
    }

    /// Takes a name that another rank gives away, if its place can be reserved. No answer means
    /// that the giver has to ask again.
    pub(crate) fn arrive(
        &mut self,
        at: ReplyTo,
        cred: &Cred,
        (dir, moved): (Ino, &[u8]),
        effects: &mut MdsEffects,
    ) -> Performing {
        let record = MovedName::decode(moved).map_err(|_| Errno::Invalid)?;
        // A rank gives away only its own names.
        if self.peers.asker(at.tid) != Some(record.from) {
            return Err(Errno::Invalid.into());
        }
        let id = TransferId { number: record.number, from: record.from };
        let comes = match NamesCx::of(self).may_arrive(&record, dir)? {
            Arrival::Known => {
                let needs = NamesCx::of(self).asked_again(id, effects);
                self.meet_names(needs, effects);
                return Ok(Performed::Answer(Answer::Done));
            }
            Arrival::Now => true,
            Arrival::Later(need) => {
                self.meet_names(need.into_iter().collect(), effects);
                false
            }
            // Block creates in the directory that the rename will replace.
            Arrival::Replaces(target) => {
                CapsCx::of(self).revoke_below(ClientId(0), target, effects).is_none()
            }
        };
        if !comes {
            return Ok(self.peers.leave_unanswered(at.tid));
        }
        let needs = NamesCx::of(self).arrive(record, cred, effects)?;
        let reserved = self.authority.cross_renames.knows(id);
        self.meet_names(needs, effects);
        self.cross_renames_step(effects);
        Ok(if reserved {
            Performed::Answer(Answer::Done)
        } else {
            self.peers.leave_unanswered(at.tid)
        })
    }

    /// Has a subtree that was renamed away follow its name.
    fn follow_names(&mut self, effects: &mut MdsEffects) {
        // Requests that were answered before a crash are replayed first, where they were answered.
        if self.resend.is_busy() || self.phase != Phase::Active {
            return;
        }
        let Some((root, to)) = self.authority.next_to_follow(self.clock.now) else { return };
        if let Err(Refused::Refusal(Refusal::Cold(cold))) =
            ExportCx::of(self).begin(ReplyTo::NOBODY, root, to, false)
        {
            FetchCx::of(self).preload(cold, effects);
        }
        self.authority_step(effects);
    }

    /// Executes a request with another rank.
    pub(crate) fn between_ranks(
        &mut self,
        from: Incoming<'_>,
        second: SecondRank,
        effects: &mut MdsEffects,
    ) -> Performing {
        let need = match BetweenCx::of(self).execute(from, second, effects)? {
            Between::Waits(need) => need,
            Between::Departs { to, is_file } => match NamesCx::of(self).depart(from, to) {
                Err(refused) if is_file && refused.errno() == Some(Errno::CrossDevice) => {
                    BetweenCx::of(self).brings_together(from, to, effects)?
                }
                departs => {
                    departs?;
                    self.cross_renames_step(effects);
                    return Ok(Performed::Later);
                }
            },
        };
        need.into_iter().for_each(|need| self.meet_between(need, effects));
        Ok(Performed::Later)
    }

    /// Has other parts do what a request between ranks needs.
    fn meet_between(&mut self, need: BetweenNeed, effects: &mut MdsEffects) {
        match need {
            BetweenNeed::Ask { number, cred, op } => {
                self.question_of_rank((self.rank, number), cred, Op::Rank(op), effects);
            }
            BetweenNeed::Execute { conn, frame } => {
                if let Some(Message::Request(request)) = decode(&frame) {
                    self.request(conn, &request, effects);
                }
            }
        }
    }

    /// Has a directory come that is to be removed or renamed. Returns whether the request waits.
    pub(crate) fn brings_home(
        &mut self,
        from: Incoming<'_>,
        (dir, rank): (Ino, Rank),
        refused: &Failure,
        effects: &mut MdsEffects,
    ) -> bool {
        let held = BetweenCx::of(self).brings_home(from, (dir, rank), refused, effects);
        let waits = held.is_some();
        held.flatten().into_iter().for_each(|need| self.meet_between(need, effects));
        waits
    }

    /// A rank has answered a question of this one.
    pub(crate) fn rank_answered(
        &mut self,
        number: u64,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        let id = TransferId { number, from: self.rank };
        if let Some(dir) = self.authority.cross_renames.goes_to(id) {
            let needs = NamesCx::of(self).answered(id, dir, &result, effects);
            self.meet_names(needs, effects);
        } else if let Some(need) = BetweenCx::of(self).answered(number, result, effects) {
            self.meet_between(need, effects);
        }
        self.authority_step(effects);
    }

    /// A message of another rank about a transfer. A rank that replays drops it: the recovery reads
    /// the list itself, and a newer list would not fit what it has read.
    pub(crate) fn transfer_step(
        &mut self,
        from: Rank,
        (giver, number): (Rank, u64),
        step: &TransferStep,
        effects: &mut MdsEffects,
    ) {
        if self.phase == Phase::Recovering {
            return;
        }
        let id = TransferId { number, from: giver };
        let message = match *step {
            TransferStep::AskSubtree { .. } => TransferMessage::Ask,
            TransferStep::Committed => TransferMessage::Committed,
            TransferStep::Stayed => TransferMessage::Stayed,
            TransferStep::Reserved { fence } => TransferMessage::Reserved(Fence(fence)),
            TransferStep::Refused { .. } => TransferMessage::Refused,
        };
        let is_of_giver =
            !matches!(message, TransferMessage::Reserved(_) | TransferMessage::Refused);
        let is_name = self.authority.cross_renames.knows(id);
        match *step {
            // The sender does not take part in the transfer.
            _ if giver != if is_of_giver { from } else { self.rank } => {}
            TransferStep::AskSubtree { root } => ReserveCx::of(self).asked(id, root, effects),
            TransferStep::Refused { ref why, .. } => {
                ExportCx::of(self).giver_heard(id, message, why, effects);
            }
            _ if is_name => {
                let needs = NamesCx::of(self).heard(id, message, effects);
                self.meet_names(needs, effects);
            }
            TransferStep::Committed | TransferStep::Stayed => {
                ReserveCx::of(self).heard(id, message, effects);
            }
            TransferStep::Reserved { fence } if Fence(fence) != Fence::NONE => {
                NamesCx::of(self).reserved_in_vain(id, from, effects);
            }
            TransferStep::Reserved { .. } => {
                ExportCx::of(self).giver_heard(id, message, "", effects);
            }
        }
        self.authority_step(effects);
    }

    /// A message of another rank.
    pub(crate) fn peer_message(
        &mut self,
        conn: ConnId,
        message: PeerMessage<'_>,
        effects: &mut MdsEffects,
    ) {
        let PeerMessage { from, term, to, body } = message;
        if to != self.rank || from == self.rank {
            effects.close.push(conn);
            return;
        }
        if !self.peers.is_current(from, term) {
            return;
        }
        match body {
            PeerBody::Hello => {}
            PeerBody::Transfer { giver, number, step } => {
                self.transfer_step(from, (giver, number), &step, effects);
            }
            PeerBody::Ask { number, cred, op } => {
                self.question_of_rank((from, number), cred, op, effects);
            }
            PeerBody::Answer { number, result } => self.rank_answered(number, result, effects),
        }
    }

    /// Executes a question of another rank, or of this one.
    fn question_of_rank(
        &mut self,
        (from, number): (Rank, u64),
        cred: Cred,
        op: Op<'_>,
        effects: &mut MdsEffects,
    ) {
        // A server that begins or stops does not answer, and the other rank asks again.
        if !self.is_active() || !is_for_ranks(&op) {
            return;
        }
        if let Op::Rank(RankOp::Arrive { dir, .. }) = op {
            match NamesCx::of(self).considers(TransferId { number, from }, dir, effects) {
                Ok(Some(needs)) => self.meet_names(needs, effects),
                Ok(None) => return,
                Err(failure) => {
                    let answer = PeerBody::Answer { number, result: Err(failure) };
                    return PeerLine::of(self).send(from, answer, effects);
                }
            }
        }
        let Some(tid) = self.peers.take_question(from, number) else { return };
        self.request(ConnId::PEER, &Request::new(tid, Tid(0), cred, op), effects);
    }

    /// A question of another rank has its answer.
    pub(crate) fn answer_peer(
        &mut self,
        tid: Tid,
        result: Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) {
        let Some((to, number)) = self.peers.answered(tid) else { return };
        if to == self.rank {
            self.rank_answered(number, result, effects);
        } else {
            PeerLine::of(self).send(to, PeerBody::Answer { number, result }, effects);
        }
    }
}
