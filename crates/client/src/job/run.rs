//! Executes a composition on all pending work of a subtree: persists the sealed parts, merges the
//! earlier journals, runs the mechanisms, and keeps the books.
//!
//! Invariant: after any failure the same run may be made again; nothing is applied twice, and every
//! event is in the journal that grows or in an earlier one.

use policy::{Composition, Mechanism};
use types::{Epoch, Errno, Moment, Result};
use wire::{MergeFlags, MergeReport};

use super::composition::seconds;
use super::effect::{JobEffect, JobInput};
use super::{
    Completion, CompositionRun, Earlier, EarlierMerge, Material, MechanismEffect, MechanismInput,
    Reached, Step, SubtreeJob, sum_of_reports,
};
use crate::RunThreshold;

/// Restarts of servers in one run, before its caller hears of them.
const RESTARTS_MAX: u32 = 16;

/// See the module documentation.
#[derive(Debug)]
pub struct JobRun {
    composition: Composition,
    flags: MergeFlags,
    worth: Option<RunThreshold>,
    /// Only the merges and the mechanisms, without the steps before and after.
    bare: bool,
    /// Only the earlier journals go to the store.
    only_stores: bool,
    /// Encoded inode numbers that go back.
    unused: Vec<u8>,
    object: Option<String>,
    /// The server's term when the merges began.
    term: Epoch,
    /// The second attempt, at a server that was restarted.
    again: bool,
    /// Servers of new terms that refused to give the subtree back.
    restarts: u32,
    /// Bytes of earlier journals that went to the store.
    stored_bytes: u64,
    start: Moment,
    /// The result of the merges of earlier journals.
    earlier: Completion,
    done: Completion,
    state: RunState,
}

#[derive(Debug)]
enum RunState {
    Begin,
    Content,
    /// The object of an earlier journal is read.
    Looking(usize),
    Putting(usize, String),
    Writing(usize),
    Numbers,
    /// The term before the merges.
    Before,
    Lost,
    Merging(usize, Box<EarlierMerge>),
    EarlierMerged(usize),
    Composing(Box<CompositionRun>),
    /// The term, after a server of a new term refused to give the subtree back.
    Restarted,
    /// The term after the merges.
    After,
    Deleting(Vec<String>),
    Settled,
    Remembering,
}

impl JobRun {
    /// A run of a composition; by reference if it is given which directories are worth a run.
    #[must_use]
    pub fn new(composition: &Composition, flags: MergeFlags, worth: Option<RunThreshold>) -> Self {
        Self {
            composition: composition.clone(),
            flags,
            worth,
            bare: false,
            only_stores: false,
            unused: Vec::new(),
            object: None,
            term: Epoch(0),
            again: false,
            restarts: 0,
            stored_bytes: 0,
            start: Moment(0),
            earlier: Completion::default(),
            done: Completion::default(),
            state: RunState::Begin,
        }
    }

    /// Only reports the result of a merge.
    #[must_use]
    pub fn dry() -> Self {
        let flags = MergeFlags { dry_run: true, ..MergeFlags::default() };
        let only = Composition::One(Mechanism::VolatileApply);
        Self { bare: true, ..Self::new(&only, flags, None) }
    }

    /// Puts the earlier journals, which are on this disk only, into the store.
    #[must_use]
    pub fn store_earlier() -> Self {
        let composition = Composition::One(Mechanism::GlobalPersist);
        Self { only_stores: true, ..Self::new(&composition, MergeFlags::default(), None) }
    }

    /// The journal that the mechanisms work on.
    #[must_use]
    pub fn material<'a>(&'a self, job: &'a SubtreeJob) -> Material<'a> {
        Material {
            subtree: job.root(),
            header: job.inner.header(),
            blocks: job.inner.closed_blocks(),
            persisted_locally: job.persisted_locally,
            persisted_globally: job.persisted_globally,
            merge: self.flags,
            by_reference: self.worth.is_some(),
            worth: self.worth.unwrap_or_default(),
            unused: &self.unused,
            object: self.object.as_deref(),
        }
    }

    /// The next effect, after the result of the last one. Nothing is appended to the journal during
    /// a run.
    pub fn handle(&mut self, job: &mut SubtreeJob, now: Moment, input: JobInput) -> JobEffect {
        match self.step(job, now, input) {
            Ok(effect) => effect,
            Err(error) => {
                if self.again {
                    job.seal(Reached::all(&self.composition));
                }
                JobEffect::Done(Err(error))
            }
        }
    }

    fn step(&mut self, job: &mut SubtreeJob, now: Moment, input: JobInput) -> Result<JobEffect> {
        match std::mem::replace(&mut self.state, RunState::Begin) {
            RunState::Begin if self.bare => Ok(self.term_before()),
            RunState::Begin if self.only_stores => {
                self.start = now;
                Ok(self.put_earlier(job, now, 0))
            }
            RunState::Begin => {
                let durable = |it: Mechanism| it.persists() || it == Mechanism::NonvolatileApply;
                if self.composition.mechanisms().any(durable) {
                    self.state = RunState::Content;
                    return Ok(JobEffect::SyncContent);
                }
                Ok(self.put_earlier(job, now, 0))
            }
            RunState::Content => {
                input.done()?;
                Ok(self.put_earlier(job, now, 0))
            }
            RunState::Looking(at) => {
                let there = input.object()?;
                let name = job.object_from(job.earlier[at].first);
                if job.earlier[at].replaces(there) {
                    self.state = RunState::Putting(at, name.clone());
                    return Ok(JobEffect::PutEarlier(at, name));
                }
                Ok(self.stored(job, now, at, name))
            }
            RunState::Putting(at, name) => {
                input.done()?;
                Ok(self.stored(job, now, at, name))
            }
            RunState::Writing(at) => {
                input.done()?;
                job.earlier[at].sealed.iter_mut().for_each(|sealed| sealed.on_disk = true);
                Ok(self.write_earlier(job, at + 1))
            }
            RunState::Numbers => {
                input.done()?;
                Ok(self.term_before())
            }
            RunState::Before => {
                self.term = input.term()?;
                Ok(self.run(job, now))
            }
            RunState::Lost => {
                self.take_lost(job, input.journals()?);
                Ok(self.merge_earlier(job, now, 0))
            }
            RunState::Merging(at, merge) => self.merging(job, now, at, merge, input.mechanism()),
            RunState::EarlierMerged(at) => {
                input.done()?;
                Ok(self.earlier_merged(job, now, at))
            }
            RunState::Composing(run) => self.composing(job, now, run, input.mechanism()),
            RunState::Restarted => Ok(self.run_in(job, now, input.term()?)),
            RunState::After => Ok(self.after(job, now, input.term()?)),
            RunState::Deleting(left) => {
                input.done()?;
                Ok(self.delete(job, left))
            }
            RunState::Settled => {
                job.merged_in = Some(input.term()?);
                // The note may name objects that the server deletes now.
                self.state = RunState::Remembering;
                Ok(JobEffect::Remember(job.policy.persists()))
            }
            RunState::Remembering => {
                input.done()?;
                Ok(self.end())
            }
        }
    }

    /// Puts the earlier journals, which are on this disk only, into the store, from one on, if the
    /// composition persists there.
    fn put_earlier(&mut self, job: &SubtreeJob, now: Moment, from: usize) -> JobEffect {
        if self.composition.contains(Mechanism::GlobalPersist)
            && let Some(at) = (from..job.earlier.len()).find(|at| job.earlier[*at].object.is_none())
        {
            self.state = RunState::Looking(at);
            return JobEffect::Get(job.object_from(job.earlier[at].first));
        }
        if self.only_stores {
            return self.end_of_store(now);
        }
        self.write_earlier(job, 0)
    }

    fn end_of_store(&mut self, now: Moment) -> JobEffect {
        let (mechanism, bytes) = (Mechanism::GlobalPersist, self.stored_bytes);
        if bytes > 0 {
            self.done.steps = vec![Step { mechanism, seconds: seconds(self.start, now), bytes }];
        }
        self.end()
    }

    fn stored(&mut self, job: &mut SubtreeJob, now: Moment, at: usize, name: String) -> JobEffect {
        self.stored_bytes += job.earlier[at].bytes.len() as u64;
        job.note.note_object(&name);
        job.earlier[at].object = Some(name);
        self.put_earlier(job, now, at + 1)
    }

    /// Writes the sealed parts to the disk, if the composition persists there.
    fn write_earlier(&mut self, job: &SubtreeJob, from: usize) -> JobEffect {
        let is_due = |at: &usize| job.earlier[*at].sealed.is_some_and(|sealed| !sealed.on_disk);
        if self.composition.contains(Mechanism::LocalPersist)
            && let Some(at) = (from..job.earlier.len()).find(is_due)
        {
            self.state = RunState::Writing(at);
            return JobEffect::WriteEarlier(at);
        }
        let merges = self.composition.mechanisms().any(Mechanism::applies);
        if !self.flags.release && !merges {
            return self.term_before();
        }
        self.state = RunState::Numbers;
        if self.flags.release { JobEffect::GiveUp } else { JobEffect::NoteUsed }
    }

    fn term_before(&mut self) -> JobEffect {
        self.state = RunState::Before;
        JobEffect::Term
    }

    /// Merges the earlier journals, and runs the composition.
    fn run(&mut self, job: &mut SubtreeJob, now: Moment) -> JobEffect {
        self.start = now;
        self.flags.check = job.policy.check == policy::Check::Merge;
        self.earlier = Completion::default();
        // Once the subtree is given back, nothing can be merged again: not in a term that lacks the
        // merges on which this one builds.
        let builds = job.may_have_lost() || !job.earlier.is_empty();
        self.flags.in_term = if self.flags.release && builds { self.term } else { Epoch(0) };
        if !self.composition.mechanisms().any(Mechanism::applies) {
            return self.compose(job, now);
        }
        self.earlier.merge = Some(MergeReport::default());
        if job.may_have_lost() && job.merged_in != Some(self.term) {
            self.state = RunState::Lost;
            return JobEffect::LocalJournals;
        }
        self.merge_earlier(job, now, 0)
    }

    fn take_lost(&self, job: &mut SubtreeJob, journals: Vec<Earlier>) {
        let lost = job.lost(self.term, journals);
        // Of a journal that is known already more is known.
        let known = std::mem::take(&mut job.earlier).into_iter();
        let all = known.chain(lost).collect();
        job.earlier = crate::in_order(all, |journal| (journal.first, journal.next));
    }

    fn merge_earlier(&mut self, job: &mut SubtreeJob, now: Moment, at: usize) -> JobEffect {
        if at >= job.earlier.len() {
            return self.compose(job, now);
        }
        let store = self.composition.contains(Mechanism::NonvolatileApply);
        let flags = MergeFlags { release: false, store, ..self.flags };
        let mut merge = EarlierMerge::new(job.root(), flags, self.worth);
        let effect = merge.handle(&job.earlier[at], now, MechanismInput::Start);
        self.state = RunState::Merging(at, Box::new(merge));
        if let MechanismEffect::Done(result) = effect {
            return self.merged_one(job, at, result).unwrap_or_else(|it| JobEffect::Done(Err(it)));
        }
        JobEffect::Earlier(at, effect)
    }

    fn merging(
        &mut self,
        job: &mut SubtreeJob,
        now: Moment,
        at: usize,
        mut merge: Box<EarlierMerge>,
        input: MechanismInput,
    ) -> Result<JobEffect> {
        let effect = merge.handle(&job.earlier[at], now, input);
        let MechanismEffect::Done(result) = effect else {
            self.state = RunState::Merging(at, merge);
            return Ok(JobEffect::Earlier(at, effect));
        };
        self.merged_one(job, at, result)
    }

    fn merged_one(
        &mut self,
        job: &SubtreeJob,
        at: usize,
        result: Result<Completion>,
    ) -> Result<JobEffect> {
        let merged = result?;
        let (earlier, journal) = (&mut self.earlier, &job.earlier[at]);
        earlier.merged_by = earlier.merged_by.and(merged.merged_by);
        earlier.events += journal.events();
        earlier.bytes += journal.bytes.len() as u64;
        let report = merged.merge.unwrap_or_default();
        earlier.merge = earlier.merge.take().map(|before| sum_of_reports(before, report));
        self.state = RunState::EarlierMerged(at);
        Ok(JobEffect::EarlierMerged(at))
    }

    fn earlier_merged(&mut self, job: &mut SubtreeJob, now: Moment, at: usize) -> JobEffect {
        let next = match job.earlier[at].object.clone() {
            // The merge survives a crash of the server, also if a later one fails.
            Some(object) if !self.flags.dry_run => {
                job.earlier.remove(at);
                job.note.objects.retain(|known| *known != object);
                at
            }
            _ => at + 1,
        };
        self.merge_earlier(job, now, next)
    }

    fn compose(&mut self, job: &mut SubtreeJob, now: Moment) -> JobEffect {
        self.earlier.seconds = seconds(self.start, now);
        let does = |wanted| self.composition.contains(wanted);
        let stores = does(Mechanism::GlobalPersist) || does(Mechanism::NonvolatileApply);
        // An empty journal is no object.
        self.object = (stores && job.inner.events() > 0).then(|| job.object_name());
        self.unused.clear();
        if self.flags.release {
            self.unused = wire::UnusedNumbers::encode(&job.note.unused);
        }
        // Closes the last block.
        job.inner.blocks();
        let mut run = CompositionRun::new(&self.composition);
        let effect = run.handle(&self.material(job), now, MechanismInput::Start);
        self.state = RunState::Composing(Box::new(run));
        JobEffect::Mechanism(effect)
    }

    fn composing(
        &mut self,
        job: &mut SubtreeJob,
        now: Moment,
        mut run: Box<CompositionRun>,
        input: MechanismInput,
    ) -> Result<JobEffect> {
        let effect = run.handle(&self.material(job), now, input);
        let MechanismEffect::Done(result) = effect else {
            self.state = RunState::Composing(run);
            return Ok(JobEffect::Mechanism(effect));
        };
        let mut done = match result {
            Ok(done) => done,
            Err(error) if error.errno == Errno::Canceled && self.restarts < RESTARTS_MAX => {
                // The server was restarted before it could give the subtree back.
                self.restarts += 1;
                self.state = RunState::Restarted;
                return Ok(JobEffect::Term);
            }
            Err(error) => {
                if !self.again {
                    job.seal(run.reached());
                }
                return Err(error);
            }
        };
        let earlier = std::mem::take(&mut self.earlier);
        done.events = job.inner.events() + earlier.events;
        done.bytes += earlier.bytes;
        done.seconds += earlier.seconds;
        done.merged_by = earlier.merged_by.and(done.merged_by);
        if let (Some(merge), Some(before)) = (&mut done.merge, earlier.merge) {
            *merge = sum_of_reports(before, std::mem::take(merge));
        }
        let apply = |step: &&mut Step| step.mechanism.applies();
        if let Some(step) = done.steps.iter_mut().find(apply) {
            step.bytes += earlier.bytes;
            step.seconds += earlier.seconds;
        }
        self.done = done;
        if self.bare {
            return Ok(self.end());
        }
        self.state = RunState::After;
        Ok(JobEffect::Term)
    }

    fn after(&mut self, job: &mut SubtreeJob, now: Moment, term: Epoch) -> JobEffect {
        if self.done.merge.is_some()
            && !self.again
            && self.term.is_restarted(term)
            && self.may_be_undone(job)
        {
            // The connection had to be made again, to a server that has nothing of earlier merges:
            // only now is that known.
            self.again = true;
            return self.run_in(job, now, term);
        }
        self.keep_books(job)
    }

    /// The same run once more, in a later term of the server.
    fn run_in(&mut self, job: &mut SubtreeJob, now: Moment, term: Epoch) -> JobEffect {
        self.term = term;
        // The server may have deleted the object since.
        job.persisted_globally = 0;
        self.run(job, now)
    }

    /// Whether a restarted server may lack merged events. After Nonvolatile Apply the metadata
    /// store has the events of this run, with those of the earlier journals; it may lack only
    /// those of earlier runs.
    fn may_be_undone(&self, job: &SubtreeJob) -> bool {
        !self.composition.contains(Mechanism::NonvolatileApply) || job.may_have_lost()
    }

    fn keep_books(&mut self, job: &mut SubtreeJob) -> JobEffect {
        let does = |wanted| self.composition.contains(wanted);
        if does(Mechanism::LocalPersist) {
            job.persisted_locally = job.inner.closed_blocks().len();
        }
        if does(Mechanism::GlobalPersist) && job.inner.events() > 0 {
            job.persisted_globally = job.inner.closed_blocks().len();
            let object = job.object_name();
            job.note.note_object(&object);
        }
        if self.done.merge.is_none() {
            if does(Mechanism::LocalPersist) || does(Mechanism::GlobalPersist) {
                self.state = RunState::Remembering;
                return JobEffect::Remember(true);
            }
            return self.end();
        }
        let stored = does(Mechanism::GlobalPersist) || does(Mechanism::NonvolatileApply);
        let own = (!stored).then(|| job.object_name());
        let parts = job.earlier.iter().filter(|part| part.object.is_none());
        let sent = own.into_iter().chain(parts.map(|part| job.object_from(part.first)));
        // An object that was persisted for a policy that did not come into force: a client that
        // took the subtree over would merge it over later events.
        let left = sent.filter(|own| job.note.objects.contains(own)).collect();
        self.delete(job, left)
    }

    fn delete(&mut self, job: &mut SubtreeJob, mut left: Vec<String>) -> JobEffect {
        if let Some(object) = left.pop() {
            self.state = RunState::Deleting(left);
            return JobEffect::Delete(object);
        }
        job.settle(!self.flags.release);
        self.state = RunState::Settled;
        JobEffect::Term
    }

    fn end(&mut self) -> JobEffect {
        JobEffect::Done(Ok(std::mem::take(&mut self.done)))
    }
}
