//! The server has other parts meet the needs of moves.

use metastore::request::{StoreFailure, StoreResult};
use namespace::Refusal;
use types::{ClientId, ConnId, Cred, Ino, Rank, Tid};
use wire::{Answer, Failure, Op, PeerBody, PeerMessage, RankOp, Request};

use super::fragments::{ITSELF, Resize};
use super::{ListNews, Placed, READ_INTERVAL, RETRY};
use crate::admission::Incoming;
use crate::authority::{ExportCx, ImportCx, ListCx, Places, PreloadCx, ReshapeCx};
use crate::caps::CapsCx;
use crate::fetch::FetchCx;
use crate::merge::MergeCx;
use crate::merge_request::MergeRequestCx;
use crate::op::{Performed, Refused};
use crate::peers::{PeerLine, is_for_ranks};
use crate::transfer::TransferId;
use crate::{Mds, MdsEffects};

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
                        && cold != crate::fetch::NUMBERS
                    {
                        FetchCx::of(self).preload(cold, effects);
                    }
                }
            }
        }
        self.follow_names(effects);
        self.reservations_tick(effects);
        self.held_tick(effects);
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
        self.names_listed(&news, effects);
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
        ListCx::of(self).end(effects);
    }

    /// Answers a request that this rank may not execute. Returns whether that is done.
    pub(crate) fn answer_placed(
        &mut self,
        from: Incoming<'_>,
        dir: Ino,
        placed: Placed,
        effects: &mut MdsEffects,
    ) -> bool {
        let failure: Failure = match placed {
            Placed::Here => return false,
            Placed::Taken => return true,
            Placed::Refused(failure) => failure,
            Placed::Away { rank, failure } => {
                if self.brings_home(from, (dir, rank), &failure, effects) {
                    return true;
                }
                failure
            }
        };
        self.refuse(from, failure, effects);
        true
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

    /// Asks a rank, perhaps this one, to execute an operation.
    pub(crate) fn ask_rank(
        &mut self,
        (to, number): (Rank, u64),
        cred: Cred,
        op: Op<'_>,
        effects: &mut MdsEffects,
    ) {
        if to == self.rank {
            self.question_of_rank((to, number), cred, op, effects);
        } else {
            PeerLine::of(self).send(to, PeerBody::Ask { number, cred, op }, effects);
        }
    }

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
            match self.may_consider(TransferId { number, from }, dir, effects) {
                Ok(true) => {}
                Ok(false) => return,
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
