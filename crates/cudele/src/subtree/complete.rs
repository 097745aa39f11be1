//! Completing a policy: persisting and merging a decoupled subtree.

use std::sync::{Mutex, PoisonError};

use client::{
    ChangeStep, EarlierMerge, JobEffect, JobInput, JobRun, MechanismEffect, MechanismInput,
    RunThreshold,
};
use objstore::Expect;
use policy::{Composition, Durability, Mechanism, Policy};
use types::Result;
use wire::{MergeFlags, MergeReport};

use super::{Subtree, Written};
use crate::Completion;
use crate::mechanism::{self, Workplace, keep_part};

impl Subtree {
    /// Executes the mechanisms of the policy on the events since the last completion. When this
    /// returns, the promise of the policy holds for all of them.
    ///
    /// # Errors
    /// Which mechanism failed and why; the updates are still held, and completing again is
    /// harmless.
    pub fn complete(&mut self) -> Result<Completion> {
        let composition = self.job.policy.effective();
        self.execute(&composition, MergeFlags::default())
    }

    /// Makes all events so far as durable as the policy promises, without a merge: the effect of
    /// `fsync`.
    ///
    /// # Errors
    /// As [`Subtree::complete`].
    pub fn persist(&mut self) -> Result<()> {
        match self.job.persisting() {
            Some(persist) => self.execute(&persist, MergeFlags::default()).map(drop),
            None => Ok(()),
        }
    }

    /// The failures that all events so far survive.
    pub fn durable_now(&mut self) -> Durability {
        self.job.durable_now()
    }

    /// Whether all events so far are visible to other clients.
    #[must_use]
    pub fn is_visible_now(&self) -> bool {
        self.job.inner.events() == 0 && self.job.earlier.is_empty()
    }

    /// Keeps all events so far on the disk of this machine, under any policy, so that a later
    /// process can merge or discard them.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn keep_here(&mut self) -> Result<Completion> {
        let done = if self.job.is_pending() {
            self.execute(&Mechanism::LocalPersist.into(), MergeFlags::default())?
        } else {
            Completion::default()
        };
        self.remember()?;
        Ok(done)
    }

    /// Completes the durability of the policy and merges the subtree into the global namespace,
    /// under any consistency. Then the subtree is no longer decoupled.
    ///
    /// # Errors
    /// As [`Subtree::complete`].
    pub fn merge(&mut self) -> Result<Completion> {
        let composition = self.job.visible();
        let flags = MergeFlags { release: true, ..MergeFlags::default() };
        self.execute(&composition, flags)
    }

    /// Changes the policy during a job (P-16): pending events are kept as the new policy promises,
    /// or merged if it does not decouple; then the new policy is in force. Until this returns the
    /// old policy is in force with its promise, also after a crash.
    ///
    /// After a change to a policy that does not decouple, the subtree is open to all clients.
    ///
    /// # Errors
    /// As [`Subtree::complete`] and `Cluster::set_policy`.
    pub fn set_policy(&mut self, policy: &Policy) -> Result<Completion> {
        let cluster = self.fs.cluster().clone();
        let policy = &cluster.numbered(policy)?;
        let (path, text) = (self.path.to_bytes(), policy.to_yaml());
        let mut done = Completion::default();
        for step in ChangeStep::all(&self.job.policy, policy) {
            match step {
                ChangeStep::Drain => done = self.drain_sync()?,
                ChangeStep::StoreEarlier => {
                    done.steps.extend(self.drive(JobRun::store_earlier())?.steps);
                }
                ChangeStep::Persist(persist) if self.job.is_pending() => {
                    done.absorb(self.execute(&persist, MergeFlags::default())?);
                }
                ChangeStep::Persist(_) => {}
                ChangeStep::MergeLost(store) => self.merge_lost(store)?,
                ChangeStep::Remember(always) => self.remember_if(always)?,
                ChangeStep::Set => {
                    cluster.set_policy_as(self.job.note.client, &path, Some(&text))?;
                }
                ChangeStep::Adopt => {
                    self.job.policy = policy.clone();
                    self.owner.policy.clone_from(&text);
                    self.sync_under_new_policy()?;
                }
                ChangeStep::Merge => return self.merge(),
            }
        }
        done.seconds = done.steps.iter().map(|step| step.seconds).sum();
        Ok(done)
    }

    /// The report of a merge that is not executed.
    ///
    /// # Errors
    /// As the merge itself.
    pub fn dry_run(&mut self) -> Result<MergeReport> {
        let report = self.drive(JobRun::dry())?.merge;
        Ok(report.unwrap_or_default())
    }

    pub(super) fn execute(
        &mut self,
        composition: &Composition,
        flags: MergeFlags,
    ) -> Result<Completion> {
        let synced = self.drain_sync()?;
        let worth = (!flags.dry_run && self.job.is_by_reference()).then(RunThreshold::default);
        let done = self.drive(JobRun::new(composition, flags, worth));
        if self.job.inner.events() == 0 {
            // The runs are of events that are merged, or sealed.
            self.written = None;
        }
        let mut completion = done?;
        if completion.merge.is_some() {
            self.job.resolve_places();
        }
        completion.absorb(synced);
        Ok(completion)
    }

    /// Carries the effects of a run out, until it ends.
    fn drive(&mut self, mut run: JobRun) -> Result<Completion> {
        let mut input = JobInput::Start;
        loop {
            let effect = run.handle(&mut self.job, crate::moment(), input);
            input = match effect {
                JobEffect::Done(result) => {
                    return result.map_err(|error| error.about(self.path.to_string()));
                }
                JobEffect::SyncContent => JobInput::Done(self.fs.sync_data()),
                JobEffect::Get(name) => JobInput::Object(mechanism::get(&self.fs, &name)),
                JobEffect::PutEarlier(at, name) => {
                    // An existing object of this name is replaced, so no conflict is possible.
                    let bytes = &self.job.earlier[at].bytes;
                    JobInput::Done(self.fs.store().put(&name, bytes, Expect::Any).map(drop))
                }
                JobEffect::WriteEarlier(at) => {
                    let part = &self.job.earlier[at];
                    JobInput::Done(keep_part(&self.state, part.first, &part.bytes))
                }
                JobEffect::GiveUp => JobInput::Done(self.give_up_unused()),
                JobEffect::NoteUsed => JobInput::Done(self.note_used()),
                JobEffect::Term => JobInput::Term(self.fs.term_at(self.root())),
                JobEffect::LocalJournals => JobInput::Journals(self.local_journals()),
                JobEffect::Mechanism(effect) => JobInput::Mechanism(self.mechanism(&run, effect)),
                JobEffect::Earlier(at, effect) => {
                    let (root, journal) = (self.root(), &self.job.earlier[at]);
                    JobInput::Mechanism(mechanism::on_earlier(&self.fs, root, journal, effect))
                }
                JobEffect::EarlierMerged(_) => JobInput::Done(Ok(())),
                JobEffect::Delete(name) => JobInput::Done(self.fs.store().delete(&name).map(drop)),
                JobEffect::Remember(always) => JobInput::Done(self.remember_if(always)),
            };
        }
    }

    fn mechanism(&mut self, run: &JobRun, effect: MechanismEffect) -> MechanismInput {
        let place = Workplace {
            fs: &self.fs,
            state: &self.state,
            material: run.material(&self.job),
            written: Mutex::new(self.written.take()),
        };
        let input = place.execute(effect);
        self.written = place.written.into_inner().unwrap_or_else(PoisonError::into_inner);
        input
    }

    /// Writes the note of this machine; without `always`, only if there is one.
    fn remember_if(&mut self, always: bool) -> Result<()> {
        if always || self.state.owner()?.is_some() { self.remember() } else { Ok(()) }
    }

    /// Starts to write the runs of a merge by reference during the job.
    #[cold]
    pub(super) fn write_in_background(&mut self) {
        let blocks = self.job.inner.closed_blocks();
        if self.written.is_none() {
            let is_empty =
                self.job.note.empty && self.job.earlier.is_empty() && self.job.merged_in.is_none();
            let root = self.job.inner.root();
            self.written = Written::start(&self.fs, root, is_empty, blocks.len());
        }
        if let Some(written) = &mut self.written {
            written.hand_over(blocks);
        }
    }

    /// Merges events again that a server has lost: under a policy without Local Persist no other
    /// process would. With `store`, the metadata store has them afterwards.
    fn merge_lost(&mut self, store: bool) -> Result<()> {
        if !self.job.may_have_lost() {
            return Ok(());
        }
        self.fs.reach()?;
        let term = self.fs.term_at(self.root());
        for journal in self.job.lost(term, self.local_journals()?) {
            let flags = MergeFlags { store, ..self.job.merge_flags() };
            let merge = EarlierMerge::new(self.root(), flags, None);
            mechanism::merge_earlier(&self.fs, self.root(), &journal, merge)?;
        }
        self.job.merged_in = Some(self.fs.term_at(self.root()));
        Ok(())
    }
}
