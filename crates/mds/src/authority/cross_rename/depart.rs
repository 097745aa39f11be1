//! The giver's part of a cross-rank rename before the protocol begins: which name goes, and when it
//! is frozen.

use metastore::MovedName;
use namespace::Refusal;
use types::{EntryName, Errno, Ino, Rank};
use wire::{Answer, ChangeOp, Failure, Op};

use super::offer::failure_of;
use super::{NameNeed, NameTask, NameTransfer, NamesCx};
use crate::MdsEffects;
use crate::admission::Incoming;
use crate::op::Refused;
use crate::transfer::{TransferId, TransferState};

impl NamesCx<'_> {
    /// Gives a name to another rank, for a rename.
    pub(in crate::authority) fn depart(
        &mut self,
        from: Incoming<'_>,
        to: Rank,
    ) -> Result<(), Refused> {
        let Op::Change(ChangeOp::Rename { parent, name, new_parent, new_name, flags }) = *from.op()
        else {
            return Err(Errno::Invalid.into());
        };
        let (cred, time) = (&from.request.cred, self.clock.time);
        types::check_name(new_name)?;
        self.may_begin()?;
        self.may_pass(parent)?;
        self.places().check_target(to)?;
        if to == self.line.from {
            return Err(Errno::Again.into());
        }
        let (ino, inode) = self.plan_offer(cred, EntryName::new(parent, name), time)?;
        let is_dir = self.namespace.is_dir(ino);
        let record = MovedName {
            from: self.line.from,
            number: self.authority.cross_renames.number(self.line.term),
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
        self.all().all.push(NameTransfer { at, cred, since, ..transfer });
        self.authority.note_plain();
        Ok(())
    }

    /// Whether the directory may leave is checked again: requests continued until now.
    pub(in crate::authority) fn drained(
        mut self,
        id: TransferId,
        effects: &mut MdsEffects,
    ) -> Vec<NameNeed> {
        let Some(it) = self.all().get_mut(id) else { return self.needs };
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
                let Some(it) = self.all().get_mut(id) else { return self.needs };
                (it.record.inode, it.task, it.since) = (inode, NameTask::Flush(last), now);
                self.authority.note_plain();
            }
            Err(Refused::Refusal(Refusal::Cold(dir))) if !self.places().is_elsewhere(dir) => {
                self.needs.push(NameNeed::Fetch(dir));
            }
            Err(refused) => return self.refused(id, failure_of(refused), effects),
        }
        self.needs
    }

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
        if matches!(failure.errno, Errno::Again | Errno::Stale) {
            self.authority.is_not_there(dir, result);
        }
        self.refused(id, failure, effects)
    }
}
