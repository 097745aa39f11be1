//! The taker's part of a cross-rank rename before the protocol begins: whether a name may come, and
//! whether its place can be reserved now.

use metastore::MovedName;
use namespace::Refusal;
use types::{Cred, EntryName, Errno, Ino, Rank};
use wire::{Answer, Failure};

use super::super::export::send_step;
use super::super::place::busy;
use super::NamesCx;
use super::directory::MOUNT_POINT;
use super::steps::with_inode;
use crate::op::{Performed, Performing, Refused};
use crate::transfer::{TransferId, TransferMessage};
use crate::{Mds, MdsEffects, ReplyTo};

impl Mds {
    /// Reserves the place of a name that another rank gives away. The reservation itself is a
    /// message of the transfer; no answer means that the giver has to ask again.
    pub(crate) fn arrive(
        &mut self,
        at: ReplyTo,
        cred: &Cred,
        (dir, moved): (Ino, &[u8]),
        effects: &mut MdsEffects,
    ) -> Performing {
        let record = MovedName::decode(moved).map_err(|_| Errno::Invalid)?;
        let id = TransferId { number: record.number, from: record.from };
        if let Some(known) = self.authority.cross_renames.get_mut(id) {
            known.asked = Some(self.clock.now);
            let needs = self.names().heard(id, TransferMessage::Ask, effects);
            self.meet_names(needs, effects);
            return Ok(Performed::Answer(Answer::Done));
        }
        self.may_begin()?;
        self.may_pass(dir)?;
        if record.from == self.rank || record.to != self.rank || record.new_parent != dir {
            return Err(Errno::Again.into());
        }
        // An inode that left comes back when this rank has marked that.
        let is_back = |it: &super::NameTransfer| it.record.ino == record.ino;
        let waits = self.authority.cross_renames.all.iter().any(is_back)
            || self.authority.cross_renames.holds(dir).is_some();
        if waits || (record.is_dir && !self.may_come(&record, effects)?) {
            return Ok(self.leave_unanswered(at));
        }
        self.plan_to_come(&record, cred).map_err(|refused| match refused {
            Refused::Refusal(Refusal::Cold(cold))
                if record.is_dir && cold != dir && self.is_elsewhere(cold) =>
            {
                busy(MOUNT_POINT)
            }
            refused @ (Refused::Refusal(_) | Refused::Failure(_)) => refused,
        })?;
        if self.authority.list.fence(self.rank) == 0 {
            self.authority.cross_renames.wants_fence = true;
            self.cross_renames_step(effects);
            return Ok(self.leave_unanswered(at));
        }
        let needs = self.names().reserve(record, effects);
        self.meet_names(needs, effects);
        self.cross_renames_step(effects);
        Ok(Performed::Answer(Answer::Done))
    }

    /// Whether the name may come as it was asked for.
    fn plan_to_come(&self, record: &MovedName, cred: &Cred) -> Result<(), Refused> {
        let planned = with_inode(record, |moved| {
            let to = EntryName::new(record.new_parent, &record.new_name);
            let (no_replace, time) = (record.no_replace, record.time);
            self.namespace.plan().arrival(cred, moved, to, no_replace, time).map(drop)
        });
        let failure = |error: types::Error| Failure { errno: error.errno, text: error.to_string() };
        planned.map_err(|error| Refused::Failure(failure(error)))?.map_err(Refused::Refusal)
    }
}

impl NamesCx<'_> {
    /// The rank of a reservation that this rank, as the giver, does not know: the giver has ended
    /// the transfer, and says how.
    pub(in crate::authority) fn reserved_in_vain(
        &self,
        id: TransferId,
        taker: Rank,
        effects: &mut MdsEffects,
    ) {
        let is_committed = self.authority.list.name((id.from, id.number)).is_some();
        let message =
            if is_committed { TransferMessage::Committed } else { TransferMessage::Stayed };
        send_step(self.line, taker, id, Ino(0), message, effects);
    }
}
