//! The taker's part of a cross-rank rename before the protocol begins: whether a name may come, and
//! whether its place can be reserved now.

use metastore::MovedName;
use namespace::Refusal;
use types::{Cred, EntryName, Errno, Ino, Rank};
use wire::Failure;

use super::super::export::send_step;
use super::super::place::busy;
use super::directory::MOUNT_POINT;
use super::steps::with_inode;
use super::{NameNeed, NameTransfer, NamesCx};
use crate::MdsEffects;
use crate::op::Refused;
use crate::transfer::{TransferId, TransferMessage};

/// The answer to whether a name may come now.
pub(in crate::authority) enum Arrival {
    Now,
    /// Its place is reserved.
    Known,
    /// The giver asks again, perhaps when another part has done this.
    Later(Option<NameNeed>),
    /// Only if no client caches anything of this directory, which the name replaces.
    Replaces(Ino),
}

impl NamesCx<'_> {
    /// Whether a name that another rank gives away may come to a directory now.
    pub(in crate::authority) fn may_arrive(
        &mut self,
        record: &MovedName,
        dir: Ino,
    ) -> Result<Arrival, Refused> {
        if self.all().knows(TransferId { number: record.number, from: record.from }) {
            return Ok(Arrival::Known);
        }
        self.may_begin()?;
        self.may_pass(dir)?;
        let here = self.authority.rank;
        if record.from == here || record.to != here || record.new_parent != dir {
            return Err(Errno::Again.into());
        }
        // An inode that left comes back when this rank has marked that.
        let is_back = |it: &NameTransfer| it.record.ino == record.ino;
        if self.all().all.iter().any(is_back) || self.all().freezes(dir) {
            return Ok(Arrival::Later(None));
        }
        if record.is_dir {
            self.places().may_come(record, self.clock.now)
        } else {
            Ok(Arrival::Now)
        }
    }

    /// The giver of a known name asks again.
    pub(in crate::authority) fn asked_again(
        mut self,
        id: TransferId,
        effects: &mut MdsEffects,
    ) -> Vec<NameNeed> {
        let now = self.clock.now;
        if let Some(known) = self.all().get_mut(id) {
            known.asked = Some(now);
        }
        self.heard(id, TransferMessage::Ask, effects)
    }

    /// Reserves the place of a name that another rank gives away, unless this rank needs a fence
    /// first. The reservation itself is a message of the transfer.
    pub(in crate::authority) fn arrive(
        mut self,
        record: MovedName,
        cred: &Cred,
        effects: &mut MdsEffects,
    ) -> Result<Vec<NameNeed>, Refused> {
        self.plan_to_come(&record, cred).map_err(|refused| match refused {
            Refused::Refusal(Refusal::Cold(cold))
                if record.is_dir
                    && cold != record.new_parent
                    && self.places().is_elsewhere(cold) =>
            {
                busy(MOUNT_POINT)
            }
            refused @ (Refused::Refusal(_) | Refused::Failure(_)) => refused,
        })?;
        if self.authority.list.fence(self.authority.rank) == 0 {
            self.all().wants_fence = true;
            return Ok(self.needs);
        }
        Ok(self.reserve(record, effects))
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
