//! Namespace sync (U-03): parts of the journal are merged during the job, as the thread of the
//! library does, and the server may die between two parts.

use client::{JobInput, PartEffect, PartRun, PartSync, SyncDue, SyncWhen};
use policy::Mechanism;
use types::{Moment, Span, Timestamp};
use wire::Answer;

use super::ledger::marks;
use super::{Cells, Done, Stop};
use crate::call::CallKind;

impl Cells {
    /// Hands the pending events over as a part, and merges the part.
    pub(super) fn sync_part(&mut self) -> Done<()> {
        let (client, subtree) = (self.client()?, self.job().root);
        let composition = self.holding()?.visible();
        let mut sync = PartSync::new(SyncWhen::every(Span(0)), Timestamp(0));
        match sync.due(self.holding()?, Timestamp(0)) {
            SyncDue::Nothing => return Ok(()),
            SyncDue::Everything => return self.execute(&composition, false),
            SyncDue::Part => self.note_used()?,
        }
        let holding = self.holding()?;
        let part = sync.hand_over(holding);
        let flags = holding.merge_flags();
        let mut run = PartRun::new(part, subtree, &composition, flags, None);
        let journal = super::mechanism::whole(&run.material());
        let mut input = JobInput::Start;
        while let Some(effect) = run.handle(Moment(self.requests.world.now), input) {
            input = match effect {
                PartEffect::Extend(count) => {
                    let call = CallKind::Extend { subtree, count: count.min(20) };
                    if let Ok(Answer::Range(range)) = self.request(client, call) {
                        self.granted(client, range)?;
                    }
                    JobInput::Done(Ok(()))
                }
                PartEffect::SyncContent => JobInput::Done(Ok(())),
                PartEffect::Mechanism(effect) => {
                    let material = run.material();
                    JobInput::Mechanism(self.effect(Some(&material), &journal, effect)?)
                }
                PartEffect::Term => JobInput::Term(self.epoch(client)),
            };
        }
        let places = self.job().ledger.places(&marks(&journal));
        let (events, failed) = (run.events(), run.error().map(|error| error.errno));
        sync.ended(self.holding()?, run);
        if let Some(errno) = failed {
            return Err(Stop::Failed(errno));
        }
        self.requests.world.tally.count("parts merged", 1);
        self.completed(events)?;
        // An object of an earlier policy goes with the job: the part is as safe as the policy in
        // force says.
        let persists = self.holding()?.policy.contains(Mechanism::GlobalPersist);
        for at in places {
            let kept = &mut self.job().ledger.updates[at].kept;
            (kept.memory, kept.store) = (false, kept.store && persists);
        }
        Ok(())
    }
}
