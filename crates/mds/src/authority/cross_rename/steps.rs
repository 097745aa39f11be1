//! The steps of a transfer of a name on its two ranks: the states of [`crate::transfer`], their
//! actions, and the changes of journal and namespace.

use journal::{Block, Event};
use metastore::{MovedName, Subtrees};
use namespace::{Mode, Namespace, Refusal};
use types::{ClientId, Clock, Cred, EntryName, Errno, Error, Ino, Moment, Origin, Seq, Span};
use wire::{Answer, ChangeKind, Failure, Op, PeerBody, RankOp};

use super::super::export::send_step;
use super::super::preload::Goal;
use super::super::{Authority, ListNews, RETRY, UnderWay};
use super::{CrossRenames, ListWish, NameNeed, NameTask, NameTransfer, first_of_taking, is_due};
use crate::locks::Locks;
use crate::log::Log;
use crate::op::Change;
use crate::opens::Opens;
use crate::peers::PeerLine;
use crate::session::{Fate, Remembered, Sessions};
use crate::tables::Tables;
use crate::transfer::{
    Fence, ListView, Record, TransferAction, TransferEvent, TransferId, TransferMessage,
    TransferState,
};
use crate::watch::Watches;
use crate::{Counters, MdsEffects, ReplyTo, Settings};

/// How long the giver waits for a reservation, and the taker for a giver that does not ask again.
const SILENT_AFTER: Span = Span::from_millis(2000);

/// The transfers of names, with all that their steps may touch.
pub(crate) struct NamesCx<'a> {
    pub(crate) authority: &'a mut Authority,
    pub(crate) namespace: &'a mut Namespace,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) log: &'a mut Log,
    pub(crate) watches: &'a mut Watches,
    pub(crate) counters: &'a mut Counters,
    pub(crate) tables: &'a Tables,
    pub(crate) opens: &'a Opens,
    pub(crate) locks: &'a Locks<ReplyTo>,
    pub(crate) changes: &'a [Change],
    pub(crate) settings: &'a Settings,
    pub(crate) under_way: UnderWay,
    pub(crate) line: PeerLine<'a>,
    pub(crate) is_active: bool,
    pub(crate) clock: Clock,
    pub(crate) needs: Vec<NameNeed>,
}

impl NamesCx<'_> {
    /// Continues all transfers, as far as possible.
    pub(in crate::authority) fn step(mut self, effects: &mut MdsEffects) -> Vec<NameNeed> {
        for id in self.ids() {
            while self.advance(id, effects) {}
        }
        let now = self.clock.now;
        let is_due = self.all().read_at.is_some_and(|at| at <= now);
        if is_due && !self.authority.is_busy() {
            self.all().read_at = Some(now + RETRY);
            self.needs.push(NameNeed::Read);
        }
        self.needs
    }

    /// The other rank has sent a message.
    pub(in crate::authority) fn heard(
        mut self,
        id: TransferId,
        message: TransferMessage,
        effects: &mut MdsEffects,
    ) -> Vec<NameNeed> {
        self.event(id, TransferEvent::Message(message), effects);
        self.needs
    }

    /// The taker refuses a name, for this reason.
    pub(in crate::authority) fn refused(
        mut self,
        id: TransferId,
        why: Failure,
        effects: &mut MdsEffects,
    ) -> Vec<NameNeed> {
        if let Some(it) = self.all().get_mut(id) {
            it.refused = Some(why);
        }
        self.heard(id, TransferMessage::Refused, effects)
    }

    /// These transfers make room for one that goes first.
    pub(super) fn yields(mut self, ids: &[TransferId], effects: &mut MdsEffects) -> Vec<NameNeed> {
        ids.iter().for_each(|id| self.event(*id, TransferEvent::Stay, effects));
        self.needs
    }

    /// The taker reserves a place.
    pub(super) fn reserve(mut self, record: MovedName, effects: &mut MdsEffects) -> Vec<NameNeed> {
        let (state, actions) = TransferState::reserve();
        let (since, asked) = (self.clock.now, Some(self.clock.now));
        let new = NameTransfer::new(record, false, (state, NameTask::Idle));
        let id = new.id;
        assert!(!self.all().knows(id), "{id:?}: a number is of one rename");
        self.all().all.push(NameTransfer { since, asked, ..new });
        self.authority.note_plain();
        actions.into_iter().for_each(|action| self.execute(id, action, effects));
        self.needs
    }

    /// The list was replaced, or read.
    pub(in crate::authority) fn listed(
        mut self,
        news: &ListNews,
        effects: &mut MdsEffects,
    ) -> Vec<NameNeed> {
        match news {
            ListNews::Replaced => self.all().not_before = None,
            ListNews::Unknown => self.all().not_before = Some(self.clock.now + RETRY),
            ListNews::Read | ListNews::Found => self.all().read_at = None,
            ListNews::None => return self.needs,
        }
        for id in self.ids() {
            let Some(it) = self.all().get_mut(id) else { continue };
            let is_read = matches!(news, ListNews::Read | ListNews::Found);
            let wish = std::mem::replace(&mut it.wish, ListWish::Nothing);
            if wish != ListWish::Proposed && !is_read {
                it.wish = wish;
                continue;
            }
            let event = match news {
                // Not the transfer's: the list names the directory now.
                ListNews::Replaced if it.task == NameTask::Enter => {
                    it.task = NameTask::Take;
                    continue;
                }
                ListNews::Replaced => TransferEvent::Replaced,
                ListNews::Unknown => TransferEvent::Unknown,
                ListNews::None | ListNews::Read | ListNews::Found => {
                    TransferEvent::List(self.view(id))
                }
            };
            self.event(id, event, effects);
        }
        self.needs
    }

    /// The list with everything that transfers want in it, if it may be replaced now.
    pub(in crate::authority) fn proposal(mut self) -> Option<Subtrees> {
        let now = self.clock.now;
        if self.authority.is_busy() || self.all().not_before.is_some_and(|at| now < at) {
            return None;
        }
        let rank = self.authority.rank;
        let mut list = self.authority.list.clone();
        let mut raises = std::mem::take(&mut self.all().wants_fence) && list.fence(rank) == 0;
        let mut any = false;
        for id in self.ids() {
            let Some(it) = self.all().get_mut(id).filter(|it| it.wish == ListWish::Wanted) else {
                continue;
            };
            let (state, record) = (it.state, it.record.clone());
            match state {
                // The list, or the reservation, is an old one.
                TransferState::Committing { fence } if list.fence(record.to) != fence.0 => {
                    it.wish = ListWish::Nothing;
                    self.all().read_at = Some(now);
                    continue;
                }
                TransferState::Committing { .. } if !list.has_room(&record) => continue,
                TransferState::Committing { .. } => list.put_name(record),
                TransferState::Taking => match self.list_with_name(&list, &record) {
                    Some(with_name) => list = with_name,
                    None => continue,
                },
                TransferState::Withdrawing => raises = true,
                TransferState::Marking | TransferState::Acknowledging => {
                    list.mark_name(record.key(), rank);
                }
                TransferState::Asking { .. }
                | TransferState::Given
                | TransferState::Reserving
                | TransferState::Reserved
                | TransferState::Ended(_) => unreachable!("{id:?} wants no list in {state:?}"),
            }
            any = true;
            self.all().get_mut(id)?.wish = ListWish::Proposed;
        }
        if raises {
            list.raise_fence(rank);
        }
        (any || raises).then_some(list)
    }

    pub(super) fn all(&mut self) -> &mut CrossRenames {
        &mut self.authority.cross_renames
    }

    fn ids(&self) -> Vec<TransferId> {
        self.authority.cross_renames.all.iter().map(|it| it.id).collect()
    }

    /// The list, as it concerns a transfer.
    fn view(&self, id: TransferId) -> ListView {
        let list = &self.authority.list;
        let record = list.name((id.from, id.number));
        let is_marked = |it: &MovedName| {
            if it.from == self.authority.rank { it.is_given } else { it.is_taken }
        };
        let known = self.authority.cross_renames.all.iter().find(|it| it.id == id);
        let fence = Fence(known.map_or(0, |it| list.fence(it.record.to)));
        let record = match record {
            None => Record::Absent,
            Some(it) if is_marked(it) => Record::Marked,
            Some(_) => Record::Committed,
        };
        ListView { record, fence }
    }

    /// Passes an event to a transfer, and executes its actions.
    fn event(&mut self, id: TransferId, event: TransferEvent, effects: &mut MdsEffects) {
        let fence = Fence(self.authority.list.fence(self.authority.rank));
        let Some(it) = self.all().get_mut(id) else { return };
        let (state, actions) = it.state.step(event, fence);
        it.state = state;
        for action in actions {
            self.execute(id, action, effects);
        }
        if let TransferState::Ended(_) = state {
            self.all().remove(id);
        }
        self.authority.note_plain();
    }

    fn execute(&mut self, id: TransferId, action: TransferAction, effects: &mut MdsEffects) {
        let (now, last) = (self.clock.now, self.log.last());
        let Some(it) = self.authority.cross_renames.get_mut(id) else { return };
        match action {
            TransferAction::Send(TransferMessage::Ask) => {
                let (dir, moved) = (it.record.new_parent, it.record.encode());
                let op = Op::Rank(RankOp::Arrive { dir, moved: &moved });
                let ask = PeerBody::Ask { number: id.number, cred: it.cred.clone(), op };
                it.asked = Some(now);
                self.line.send(it.record.to, ask, effects);
            }
            TransferAction::Send(message) => {
                let to = if it.is_giver { it.record.to } else { it.record.from };
                send_step(self.line, to, id, it.record.ino, message, effects);
            }
            // The payload is frozen, and does not change.
            TransferAction::Prepare => it.task = NameTask::Flush(Seq(0)),
            TransferAction::Freeze => it.task = NameTask::Flush(last),
            TransferAction::Commit(_) | TransferAction::RaiseFence | TransferAction::Mark => {
                it.wish = ListWish::Wanted;
            }
            TransferAction::Drop => it.task = NameTask::Drop,
            TransferAction::Take => it.task = first_of_taking(&it.record),
            TransferAction::ReadList => self.all().read_at = Some(now),
            TransferAction::Release => self.released(id, effects),
            TransferAction::Thaw => {
                let (ino, dir) = (it.record.ino, it.record.new_parent);
                // An inode that came may have left before.
                self.authority.moved.remove(&ino);
                self.needs.push(NameNeed::Thaw(dir));
            }
        }
    }

    /// Continues a transfer. Returns whether there may be more to do.
    fn advance(&mut self, id: TransferId, effects: &mut MdsEffects) -> bool {
        let (now, safe) = (self.clock.now, self.log.safe());
        let Some(it) = self.authority.cross_renames.get_mut(id) else { return false };
        match it.task {
            NameTask::Drain => false,
            NameTask::Flush(seq) | NameTask::Journal(seq) if safe >= seq => {
                let ready = it.is_giver && it.task == NameTask::Flush(seq);
                it.task = NameTask::Idle;
                let event = if ready { TransferEvent::Ready } else { TransferEvent::Safe };
                self.event(id, event, effects);
                true
            }
            NameTask::Idle | NameTask::Flush(_) | NameTask::Journal(_) => {
                if let Some(event) = it.timely(now, self.is_active) {
                    self.event(id, event, effects);
                }
                false
            }
            NameTask::Drop => self.drop_name(id, effects),
            NameTask::Enter => self.enter_name(id),
            NameTask::Take => self.take_name(id, effects),
        }
    }

    /// The name stays.
    fn released(&mut self, id: TransferId, effects: &mut MdsEffects) {
        let Some(it) = self.all().get_mut(id) else { return };
        let ((client, tid), dir) = (it.record.request, it.record.parent);
        let (at, refused) = (it.at.take(), it.refused.take());
        // The request was not executed: a repetition is tried again.
        if client != ClientId(0) {
            self.sessions.get_mut(client).refuse(tid);
        }
        let failure = refused.unwrap_or_else(|| {
            let text = "the other metadata server did not take the name; try again".into();
            Failure { errno: Errno::Again, text }
        });
        if let Some(at) = at {
            effects.answer(at, Err(failure));
        }
        self.needs.push(NameNeed::Thaw(dir));
    }

    /// Whether the directory exists; `None` during the search for it. It may have been removed
    /// after the name had left, and its server crashed then.
    fn is_found(&mut self, id: TransferId, parent: Ino) -> Option<bool> {
        let goal = Goal::Find(parent);
        if self.namespace.is_anchored(parent) {
            return Some(true);
        }
        if self.authority.preloads.iter().any(|preload| preload.goal == goal) {
            return None;
        }
        if std::mem::replace(&mut self.all().get_mut(id)?.searched, true) {
            return Some(false);
        }
        self.needs.push(NameNeed::Find(parent));
        None
    }

    /// The name is the taker's: it goes. Returns whether it went.
    fn drop_name(&mut self, id: TransferId, effects: &mut MdsEffects) -> bool {
        let Some(it) = self.all().get_mut(id) else { return false };
        let MovedName { parent, ref name, ino, time, is_dir, request, .. } = it.record.clone();
        if is_dir && !self.is_listed_as_own(ino) {
            return false;
        }
        let Some(there) = self.is_found(id, parent) else { return false };
        let mut seq = Seq(0);
        let planned = match self.namespace.peek(parent, name) {
            _ if !there => Ok(None),
            Ok(Some(here)) if here == ino => {
                let from = EntryName::new(parent, name);
                self.namespace.plan().departure(&Cred::root(), from, time).map(Some)
            }
            // A recovery, or the journal of an earlier one, removed the name.
            Ok(_) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        match planned {
            Ok(Some((_, planned))) => {
                let event = planned.event();
                let (client, tid) = request;
                seq = self.log.append(self.clock.now, Origin { client, tid }, &event);
                let from = EntryName::new(parent, name);
                self.watches.note_half(self.namespace, ChangeKind::MovedFrom, from, &event);
                self.namespace.apply(seq, Mode::Live, &event);
            }
            Ok(None) if is_dir && !self.is_root_here(ino, effects) => return false,
            Ok(None) => {}
            Err(refusal) => {
                self.wait_for(refusal, (ino, parent), effects);
                return false;
            }
        }
        self.counters.renamed_away += u64::from(!is_dir);
        self.counters.dirs_renamed_away += u64::from(is_dir);
        self.note_executed(request, time);
        let Some(it) = self.all().get_mut(id) else { return false };
        it.task = NameTask::Journal(seq);
        if let Some(at) = it.at.take() {
            // By the time the client tells that its cached attributes have changed.
            effects.reply(at, Seq(0), time, Ok(Answer::Done));
        }
        self.authority.note_plain();
        self.needs.push(NameNeed::Thaw(parent));
        true
    }

    /// The request of a client has moved a name: a repetition has no effect.
    fn note_executed(&mut self, (client, tid): (ClientId, types::Tid), time: types::Timestamp) {
        if client == ClientId(0) {
            return;
        }
        let session = self.sessions.get_mut(client);
        if matches!(session.fate(tid), Fate::New) {
            // The list is durable: the client need not send the request again.
            session.finish(Remembered { tid, seq: Seq(0), ino: Ino(0), time });
        }
    }

    /// The list must name the directory before its name comes. Returns whether it does.
    fn enter_name(&mut self, id: TransferId) -> bool {
        let rank = self.authority.rank;
        let list = &self.authority.list;
        let Some(it) = self.authority.cross_renames.get_mut(id) else { return false };
        // In an earlier term.
        if list.unjoined_at(it.record.ino).is_some_and(|subtree| list.named_by(subtree) == rank) {
            it.task = NameTask::Take;
            return true;
        }
        let dir = it.record.new_parent;
        if self.namespace.is_anchored(dir) {
            if it.wish == ListWish::Nothing {
                it.wish = ListWish::Wanted;
            }
        } else {
            self.needs.push(NameNeed::Find(dir));
        }
        false
    }

    /// The name is this rank's: it comes. Returns whether it came.
    fn take_name(&mut self, id: TransferId, effects: &mut MdsEffects) -> bool {
        let Some(it) = self.all().get_mut(id) else { return false };
        let record = it.record.clone();
        let MovedName { ino, new_parent: dir, ref new_name, time, .. } = record;
        if !self.namespace.is_anchored(dir) {
            self.needs.push(NameNeed::Find(dir));
            return false;
        }
        let mut seq = Seq(0);
        let here = match self.namespace.peek(dir, new_name) {
            Ok(here) => here,
            Err(Refusal::Cold(cold)) => {
                self.needs.push(NameNeed::Fetch(cold));
                return false;
            }
            Err(Refusal::Errno(_)) => None,
        };
        // The journal of an earlier term may have it.
        if here != Some(ino) {
            let came = with_inode(&record, |moved| {
                let (root, to) = (Cred::root(), EntryName::new(dir, new_name));
                let event = self.namespace.plan().arrival(&root, moved, to, false, time)?;
                seq = self.log.append(self.clock.now, Origin::default(), &event);
                self.watches.note_half(self.namespace, ChangeKind::MovedTo, to, &event);
                self.namespace.apply(seq, Mode::Live, &event);
                Ok(())
            });
            match came {
                Ok(Ok(())) => self.needs.push(NameNeed::Came(dir)),
                Ok(Err(refusal)) => {
                    self.wait_for(refusal, (ino, dir), effects);
                    return false;
                }
                Err(error) => {
                    effects.fatal = Some(error);
                    return false;
                }
            }
        }
        if let Some(it) = self.all().get_mut(id) {
            it.task = NameTask::Journal(seq);
        }
        true
    }

    /// A name that has moved cannot go, or come, before a directory is here; all else is an error.
    fn wait_for(&mut self, refusal: Refusal, (ino, dir): (Ino, Ino), effects: &mut MdsEffects) {
        match refusal {
            Refusal::Cold(cold) => self.needs.push(NameNeed::Fetch(cold)),
            Refusal::Errno(errno) => {
                let cause = format!("{errno} when the name of {ino} was to move between ranks");
                effects.fatal = Some(Error::new(Errno::Io, dir.to_string(), cause));
            }
        }
    }
}

impl NameTransfer {
    /// The event for which it is time.
    fn timely(&mut self, now: Moment, is_active: bool) -> Option<TransferEvent> {
        let asked = self.asked.unwrap_or(self.since);
        if !self.is_giver {
            return (now.since(asked) >= SILENT_AFTER).then_some(TransferEvent::Silent);
        }
        if !self.state.may_stay() {
            return None;
        }
        if now.since(self.since) >= SILENT_AFTER || !is_active {
            return Some(TransferEvent::Stay);
        }
        is_due(&mut self.asked, now).then_some(TransferEvent::Due)
    }
}

/// Lends the inode of a name that moves.
pub(super) fn with_inode<T>(
    record: &MovedName,
    then: impl FnOnce(&journal::InodeSnapshot<'_>) -> T,
) -> Result<T, Error> {
    let about =
        || Error::new(Errno::BadMessage, record.ino.to_string(), "the inode of a name on its way");
    let (block, _) = Block::read(&record.inode, 0).map_err(|_| about())?;
    let mut events = block.events();
    let first = events.next_event().ok().flatten().ok_or_else(about)?;
    let Event::Rename { ref moved, .. } = first.event else { return Err(about()) };
    Ok(then(moved))
}
