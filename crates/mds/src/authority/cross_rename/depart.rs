//! The giver's part of a cross-rank rename before the protocol begins: which name goes, and when it
//! is frozen.

use metastore::MovedName;
use namespace::Refusal;
use types::{ClientId, EntryName, Errno, Ino, Rank};
use wire::{Answer, ChangeOp, Failure, Op};

use super::super::decoupled::is_merged_below;
use super::offer::failure_of;
use super::{NameNeed, NameTask, NameTransfer, NamesCx};
use crate::admission::Incoming;
use crate::op::{Performed, Performing, Refused};
use crate::transfer::{TransferId, TransferState};
use crate::{Mds, MdsEffects, Phase};

impl Mds {
    /// Gives a name to another rank, for a rename.
    pub(in crate::authority) fn depart(
        &mut self,
        from: Incoming<'_>,
        to: Rank,
        effects: &mut MdsEffects,
    ) -> Performing {
        let Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) = *from.op()
        else {
            return Err(Errno::Invalid.into());
        };
        let (cred, time) = (&from.request.cred, self.clock.time);
        types::check_name(new_name)?;
        self.may_begin()?;
        self.may_pass(parent)?;
        self.places().check_target(to)?;
        if to == self.rank {
            return Err(Errno::Again.into());
        }
        let (ino, inode) = self.plan_offer(cred, EntryName::new(parent, name), time)?;
        let is_dir = self.namespace.is_dir(ino);
        let record = MovedName {
            from: self.rank,
            number: self.authority.cross_renames.number(self.tables.epoch()),
            to,
            is_dir,
            no_replace: flags.no_replace,
            ino,
            parent,
            name: name.to_vec(),
            new_parent,
            new_name: new_name.to_vec(),
            time,
            inode,
            request: (from.client, from.tid()),
            ..MovedName::default()
        };
        // The first step asks: until then the payload may change.
        let (state, _) = TransferState::give();
        let task = if is_dir { NameTask::Drain } else { NameTask::Flush(self.log.last()) };
        let (at, cred, since) = (Some(from.at()), cred.clone(), self.clock.now);
        let transfer = NameTransfer::new(record, true, (state, task));
        self.authority.cross_renames.all.push(NameTransfer { at, cred, since, ..transfer });
        self.authority.note_plain();
        self.cross_renames_step(effects);
        Ok(Performed::Later)
    }

    /// Freezes the directories that leave and that no client caches any more.
    pub(super) fn drain_leaving(&mut self, effects: &mut MdsEffects) {
        let drains = |it: &&NameTransfer| it.task == NameTask::Drain;
        let all = self.authority.cross_renames.all.iter().filter(drains);
        let all: Vec<_> = all.map(|it| (it.id, it.record.ino)).collect();
        for (id, ino) in all {
            let held = self.capabilities().revoke_below(ClientId(0), ino, effects).is_some();
            if self.phase != Phase::Active
                || (!held && is_merged_below(&self.merges, &self.checkpoint, &self.namespace, ino))
            {
                self.drained(id, effects);
            }
        }
    }

    /// Whether the directory may leave is checked again: requests continued until now.
    fn drained(&mut self, id: TransferId, effects: &mut MdsEffects) {
        let Some(it) = self.authority.cross_renames.get_mut(id) else { return };
        let (record, cred) = (it.record.clone(), it.cred.clone());
        let planned = if self.namespace.knows(record.parent) {
            self.may_pass(record.parent)
                .and_then(|()| {
                    let from = EntryName::new(record.parent, &record.name);
                    self.plan_offer(&cred, from, record.time)
                })
                .and_then(
                    |(ino, inode)| {
                        if ino == record.ino { Ok(inode) } else { Err(Errno::Again.into()) }
                    },
                )
        } else {
            Err(Errno::Again.into())
        };
        match planned {
            Ok(inode) => {
                let (last, now) = (self.log.last(), self.clock.now);
                let Some(it) = self.authority.cross_renames.get_mut(id) else { return };
                (it.record.inode, it.task, it.since) = (inode, NameTask::Flush(last), now);
            }
            Err(Refused::Refusal(Refusal::Cold(dir))) if !self.is_elsewhere(dir) => {
                self.meet_names(vec![NameNeed::Fetch(dir)], effects);
            }
            Err(refused) => {
                let needs = self.names().refused(id, failure_of(refused), effects);
                self.meet_names(needs, effects);
            }
        }
    }
}

impl NamesCx<'_> {
    /// The taker of a name that goes to this directory has answered the question.
    pub(in crate::authority) fn answered(
        self,
        id: TransferId,
        dir: Ino,
        result: &Result<Answer, Failure>,
        effects: &mut MdsEffects,
    ) -> Vec<NameNeed> {
        let failure = match result {
            // The reservation is a message of its own.
            Ok(Answer::Done) => return self.needs,
            Ok(_) => {
                let text = "another metadata server serves the directory by now; try again";
                Failure { errno: Errno::Again, text: text.into() }
            }
            Err(failure) => failure.clone(),
        };
        if failure.errno == Errno::Again {
            self.authority.is_not_there(dir, result);
        }
        self.refused(id, failure, effects)
    }
}
