//! A client that has decoupled a directory, and merges into it while the subtree around it moves
//! (F-13).
//!
//! Its merges are repeated until they are answered, at the rank that has the subtree by then. An
//! answered update must exist from then on, once, under its granted number; and no number is
//! granted twice.

use std::collections::BTreeSet;

use namespace::PlannedInode;
use policy::{Composition, Mechanism, Policy};
use types::Result as Answered;
use types::{Attr, ClientId, Cred, Errno, FileType, Ino, InoRange, Timestamp};
use wire::{Answer, MergeFlags};

use super::Ranks;
use super::register::Place;
use super::script::{Role, Script};
use crate::call::CallKind;
use crate::jobs::{JobStep, RunningJob};

/// The client that does this.
pub(super) const JOB: usize = 4;
const JOB_ID: ClientId = ClientId(JOB as u64 + 1);
/// The name of the directory in one of those that move.
const NAME: &str = "job";
/// Names that it makes: a listing has all of them.
const NAMES_MAX: u64 = 2_000;
/// How often it looks for the subtree before it believes that it has it no more.
const LOOKS_MAX: u32 = 4;
/// Other clients may work in it. An answered merge is in the store, by one of these two.
const POLICY: &str = "consistency: append_client_journal+volatile_apply\ndurability: none\n";

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Above, and the directory: one of those that move, or one in it.
    above: Ino,
    dir: Ino,
    path: String,
    held: Option<RunningJob>,
    /// Names whose merge has no answer yet, and the time since which it may be there.
    pending: Vec<(String, Ino)>,
    began: u64,
    /// The merge that is under way gives the subtree back.
    releasing: bool,
    next_name: u64,
    looks: u32,
    /// Everything that was ever given to this client.
    given: Vec<InoRange>,
    /// Inodes that servers allocated for other clients.
    made: BTreeSet<Ino>,
    pub(super) merges: u64,
}

impl Job {
    /// Whether a merge is to be made again.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty() || self.releasing
    }

    /// Whether a merge may explain the inode of a name.
    pub(super) fn makes(&self, (dir, name): &Place, ino: Option<Ino>) -> bool {
        let made = |(known, made): &(String, Ino)| known == name && Some(*made) == ino;
        self.dir == *dir && self.pending.iter().any(made)
    }
}

impl Ranks {
    /// The directory that will be decoupled: half of the time it is the root of a moving subtree.
    pub(super) fn begin_job(&mut self) {
        let above = Ino::ROOT;
        let dir = self.workers[0].dirs[0];
        let path = "/d0".to_owned();
        self.job = Job { above, dir, path, ..Job::default() };
        // The model's client does not look for it in fragments.
        if self.world.settings.split_entries == 0 && self.world.rng.percent(60) {
            let role = Role::MakeInner;
            self.workers[0].script.push_back(Script { role, ..Script::make_dir(dir, NAME) });
        }
    }

    pub(super) fn inner_made(&mut self, parent: Ino, dir: Ino) {
        let path = "/d0/job".to_owned();
        self.job = Job { above: parent, dir, path, ..Job::default() };
    }

    /// The client's next step.
    pub(super) fn choose_job(&mut self) -> Script {
        let dir = self.job.dir;
        if self.job.held.is_none() {
            let (path, client) = (self.job.path.clone(), JOB_ID);
            return of_job(CallKind::Decouple { path, client, policy: POLICY.to_owned() }, None);
        }
        let extend = CallKind::Extend { subtree: dir, count: 40 };
        match self.world.rng.below(10) {
            _ if self.job.is_pending() => self.next_merge(),
            0 => None,
            number if number <= 4 || self.job.next_name >= NAMES_MAX => {
                let number = self.world.rng.below(self.job.next_name + 1);
                Some(Script::look_up((dir, format!("m{number}"))))
            }
            _ => {
                self.append();
                self.next_merge()
            }
        }
        .unwrap_or_else(|| of_job(extend, None))
    }

    fn append(&mut self) {
        let job = &mut self.job;
        let Some(held) = &mut job.held else { return };
        let count = self.world.rng.between(1, 30).min(held.job.inner.inodes_left());
        for _ in 0..count {
            let name = format!("m{}", job.next_name);
            job.next_name += 1;
            let mode = FileType::Regular.mode_bits() | 0o644;
            let new = PlannedInode { mode, time: Timestamp(1), ..PlannedInode::default() };
            let inner = &mut held.job.inner;
            if let Ok(ino) = inner.create(&Cred::root(), job.dir, name.as_bytes(), &new) {
                job.pending.push((name, ino));
            }
        }
        (job.began, job.releasing) = (self.world.now, self.world.rng.percent(20));
    }

    /// Begins to merge, perhaps again.
    fn next_merge(&mut self) -> Option<Script> {
        let stored = [Mechanism::GlobalPersist, Mechanism::VolatileApply];
        let composition = if self.world.rng.percent(50) {
            Composition::serial(stored.map(Composition::One))
        } else {
            Composition::One(Mechanism::NonvolatileApply)
        };
        let flags = MergeFlags { release: self.job.releasing, ..MergeFlags::default() };
        self.job.held.as_mut()?.begin(&composition, flags);
        match self.pursue_job(None)? {
            JobStep::Ask(call, journal, _) => Some(of_job(call, journal)),
            JobStep::Done(_) => None,
        }
    }

    fn pursue_job(&mut self, answer: Option<Answered<Answer>>) -> Option<JobStep> {
        let rank = self.world.clients[JOB].router.place(self.job.dir);
        let epoch = self.world.link(JOB, rank).session.epoch();
        let (now, held) = (self.world.moment(), self.job.held.as_mut()?);
        Some(held.pursue(&self.world.memory, now, epoch.at(rank), answer))
    }

    /// A step was answered. Says whether that was all of it.
    pub(super) fn job_answered(
        &mut self,
        script: &Script,
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        match (&script.call, result) {
            (CallKind::Decouple { .. }, Ok(Answer::Decoupled(decoupled))) => {
                let range = decoupled.range;
                self.job_given(range)?;
                self.job.given.insert(0, range);
                let policy = Policy::parse(POLICY).map_err(|_| "a policy that is not one")?.policy;
                let root = Attr { ino: self.job.dir, ..decoupled.root };
                let granted = wire::Decoupled { root, ..decoupled.clone() };
                self.job.held = Some(RunningJob::new(JOB_ID, &granted, policy, false));
            }
            // Another rank has it, or it is moving: only rank 0 decouples it here.
            (CallKind::Decouple { .. }, Err(failure)) if failure.errno == Errno::Busy => {
                let looks = Script::look_up((self.job.dir, "m0".to_owned()));
                self.workers[JOB].script.push_back(looks);
            }
            (CallKind::Extend { .. }, Ok(Answer::Range(range))) => {
                self.job_given(*range)?;
                self.job.given.push(*range);
                self.job.held.iter_mut().for_each(|held| held.job.take_range(*range));
            }
            (CallKind::Merge { .. }, result) => return self.merge_answered(result.clone()),
            _ => return Err("no such answer was possible"),
        }
        Ok(())
    }

    fn merge_answered(&mut self, answer: Answered<Answer>) -> Result<(), &'static str> {
        let done = match self.pursue_job(Some(answer)) {
            Some(JobStep::Ask(call, journal, _)) => {
                self.workers[JOB].script.push_front(of_job(call, journal));
                return Ok(());
            }
            Some(JobStep::Done(done)) => done.map_err(|error| error.errno),
            None => return Err("nothing was asked"),
        };
        match done {
            Ok(_) => {}
            // The object is gone if the server that merged it ended before its answer: the next run
            // finds that out.
            Err(Errno::Again | Errno::Io | Errno::NotFound) => return Ok(()),
            Err(Errno::Stale) if self.job.looks < LOOKS_MAX => {
                self.job.looks += 1;
                return Ok(());
            }
            // It was done: only its answer was lost.
            Err(Errno::Stale) if self.job.releasing => {}
            Err(Errno::Stale) => return Err("the subtree is nobody's"),
            Err(_) => return Err("no such answer was possible"),
        }
        let (when, job) = ((self.job.began, self.world.now), &mut self.job);
        for (name, ino) in std::mem::take(&mut job.pending) {
            self.registers.changed((job.dir, name), Some(ino), when);
        }
        (job.merges, job.looks) = (job.merges + 1, 0);
        if std::mem::take(&mut job.releasing) {
            job.held = None;
        }
        Ok(())
    }

    /// The directory, if it is in one of those that move: then it moves, too.
    pub(super) fn inner(&self) -> Option<Ino> {
        (self.job.above != Ino::ROOT).then_some(self.job.dir)
    }

    /// The path of the directory, if it is in one of those that move.
    pub(super) fn path_of_job(&self, dir: Ino) -> Option<String> {
        (self.inner() == Some(dir)).then(|| self.job.path.clone())
    }

    fn job_given(&mut self, range: InoRange) -> Result<(), &'static str> {
        let twice = |other: &InoRange| range.start < other.end && other.start < range.end;
        if self.job.given.iter().any(twice) || self.job.made.iter().any(|ino| range.contains(*ino))
        {
            return Err("numbers were given twice");
        }
        Ok(())
    }

    /// A server allocated an inode for a client.
    pub(super) fn number_used(&mut self, ino: Ino) -> Result<(), &'static str> {
        let given = self.job.given.iter().any(|range| range.contains(ino));
        if given || !self.job.made.insert(ino) {
            return Err("a number was given twice");
        }
        Ok(())
    }

    /// Whether a directory is the one that is decoupled, or the one above it.
    pub(super) fn is_about_job(&self, dir: Ino) -> bool {
        dir == self.job.dir || dir == self.job.above
    }
}

fn of_job(call: CallKind, journal: Option<Vec<u8>>) -> Script {
    Script { call, role: Role::Job(journal) }
}
