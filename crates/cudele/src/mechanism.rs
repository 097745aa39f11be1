//! The mechanisms that a decoupled client completes its policy with, and their composition.
//!
//! Each mechanism works on the same *material*: the client's journal, as a header and closed
//! blocks. They only read it, so members of a parallel composition (`||`) really run at the same
//! time; the journal's memory is given up when all are complete.

mod by_reference;
mod global_persist;
mod local_persist;
mod nonvolatile_apply;
mod volatile_apply;

pub(crate) use by_reference::{Whole, merge as merge_by_reference, merge_proved};
pub(crate) use local_persist::keep_part;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use journal::SegmentHeader;
use policy::{Cell, Composition, Mechanism};
use types::{Errno, Error, Ino, Result, Seq};
use wire::{MergeFlags, MergeReport};

use crate::subtree::Written;
use crate::{Fs, Stage, StateDir};

/// The input of the mechanisms.
#[derive(Debug)]
pub(crate) struct Material<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) state: &'a StateDir,
    pub(crate) subtree: Ino,
    pub(crate) header: SegmentHeader,
    pub(crate) blocks: &'a [Vec<u8>],
    /// How many of the blocks each persist has dealt with before.
    pub(crate) persisted_locally: usize,
    pub(crate) persisted_globally: usize,
    pub(crate) merge: MergeFlags,
    /// Whether the policy asks for merging by reference, and nothing is against it.
    pub(crate) by_reference: bool,
    /// Inode numbers that go back, if the merge gives the subtree back.
    pub(crate) unused: Vec<u8>,
    /// Runs that are written by now, if any are.
    pub(crate) written: Mutex<Option<Written>>,
    /// The journal object, if a mechanism puts the journal into the store.
    pub(crate) object: Option<String>,
    /// Whether the server was asked to apply the journal.
    pub(crate) asked: AtomicBool,
    /// Whether that object holds all of the journal by now.
    pub(crate) stored: AtomicBool,
    /// Mechanisms that are complete.
    pub(crate) completed: Mutex<Vec<Mechanism>>,
}

impl Material<'_> {
    /// Merges by reference, if that is asked for and possible.
    fn by_reference(
        &self,
        flags: MergeFlags,
    ) -> Result<std::result::Result<(MergeReport, MergedBy), MergedBy>> {
        if flags.check
            && !flags.dry_run
            && self.stored.load(Ordering::Acquire)
            && let Some(object) = self.object.as_deref()
            && let Some(last) = self.last_seq()
        {
            // A verifier may have proved the facts that the server would check.
            let (what, unused) =
                ((self.subtree, object, last), wire::UnusedNumbers::new(&self.unused));
            let asked = || self.asked.store(true, Ordering::Release);
            if let Some(merged) = by_reference::merge_proved(self.fs, what, (flags, unused), asked)?
            {
                return Ok(Ok(merged));
            }
        }
        if !self.by_reference || self.blocks.is_empty() {
            return Ok(Err(MergedBy::default()));
        }
        let whole = Whole {
            subtree: self.subtree,
            header: &self.header,
            blocks: self.blocks,
            object: self.object.as_deref(),
            flags,
            unused: wire::UnusedNumbers::new(&self.unused),
        };
        let asked = || self.asked.store(true, Ordering::Release);
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(by_reference::merge(self.fs, &whole, written, asked)?.map_err(MergedBy::value))
    }

    /// The position of the last event.
    fn last_seq(&self) -> Option<Seq> {
        let (block, _) = journal::Block::read(self.blocks.last()?, 0).ok()?;
        Some(Seq(block.first_seq.0 + u64::from(block.count) - 1))
    }

    pub(crate) fn first_seq(&self) -> Seq {
        self.header.first_seq
    }

    /// The journal's bytes: header and blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let blocks: usize = self.blocks.iter().map(Vec::len).sum();
        (journal::segment::HEADER_BYTES + blocks) as u64
    }

    /// How far the mechanisms came.
    pub(crate) fn reached(&self) -> Reached {
        let completed = self.completed.lock().unwrap_or_else(PoisonError::into_inner);
        Reached {
            asked: self.asked.load(Ordering::Acquire),
            on_disk: completed.contains(&Mechanism::LocalPersist),
            stored: self.stored.load(Ordering::Acquire),
        }
    }
}

/// How far a composition came that did not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The request to apply the journal was sent: it may be applied, with any answer.
    pub(crate) asked: bool,
    /// All of the journal is on this disk.
    pub(crate) on_disk: bool,
    /// All of it is in its object.
    pub(crate) stored: bool,
}

impl Reached {
    /// All that a composition can reach.
    pub(crate) fn all(composition: &Composition) -> Self {
        let does = |wanted| composition.contains(wanted);
        Self {
            asked: composition.mechanisms().any(Mechanism::applies),
            on_disk: does(Mechanism::LocalPersist),
            stored: does(Mechanism::GlobalPersist) || does(Mechanism::NonvolatileApply),
        }
    }
}

/// The part of a merge that went by reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MergedBy {
    /// Directories that were written as runs, which the server linked.
    pub runs: u64,
    /// Events that were not sent, because the runs have their results.
    pub events: u64,
    /// From when the runs were in the store until the server had answered, in seconds.
    pub seconds: f64,
    /// Why something was told event by event although the policy asks for runs, in words.
    pub because: Option<&'static str>,
}

impl MergedBy {
    pub(crate) fn value(because: client::ByValue) -> Self {
        Self { because: Some(because.reason()), ..Self::default() }
    }

    /// Of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            events: self.events + other.events,
            seconds: self.seconds + other.seconds,
            because: self.because.or(other.because),
        }
    }
}

/// One mechanism that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Which.
    pub mechanism: Mechanism,
    /// How long it took.
    pub seconds: f64,
    /// Bytes written or transferred.
    pub bytes: u64,
}

/// A composition that was carried out completely: its promise holds now (P-08).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// Events in the journal.
    pub events: u64,
    /// Bytes of the journal.
    pub bytes: u64,
    /// The mechanisms, in the order in which they ended.
    pub steps: Vec<Step>,
    /// How long all of it took, in seconds; less than the sum of the steps if some ran in parallel.
    pub seconds: f64,
    /// The report of the merge, if there was one.
    pub merge: Option<MergeReport>,
    /// How that was told.
    pub merged_by: MergedBy,
    /// Parts that were merged during the job (U-03); their reports are included.
    pub syncs: u64,
}

impl Completion {
    /// Adds an earlier or parallel completion.
    pub(crate) fn absorb(&mut self, other: Completion) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        self.syncs += other.syncs;
        for step in other.steps {
            match self.steps.iter_mut().find(|known| known.mechanism == step.mechanism) {
                Some(known) => {
                    known.seconds += step.seconds;
                    known.bytes += step.bytes;
                }
                None => self.steps.push(step),
            }
        }
        self.merged_by = self.merged_by.and(other.merged_by);
        self.merge = match (self.merge.take(), other.merge) {
            (Some(first), Some(second)) => Some(sum(second, first)),
            (one, other) => one.or(other),
        };
    }
}

/// Carries a composition out on a journal.
///
/// # Errors
/// The first failing member's, saying which it was and which promise holds all the same; members
/// after it in a serial composition do not run. Running the composition again is harmless.
pub(crate) fn execute(composition: &Composition, material: &Material<'_>) -> Result<Completion> {
    let start = Instant::now();
    let mut completion = run(composition, material).map_err(|error| incomplete(error, material))?;
    completion.seconds = start.elapsed().as_secs_f64();
    completion.bytes = material.bytes();
    Ok(completion)
}

/// The error of a member, with the guarantees of the complete members (P-08).
fn incomplete(error: Error, material: &Material<'_>) -> Error {
    let completed = material.completed.lock().unwrap_or_else(PoisonError::into_inner);
    let executed = std::iter::once(Mechanism::AppendClientJournal).chain(completed.iter().copied());
    let holds = Cell::of(&Composition::serial(executed.map(Composition::One)));
    let holds = holds.map_or_else(|| "nothing".to_owned(), |cell| cell.to_string());
    let cause = format!("{}; what holds until it is completed again: {holds}", error.cause);
    if error.remedy.is_empty() {
        return Error { cause, ..error }.remedy("complete it again, which is harmless");
    }
    Error { cause, ..error }
}

fn run(composition: &Composition, material: &Material<'_>) -> Result<Completion> {
    let mut all = Completion::default();
    match composition {
        Composition::Nothing => {}
        Composition::One(mechanism) => {
            material.fs.observed().note(*mechanism, Stage::Begun);
            let completion = one(*mechanism, material)?;
            material.completed.lock().unwrap_or_else(PoisonError::into_inner).push(*mechanism);
            material.fs.observed().note(*mechanism, Stage::Ended);
            return Ok(completion);
        }
        Composition::Serial(members) => {
            for member in members {
                all.absorb(run(member, material)?);
            }
        }
        Composition::Parallel(members) => {
            let results: Vec<_> = std::thread::scope(|scope| {
                let threads = members.iter().map(|member| {
                    let thread = std::thread::Builder::new().name("mechanism".to_owned());
                    (member, thread.spawn_scoped(scope, || run(member, material)))
                });
                let threads: Vec<_> = threads.collect();
                let panicked = |_| Err(Error::new(Errno::Io, "mechanism", "its thread panicked"));
                let finish = |(member, thread): (_, std::io::Result<ScopedJoinHandle<'_, _>>)| {
                    match thread {
                        Ok(thread) => thread.join().unwrap_or_else(panicked),
                        // There can be no more threads: then one runs after the other.
                        Err(_) => run(member, material),
                    }
                };
                threads.into_iter().map(finish).collect()
            });
            for result in results {
                all.absorb(result?);
            }
        }
    }
    Ok(all)
}

fn one(mechanism: Mechanism, material: &Material<'_>) -> Result<Completion> {
    let start = Instant::now();
    let (mut merge, mut merged_by) = (None, MergedBy::default());
    let bytes = match mechanism {
        // The job has appended already.
        Mechanism::AppendClientJournal => return Ok(Completion::default()),
        Mechanism::LocalPersist => local_persist::local_persist(material),
        Mechanism::GlobalPersist => global_persist::global_persist(material),
        Mechanism::VolatileApply => volatile_apply::volatile_apply(material).map(|(report, by)| {
            (merge, merged_by) = (Some(report), by);
            material.bytes()
        }),
        Mechanism::NonvolatileApply => {
            nonvolatile_apply::nonvolatile_apply(material).map(|(report, bytes, by)| {
                (merge, merged_by) = (Some(report), by);
                bytes
            })
        }
        Mechanism::Rpcs | Mechanism::Stream => Err(Error::new(
            Errno::Invalid,
            mechanism.name(),
            "it says how requests are served and cannot be carried out on a journal",
        )),
    };
    let bytes = bytes.map_err(|error| {
        let cause = format!("{} did not complete: {}", mechanism.name(), error.cause);
        Error { cause, ..error }
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Completion {
        steps: vec![Step { mechanism, seconds, bytes }],
        merge,
        merged_by,
        ..Completion::default()
    })
}

/// The sum of two merge reports.
pub(crate) fn sum(first: MergeReport, second: MergeReport) -> MergeReport {
    let mut samples = first.samples;
    samples.extend(second.samples);
    MergeReport {
        events: first.events + second.events,
        created: first.created + second.created,
        replaced: first.replaced + second.replaced,
        rejected: first.rejected + second.rejected,
        verify_nanos: first.verify_nanos + second.verify_nanos,
        apply_nanos: first.apply_nanos + second.apply_nanos,
        samples,
    }
}
