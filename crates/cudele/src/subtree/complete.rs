//! Completing a policy: persisting and merging a decoupled subtree.

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use metastore::request::client_journal_name;
use policy::{Check, Composition, Durability, Mechanism, MergeBy, Policy, Transition};
use types::{Result, Seq};
use wire::{MergeFlags, MergeReport};

use super::{Earlier, Subtree, Written};
use crate::mechanism::{Material, Reached, execute, sum};
use crate::{Completion, Step};

impl Subtree {
    /// Executes the mechanisms of the policy on the events since the last completion. When this
    /// returns, the promise of the policy holds for all of them.
    ///
    /// # Errors
    /// Which mechanism failed and why; the updates are still held, and completing again is
    /// harmless.
    pub fn complete(&mut self) -> Result<Completion> {
        let composition = self.policy.effective();
        self.execute(&composition, MergeFlags::default())
    }

    /// Makes all events so far as durable as the policy promises, without a merge: the effect of
    /// `fsync`.
    ///
    /// # Errors
    /// As [`Subtree::complete`].
    pub fn persist(&mut self) -> Result<()> {
        let ours = [Mechanism::LocalPersist, Mechanism::GlobalPersist].into_iter();
        let ours = ours.filter(|mechanism| self.policy.contains(*mechanism));
        let persist = Composition::parallel(ours.map(Composition::One));
        if !persist.is_nothing() && self.is_pending() {
            self.execute(&persist, MergeFlags::default())?;
        }
        Ok(())
    }

    /// The failures that all events so far survive.
    pub fn durable_now(&mut self) -> Durability {
        let blocks = self.inner.blocks().len();
        let newest = if self.inner.events() == 0 || self.persisted_globally == blocks {
            // Earlier events have the durability that they were given.
            self.policy.cell().map_or(Durability::None, |cell| cell.durability)
        } else if self.persisted_locally == blocks {
            Durability::Local
        } else {
            Durability::None
        };
        newest.min(self.sealed_durability())
    }

    /// Whether all events so far are visible to other clients.
    #[must_use]
    pub fn is_visible_now(&self) -> bool {
        self.inner.events() == 0 && self.earlier.is_empty()
    }

    /// Keeps all events so far on the disk of this machine, under any policy, so that a later
    /// process can merge or discard them.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`.
    pub fn keep_here(&mut self) -> Result<Completion> {
        let done = if self.is_pending() {
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
        let composition = self.visible();
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
        let Transition { persist, merge, .. } = Transition::between(&self.policy, policy, true);
        let (path, text) = (self.path.to_bytes(), policy.to_yaml());
        if merge {
            // The server changes the policy at the moment in which it opens the subtree.
            cluster.set_policy_as(self.owner.client(), &path, Some(&text))?;
            return self.merge();
        }
        // Parts that are being merged belong to the old policy.
        let mut done = self.drain_sync()?;
        if persist.contains(Mechanism::GlobalPersist) {
            done.steps.extend(self.store_earlier()?);
        }
        if self.is_pending() {
            done.absorb(self.execute(&persist, MergeFlags::default())?);
        }
        done.seconds = done.steps.iter().map(|step| step.seconds).sum();
        self.merge_lost(false)?;
        if policy.persists() || self.state.owner()?.is_some() {
            // If this process ends now, the next one must find the persisted events.
            self.remember()?;
        }
        cluster.set_policy_as(self.owner.client(), &path, Some(&text))?;
        // The server may have been lost between the two.
        self.merge_lost(policy.persists())?;
        self.policy = policy.clone();
        self.owner.policy = text;
        self.sync_under_new_policy()?;
        if policy.persists() || self.state.owner()?.is_some() {
            self.remember()?;
        }
        Ok(done)
    }

    /// The report of a merge that is not executed.
    ///
    /// # Errors
    /// As the merge itself.
    pub fn dry_run(&mut self) -> Result<MergeReport> {
        let flags = MergeFlags { dry_run: true, ..MergeFlags::default() };
        let only = Composition::One(Mechanism::VolatileApply);
        let report = self.run(&only, flags)?.merge;
        Ok(report.unwrap_or_default())
    }

    pub(super) fn execute(
        &mut self,
        composition: &Composition,
        flags: MergeFlags,
    ) -> Result<Completion> {
        let synced = self.drain_sync()?;
        // File data first: metadata never names data that is less durable than itself.
        let durable =
            |mechanism: Mechanism| mechanism.persists() || mechanism == Mechanism::NonvolatileApply;
        if composition.mechanisms().any(durable) {
            self.fs.sync_data()?;
        }
        self.persist_sealed(composition)?;
        if flags.release {
            self.give_up_unused()?;
        } else if composition.mechanisms().any(Mechanism::applies) {
            self.note_used()?;
        }
        let term = self.fs.term_at(self.root());
        let mut completion = self.run(composition, flags)?;
        if completion.merge.is_some()
            && crate::ranks::is_restarted(term, self.fs.term_at(self.root()))
        {
            // The connection had to be made again, to a server that has nothing of earlier merges:
            // only now is that known.
            let again = self.run(composition, flags);
            if again.is_err() {
                self.seal(Reached::all(composition));
            }
            completion = again?;
        }
        if composition.contains(Mechanism::LocalPersist) {
            self.persisted_locally = self.inner.blocks().len();
        }
        // An empty journal is no object.
        if composition.contains(Mechanism::GlobalPersist) && self.inner.events() > 0 {
            self.persisted_globally = self.inner.blocks().len();
            self.note_object(&self.object_name());
        }
        if completion.merge.is_some() {
            let stored = |mechanism: Mechanism| {
                matches!(mechanism, Mechanism::GlobalPersist | Mechanism::NonvolatileApply)
            };
            self.merged(composition.mechanisms().any(stored))?;
        } else if composition.contains(Mechanism::LocalPersist)
            || composition.contains(Mechanism::GlobalPersist)
        {
            self.remember()?;
        }
        completion.absorb(synced);
        Ok(completion)
    }

    /// Notes that everything is merged; `stored` says that the server was told of its object.
    fn merged(&mut self, stored: bool) -> Result<()> {
        let mut sent = if stored { Vec::new() } else { vec![self.object_name()] };
        let parts = self.earlier.iter().filter(|part| part.object().is_none());
        sent.extend(parts.map(|part| self.object_from(part.first)));
        for own in sent.iter().filter(|own| self.owner.objects.contains(own)) {
            // The object was persisted for a policy that did not come into force. A client that
            // took the subtree over would merge it over later events.
            self.fs.store().delete(own)?;
        }
        self.earlier.clear();
        // The server deletes journal objects when it does not need them any more.
        self.owner.objects.clear();
        self.written = None;
        self.inner.clear();
        self.resolve_places();
        (self.persisted_locally, self.persisted_globally) = (0, 0);
        self.owner.next_seq = self.inner.next_seq().0;
        self.merged_in = Some(self.fs.term_at(self.root()));
        // The file may name objects that the server deletes now.
        if self.policy.persists() || self.state.owner()?.is_some() {
            self.remember()?;
        }
        Ok(())
    }

    /// Puts journals of earlier processes, which are on this disk only, into the store.
    pub(super) fn store_earlier(&mut self) -> Result<Option<Step>> {
        let (start, mut bytes) = (std::time::Instant::now(), 0);
        let mut earlier = std::mem::take(&mut self.earlier);
        let stored: Result<()> = earlier.iter_mut().try_for_each(|journal| {
            let object = self.object_from(journal.first);
            if journal.put(&self.fs, &object)? {
                bytes += journal.bytes.len() as u64;
                self.note_object(&object);
            }
            Ok(())
        });
        self.earlier = earlier;
        stored?;
        let (mechanism, seconds) = (Mechanism::GlobalPersist, start.elapsed().as_secs_f64());
        Ok((bytes > 0).then_some(Step { mechanism, seconds, bytes }))
    }

    pub(super) fn object_name(&self) -> String {
        self.object_from(self.inner.header().first_seq)
    }

    /// The object of the journal that begins at a position.
    pub(super) fn object_from(&self, first: Seq) -> String {
        let grant = self.owner.ranges().next().unwrap_or_default();
        client_journal_name(self.root(), self.owner.client(), grant, first.0)
    }

    /// Starts to write the runs of a merge by reference during the job.
    #[cold]
    pub(super) fn write_in_background(&mut self) {
        let blocks = self.inner.closed_blocks();
        if self.written.is_none() {
            let is_empty = self.owner.empty && self.earlier.is_empty() && self.merged_in.is_none();
            let root = self.inner.root();
            self.written = Written::start(&self.fs, root, is_empty, blocks.len());
        }
        if let Some(written) = &mut self.written {
            written.hand_over(blocks);
        }
    }

    /// Whether the policy asks for merging by reference, and for nothing that needs every event.
    pub(super) fn by_reference(&self) -> bool {
        self.policy.merge_by == MergeBy::Reference && self.policy.check != Check::Merge
    }

    fn run(&mut self, composition: &Composition, mut flags: MergeFlags) -> Result<Completion> {
        flags.check = self.policy.check == Check::Merge;
        let merges = composition.mechanisms().any(Mechanism::applies);
        let store = composition.contains(Mechanism::NonvolatileApply);
        let earlier = MergeFlags { store, ..flags };
        let earlier = if merges { self.merge_earlier(earlier)? } else { Completion::default() };
        let events = self.inner.events();
        let stores = composition.contains(Mechanism::GlobalPersist)
            || composition.contains(Mechanism::NonvolatileApply);
        // An empty journal is no object.
        let object = (stores && events > 0).then(|| self.object_name());
        let header = self.inner.header();
        let subtree = self.root();
        let material = Material {
            fs: &self.fs,
            state: &self.state,
            subtree,
            header,
            persisted_locally: self.persisted_locally,
            persisted_globally: self.persisted_globally,
            merge: flags,
            by_reference: !flags.dry_run && self.by_reference(),
            unused: if flags.release { self.unused() } else { Vec::new() },
            written: Mutex::new(self.written.take()),
            object,
            asked: AtomicBool::new(false),
            stored: AtomicBool::new(false),
            completed: Mutex::default(),
            blocks: self.inner.blocks(),
        };
        let completion = execute(composition, &material);
        let reached = material.reached();
        self.written = material.written.into_inner().unwrap_or_else(PoisonError::into_inner);
        if completion.is_err() {
            self.seal(reached);
        }
        let mut completion = completion.map_err(|error| error.about(self.path.to_string()))?;
        completion.events = events + earlier.events;
        completion.bytes += earlier.bytes;
        completion.seconds += earlier.seconds;
        completion.merged_by = earlier.merged_by.and(completion.merged_by);
        if let (Some(merge), Some(before)) = (&mut completion.merge, earlier.merge) {
            *merge = sum(before, std::mem::take(merge));
        }
        let apply = |step: &&mut Step| step.mechanism.applies();
        if let Some(step) = completion.steps.iter_mut().find(apply) {
            step.bytes += earlier.bytes;
            step.seconds += earlier.seconds;
        }
        Ok(completion)
    }

    /// Merged events that only Local Persist kept, if the server was restarted since.
    fn lost_merges(&self) -> Result<Option<Vec<Earlier>>> {
        let lost = self.merged_in.is_some_and(|epoch| epoch != self.fs.term_at(self.root()));
        if !lost || !self.policy.contains(Mechanism::LocalPersist) {
            return Ok(None);
        }
        let first = self.inner.header().first_seq;
        let journals = self.local_journals()?.into_iter();
        // The present journal is merged separately.
        Ok(Some(journals.filter(|journal| journal.next <= first).collect()))
    }

    /// Merges events again that a server has lost: under a policy without Local Persist no other
    /// process would. With `store`, the metadata store has them afterwards.
    fn merge_lost(&mut self, store: bool) -> Result<()> {
        if !self.policy.contains(Mechanism::LocalPersist) || self.merged_in.is_none() {
            return Ok(());
        }
        self.fs.reach()?;
        let check = self.policy.check == Check::Merge;
        for journal in self.lost_merges()?.into_iter().flatten() {
            let flags = MergeFlags { check, store, ..MergeFlags::default() };
            journal.merge(&self.fs, self.root(), flags)?;
        }
        self.merged_in = Some(self.fs.term_at(self.root()));
        Ok(())
    }

    /// Merges the journals of earlier processes of this client and the sealed parts of this one,
    /// oldest first; and if the server was restarted since the last merge, the merged events that
    /// Local Persist kept.
    fn merge_earlier(&mut self, flags: MergeFlags) -> Result<Completion> {
        let start = std::time::Instant::now();
        if let Some(lost) = self.lost_merges()? {
            // Of a journal that is known already more is known.
            let known = std::mem::take(&mut self.earlier).into_iter();
            let all = known.chain(lost).collect();
            self.earlier = client::in_order(all, |journal| (journal.first, journal.next));
        }
        let mut done = Completion { merge: Some(MergeReport::default()), ..Completion::default() };
        let (flags, root) = (MergeFlags { release: false, ..flags }, self.inner.root());
        let mut at = 0;
        while let Some(journal) = self.earlier.get(at) {
            let (report, merged_by) =
                journal.merge_as(&self.fs, root, flags, self.by_reference())?;
            done.merged_by = done.merged_by.and(merged_by);
            done.events += journal.events();
            done.bytes += journal.bytes.len() as u64;
            done.merge = done.merge.map(|before| sum(before, report));
            match journal.object().map(str::to_owned) {
                // The merge survives a crash of the server, also if a later one fails.
                Some(object) if !flags.dry_run => {
                    self.earlier.remove(at);
                    self.owner.objects.retain(|known| *known != object);
                }
                _ => at += 1,
            }
        }
        done.seconds = start.elapsed().as_secs_f64();
        Ok(done)
    }
}
