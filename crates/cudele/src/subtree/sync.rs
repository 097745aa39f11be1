//! Namespace sync (U-03): carries out the decisions of [`client::PartSync`].
//!
//! A part of the journal goes to a thread, which takes over the blocks without a copy, and executes
//! the mechanisms of the policy on the parts in their order.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{JobInput, JournalPart, PartEffect, PartRun, PartSync, Reached, SyncDue, SyncWhen};
use policy::{Composition, MergeTrigger};
use types::{Errno, Error, Ino, InoRange, Result, Span};
use wire::{Answer, JobOp, MergeFlags, Op};

use super::Subtree;
use crate::mechanism::Workplace;
use crate::{Completion, Fs, StateDir};

/// News of the thread that merges parts.
#[derive(Debug)]
enum News {
    /// More inode numbers.
    Range(InoRange),
    /// The merge of a part has ended.
    Ended(Box<PartRun>),
}

/// The thread that merges parts.
#[derive(Debug)]
pub(super) struct Syncer {
    sync: PartSync,
    /// Taken away to end the thread.
    parts: Option<Sender<JournalPart>>,
    news: Receiver<News>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.parts = None;
        if let Some(thread) = self.thread.take() {
            // After a panic, a wait for its answers returns an error.
            let _ = thread.join();
        }
    }
}

/// Tells asking clients that the subtree is merged, until this is dropped.
#[derive(Debug)]
pub(super) struct Offered {
    fs: Arc<Fs>,
    root: Ino,
}

impl Offered {
    fn new(fs: &Arc<Fs>, root: Ino) -> Self {
        fs.offer(root);
        Self { fs: fs.clone(), root }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.fs.withdraw(self.root);
    }
}

/// The parts of the subtree that the thread uses.
#[derive(Debug)]
struct SyncPlace {
    fs: Arc<Fs>,
    state: StateDir,
    root: Ino,
    composition: Composition,
    flags: MergeFlags,
}

impl SyncPlace {
    /// Merges parts in their order, until one fails, or the receiver of the news is gone.
    fn run(&self, parts: &Receiver<JournalPart>, news: &Sender<News>) {
        let mut failed = None;
        for part in parts {
            let mut run = PartRun::new(part, self.root, &self.composition, self.flags, failed);
            let mut input = JobInput::Start;
            while let Some(effect) = run.handle(crate::moment(), input) {
                input = match effect {
                    PartEffect::Extend(count) => {
                        let op = Op::Job(JobOp::Extend { subtree: self.root, count });
                        if let Ok(Answer::Range(range)) = self.fs.call(op) {
                            let _ = news.send(News::Range(range));
                        }
                        JobInput::Done(Ok(()))
                    }
                    PartEffect::SyncContent => JobInput::Done(self.fs.sync_data()),
                    PartEffect::Mechanism(effect) => {
                        let (fs, state, written) = (&self.fs, &self.state, Mutex::default());
                        let place = Workplace { fs, state, written, material: run.material() };
                        JobInput::Mechanism(place.execute(effect))
                    }
                    PartEffect::Term => JobInput::Term(self.fs.term_at(self.root)),
                };
            }
            failed = run.error().cloned();
            if news.send(News::Ended(Box::new(run))).is_err() {
                return;
            }
        }
    }
}

impl Subtree {
    /// Merges at this interval from now on (U-03). Other clients see the work grow; the subtree
    /// stays decoupled until it is merged or discarded.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn sync_every(&mut self, every: Duration) -> Result<()> {
        let nanos = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        self.start_sync(SyncWhen::every(Span(nanos)))
    }

    /// As the policy's trigger says (P-03).
    pub(super) fn sync_as_policy_says(&mut self) -> Result<()> {
        self.offered = None;
        if self.job.policy.applies() && self.job.policy.merge == MergeTrigger::OnDemand {
            self.offered = Some(Offered::new(&self.fs, self.root()));
            return self.fs.receive_notices();
        }
        SyncWhen::of(&self.job.policy).map_or(Ok(()), |when| self.start_sync(when))
    }

    /// The policy changed: parts that are handed over from now on are kept as the new one says.
    pub(super) fn sync_under_new_policy(&mut self) -> Result<()> {
        match self.syncer.as_ref().map(|syncer| syncer.sync.when()) {
            Some(when) => self.start_sync(when),
            None => self.sync_as_policy_says(),
        }
    }

    fn start_sync(&mut self, when: SyncWhen) -> Result<()> {
        self.finish_sync()?;
        let (parts, to_merge) = channel();
        let (news, results) = channel();
        let place = SyncPlace {
            fs: self.fs.clone(),
            state: self.state.clone(),
            root: self.root(),
            composition: self.job.visible(),
            flags: self.job.merge_flags(),
        };
        let sync = PartSync::new(when, crate::now_coarse());
        let mut syncer = Syncer { sync, parts: None, news: results, thread: None };
        if let Ok(thread) = self.fs.cluster().thread("namespace-sync") {
            let thread = thread.spawn(move || place.run(&to_merge, &news)).map_err(|error| {
                Error::new(Errno::Again, self.path.to_string(), format!("no thread: {error}"))
            })?;
            (syncer.parts, syncer.thread) = (Some(parts), Some(thread));
        }
        self.syncer = Some(syncer);
        Ok(())
    }

    /// Hands a part over if it is time. Called every few events.
    #[cold]
    pub(super) fn sync_if_due(&mut self) {
        self.take_merged();
        let Some(syncer) = &mut self.syncer else { return };
        match syncer.sync.due(&self.job, self.time) {
            SyncDue::Nothing => {}
            SyncDue::Part if syncer.thread.is_some() => self.hand_over(),
            SyncDue::Part | SyncDue::Everything => {
                // Once, on the thread of the job.
                let done = self.sync();
                self.syncer.iter_mut().for_each(|syncer| syncer.sync.completed(done.clone()));
            }
        }
    }

    fn hand_over(&mut self) {
        let noted = self.note_used();
        let Some(syncer) = &mut self.syncer else { return };
        if let Err(error) = noted {
            return syncer.sync.completed(Err(error));
        }
        self.written = None;
        let part = syncer.sync.hand_over(&mut self.job);
        if let Some(parts) = &syncer.parts
            && let Err(unsent) = parts.send(part)
        {
            let error = Error::new(Errno::Io, "namespace sync", "its thread is gone");
            syncer.sync.failed(&mut self.job, unsent.0, error, Reached::default());
        }
    }

    /// Takes the results of merged parts.
    fn take_merged(&mut self) {
        while let Some(syncer) = &self.syncer
            && let Ok(news) = syncer.news.try_recv()
        {
            self.take_news(news);
        }
    }

    fn take_news(&mut self, news: News) {
        match (news, &mut self.syncer) {
            (News::Range(range), _) => self.job.take_range(range),
            (News::Ended(run), Some(syncer)) => syncer.sync.ended(&mut self.job, *run),
            (News::Ended(_), None) => {}
        }
    }

    /// Waits until all parts are merged, and returns the sum of their results.
    pub(super) fn drain_sync(&mut self) -> Result<Completion> {
        while let Some(syncer) = &self.syncer
            && syncer.sync.under_way() > 0
        {
            match syncer.news.recv() {
                Ok(news) => self.take_news(news),
                Err(_) => {
                    let cause = "the thread that merges ended; what it had is lost";
                    return Err(Error::new(Errno::Io, self.path.to_string(), cause));
                }
            }
        }
        let Some(syncer) = &mut self.syncer else { return Ok(Completion::default()) };
        // The completion tries failed parts again.
        let (done, failed) = syncer.sync.drained();
        if failed {
            let when = syncer.sync.when();
            self.syncer = None;
            self.start_sync(when)?;
        }
        Ok(done)
    }

    fn finish_sync(&mut self) -> Result<()> {
        self.drain_sync()?;
        self.syncer = None;
        Ok(())
    }

    /// Merges the pending events if a client waits for them (`merge: on_demand`). Every append does
    /// this, too; a job that pauses calls it when a [`crate::ServerNotice::Recall`] of the root
    /// arrives, or now and then. Returns whether a client waited.
    ///
    /// # Errors
    /// The errors of [`Subtree::sync`]; the waiting client then sees the last merged state.
    pub fn answer_merge_request(&mut self) -> Result<bool> {
        let root = self.root();
        if !self.fs.take_merge_request(root) {
            return Ok(false);
        }
        let done = if self.pending_events() == 0 { Ok(()) } else { self.sync().map(drop) };
        self.fs.say_merged(root)?;
        done.map(|()| true)
    }

    /// Merges the pending events, and keeps the subtree: other clients see them from now on.
    ///
    /// # Errors
    /// As [`Subtree::complete`].
    pub fn sync(&mut self) -> Result<Completion> {
        let composition = self.job.visible();
        self.execute(&composition, MergeFlags::default())
    }
}
