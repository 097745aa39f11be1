//! Namespace sync (U-03): merges parts of the journal during the job.
//!
//! At an interval, or after so many updates, the events since the last time go to a thread: it
//! takes over the blocks without a copy, and the job appends to new ones. The thread executes the
//! mechanisms of the policy, so that other clients see the work grow, in its order.
//!
//! Each part is a journal that begins where the one before ends; the server applies each once,
//! however often clients send it (M-04). A part that cannot be merged stays with its client, with
//! all later parts, until the next completion, which returns the error.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use policy::{Check, Composition, Mechanism, MergeTrigger};
use types::{Epoch, Errno, Error, Ino, InoRange, Result, Timestamp};
use wire::{Answer, MergeFlags, Op};

use super::Subtree;
use super::sealed::Held;
use crate::mechanism::{Material, Reached, execute};
use crate::{Completion, Fs, StateDir};

/// The least time between parts that are handed over whenever there is nothing else to do.
const IDLE: Duration = Duration::from_secs(1);

/// A part of the journal.
#[derive(Debug)]
struct JournalPart {
    held: Held,
    object: Option<String>,
    /// Inode numbers to be asked for, so that appending need not wait for them.
    extend: Option<u64>,
}

/// The result of the merge of a part.
#[derive(Debug)]
enum Ended {
    /// Not an end: more inode numbers.
    Range(InoRange),
    Merged {
        part: JournalPart,
        done: Box<Completion>,
        epoch: Epoch,
    },
    Failed {
        part: JournalPart,
        error: Error,
        reached: Reached,
    },
}

/// When parts are handed over.
#[derive(Clone, Copy, Debug)]
struct When {
    every: Duration,
    /// Also when so many updates are held.
    updates: u64,
    /// Only when the part before is merged.
    idle: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Syncer {
    when: When,
    /// The next part is handed over then.
    next: Timestamp,
    /// Taken away to end the thread.
    parts: Option<Sender<JournalPart>>,
    ended: Receiver<Ended>,
    /// Parts that were handed over and have not come back.
    under_way: usize,
    /// The sum of the results of all parts.
    done: Completion,
    failed: Option<Error>,
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
    check: bool,
}

impl SyncPlace {
    /// Merges parts in their order, until one fails.
    fn run(&self, parts: &Receiver<JournalPart>, ended: &Sender<Ended>) {
        let mut failed: Option<Error> = None;
        for part in parts {
            if let Some(count) = part.extend
                && let Ok(Answer::Range(range)) =
                    self.fs.call(Op::Extend { subtree: self.root, count })
                && ended.send(Ended::Range(range)).is_err()
            {
                return;
            }
            let mut reached = Reached::default();
            let result = failed.clone().map_or_else(|| self.merge(&part, &mut reached), Err);
            let message = match result {
                Ok(done) => {
                    let epoch = self.fs.term_at(self.root);
                    Ended::Merged { part, done: Box::new(done), epoch }
                }
                Err(error) => {
                    failed = Some(error.clone());
                    Ended::Failed { part, error, reached }
                }
            };
            if ended.send(message).is_err() {
                return;
            }
        }
    }

    fn merge(&self, part: &JournalPart, reached: &mut Reached) -> Result<Completion> {
        let held = &part.held;
        if self.composition.mechanisms().any(Mechanism::persists) {
            self.fs.sync_data()?;
        }
        let material = Material {
            fs: &self.fs,
            state: &self.state,
            subtree: self.root,
            header: held.header,
            blocks: &held.blocks,
            persisted_locally: held.persisted.0,
            persisted_globally: held.persisted.1,
            merge: MergeFlags { check: self.check, ..MergeFlags::default() },
            by_reference: false,
            unused: Vec::new(),
            written: Mutex::default(),
            object: part.object.clone(),
            asked: AtomicBool::new(false),
            stored: AtomicBool::new(false),
            completed: Mutex::default(),
        };
        let done = execute(&self.composition, &material);
        *reached = material.reached();
        let mut done = done?;
        done.events = held.next.0 - held.header.first_seq.0;
        done.syncs = 1;
        Ok(done)
    }
}

impl Subtree {
    /// Merges at this interval from now on (U-03). Other clients see the work grow; the subtree
    /// stays decoupled until it is merged or discarded.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn sync_every(&mut self, every: Duration) -> Result<()> {
        self.start_sync(When { every, updates: u64::MAX, idle: false })
    }

    /// As the policy's trigger says (P-03).
    pub(super) fn sync_as_policy_says(&mut self) -> Result<()> {
        self.offered = None;
        match self.policy.merge {
            _ if !self.policy.applies() => Ok(()),
            MergeTrigger::AtEnd => Ok(()),
            MergeTrigger::OnDemand => {
                self.offered = Some(Offered::new(&self.fs, self.root()));
                self.fs.receive_notices()
            }
            MergeTrigger::Every { seconds } => self.sync_every(Duration::from_secs(seconds)),
            MergeTrigger::AtUpdates { count } => {
                let every = Duration::from_secs(policy::MERGE_SECONDS_MAX);
                self.start_sync(When { every, updates: count, idle: false })
            }
            MergeTrigger::WhenIdle => {
                self.start_sync(When { every: IDLE, updates: u64::MAX, idle: true })
            }
        }
    }

    /// The policy changed: parts that are handed over from now on are kept as the new one says.
    pub(super) fn sync_under_new_policy(&mut self) -> Result<()> {
        match &self.syncer {
            Some(Syncer { when, .. }) => {
                let when = *when;
                self.start_sync(when)
            }
            None => self.sync_as_policy_says(),
        }
    }

    fn start_sync(&mut self, when: When) -> Result<()> {
        self.finish_sync()?;
        let (parts, to_merge) = channel();
        let (ended, results) = channel();
        let place = SyncPlace {
            fs: self.fs.clone(),
            state: self.state.clone(),
            root: self.root(),
            composition: self.visible(),
            check: self.policy.check == Check::Merge,
        };
        let thread = std::thread::Builder::new().name("namespace-sync".to_owned());
        let thread = thread.spawn(move || place.run(&to_merge, &ended)).map_err(|error| {
            Error::new(Errno::Again, self.path.to_string(), format!("no thread: {error}"))
        })?;
        self.syncer = Some(Syncer {
            when,
            next: after(crate::now_coarse(), when.every),
            parts: Some(parts),
            ended: results,
            under_way: 0,
            done: Completion::default(),
            failed: None,
            thread: Some(thread),
        });
        Ok(())
    }

    /// The policy's mechanisms, and a merge if it has none.
    pub(super) fn visible(&self) -> Composition {
        let composition = self.policy.effective();
        if composition.mechanisms().any(Mechanism::applies) {
            return composition;
        }
        Composition::serial([composition, Composition::One(Mechanism::VolatileApply)])
    }

    /// Hands a part over if it is time. Called every few events.
    #[cold]
    pub(super) fn sync_if_due(&mut self) {
        self.take_merged();
        let Some(syncer) = &self.syncer else { return };
        let due = self.time >= syncer.next || self.inner.events() >= syncer.when.updates;
        if !due || self.inner.events() == 0 {
            return;
        }
        let Some(syncer) = &mut self.syncer else { return };
        syncer.next = after(self.time, syncer.when.every);
        if (syncer.when.idle && syncer.under_way > 0) || syncer.failed.is_some() {
            return;
        }
        if self.earlier.is_empty() {
            return self.hand_over();
        }
        // Journals of an earlier process, or of a failed merge, come first: once, on the thread of
        // the job.
        let done = self.sync();
        let Some(syncer) = &mut self.syncer else { return };
        match done {
            Ok(done) => syncer.done.absorb(Completion { syncs: done.syncs + 1, ..done }),
            Err(error) => syncer.failed = Some(error),
        }
    }

    fn hand_over(&mut self) {
        if let Err(error) = self.note_used() {
            // Events that cannot be handed over stay for the next completion, which returns the
            // error.
            if let Some(syncer) = &mut self.syncer {
                syncer.failed = Some(error);
            }
            return;
        }
        let stores =
            |mechanism| matches!(mechanism, Mechanism::GlobalPersist | Mechanism::NonvolatileApply);
        let object = self.policy.effective().mechanisms().any(stores).then(|| self.object_name());
        let (events, left) = (self.inner.events(), self.inner.inodes_left());
        let scarce = left < 2 * events && !self.policy.hard_limit;
        let extend = scarce.then_some(self.granted.max(4 * events));
        let part = JournalPart { held: self.take_held(), object, extend };
        let Some(syncer) = &mut self.syncer else { return };
        syncer.under_way += 1;
        if let Some(parts) = &syncer.parts
            && let Err(unsent) = parts.send(part)
        {
            syncer.under_way -= 1;
            syncer.failed = Some(Error::new(Errno::Io, "namespace sync", "its thread is gone"));
            self.keep(unsent.0.held, Reached::default());
        }
    }

    /// Takes the results of merged parts.
    fn take_merged(&mut self) {
        while let Some(syncer) = &self.syncer
            && let Ok(ended) = syncer.ended.try_recv()
        {
            self.take_ended(ended);
        }
    }

    fn take_ended(&mut self, ended: Ended) {
        let Some(syncer) = &mut self.syncer else { return };
        syncer.under_way -= usize::from(!matches!(ended, Ended::Range(_)));
        match ended {
            Ended::Range(range) => self.take_range(range),
            Ended::Merged { part, done, epoch } => {
                syncer.done.absorb(*done);
                self.merged_in = Some(epoch);
                self.owner.next_seq = self.owner.next_seq.max(part.held.next.0);
                self.inner.recycle(part.held.blocks);
            }
            Ended::Failed { part, error, reached } => {
                syncer.failed = Some(error);
                self.keep(part.held, reached);
            }
        }
    }

    /// Waits until all parts are merged, and returns the sum of their results.
    pub(super) fn drain_sync(&mut self) -> Result<Completion> {
        while let Some(syncer) = &self.syncer
            && syncer.under_way > 0
        {
            match syncer.ended.recv() {
                Ok(ended) => self.take_ended(ended),
                Err(_) => {
                    let cause = "the thread that merges ended; what it had is lost";
                    return Err(Error::new(Errno::Io, self.path.to_string(), cause));
                }
            }
        }
        let Some(syncer) = &mut self.syncer else { return Ok(Completion::default()) };
        // The completion tries failed parts again.
        let failed = syncer.failed.take().is_some();
        let done = std::mem::take(&mut syncer.done);
        if failed {
            let when = syncer.when;
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
        let composition = self.visible();
        self.execute(&composition, MergeFlags::default())
    }
}

fn after(time: Timestamp, span: Duration) -> Timestamp {
    let nanos = i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
    Timestamp(time.0.saturating_add(nanos))
}
