//! The mechanisms that complete a policy: carries out the effects of `client::CompositionRun`, and
//! may be struck at any step.

use client::{
    ByValue, Completion, CompositionRun, Earlier, EarlierMerge, JobEffect, JobInput, JobRun,
    Material, MechanismEffect, MechanismInput, MechanismStage, RunThreshold, SentMerge,
};
use objstore::{Expect, ObjectStore, SyncScope};
use policy::{Composition, Durability, Mechanism};
use types::{Errno, Error, Moment, Result, Seq};
use wire::{Answer, MergeFlags};

use super::job::{cell_of, journal_of};
use super::ledger::{Shown, Update, marks};
use super::machine::File;
use super::{Cells, Done, Stop};
use crate::call::CallKind;
use crate::jobs::{carry_out, get, merge_of};

impl Cells {
    pub(super) fn execute(&mut self, composition: &Composition, release: bool) -> Done<()> {
        let merges = composition.mechanisms().any(Mechanism::applies);
        let (held, parts) = (self.held_updates()?, self.pending_parts()?);
        self.job().releasing |= release && merges;
        let worth = self.rng.percent(50).then_some(WORTH);
        let flags = MergeFlags { release, ..MergeFlags::default() };
        let crashes = self.requests.world.crashes;
        let done = self.drive(JobRun::new(composition, flags, worth))?;
        self.count_merge(&done);
        if merges {
            if crashes == self.requests.world.crashes
                && self.holding()?.policy.contains(Mechanism::LocalPersist)
            {
                let updates = &self.job().ledger.updates;
                let lost = |it: &&Update| {
                    it.undone && it.kept.disk && matches!(it.shown, Shown::No | Shown::Perhaps)
                };
                if let Some(lost) = updates.iter().find(lost) {
                    let text =
                        format!("merged, lost by the server, and not merged again: {lost:?}");
                    self.requests.world.check(Err(text));
                }
            }
            for at in held {
                let kept = &mut self.job().ledger.updates[at].kept;
                (kept.memory, kept.store) = (false, false);
            }
        } else if composition.mechanisms().any(Mechanism::persists) {
            for part in &parts {
                composition.mechanisms().for_each(|mechanism| self.job().keep(part, mechanism));
            }
        }
        Ok(())
    }

    /// The sealed parts, and the journal that grows.
    fn pending_parts(&mut self) -> Done<Vec<Vec<u8>>> {
        let holding = self.holding()?;
        let mut parts: Vec<_> = holding.sealed().map(|part| part.bytes.clone()).collect();
        parts.push(journal_of(holding));
        Ok(parts)
    }

    /// Puts journals of earlier processes, which are on this disk only, into the store.
    pub(super) fn store_earlier(&mut self) -> Done<()> {
        self.drive(JobRun::store_earlier()).map(drop)
    }

    fn count_merge(&mut self, done: &Completion) {
        self.requests.world.tally.count("directories merged by reference", done.merged_by.runs);
        let refused = done.merged_by.because == Some(ByValue::Refused.reason());
        self.requests.world.tally.count("merges by reference refused", u64::from(refused));
    }

    /// Carries the effects of a run out, as the library does, and may be struck at any step.
    fn drive(&mut self, mut run: JobRun) -> Done<Completion> {
        let client = self.client()?;
        let mut input = JobInput::Start;
        loop {
            let now = Moment(self.requests.world.now);
            let effect = run.handle(self.holding()?, now, input);
            if let JobEffect::Done(result) = effect {
                return result.map_err(|error| Stop::Failed(error.errno));
            }
            self.local_step(client)?;
            input = self.job_effect(client, &run, effect)?;
        }
    }

    /// The pending events are about to be merged.
    pub(super) fn note_used(&mut self) -> Done<()> {
        let job = self.holding()?;
        let present = job.present_note();
        let unnoted = present.used > job.note.used || present.reached > job.note.reached;
        let local = job.policy.contains(Mechanism::LocalPersist);
        if unnoted && !local && self.job().machine.owner.is_some() {
            return self.remember();
        }
        Ok(())
    }

    fn job_effect(&mut self, client: usize, run: &JobRun, effect: JobEffect) -> Done<JobInput> {
        Ok(match effect {
            JobEffect::SyncContent | JobEffect::GiveUp | JobEffect::Done(_) => {
                JobInput::Done(Ok(()))
            }
            JobEffect::NoteUsed => {
                self.note_used()?;
                JobInput::Done(Ok(()))
            }
            JobEffect::Get(name) => JobInput::Object(Ok(get(&self.requests.world.memory, &name))),
            JobEffect::PutEarlier(at, name) => {
                let bytes = self.holding()?.earlier[at].bytes.clone();
                let put = self.requests.world.memory.put(&name, &bytes, Expect::Any);
                if put.is_ok() {
                    self.kept(&bytes, Mechanism::GlobalPersist)?;
                }
                self.persisted(client)?;
                JobInput::Done(put.map(drop))
            }
            JobEffect::WriteEarlier(at) => {
                let Earlier { first, bytes, .. } = self.holding()?.earlier[at].clone();
                self.write_file(client, (first, true), &bytes)?;
                JobInput::Done(Ok(()))
            }
            JobEffect::Term => JobInput::Term(self.epoch(client)),
            JobEffect::LocalJournals => JobInput::Journals(Ok(self.local_journals()?)),
            JobEffect::Mechanism(effect) => JobInput::Mechanism(self.on_material(run, effect)?),
            JobEffect::Earlier(at, effect) => {
                let bytes = self.holding()?.earlier[at].bytes.clone();
                JobInput::Mechanism(self.effect(None, &bytes, effect)?)
            }
            JobEffect::EarlierMerged(at) => {
                let earlier = self.holding()?.earlier[at].clone();
                self.earlier_merged(&earlier);
                JobInput::Done(Ok(()))
            }
            JobEffect::Delete(name) => {
                let deleted = self.requests.world.memory.delete(&name).map(drop);
                self.persisted(client)?;
                JobInput::Done(deleted)
            }
            JobEffect::Remember(always) => {
                if always || self.job().machine.owner.is_some() {
                    self.remember()?;
                }
                JobInput::Done(Ok(()))
            }
        })
    }

    /// Carries out an effect on the journal that grows.
    fn on_material(&mut self, run: &JobRun, effect: MechanismEffect) -> Done<MechanismInput> {
        let job = self.holding()?;
        let blocks = job.inner.closed_blocks().to_vec();
        let material = run.material(job);
        let (header, object) = (material.header, material.object.map(str::to_owned));
        let Material { subtree, persisted_locally, persisted_globally, merge, .. } = material;
        let material = Material {
            subtree,
            header,
            blocks: &blocks,
            persisted_locally,
            persisted_globally,
            merge,
            by_reference: material.by_reference,
            worth: material.worth,
            unused: &[],
            object: object.as_deref(),
        };
        let journal = whole(&material);
        self.effect(Some(&material), &journal, effect)
    }

    /// A journal of an earlier process is merged, perhaps by an earlier attempt: the server deletes
    /// an object when its events are merged and stored.
    fn earlier_merged(&mut self, earlier: &Earlier) {
        if earlier.object.is_none() {
            return;
        }
        let ledger = &mut self.job().ledger;
        let places = ledger.places(&marks(&earlier.bytes));
        ledger.merged(&places, true);
        for at in places {
            let kept = &mut self.job().ledger.updates[at].kept;
            (kept.memory, kept.store) = (false, false);
        }
    }

    /// A mechanism completed for a journal. Where the policy does not ask for it (yet), that counts
    /// only when it is noted.
    fn kept(&mut self, journal: &[u8], mechanism: Mechanism) -> Done<()> {
        if self.holding()?.policy.contains(mechanism) {
            self.job().keep(journal, mechanism);
        }
        Ok(())
    }

    /// Carries an effect out, as the library does, and may be struck at any step.
    pub(super) fn effect(
        &mut self,
        material: Option<&Material<'_>>,
        journal: &[u8],
        effect: MechanismEffect,
    ) -> Done<MechanismInput> {
        let client = self.client()?;
        self.local_step(client)?;
        Ok(match effect {
            MechanismEffect::Note(mechanism, stage) => {
                if stage == MechanismStage::Ended {
                    self.kept(journal, mechanism)?;
                }
                MechanismInput::Done(Ok(()))
            }
            MechanismEffect::WriteFile { from } => {
                let first = material.map_or(Seq(0), |material| material.header.first_seq);
                self.write_file(client, (first, from == 0), journal)?;
                MechanismInput::Bytes(Ok(journal.len() as u64))
            }
            MechanismEffect::WriteObject { from } => {
                let offset = material.filter(|_| from > 0).map_or(0, |it| it.offset_of(from));
                let object = material.and_then(|it| it.object).unwrap_or_default();
                let written = self.write_object(client, object, (offset, journal))?;
                MechanismInput::Bytes(written.map(|()| journal.len() as u64))
            }
            MechanismEffect::Root => {
                let ino = self.job().root;
                MechanismInput::Answer(self.answer(client, CallKind::GetAttr { ino }, None)?)
            }
            MechanismEffect::Checkpoint => MechanismInput::Done(match self.checkpoint(client) {
                Err(Stop::Failed(errno)) => Err(Error::of(errno, "checkpoint")),
                done => Ok(done?),
            }),
            MechanismEffect::Fork(members) => {
                let Some(material) = material else { return Err(Stop::Broken) };
                MechanismInput::Joined(self.fork(material, journal, members)?)
            }
            MechanismEffect::Done(result) => MechanismInput::Done(result.map(drop)),
            effect => match carry_out(&self.requests.world.memory, "", journal, effect) {
                Ok(input @ MechanismInput::Done(_)) => {
                    // The store has an object more, or less.
                    self.persisted(client)?;
                    input
                }
                Ok(input) => input,
                Err(merge) => MechanismInput::Answer(self.send_merge(client, journal, &merge)?),
            },
        })
    }

    /// The members of a parallel composition take turns at random.
    fn fork(
        &mut self,
        material: &Material<'_>,
        journal: &[u8],
        mut members: Vec<CompositionRun>,
    ) -> Done<Vec<CompositionRun>> {
        let start = |_| Some(MechanismInput::Start);
        let mut inputs: Vec<_> = (0..members.len()).map(start).collect();
        while inputs.iter().any(Option::is_some) {
            let at = self.rng.index(members.len());
            let Some(input) = inputs[at].take() else { continue };
            let now = Moment(self.requests.world.now);
            if let Some(effect) = members[at].handle_member(material, now, input) {
                inputs[at] = Some(self.effect(Some(material), journal, effect)?);
            }
        }
        Ok(members)
    }

    fn write_file(
        &mut self,
        client: usize,
        (first, fresh): (Seq, bool),
        journal: &[u8],
    ) -> Done<()> {
        let mut file = File::default();
        if !fresh {
            file = self.job().machine.journals.get(&first).cloned().unwrap_or_default();
        }
        file.written = journal.to_vec();
        if !fresh {
            // Written on, under its name.
            self.job().machine.journals.insert(first, file.clone());
            self.persisted(client)?;
            self.local_step(client)?;
        }
        file.sync();
        self.local_step(client)?;
        self.job().machine.journals.insert(first, file);
        self.kept(journal, Mechanism::LocalPersist)?;
        self.persisted(client)
    }

    fn write_object(
        &mut self,
        client: usize,
        object: &str,
        (offset, journal): (u64, &[u8]),
    ) -> Done<Result<()>> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let store = &self.requests.world.memory;
        if let Err(error) = store.write_range(object, offset, &journal[from..]) {
            return Ok(Err(error));
        }
        // The server may die now, and with it the unsynced writes of the store.
        let cuts = self.requests.world.cuts;
        self.persisted(client)?;
        self.step(client)?;
        self.local_step(client)?;
        if cuts != self.requests.world.cuts {
            return Ok(Err(Error::of(Errno::Io, object)));
        }
        if let Err(error) = self.requests.world.memory.sync(SyncScope::Object(object)) {
            return Ok(Err(error));
        }
        self.kept(journal, Mechanism::GlobalPersist)?;
        self.persisted(client)?;
        Ok(Ok(()))
    }

    fn answer(
        &mut self,
        client: usize,
        what: CallKind,
        journal: Option<Vec<u8>>,
    ) -> Done<Result<Answer>> {
        match self.transfer(client, what, journal) {
            Ok(answer) => Ok(Ok(answer)),
            Err(Stop::Failed(errno)) => Ok(Err(Error::of(errno, "metadata server"))),
            Err(stop) => Err(stop),
        }
    }

    /// Sends a merge of a journal, which follows the request or is in the store.
    fn send_merge(
        &mut self,
        client: usize,
        journal: &[u8],
        merge: &SentMerge,
    ) -> Done<Result<Answer>> {
        let durability = cell_of(&self.holding()?.policy).durability;
        let ledger = &mut self.job().ledger;
        let places = ledger.places(&marks(journal));
        let stable = !merge.object.is_empty();
        let group = if stable { ledger.group() } else { 0 };
        if merge.flags.release && !stable && durability != Durability::Global {
            // The reply may be lost, and the former owner gone with its disk: the server gives the
            // subtree back, and no client looks for the journal objects of an earlier policy.
            ledger.updates.iter_mut().for_each(|update| update.kept.store = false);
        }
        // The process may be struck, and the merge go on.
        ledger.sent(&places, group);
        let (what, sent) = merge_of(merge, self.job().root, journal, Vec::new());
        let answer = self.answer(client, what, sent)?;
        if answer.is_ok() {
            self.job().ledger.merged(&places, stable || merge.flags.store);
        }
        Ok(answer)
    }

    /// Merges a journal of an earlier process, or a part of this one.
    pub(super) fn merge_one(
        &mut self,
        earlier: &Earlier,
        flags: MergeFlags,
        worth: Option<RunThreshold>,
    ) -> Done<()> {
        let mut merge = EarlierMerge::new(self.job().root, flags, worth);
        let mut input = MechanismInput::Start;
        loop {
            let effect = merge.handle(earlier, Moment(self.requests.world.now), input);
            let MechanismEffect::Done(result) = effect else {
                input = self.effect(None, &earlier.bytes, effect)?;
                continue;
            };
            let done = result.map_err(|error| Stop::Failed(error.errno))?;
            self.earlier_merged(earlier);
            self.count_merge(&done);
            return Ok(());
        }
    }

    /// The journals on the machine's disk, as far as they are intact.
    pub(super) fn local_journals(&mut self) -> Done<Vec<Earlier>> {
        let files: Vec<_> = self.job().machine.journals.values().cloned().collect();
        let mut journals = Vec::new();
        for file in files {
            match Earlier::read("a journal on the disk".to_owned(), file.written, None) {
                Ok(earlier) => journals.push(earlier),
                Err(error) => {
                    self.requests
                        .world
                        .check(Err(format!("a journal on the disk has a gap: {error:?}")));
                    return Err(Stop::Broken);
                }
            }
        }
        Ok(journals)
    }
}

/// Directories of any size go by reference here.
const WORTH: RunThreshold = RunThreshold { names_min: 1, names_per_directory_min: 0 };

/// The journal as it is on a disk.
pub(super) fn whole(material: &Material<'_>) -> Vec<u8> {
    let mut bytes = material.header.encode().to_vec();
    material.blocks.iter().for_each(|block| bytes.extend_from_slice(block));
    bytes
}
