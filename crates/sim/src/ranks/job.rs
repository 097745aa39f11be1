//! A client that has decoupled a directory, and merges into it while the subtree around it moves
//! (F-13).
//!
//! Its merges are repeated until they are answered, at the rank that has the subtree by then. An
//! answered update must exist from then on, once, under its granted number; and no number is
//! granted twice.

use std::collections::BTreeSet;

use client::{ClientSubtree, Grant, SessionEffects};
use metastore::request::client_journal_name;
use namespace::PlannedInode;
use objstore::{Expect, ObjectStore};
use types::Result as Answered;
use types::{Attr, ClientId, Cred, Errno, FileType, Ino, InoRange, Seq, Timestamp};
use wire::{Answer, JobOp, MergeFlags, Message, Op, UnusedNumbers};

use super::script::Script;
use super::worker::Asked;
use super::{MS, Ranks};

/// The client that does this.
pub(super) const JOB: usize = 4;
/// The name of the directory in one of those that move.
const NAME: &[u8] = b"job";
/// Bytes of a journal in one message.
const CHUNK_BYTES: usize = 700;
/// Names that it makes: a listing has all of them.
const NAMES_MAX: u64 = 2_000;
/// How often it looks for the subtree before it believes that it has it no more.
const LOOKS_MAX: u32 = 4;
/// Other clients may work in it, and an answered merge is in the store.
const POLICY: &[u8] = b"consistency: append_client_journal+volatile_apply\ndurability: none\n";

/// What it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Decouple(Vec<u8>),
    Extend(Ino),
    Merge(Box<Journal>),
}

/// A journal whose merge is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Journal {
    root: Ino,
    bytes: Vec<u8>,
    /// The object it is in; else it follows the request.
    object: String,
    names: Vec<(Vec<u8>, Ino)>,
    release: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Above, and the directory: one of those that move, or one in it.
    above: Ino,
    dir: Ino,
    path: Vec<u8>,
    held: Option<ClientSubtree>,
    next_name: u64,
    looks: u32,
    /// Everything that was ever given to this client.
    given: Vec<InoRange>,
    /// Inodes that servers allocated for other clients.
    made: BTreeSet<Ino>,
    pub(super) merges: u64,
}

impl Step {
    pub(super) fn op(&self) -> Op<'_> {
        match self {
            Self::Decouple(path) => {
                Op::Job(JobOp::Decouple { path, client: ClientId(JOB as u64 + 1), policy: POLICY })
            }
            Self::Extend(subtree) => Op::Job(JobOp::Extend { subtree: *subtree, count: 40 }),
            Self::Merge(journal) => {
                let Journal { root, bytes, object, release, .. } = &**journal;
                let stored = !object.is_empty();
                let flags =
                    MergeFlags { release: *release, store: !stored, ..MergeFlags::default() };
                let bytes = if stored { 0 } else { bytes.len() as u64 };
                let (object, unused) = (object.as_bytes(), UnusedNumbers::default());
                Op::Job(JobOp::Merge { subtree: *root, bytes, object, flags, unused })
            }
        }
    }

    pub(super) fn named(&self) -> Ino {
        match self {
            Self::Decouple(_) => Ino::ROOT,
            Self::Extend(dir) => *dir,
            Self::Merge(journal) => journal.root,
        }
    }

    /// Whether a journal follows the request.
    pub(super) fn has_chunks(&self) -> bool {
        matches!(self, Self::Merge(journal) if journal.object.is_empty())
    }

    /// Whether this step may explain the inode of a name.
    pub(super) fn makes(&self, (dir, name): &(Ino, Vec<u8>), ino: Option<Ino>) -> bool {
        let Self::Merge(journal) = self else { return false };
        let made = |(known, made): &(Vec<u8>, Ino)| known == name && Some(*made) == ino;
        journal.root == *dir && journal.names.iter().any(made)
    }
}

impl Ranks {
    /// The directory that will be decoupled: half of the time it is the root of a moving subtree.
    pub(super) fn begin_job(&mut self) {
        let above = Ino::ROOT;
        let dir = self.workers[0].dirs[0];
        let path = b"/d0".to_vec();
        self.job = Job { above, dir, path, ..Job::default() };
        // The model's client does not look for it in fragments.
        if self.world.settings.split_entries == 0 && self.world.rng.percent(60) {
            self.workers[0].script.push_back(Script::MakeInner(dir, NAME.to_vec()));
        }
    }

    pub(super) fn inner_made(&mut self, parent: Ino, dir: Ino, when: (u64, u64)) {
        self.registers.changed((parent, NAME.to_vec()), Some(dir), when);
        let path = b"/d0/job".to_vec();
        self.job = Job { above: parent, dir, path, ..Job::default() };
    }

    /// The client's next step.
    pub(super) fn choose_job(&mut self) -> Script {
        let dir = self.job.dir;
        if self.job.held.is_none() {
            return Script::Job(Step::Decouple(self.job.path.clone()));
        }
        match self.world.rng.below(10) {
            0 => Script::Job(Step::Extend(dir)),
            number if number <= 4 || self.job.next_name >= NAMES_MAX => {
                let number = self.world.rng.below(self.job.next_name + 1);
                Script::Lookup((dir, format!("m{number}").into_bytes()))
            }
            _ => Script::Job(self.next_merge()),
        }
    }

    fn next_merge(&mut self) -> Step {
        let job = &mut self.job;
        let held = job.held.as_mut().expect("it was asked for");
        let count = self.world.rng.between(1, 30).min(held.inodes_left());
        let mut names = Vec::new();
        for _ in 0..count {
            let name = format!("m{}", job.next_name).into_bytes();
            job.next_name += 1;
            let mode = FileType::Regular.mode_bits() | 0o644;
            let new = PlannedInode { mode, time: Timestamp(1), ..PlannedInode::default() };
            if let Ok(ino) = held.create(&Cred::root(), job.dir, &name, &new) {
                names.push((name, ino));
            }
        }
        let header = held.header();
        let mut bytes = header.encode().to_vec();
        held.blocks().iter().for_each(|block| bytes.extend_from_slice(block));
        held.clear();
        let mut object = String::new();
        if self.world.rng.percent(50) && !names.is_empty() {
            let (client, first) = (ClientId(JOB as u64 + 1), header.first_seq.0);
            object = client_journal_name(job.dir, client, job.given[0], first);
            let put = self.world.memory.put(&object, &bytes, Expect::Any);
            assert!(put.is_ok(), "memory takes everything");
        }
        let release = self.world.rng.percent(20);
        Step::Merge(Box::new(Journal { root: job.dir, bytes, object, names, release }))
    }

    /// The frames of a journal behind its request.
    pub(super) fn chunks_of(script: &Script, tid: types::Tid, effects: &mut SessionEffects) {
        let Script::Job(Step::Merge(journal)) = script else { return };
        if journal.object.is_empty() {
            for bytes in journal.bytes.chunks(CHUNK_BYTES) {
                Message::Chunk { tid, bytes }.append_frame(&mut effects.frames);
            }
        }
    }

    /// A step was answered. Says whether that was all of it.
    pub(super) fn job_answered(
        &mut self,
        client: usize,
        asked: Asked,
        result: &Answered<Answer>,
    ) -> Result<(), &'static str> {
        let when = (asked.at, self.world.now);
        let Script::Job(step) = asked.script.clone() else { return Ok(()) };
        match (&step, result) {
            (Step::Decouple(_), Ok(Answer::Decoupled(decoupled))) => {
                let wire::Decoupled { root, range, epoch, .. } = *decoupled;
                self.job_given(range)?;
                self.job.given.insert(0, range);
                let (client, empty) = (ClientId(JOB as u64 + 1), false);
                let root = Attr { ino: self.job.dir, ..root };
                let grant = Grant { client, root, range, epoch, empty, check: false };
                self.job.held = Some(ClientSubtree::new(grant, Seq(1)));
            }
            // Another rank has it, or it is moving: only rank 0 decouples it here.
            (Step::Decouple(_), Err(failure)) if failure.errno == Errno::Busy => {
                let looks = Script::Lookup((self.job.dir, b"m0".to_vec()));
                self.workers[JOB].script.push_back(looks);
            }
            (Step::Extend(_), Ok(Answer::Range(range))) => {
                self.job_given(*range)?;
                self.job.given.push(*range);
                self.job.held.iter_mut().for_each(|held| held.extend(*range));
            }
            // It was merged, and the store has that: only its answer was lost.
            (Step::Merge(journal), Err(failure))
                if failure.errno == Errno::NotFound && !journal.object.is_empty() =>
            {
                self.job_merged(journal, when);
            }
            (Step::Merge(journal), Ok(Answer::Merged(_))) => self.job_merged(journal, when),
            (_, Err(failure)) if failure.errno == Errno::Stale => {
                self.job.looks += 1;
                if self.job.looks < LOOKS_MAX {
                    self.again(client, asked.script, MS);
                    return Ok(());
                }
                self.job.looks = 0;
                match step {
                    // It was done: only its answer was lost.
                    Step::Merge(journal) if journal.release => self.job_merged(&journal, when),
                    _ => return Err("the subtree is nobody's"),
                }
            }
            _ => return Err("no such answer was possible"),
        }
        self.job.looks = 0;
        Ok(())
    }

    /// The directory, if it is in one of those that move: then it moves, too.
    pub(super) fn inner(&self) -> Option<Ino> {
        (self.job.above != Ino::ROOT).then_some(self.job.dir)
    }

    /// The path of the directory, if it is in one of those that move.
    pub(super) fn path_of_job(&self, dir: Ino) -> Option<Vec<u8>> {
        (self.inner() == Some(dir)).then(|| self.job.path.clone())
    }

    fn job_merged(&mut self, journal: &Journal, when: (u64, u64)) {
        for (name, ino) in &journal.names {
            self.registers.changed((journal.root, name.clone()), Some(*ino), when);
        }
        self.job.merges += 1;
        if journal.release {
            self.job.held = None;
        }
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
