//! Namespace sync (U-03): merges parts of the journal during the job.
//!
//! At an interval, or after so many updates, the events since the last time leave the job as a
//! part, and the job appends to a new journal. The driver executes the mechanisms of the policy on
//! the part, so that other clients see the work grow, in its order.
//!
//! Each part is a journal that begins where the one before ends; the server applies each once,
//! however often clients send it (M-04). A part that cannot be merged returns to the job, with all
//! later parts, until the next completion, which returns the error.
//!
//! Invariant: the job remembers the term of the first merge that a server may have lost, until a
//! completion has merged the lost events again.

use policy::{Mechanism, MergeTrigger, Policy};
use types::{Epoch, Errno, Error, Ino, Result, Span, Timestamp};
use wire::MergeFlags;

use super::{Completion, HeldPart, Material, PartRun, Reached, SubtreeJob};
use crate::RunThreshold;

/// The least time between parts that leave whenever there is nothing else to do.
const IDLE: Span = Span::from_millis(1_000);

/// When parts leave the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncWhen {
    /// After so long.
    pub every: Span,
    /// Also when so many updates are held.
    pub updates: u64,
    /// Only when the part before is merged.
    pub idle: bool,
}

impl SyncWhen {
    /// At an interval.
    #[must_use]
    pub fn every(every: Span) -> Self {
        Self { every, updates: u64::MAX, idle: false }
    }

    /// As the trigger of a policy says (P-03); nothing if the policy merges at the end only, or at
    /// the request of another client.
    #[must_use]
    pub fn of(policy: &Policy) -> Option<Self> {
        let seconds = |seconds: u64| Span(seconds.saturating_mul(1_000_000_000));
        if !policy.applies() {
            return None;
        }
        match policy.merge {
            MergeTrigger::AtEnd | MergeTrigger::OnDemand => None,
            MergeTrigger::Every { seconds: every } => Some(Self::every(seconds(every))),
            MergeTrigger::AtUpdates { count } => {
                let every = seconds(policy::MERGE_SECONDS_MAX);
                Some(Self { updates: count, ..Self::every(every) })
            }
            MergeTrigger::WhenIdle => Some(Self { idle: true, ..Self::every(IDLE) }),
        }
    }
}

/// The next step of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncDue {
    /// None.
    Nothing,
    /// Note the numbers in use, and hand a part over ([`PartSync::hand_over`]).
    Part,
    /// Complete all pending work at once, because earlier journals come first.
    Everything,
}

/// A part of the journal that is being merged.
#[derive(Debug)]
pub struct JournalPart {
    /// The journal.
    pub held: HeldPart,
    /// Its object, if the policy puts journals into the store.
    pub object: Option<String>,
    /// Inode numbers to be asked for, so that appending need not wait for them.
    pub extend: Option<u64>,
}

impl JournalPart {
    /// The input of the mechanisms.
    pub(super) fn material(&self, subtree: Ino, merge: MergeFlags) -> Material<'_> {
        Material {
            subtree,
            header: self.held.header,
            blocks: &self.held.blocks,
            persisted_locally: self.held.persisted.0,
            persisted_globally: self.held.persisted.1,
            merge,
            by_reference: false,
            worth: RunThreshold::default(),
            unused: &[],
            object: self.object.as_deref(),
        }
    }

    /// The number of events.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.held.next.0 - self.held.header.first_seq.0
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct PartSync {
    when: SyncWhen,
    /// The next part leaves then.
    next: Timestamp,
    /// Parts that left and have not come back.
    under_way: usize,
    /// The sum of the results of all parts.
    done: Completion,
    failed: Option<Error>,
}

impl PartSync {
    /// A sync that begins now.
    #[must_use]
    pub fn new(when: SyncWhen, now: Timestamp) -> Self {
        let next = after(now, when.every);
        Self { when, next, under_way: 0, done: Completion::default(), failed: None }
    }

    /// When parts leave.
    #[must_use]
    pub fn when(&self) -> SyncWhen {
        self.when
    }

    /// Parts that left and have not come back.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// The step that is due.
    pub fn due(&mut self, job: &SubtreeJob, now: Timestamp) -> SyncDue {
        let events = job.inner.events();
        if events == 0 || (now < self.next && events < self.when.updates) {
            return SyncDue::Nothing;
        }
        self.next = after(now, self.when.every);
        if (self.when.idle && self.under_way > 0) || self.failed.is_some() {
            return SyncDue::Nothing;
        }
        if job.earlier.is_empty() { SyncDue::Part } else { SyncDue::Everything }
    }

    /// Takes a part out of the job.
    pub fn hand_over(&mut self, job: &mut SubtreeJob) -> JournalPart {
        let stores = |it| matches!(it, Mechanism::GlobalPersist | Mechanism::NonvolatileApply);
        let stores = job.policy.effective().mechanisms().any(stores);
        let object = stores.then(|| job.object_name());
        let (events, left) = (job.inner.events(), job.inner.inodes_left());
        let scarce = left < 2 * events && !job.policy.hard_limit;
        let extend = scarce.then_some(job.granted().max(4 * events));
        self.under_way += 1;
        JournalPart { held: job.take_held(), object, extend }
    }

    /// The merge of a part has ended.
    pub fn ended(&mut self, job: &mut SubtreeJob, run: PartRun) {
        let reached = run.composition.reached();
        match run.result {
            Some(Ok((done, term))) => self.merged(job, run.part, done, term),
            Some(Err(error)) => self.failed(job, run.part, error, reached),
            None => self.failed(job, run.part, Error::of(Errno::Canceled, "part"), reached),
        }
    }

    /// A part is merged, at a server of this term.
    fn merged(&mut self, job: &mut SubtreeJob, part: JournalPart, done: Completion, term: Epoch) {
        self.under_way -= 1;
        self.done.absorb(Completion { events: part.events(), syncs: 1, ..done });
        // A restarted server has lost the parts before this one. The next completion merges those
        // again that Local Persist kept, if it sees the term of the lost ones.
        let lost = job.merged_in.is_some_and(|before| before.is_restarted(term));
        if !(lost && job.may_have_lost()) {
            job.merged_in = Some(term);
        }
        job.note.next_seq = job.note.next_seq.max(part.held.next);
        job.inner.recycle(part.held.blocks);
    }

    /// A part is not merged, or the result is unknown.
    pub fn failed(
        &mut self,
        job: &mut SubtreeJob,
        part: JournalPart,
        error: Error,
        reached: Reached,
    ) {
        self.under_way -= 1;
        self.failed = Some(error);
        job.keep(part.held, reached);
    }

    /// All pending work was completed ([`SyncDue::Everything`]), or a part cannot leave. The events
    /// stay for the next completion, which returns the error.
    pub fn completed(&mut self, result: Result<Completion>) {
        match result {
            Ok(done) => self.done.absorb(Completion { syncs: done.syncs + 1, ..done }),
            Err(error) => self.failed = Some(error),
        }
    }

    /// No part is under way: the sum of the results, and whether a part failed.
    pub fn drained(&mut self) -> (Completion, bool) {
        let failed = self.failed.take().is_some();
        (std::mem::take(&mut self.done), failed)
    }
}

fn after(time: Timestamp, span: Span) -> Timestamp {
    Timestamp(time.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
}

#[cfg(test)]
pub(super) mod tests {
    use namespace::PlannedInode;
    use policy::Cell;
    use types::{Attr, ClientId, Cred, FileType, InoRange, Moment, Seq};

    use super::super::{JobInput, MechanismEffect, MechanismInput, PartEffect};
    use super::*;
    use crate::OwnerNote;

    pub(in crate::job) fn job(cell: &str, events: u64) -> SubtreeJob {
        let cell = Cell::all().find(|known| known.to_string() == cell).expect("a cell");
        let range = InoRange { start: (1 << 40) + 100, end: (1 << 40) + 1100 };
        let (ranges, next_seq) = (vec![range], Seq(1));
        let note = OwnerNote {
            client: ClientId(7),
            ranges,
            next_seq,
            empty: true,
            ..OwnerNote::default()
        };
        let mode = FileType::Directory.mode_bits() | 0o755;
        let root = Attr { ino: Ino((1 << 40) + 1), mode, nlink: 2, ..Attr::default() };
        let mut job = SubtreeJob::new(note, root, Policy::of_cell(cell));
        append(&mut job, events);
        job
    }

    fn append(job: &mut SubtreeJob, events: u64) {
        let (root, next) = (job.root(), job.inner.next_seq().0);
        for number in next..next + events {
            let mode = FileType::Regular.mode_bits() | 0o644;
            let new = PlannedInode { mode, time: Timestamp(1), ..PlannedInode::default() };
            let name = format!("f{number}");
            job.inner.create(&Cred::root(), root, name.as_bytes(), &new).expect("there is room");
        }
    }

    fn second() -> PartSync {
        PartSync::new(SyncWhen::every(Span::from_millis(1000)), Timestamp(0))
    }

    #[test]
    fn a_part_leaves_at_its_time_or_with_so_many_updates() {
        let job = job("weak-none", 3);
        let mut sync = second();
        assert_eq!(sync.due(&job, Timestamp(999_999_999)), SyncDue::Nothing);
        assert_eq!(sync.due(&job, Timestamp(1_000_000_000)), SyncDue::Part);
        assert_eq!(
            sync.due(&job, Timestamp(1_000_000_001)),
            SyncDue::Nothing,
            "the next one later"
        );
        let when = SyncWhen { updates: 3, ..SyncWhen::every(Span::from_millis(1000)) };
        assert_eq!(PartSync::new(when, Timestamp(0)).due(&job, Timestamp(1)), SyncDue::Part);
    }

    #[test]
    fn an_idle_sync_waits_for_the_part_before() {
        let mut job = job("weak-none", 3);
        let when = SyncWhen { idle: true, ..SyncWhen::every(Span(0)) };
        let mut sync = PartSync::new(when, Timestamp(0));
        let first = sync.hand_over(&mut job);
        append(&mut job, 2);
        assert_eq!(sync.due(&job, Timestamp(1)), SyncDue::Nothing);
        sync.merged(&mut job, first, Completion::default(), Epoch(1));
        assert_eq!(sync.due(&job, Timestamp(2)), SyncDue::Part);
    }

    #[test]
    fn parts_follow_each_other_and_their_results_add_up() {
        let mut job = job("weak-none", 3);
        let mut sync = second();
        let first = sync.hand_over(&mut job);
        append(&mut job, 2);
        let second = sync.hand_over(&mut job);
        assert_eq!(first.held.next, second.held.header.first_seq);
        assert_eq!((first.events(), second.events(), sync.under_way()), (3, 2, 2));
        sync.merged(&mut job, first, Completion::default(), Epoch(1));
        sync.merged(&mut job, second, Completion::default(), Epoch(1));
        let (done, failed) = sync.drained();
        assert_eq!((done.events, done.syncs, failed), (5, 2, false));
        assert_eq!((job.merged_in, job.note.next_seq), (Some(Epoch(1)), Seq(6)));
    }

    #[test]
    fn a_failed_part_stays_with_the_job_and_ends_the_sync() {
        let mut job = job("weak-none", 3);
        let mut sync = second();
        let first = sync.hand_over(&mut job);
        append(&mut job, 2);
        let reached = Reached { asked: true, ..Reached::default() };
        sync.failed(&mut job, first, Error::of(Errno::Io, "test"), reached);
        assert_eq!(job.earlier.len(), 1);
        assert_eq!(sync.due(&job, Timestamp(i64::MAX)), SyncDue::Nothing);
        assert!(sync.drained().1);
        assert_eq!(sync.due(&job, Timestamp(i64::MAX)), SyncDue::Everything);
    }

    #[test]
    fn the_term_of_parts_that_a_restarted_server_lost_is_remembered() {
        for (cell, remembered) in [("weak-local", Epoch(1)), ("weak-none", Epoch(2))] {
            let mut job = job(cell, 3);
            let mut sync = second();
            let first = sync.hand_over(&mut job);
            sync.merged(&mut job, first, Completion::default(), Epoch(1));
            append(&mut job, 2);
            let second = sync.hand_over(&mut job);
            sync.merged(&mut job, second, Completion::default(), Epoch(2));
            assert_eq!(job.merged_in, Some(remembered), "{cell}");
        }
    }

    /// Carries a part out, with these results of its mechanisms. Returns the effects.
    fn carry_out(run: &mut PartRun, answer: &Result<wire::Answer>) -> Vec<&'static str> {
        let (mut input, mut effects) = (JobInput::Start, Vec::new());
        while let Some(effect) = run.handle(Moment(1), input) {
            input = match effect {
                PartEffect::Extend(_) => JobInput::Done(Ok(())),
                PartEffect::SyncContent => JobInput::Done(Ok(())),
                PartEffect::Term => JobInput::Term(Epoch(4)),
                PartEffect::Mechanism(MechanismEffect::WriteFile { .. }) => {
                    JobInput::Mechanism(MechanismInput::Bytes(Ok(7)))
                }
                PartEffect::Mechanism(MechanismEffect::Merge(_)) => {
                    JobInput::Mechanism(MechanismInput::Answer(answer.clone()))
                }
                PartEffect::Mechanism(_) => JobInput::Mechanism(MechanismInput::Done(Ok(()))),
            };
            effects.push(match effect {
                PartEffect::Extend(_) => "extend",
                PartEffect::SyncContent => "content",
                PartEffect::Term => "term",
                PartEffect::Mechanism(_) => "mechanism",
            });
        }
        effects.dedup();
        effects
    }

    #[test]
    fn a_part_is_merged_after_its_content_and_a_failure_ends_later_parts() {
        let mut job = job("weak-local", 600);
        let mut sync = second();
        let (root, flags, composition) = (job.root(), job.merge_flags(), job.visible());
        let merged = Ok(wire::Answer::Merged(Box::default()));
        let part = sync.hand_over(&mut job);
        let mut run = PartRun::new(part, root, &composition, flags, None);
        let effects = carry_out(&mut run, &merged);
        assert_eq!(effects, ["extend", "content", "mechanism", "term"]);
        sync.ended(&mut job, run);
        assert_eq!((job.merged_in, sync.under_way()), (Some(Epoch(4)), 0));
        append(&mut job, 2);
        let part = sync.hand_over(&mut job);
        let mut run = PartRun::new(part, root, &composition, flags, None);
        carry_out(&mut run, &Err(Error::of(Errno::Io, "test")));
        let failed = run.error().cloned();
        append(&mut job, 2);
        let part = sync.hand_over(&mut job);
        let mut later = PartRun::new(part, root, &composition, flags, failed);
        assert!(carry_out(&mut later, &merged).iter().all(|effect| *effect == "extend"));
        sync.ended(&mut job, run);
        sync.ended(&mut job, later);
        assert_eq!((job.earlier.len(), sync.drained().1), (2, true));
        let asked = |at: usize| job.earlier[at].sealed.is_some_and(|sealed| sealed.asked);
        assert!(asked(0) && !asked(1));
    }
}
