//! The server has other parts meet the needs of moves.

use metastore::MovedName;
use metastore::request::{StoreFailure, StoreResult};
use namespace::Refusal;
use types::{ClientId, Cred, Errno, Ino, Rank};
use wire::{Answer, Failure, Message, Op, TransferStep};

use super::cross_rename::{Arrival, NameNeed};
use super::decoupled::is_merged_below;
use super::fragments::{ITSELF, Resize};
use super::preload::Goal;
use super::{
    BetweenCx, BetweenNeed, ListNews, Placed, READ_INTERVAL, RETRY, ReserveCx, SecondRank,
};
use crate::admission::Incoming;
use crate::fetch::decode;
use crate::op::{Performed, Performing, Refused};
use crate::transfer::{Fence, TransferId, TransferMessage};
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
            for (part, access) in self.reshaping().fragments_tick(effects) {
                if self.capabilities().revoke(ClientId(0), part, effects).is_none() {
                    self.reshaping().set_access(part, access);
                }
            }
        }
        self.correct_sizes(effects);
        self.follow_names(effects);
        ReserveCx::of(self).tick(effects);
        for need in BetweenCx::of(self).tick(effects) {
            self.meet_between(need, effects);
        }
        self.authority_step(effects);
    }

    /// Splits a directory that has become large, or joins one that has become small.
    fn correct_sizes(&mut self, effects: &mut MdsEffects) {
        for resize in self.reshaping().wrong_sizes() {
            let performed = match resize {
                Resize::Split(dir) => self.reshaping().split(ITSELF, &Cred::root(), dir),
                Resize::Join(dir) => self.reshaping().join(ITSELF, &Cred::root(), dir, effects),
                Resize::Home { dir, .. } => self.exporting().send_home(dir),
            };
            match performed {
                Ok(Performed::Later) => return,
                Ok(Performed::Answer(_) | Performed::Changed(_)) => {}
                Err(refused) => {
                    self.reshaping().keeps_size(resize);
                    if let Refused::Refusal(Refusal::Cold(cold)) = refused
                        && cold != crate::fetch::NUMBERS
                    {
                        self.fetching().preload(cold, effects);
                    }
                }
            }
        }
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
        self.is_active() && self.places().serves(root)
    }

    /// Continues everything that moves, as far as possible. Called after every input.
    pub(crate) fn authority_step(&mut self, effects: &mut MdsEffects) {
        if self.authority.is_exporting() {
            self.export_step(effects);
        }
        self.walk(effects);
        if self.authority.reshape.is_some() {
            self.reshape_step(effects);
        }
        if !self.authority.cross_renames.is_empty() {
            self.cross_renames_step(effects);
        }
        if !self.authority.imports.is_empty() && self.is_active() {
            self.importing().step(effects);
            // Imports may have to wait for them.
            if !self.authority.cross_renames.is_empty() {
                self.cross_renames_step(effects);
            }
        }
        self.walk(effects);
        self.tell_ended(effects);
    }

    fn walk(&mut self, effects: &mut MdsEffects) {
        if !self.authority.preloads.is_empty() {
            self.preloading().step(effects);
        }
    }

    fn export_step(&mut self, effects: &mut MdsEffects) {
        for root in self.exporting().draining(effects) {
            let before = self.counters.revokes;
            let held = self.capabilities().revoke_below(ClientId(0), root, effects).is_some();
            let flushed = self.counters.revokes - before;
            self.exporting().drained(root, held, flushed, effects);
        }
        self.exporting().step(effects);
    }

    fn reshape_step(&mut self, effects: &mut MdsEffects) {
        let mut is_held = false;
        for dir in self.reshaping().draining() {
            is_held |= self.capabilities().revoke(ClientId(0), dir, effects).is_some();
        }
        if let Some(dir) = self.reshaping().step(is_held, effects) {
            self.fetching().preload(dir, effects);
        }
    }

    /// Tells the parts that wait for the end of a move.
    pub(crate) fn tell_ended(&mut self, effects: &mut MdsEffects) {
        let Some(gone) = self.authority.ended.take() else { return };
        // Requests that wait for a merge of these continue to wait at the other rank.
        gone.into_iter().for_each(|root| self.merge_requests().end_elsewhere(root));
        self.merging().go_on_with_held(effects);
        self.last_beacon = None;
    }

    /// The list was read, or replaced.
    pub(crate) fn list_stored(
        &mut self,
        result: Result<StoreResult, Box<StoreFailure>>,
        effects: &mut MdsEffects,
    ) {
        let now = self.clock.now;
        let news = self.listing().stored(result, effects);
        if !self.authority.cross_renames.is_empty() {
            let needs = self.names().listed(&news, effects);
            self.meet_names(needs, effects);
        }
        match news {
            ListNews::None => {}
            ListNews::Read => self.list_changed(),
            ListNews::Unknown => {
                self.exporting().list_unknown(now + RETRY, effects);
                self.importing().list_again(false);
                self.authority.reshape_listed(true, now);
            }
            ListNews::Replaced => {
                self.authority.reshape_listed(false, now);
                if !self.importing().list_replaced() {
                    self.exporting().list_replaced(effects);
                }
            }
            ListNews::Found => {
                self.importing().list_again(true);
                self.authority.reshape_listed(false, now);
                self.exporting().list_found(effects);
            }
        }
        self.tell_ended(effects);
        self.listing().end(effects);
    }

    /// Acts on the new list.
    pub(crate) fn list_changed(&mut self) {
        if self.is_active() {
            self.authority.find_other_roots(&self.namespace);
        }
        self.authority.note_plain();
    }

    /// Continues the cross-rank renames, as far as possible.
    fn cross_renames_step(&mut self, effects: &mut MdsEffects) {
        // A change now would be in only half of a snapshot.
        let waits = matches!(self.phase, Phase::Recovering | Phase::Reconnecting { .. });
        if waits || self.snapshots.is_frozen() {
            return;
        }
        for (id, dir) in self.authority.cross_renames.draining() {
            let held = self.capabilities().revoke_below(ClientId(0), dir, effects).is_some();
            let merged = is_merged_below(&self.merges, &self.checkpoint, &self.namespace, dir);
            if self.phase != Phase::Active || (!held && merged) {
                let needs = self.names().drained(id, effects);
                self.meet_names(needs, effects);
            }
        }
        let needs = self.names().step(effects);
        self.meet_names(needs, effects);
        if let Some(list) = self.names().proposal() {
            self.authority.put_list(list, &mut self.store, effects);
        }
    }

    /// Has other parts do what transfers of names need.
    pub(crate) fn meet_names(&mut self, needs: Vec<NameNeed>, effects: &mut MdsEffects) {
        for need in needs {
            match need {
                NameNeed::Fetch(dir) if self.fetches.is_waited_for(dir) => {}
                NameNeed::Fetch(dir) => self.fetching().preload(dir, effects),
                NameNeed::Find(dir) => self.authority.preload(Goal::Find(dir)),
                NameNeed::Read => self.authority.read_list(&mut self.store, effects),
                NameNeed::Came(dir) => {
                    self.changing().apply.note_freed(true);
                    self.note_size(dir);
                }
                NameNeed::Thaw(dir) => {
                    self.fetches.wake_returned(dir);
                    self.merging().go_on_with_held(effects);
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
        let id = TransferId { number: record.number, from: record.from };
        let comes = match self.names().may_arrive(&record, dir)? {
            Arrival::Known => {
                let needs = self.names().asked_again(id, effects);
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
                self.capabilities().revoke_below(ClientId(0), target, effects).is_none()
            }
        };
        if !comes {
            return Ok(self.leave_unanswered(at));
        }
        let needs = self.names().arrive(record, cred, effects)?;
        let reserved = self.authority.cross_renames.knows(id);
        self.meet_names(needs, effects);
        self.cross_renames_step(effects);
        Ok(if reserved { Performed::Answer(Answer::Done) } else { self.leave_unanswered(at) })
    }

    /// Has a subtree that was renamed away follow its name.
    fn follow_names(&mut self, effects: &mut MdsEffects) {
        // Requests that were answered before a crash are replayed first, where they were answered.
        if self.resend.is_busy() || self.phase != Phase::Active {
            return;
        }
        let Some((root, to)) = self.authority.next_to_follow(self.clock.now) else { return };
        if let Err(Refused::Refusal(Refusal::Cold(cold))) =
            self.exporting().begin(ReplyTo::NOBODY, root, to, false)
        {
            self.fetching().preload(cold, effects);
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
            Some(BetweenNeed::Depart { to, is_file }) => match self.names().depart(from, to) {
                Err(refused) if is_file && refused.errno() == Some(Errno::CrossDevice) => {
                    BetweenCx::of(self).brings_together(from, to, effects)?
                }
                departs => {
                    departs?;
                    self.cross_renames_step(effects);
                    return Ok(Performed::Later);
                }
            },
            need => need,
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
            BetweenNeed::Depart { .. } => unreachable!("only a request that arrives departs"),
        }
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
            let needs = self.names().answered(id, dir, &result, effects);
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
                self.exporting().giver_heard(id, message, why, effects);
            }
            _ if is_name => {
                let needs = self.names().heard(id, message, effects);
                self.meet_names(needs, effects);
            }
            TransferStep::Committed | TransferStep::Stayed => {
                ReserveCx::of(self).heard(id, message, effects);
            }
            TransferStep::Reserved { fence } if Fence(fence) != Fence::NONE => {
                self.names().reserved_in_vain(id, from, effects);
            }
            TransferStep::Reserved { .. } => {
                self.exporting().giver_heard(id, message, "", effects);
            }
        }
        self.authority_step(effects);
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
                match BetweenCx::of(self).brings_home(from, (dir, rank), &failure, effects) {
                    Some(need) => {
                        need.into_iter().for_each(|need| self.meet_between(need, effects));
                        return true;
                    }
                    None => failure,
                }
            }
        };
        self.refuse(from, failure, effects);
        true
    }
}
