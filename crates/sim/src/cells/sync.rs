//! Namespace sync (U-03): parts of the journal are merged during the job, as the thread of the
//! library does, and the server may die between two parts.

use client::{CompositionRun, MechanismEffect, MechanismInput, PartSync, SyncDue, SyncWhen};
use types::{Moment, Span, Timestamp};
use wire::{Answer, JobOp, MergeFlags, Op};

use super::{Cells, Done, Stop};

impl Cells {
    /// Hands the pending events over as a part, and merges the part.
    pub(super) fn sync_part(&mut self) -> Done<()> {
        let (client, subtree) = (self.client()?, self.job().root);
        let composition = self.holding()?.composition();
        let mut sync = PartSync::new(SyncWhen::every(Span(0)), Timestamp(0));
        match sync.due(&self.holding()?.job, Timestamp(0)) {
            SyncDue::Nothing => return Ok(()),
            SyncDue::Everything => return self.execute(&composition, false),
            SyncDue::Part => self.note_used()?,
        }
        let holding = self.holding()?;
        let part = sync.hand_over(&mut holding.job);
        if let Some(count) = part.extend.map(|count| count.min(20)) {
            let answer = self.request(client, Op::Job(JobOp::Extend { subtree, count }));
            if let Ok(Answer::Range(range)) = answer {
                self.granted(client, range)?;
            }
        }
        let material = part.material(subtree, MergeFlags::default());
        let journal = super::mechanism::whole(&material);
        let mut run = CompositionRun::new(&composition);
        let mut input = MechanismInput::Start;
        let result = loop {
            let effect = run.handle(&material, Moment(self.requests.world.now), input);
            if let MechanismEffect::Done(result) = effect {
                break result;
            }
            input = self.effect(Some(&material), &journal, effect)?;
        };
        let (term, reached) = (self.epoch(client), run.reached());
        let places = self.job().ledger.places(&Self::inos(&journal));
        let job = &mut self.holding()?.job;
        match result {
            Ok(done) => {
                let events = part.events();
                sync.merged(job, part, done, term);
                self.tally.parts += 1;
                self.completed(events)?;
                for at in places {
                    self.job().ledger.updates[at].kept.memory = false;
                }
                Ok(())
            }
            Err(error) => {
                let errno = error.errno;
                sync.failed(job, part, error, reached);
                Err(Stop::Failed(errno))
            }
        }
    }
}
